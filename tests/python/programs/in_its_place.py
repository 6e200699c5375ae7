"""Trains, strays and asks for statistics, with whichever allocator is there; prints what PyTorch says of its memory.

The figures are of what the program asked for, so they are the same with every allocator. What only stalloc can be
asked is asked if it is there; `wrong` says what was not as it should be.
"""

import gc
import json
import os
import re
import threading

import torch
from gpt_step import Trainer

import stalloc

wrong = []
served = os.environ.get("STALLOC_MODE") == "Alloc"
gib = 1 << 30


def check(what, holds):
    if not holds:
        wrong.append(what)


def overlaps(trace):
    """Live ranges that were handed out twice, by a history."""
    live, found = {}, 0
    for entry in trace:
        if entry["action"] == "alloc":
            start, size = entry["addr"], entry["size"]
            found += any(start < other + length and other < start + size for other, length in live.items())
            live[start] = size
        elif entry["action"] == "free_completed":
            live.pop(entry["addr"], None)
    return found


def figures():
    stats = torch.cuda.memory_stats()
    kinds = ["current", "peak", "allocated", "freed"]
    counted = {name: kinds for name in ["allocated_bytes", "allocation"]}
    # PyTorch takes a block's bytes off these only when other streams are done with it.
    counted["requested_bytes"] = ["peak", "allocated"]
    return {
        f"{name}.{pool}.{kind}": stats[f"{name}.{pool}.{kind}"]
        for name, kinds in counted.items()
        for pool in ["all", "small_pool", "large_pool"]
        for kind in kinds
    }


check("nothing is asked of a GPU that sleeps", torch.cuda.memory_allocated() == 0 and torch.cuda.memory_stats() == {})
torch.cuda.init()
torch.cuda.memory._record_memory_history(max_entries=1000000, context=None)
log = [figures()]
trainer = Trainer()
kept = []
for step in range(8):
    if step == 3:
        kept.append(torch.empty(12345, device="cuda"))  # for ever
        trainer.step(rows=5)
    if step == 4:
        try:
            trainer.step(rows=-1)
        except RuntimeError:
            trainer.optimizer.zero_grad()
    if step == 5:
        thread = threading.Thread(target=lambda: [torch.empty(n * 999, device="cuda") for n in range(1, 50)])
        thread.start()
        thread.join()
    if step == 6:
        side = torch.cuda.Stream()
        used = torch.empty(1 << 20, device="cuda")
        used.record_stream(side)
        del used
        states = {block["state"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]}
        check("a block that another stream uses waits for it", "active_pending_free" in states)
    torch.cuda.empty_cache()
    if step == 7:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
    before = stalloc.memory_stats() if served else {}
    trainer.step()
    gc.collect()
    log.append(figures())
if served:
    after = stalloc.memory_stats()
    share = (after["planned"] - before["planned"]) / (after["requests"] - before["requests"])
    check(f"the last step is on its plan: {share}", share > 0.99)

snapshot = torch.cuda.memory._snapshot()
trace = snapshot["device_traces"][0]
check("the history holds the steps", sum(entry["action"] == "alloc" for entry in trace) > 1000)
check("the history is in order", all(a["time_us"] <= b["time_us"] for a, b in zip(trace, trace[1:])))
check("no two live tensors overlap", overlaps(trace) == 0)
torch.cuda.memory._record_memory_history(enabled=None)
blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
live = [block for block in blocks if block["state"] == "active_allocated"]
stats = torch.cuda.memory_stats()
check("a snapshot holds every live byte", sum(block["size"] for block in live) == torch.cuda.memory_allocated())
if served:
    asked_for = sum(block["requested_size"] for block in live)
    check("and every byte asked for", asked_for == stats["requested_bytes.all.current"])
check("segments are made of blocks", all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]))
# Its segments may be others: while no history is kept small blocks have their own.
held = [sum(segment["total_size"] for segment in segments) for segments in (torch.cuda.memory_snapshot(), snapshot["segments"])]
check("memory_snapshot has the memory of the segments", held[0] == held[1])
check("reserved covers active, active covers allocated",
      stats["reserved_bytes.all.current"] >= stats["active_bytes.all.current"] >= stats["allocated_bytes.all.current"])
for name in ["allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes", "segment", "reserved_bytes"]:
    of_all, small, large = (stats[f"{name}.{pool}.current"] for pool in ["all", "small_pool", "large_pool"])
    check(f"{name}: peak covers current", stats[f"{name}.all.peak"] >= of_all)
    check(f"{name}: the pools add up", of_all == small + large)
check("a summary is written", "Allocated memory" in torch.cuda.memory_summary())
check("torch.accelerator says the same", torch.accelerator.memory_allocated() == torch.cuda.memory_allocated())
check("torch.accelerator resets", torch.accelerator.reset_peak_memory_stats() is None)

# Out of memory: PyTorch's exception, figures that add up, and the job goes on.
hoard, error = [], None
try:
    while True:
        hoard.append(torch.empty(4 * gib, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as caught:
    error = str(caught)
check("frameworks know the words", "CUDA out of memory. Tried to allocate 4.00 GiB" in error)
cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
check(f"everything cached was given back first, but for {cached}", cached < 48 << 20)
check("it is counted", torch.cuda.memory_stats()["num_ooms"] == 1)
if served:
    units = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": gib}
    found = [float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (bytes|KiB|MiB|GiB)", error)]
    wanted, total, free, arena, fallback, others, in_arena, in_fallback, idle = found
    slack = gib / 50  # two decimals
    check("what the GPU has is somebody's", abs(total - free - arena - fallback - others) < slack)
    check("it says what PyTorch says", abs(arena + fallback - torch.cuda.memory_reserved()) < slack)
    check("allocated adds up", abs(in_arena + in_fallback - torch.cuda.memory_allocated()) < slack)
    check("the rest is idle", abs(arena + fallback - in_arena - in_fallback - idle) < slack)
hoard.clear()
trainer.step()
check("what was hoarded is back", torch.cuda.memory_allocated() < gib)
torch.cuda.set_per_process_memory_fraction(0.5)
try:
    torch.empty(60 * gib, dtype=torch.uint8, device="cuda")
    check("a share of the memory is a limit", False)
except torch.OutOfMemoryError as caught:
    check("the limit is named", "set_per_process_memory_fraction" in str(caught) or not served)
check("the limit can be asked for", torch.cuda.get_per_process_memory_fraction() == 0.5)
torch.cuda.set_per_process_memory_fraction(1.0)

torch.backends.cudnn.benchmark = True
check("convolutions run", torch.nn.Conv2d(3, 8, 3).cuda()(torch.randn(2, 3, 16, 16).cuda()).shape == (2, 8, 14, 14))
try:
    torch.cuda.memory_allocated(7)
    check("a GPU that there is none of is refused", False)
except (RuntimeError, ValueError):
    pass

# A graph's memory is its own until it is gone.
graph = torch.cuda.CUDAGraph()
static = torch.zeros(1000, device="cuda")
with torch.cuda.graph(graph):
    passing = static + 1
    inside = passing.data_ptr()
    passing.record_stream(side)
    del passing
    result = static * 2
torch.cuda.empty_cache()
others = [torch.empty(1000, device="cuda") for _ in range(100)]
check("nobody else gets a graph's memory", all(tensor.data_ptr() not in (inside, result.data_ptr()) for tensor in others))
pools = {s["segment_pool_id"] for s in torch.cuda.memory_snapshot()}
check("it is in a pool of its own", len(pools) == 2)
graph.replay()
del graph, result
gc.collect()
torch.cuda.empty_cache()
check("its pool goes with it", {s["segment_pool_id"] for s in torch.cuda.memory_snapshot()} == {(0, 0)})
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        static * 2
        torch.cuda.synchronize()  # which a capture does not survive
    check("a capture fails", False)
except RuntimeError:
    pass
after = torch.empty(1000, device="cuda")
holders = [
    segment["segment_pool_id"]
    for segment in torch.cuda.memory_snapshot()
    if 0 <= after.data_ptr() - segment["address"] < segment["total_size"]
]
check("after a failed capture memory comes from where it did", holders == [(0, 0)])
trainer.step()
print(json.dumps({"backend": torch.cuda.get_allocator_backend(), "wrong": wrong, "log": log}))
