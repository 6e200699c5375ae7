"""Captures graphs whose memory is the arena's, and prints what is wrong with it and what was reserved."""

import gc
import json

import torch
from torch import nn

wrong = []
MIB = 1 << 20


def check(what, holds):
    if not holds:
        wrong.append(what)


def segments(pool=None):
    """Segments of pools of graphs: of one, or of all."""
    found = torch.cuda.memory_snapshot()
    return [part for part in found if (tuple(part["segment_pool_id"]) == pool if pool else tuple(part["segment_pool_id"]) != (0, 0))]


def inside(tensor, parts):
    return any(part["address"] <= tensor.data_ptr() < part["address"] + part["total_size"] for part in parts)


class Wide(nn.Module):
    """Layers whose intermediate tensors all have other sizes."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width * (i % 3 + 1), width * ((i + 1) % 3 + 1)) for i in range(layers))

    def forward(self, x):
        kept = []
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
            kept.append(x)
        return x + sum(part.mean() for part in kept)


def capture(model, shape, pool):
    static = torch.zeros(shape, 512, device="cuda")
    model(static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        output = model(static)
    return graph, static, output


# Eight shapes in one pool: what they need together is what the largest needs, and the outputs.
model = Wide(512, 12).requires_grad_(False)
model.cuda()
before = torch.cuda.memory_reserved()
pool = torch.cuda.graph_pool_handle()
graphs = []
live, needed = 0, 0
for shape in (300, 700, 1300, 2100, 3300, 5100, 7900, 12100):
    static = torch.zeros(shape, 512, device="cuda")
    model(static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        output = model(static)
        needed = max(needed, live + torch.cuda.max_memory_allocated() - start)
        live += torch.cuda.memory_allocated() - start
    graphs.append((graph, static, output))
held = sum(part["total_size"] for part in segments(pool))
check("outputs lie in the pool", all(inside(output, segments(pool)) for _, _, output in graphs))
check("what is static does not", not any(inside(static, segments()) for _, static, _ in graphs))
stats = torch.cuda.memory_stats()
check("a snapshot's segments add up", sum(part["total_size"] for part in torch.cuda.memory_snapshot()) == torch.cuda.memory_reserved())
active = sum(part["active_size"] for part in torch.cuda.memory_snapshot())
check("and so do its blocks", active == stats["active_bytes.all.current"])
nested = torch.cuda.memory_stats_as_nested_dict().get("reserved_bytes_by_private_pools")
check("the pool's share is told", nested is None or nested[pool]["all"]["current"] == held)

# Replays in any order, and between them requests, of which none gets memory of the pool.
for index in [*range(7, -1, -1), *range(0, 8, 2), *range(8)]:
    graphs[index][0].replay()
    other = [torch.empty(n * 300_000, device="cuda") for n in range(1, 12)]
    check("nobody else is in the pool", not any(inside(tensor, segments()) for tensor in other))
del other
pools_of_the_programs_own = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pools_of_the_programs_own):
    own = torch.empty(5 * MIB, device="cuda")
check("a pool that the program makes is its own", inside(own, segments(pools_of_the_programs_own.id)))
del own, pools_of_the_programs_own

# A graph less: the others keep what they have. The last one less: all goes back, but what an output is on.
del graphs[0], graph
gc.collect()
torch.cuda.empty_cache()
check("the pool stays while a graph does", sum(part["total_size"] for part in segments(pool)) == held)
kept = graphs[-1][2]
del graphs, output
gc.collect()
torch.cuda.empty_cache()
rest = sum(part["total_size"] for part in segments(pool))
check(f"an output outlives its graph: {rest}", kept.nbytes <= rest <= 2 * kept.nbytes)
del kept, static
gc.collect()
torch.cuda.empty_cache()
check("all of it is back", segments() == [] and torch.cuda.memory_reserved() <= before + 2 * MIB)
nested = torch.cuda.memory_stats_as_nested_dict().get("reserved_bytes_by_private_pools")
check("a pool's figures stay", nested is None or nested[pool]["all"]["current"] == 0 < nested[pool]["all"]["peak"])
one = capture(model, 400, None)
check("a graph has a pool of its own where none is named", len({tuple(part["segment_pool_id"]) for part in segments()}) == 1)
del one
gc.collect()
torch.cuda.empty_cache()

# Layers, forward and backward, each a graph.
trained = Wide(256, 6).cuda()
example = torch.randn(600, 256, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(tuple(trained.layers), tuple(
    (torch.randn(600, layer.in_features, device="cuda", requires_grad=True),) for layer in trained.layers
))
trained.layers = nn.ModuleList(graphed)
optimizer = torch.optim.AdamW(trained.parameters())
for _ in range(3):
    trained(example).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
check("layers have one pool", len({tuple(part["segment_pool_id"]) for part in segments()}) == 1)
del trained, graphed, optimizer, example
gc.collect()
torch.cuda.empty_cache()

# Graph trees: paths that part, so that the pool's state is put back to what it was.
nets = Wide(256, 6).cuda(), Wide(256, 3).cuda()
compiled, second = (torch.compile(net, backend="cudagraphs") for net in nets)
for turn in range(9):
    torch.compiler.cudagraph_mark_step_begin()
    first = compiled(torch.randn(64, 256, device="cuda"))
    if turn % 2:
        first = second(first)
    if turn % 3:
        first = compiled(first)
    first.sum().backward()
    del first
    for net in nets:
        net.zero_grad()
held_by_trees = {tuple(part["segment_pool_id"]) for part in segments()}
check(f"trees have a pool: {held_by_trees}", len(held_by_trees) == 1)

print(json.dumps({"wrong": wrong, "held": held, "needed": needed}))
