"""Graph workloads: what is reserved for what they need, under PyTorch's pools, with expandable segments, and under stalloc.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/graphs.py [--write]      # on the stand-in GPU

What a workload needs: the most bytes that live outside of graphs, and with them, for each pool of graphs, the most that lived in it
so far. A captured graph needs at its replay what it freed while it was captured, so that a pool's need does not become less before
its graphs are gone.
"""

import ctypes
import json
import tempfile

from lib import processes

WAYS = ("native", "expandable", "stalloc")
#: Sizes of the blocks that mark where a pool is allocated to, bytes; nothing else is of these sizes.
BEGINS, ENDS = 54321, 54322
SHAPES = (1, 3, 6, 10, 16, 24, 40, 64)


def memory_calls() -> int:
    """How often the stand-in GPU was asked for memory, for its mapping, or to take it back."""
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(None).stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["memory_calls"]


class Needed:
    """Follows PyTorch's history: what lives in each pool, and what is needed in all."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
        self.pools: list[object] = []
        self.calls: list[int] = []  # of the driver for memory, in each capture
        for owner, begin, end in (
            (torch.cuda.CUDAGraph, "capture_begin", "capture_end"),
            (torch._C, "_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool"),
        ):
            self.mark(owner, begin, BEGINS, is_begin=True)
            self.mark(owner, end, ENDS, is_begin=False)

    def mark(self, owner, name: str, size: int, is_begin: bool) -> None:
        """Leaves a small block in the history before a pool is allocated to, and after it."""
        function, torch = getattr(owner, name), self.torch

        def marked(*arguments, **options):
            if not is_begin:
                self.calls[-1] += memory_calls()
                function(*arguments, **options)
            torch.empty(size, dtype=torch.uint8, device="cuda")
            if is_begin:
                pools = [value for value in (*arguments, *options.values()) if isinstance(value, tuple)]
                self.pools.append(pools[0] if pools else object())
                function(*arguments, **options)
                self.calls.append(-memory_calls())

        setattr(owner, name, marked)

    def figures(self) -> dict[str, int]:
        torch = self.torch
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats()
        live: dict[object, int] = {}
        most: dict[object, int] = {}
        blocks: dict[int, tuple[object, int]] = {}
        now = needed = 0
        pool, pools = None, iter(self.pools)
        for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
            address, size = entry.get("addr"), (entry["size"] + 511) // 512 * 512
            if entry["action"] == "alloc" and entry["size"] in (BEGINS, ENDS):
                pool = next(pools) if entry["size"] == BEGINS else None
            elif entry["action"] == "alloc":
                blocks[address] = pool, size
                live[pool] = live.get(pool, 0) + size
                most[pool] = max(most.get(pool, 0), live[pool])
            elif entry["action"] == "free_completed" and address in blocks:
                of, size = blocks.pop(address)
                live[of] -= size
            now = live.get(None, 0) + sum(value for key, value in most.items() if key is not None)
            needed = max(needed, now)
        return {
            "needed": needed,
            "needed_at_end": now,
            "reserved": stats["reserved_bytes.all.peak"],
            "reserved_at_end": stats["reserved_bytes.all.current"],
            "captures": len(self.calls),
            "calls": sum(self.calls),
        }


def model():
    return processes.model(length=512, width=768, heads=12)


def shapes(order):
    """As an inference server does: one graph for each size of batch, all in one pool, outputs kept."""
    import torch

    net = model()
    pool = torch.cuda.graph_pool_handle()
    graphs = []
    with torch.no_grad():
        for batch in order:
            text = torch.zeros(batch, 129, dtype=torch.long, device="cuda")
            net(text)  # warms up
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                loss = net(text)
            graphs.append((graph, text, loss))
        for graph, *_ in graphs[::-1] + graphs:
            graph.replay()
    return net, graphs


def ascending():
    """Inference, 8 sizes of batch from 1 to 64, smallest first."""
    return shapes(SHAPES)


def descending():
    """The same, largest first."""
    return shapes(SHAPES[::-1])


def training():
    """Training, forward and backward, 6 lengths of text."""
    import torch

    net = model()
    pool, graphs = torch.cuda.graph_pool_handle(), []
    for length in (65, 129, 193, 257, 385, 513):
        text = torch.zeros(8, length, dtype=torch.long, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(text).backward()
        torch.cuda.current_stream().wait_stream(side)
        net.zero_grad(set_to_none=False)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            net(text).backward()
        graphs.append(graph)
    for graph in graphs:
        graph.replay()
    return net, graphs


def layers():
    """Training, a graph for each layer (`make_graphed_callables`)."""
    import torch

    net = model()
    example = torch.randn(8, 512, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    blocks = torch.cuda.make_graphed_callables(tuple(net.blocks), ((example,),) * len(net.blocks))
    net.blocks = torch.nn.ModuleList(blocks)
    optimizer = torch.optim.AdamW(net.parameters())
    text = torch.zeros(8, 513, dtype=torch.long, device="cuda")
    for _ in range(4):
        net(text).backward()
        optimizer.step()
        optimizer.zero_grad()
    return net, optimizer


def compiled():
    """Training, graph trees (`torch.compile`, reduce-overhead), 3 lengths of text."""
    import torch

    torch._dynamo.config.automatic_dynamic_shapes = False
    net = model()
    run = torch.compile(net, backend="cudagraphs")
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(4):
        for length in (129, 257, 513):
            text = torch.zeros(8, length, dtype=torch.long, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            run(text).backward()
            optimizer.step()
            optimizer.zero_grad()
    return net, optimizer


WORKLOADS = (ascending, descending, training, layers, compiled)


def measure(workload, way: str) -> dict[str, int]:
    if way == "stalloc":  # without its setting, a device that is not full keeps mapped what once was
        return processes.measure(workload, "run", STALLOC_TIGHT="1")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if way == "expandable" else {}
    with tempfile.TemporaryDirectory() as folder:
        return processes.measure(workload, "trace", "-o", folder, **settings)  # PyTorch's allocator stays as it is


def row(workload) -> list[str]:
    found = {way: measure(workload, way) for way in WAYS}
    needed = found["stalloc"]
    return [
        f"{needed['needed'] >> 20:,} · {needed['needed_at_end'] >> 20:,}",
        *(f"{way['reserved'] / way['needed']:.3f} · {way['reserved_at_end'] / way['needed_at_end']:.3f}" for way in found.values()),
        " · ".join(f"{way['calls'] / way['captures']:.1f}" for way in found.values()),
    ]


if __name__ == "__main__":
    head = ["workload", "needed, MiB", "PyTorch", "expandable segments", "stalloc", "calls in a capture"]
    processes.main(WORKLOADS, lambda: Needed().figures, row, head, "graphs")
