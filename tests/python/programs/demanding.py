"""Trains under a plan and asks PyTorch for everything at once that goes wrong easily; prints what is wrong.

With "compile" it also runs a model in the mode of torch.compile that keeps its memory in CUDA graphs. It ends with live
tensors in every place from which they can outlive the interpreter.
"""

import atexit
import gc
import json
import re
import sys
import threading

import torch
from gpt_step import Trainer

import stalloc

wrong = []
gib = 1 << 30


def check(what, holds):
    if not holds:
        wrong.append(what)


def share(work):
    """Share of the requests of some work that were at planned offsets."""
    before = stalloc.memory_stats()
    work()
    after = stalloc.memory_stats()
    return (after["planned"] - before["planned"]) / (after["requests"] - before["requests"])


def overlaps():
    """Live ranges that were handed out twice, by PyTorch's history."""
    live, found = {}, 0
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        start, size = entry["addr"] if "addr" in entry else 0, entry["size"]
        if entry["action"] == "alloc":
            found += any(start < other + length and other < start + size for other, length in live.items())
            live[start] = size
        elif entry["action"] == "free_completed":
            found += live.pop(start, None) is None
    return found


torch.cuda.memory._record_memory_history(max_entries=1000000, context=None)
trainer = Trainer()
for _ in range(3):
    trainer.step()

# Out of memory: PyTorch's exception, whose figures add up, and the job goes on.
hoard, error = [], None
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: seen.append(size))
try:
    while True:
        hoard.append(torch.empty(4 * gib, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as caught:
    error = str(caught)
stats = torch.cuda.memory_stats()
check("frameworks know the words", "CUDA out of memory. Tried to allocate 4.00 GiB" in error)
check("it is counted once", stats["num_ooms"] == 1)
check("observers are told", set(seen) == {4 * gib})
units = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": gib}
said = [float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (bytes|KiB|MiB|GiB)", error)]
_, total, free, allocated, idle = said
slack = gib / 50  # two decimals
check("allocated adds up", abs(allocated - torch.cuda.memory_allocated()) < slack)
check("reserved adds up", abs(allocated + idle - torch.cuda.memory_reserved()) < slack)
check("there is room for both", free + allocated + idle <= total + slack)
check("free is what was not enough", free < 4 * gib + slack)
hoard.clear()
torch.cuda.empty_cache()
check("what was hoarded is back", torch.cuda.memory_reserved() < gib)
trainer.step()
check(f"after it the job is back on its plan: {share(trainer.step)}", share(trainer.step) > 0.99)

# Two streams: what one still uses is not handed out, and the history says when it no longer does.
side = torch.cuda.Stream()
for _ in range(4):
    used = torch.empty(1 << 20, device="cuda")
    used.record_stream(side)
    with torch.cuda.stream(side):
        partner = torch.empty(1 << 20, device="cuda")
    partner.record_stream(torch.cuda.current_stream())
    del used, partner
    trainer.step()
trace = torch.cuda.memory._snapshot()["device_traces"][0]
ends = [entry["action"] for entry in trace if entry["action"].startswith("free")]
neighbours = sum(pair == ("free_requested", "free_completed") for pair in zip(ends, ends[1:]))
check("some blocks wait for another stream after they were given back", neighbours < ends.count("free_requested"))
check("no block ends before it is given back", ends.count("free_completed") <= ends.count("free_requested"))

# A private pool, whose tensors are PyTorch's own allocator's, amid a step.
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    pooled = [torch.empty(n << 18, device="cuda") for n in range(1, 20)]
    trainer.step()
addresses = {tensor.data_ptr() for tensor in pooled}
places = {segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()}
check("a pool is a pool of its own", len(places) == 2)
del pooled, pool

# Workers that are forked amid all this: what they let go of is their copy.
kept = [torch.empty(n * 999, device="cuda") for n in range(1, 200)]
before = torch.cuda.memory_allocated()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        kept.clear()
        if index == 0:
            gc.collect()
        return torch.full((4,), index)


stop = threading.Event()


def busy():
    while not stop.wait(0.01):
        torch.empty(123_456, device="cuda")


thread = threading.Thread(target=busy)
thread.start()
loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=300)
check("forked workers work", sum(int(batch.sum()) for batch in loader) == 4 * sum(range(32)))
stop.set()
thread.join()
check("and take nothing from their parent", torch.cuda.memory_allocated() == before)
trainer.step()
check("the job stays on its plan", share(trainer.step) > 0.99)

if "compile" in sys.argv:
    small = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
    compiled = torch.compile(small, backend="cudagraphs")  # reduce-overhead without the code generator
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        compiled(torch.randn(8, 64, device="cuda")).sum().backward()
        small.zero_grad()
    check("its graphs have a pool", len({s["segment_pool_id"] for s in torch.cuda.memory_snapshot()}) == 2)
    trainer.step()
    check("graphs leave the plan to the others", share(trainer.step) > 0.99)

check("no two live tensors overlap", overlaps() == 0)
print(json.dumps({"wrong": wrong}))


# What outlives the interpreter: in a thread that never ends, in a cycle, in the last functions that it calls.
def hold():
    held = [torch.empty(n << 10, device="cuda") for n in range(1, 50)]
    threading.Event().wait()
    held.clear()


threading.Thread(target=hold, daemon=True).start()
cycle = [torch.empty(1 << 20, device="cuda")]
cycle.append(cycle)
atexit.register(lambda: (kept.clear(), kept.append(torch.empty(1 << 20, device="cuda"))))
