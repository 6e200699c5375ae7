"""Trains under a plan and asks for what a limit, a reset, a switch or another tool changes; prints what is wrong."""

import json
import os
import re

import torch
from gpt_step import Trainer

import stalloc

wrong = []
mib, gib = 1 << 20, 1 << 30


def check(what, holds):
    if not holds:
        wrong.append(what)


def out_of_memory(size):
    """The text of the exception that so many bytes lead to; None if there is none."""
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    return None


def from_arena(work):
    before = stalloc.memory_stats()["arena_allocated"]
    kept = work()
    served = stalloc.memory_stats()["arena_allocated"] > before
    del kept
    return served


told = []
torch.cuda.init()
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: told.append(figures))
trainer = Trainer()
for _ in range(4):
    trainer.step()

# What no tensor needs is given back at once, and the number of bytes is told.
big = torch.empty(256 * mib, dtype=torch.uint8, device="cuda")
before = torch.cuda.memory_reserved()
del big
given = stalloc.release_memory()
check(f"{given} bytes were given back", given == before - torch.cuda.memory_reserved() and given >= 256 * mib)
check("with nothing left to give, nothing is said to be", stalloc.release_memory("cuda:0") == 0)
check("what is in use stays", torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() > 0)

# What torch.accelerator says is what torch.cuda says, resets included.
for name in ["memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"]:
    theirs, ours = getattr(torch.cuda, name)(), getattr(torch.accelerator, name)()
    check(f"torch.accelerator.{name}: {ours} is not {theirs}", ours == theirs > 0)
cuda, accelerator = torch.cuda.memory_stats(), torch.accelerator.memory_stats()
different = {name: (cuda.get(name), value) for name, value in accelerator.items() if cuda.get(name) != value}
check(f"torch.accelerator.memory_stats: {different}", accelerator and not different)
peak = torch.cuda.max_memory_allocated()
torch.accelerator.reset_peak_memory_stats()
check("torch.accelerator resets peaks", torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() < peak)
torch.accelerator.reset_accumulated_memory_stats()
check("and sums", torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0)
made = {name: value for name, value in torch.cuda.memory_stats().items() if name in ("segment.all.allocated", "segment.all.freed")}
check(f"those of segments too: {made}", list(made.values()) == [0, 0])
check("a peak that the program resets is ours still", stalloc.memory_stats()["peak_allocated"] >= peak)

# Nothing is ever less than nothing.
check("a huge request is refused", "1EB" in (out_of_memory(1 << 61) or ""))
check("a large request is refused", out_of_memory(200 * gib) is not None)
check("and counted", torch.cuda.memory_stats()["num_ooms"] == 1)
check(f"its observers are told once: {told}", [size for _, size, _, _ in told] == [200 * gib])
torch.cuda.reset_accumulated_memory_stats()
torch.cuda.reset_peak_memory_stats()
below = {name: value for name, value in torch.cuda.memory_stats().items() if value < 0 and name != "max_split_size"}
check(f"figures below zero: {below}", not below)

# With no history, the sums over segments of a kind are the statistics by pool.
kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in [512, 3 * mib, 700, 1 * mib, 9 * mib, 512]]
torch.cuda.synchronize()
stats, sums = torch.cuda.memory_stats(), {}
for segment in torch.cuda.memory_snapshot():
    pool = f"{segment['segment_type']}_pool"
    for name, size in [("allocated", "allocated_size"), ("active", "active_size"), ("reserved", "total_size"), ("requested", "requested_size")]:
        key = f"{name}_bytes.{pool}.current"
        sums[key] = sums.get(key, 0) + segment[size]
different = {key: (value, stats[key]) for key, value in sums.items() if value != stats[key]}
check(f"sums over segments are not the statistics: {different}", len(sums) == 8 and not different)
del kept

# A snapshot's segments are what is mapped.
snapshot = torch.cuda.memory._snapshot()
held = sum(segment["total_size"] for segment in snapshot["segments"])
check(f"segments hold {held}, reserved are {torch.cuda.memory_reserved()}", held == torch.cuda.memory_reserved())
for segment in snapshot["segments"]:
    check("blocks fill their segment", sum(block["size"] for block in segment["blocks"]) == segment["total_size"])
live = sum(block["size"] for s in snapshot["segments"] for block in s["blocks"] if block["state"] == "active_allocated")
check("every live byte is in a segment", live == torch.cuda.memory_allocated())

# A limit, of arena and fallback together.
total = torch.cuda.mem_get_info()[1]
check("there is room", out_of_memory(9 * gib) is None)
torch.cuda.set_per_process_memory_fraction(gib / total)
check("the limit can be asked for", abs(torch.cuda.get_per_process_memory_fraction() - gib / total) < 1e-9)
text = out_of_memory(8 * gib) or ""
check(f"PyTorch's words: {text}", "CUDA out of memory. Tried to allocate 8.00 GiB" in text)
check(f"the limit is named: {text}", re.search(r"1024\.00 MiB allowed|1\.00 GiB allowed|1023\.99 MiB allowed", text))
hoard = []
try:
    while len(hoard) < 1000:
        hoard.append(torch.empty(8 * mib, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    pass
reserved = torch.cuda.memory_reserved()
check(f"{reserved} bytes are held under a limit of 1 GiB", gib - 64 * mib < reserved <= gib)
check(f"the limit is used: {torch.cuda.memory_allocated()}", torch.cuda.memory_allocated() > gib - 64 * mib)
hoard.clear()
trainer.step()
torch.cuda.set_per_process_memory_fraction(1.0)
check("without it there is room", out_of_memory(8 * gib) is None)
torch.cuda.empty_cache()

# A failure that the program catches is one entry of the history and takes nothing from others; one that idle memory mends is none.
torch.cuda.memory._record_memory_history(max_entries=10_000, context=None)


def failures():
    return sum(entry["action"] == "oom" for entry in torch.cuda.memory._snapshot()["device_traces"][0])


torch.empty(30 * gib, dtype=torch.uint8, device="cuda")
held = torch.cuda.memory_reserved()
check(f"memory is idle: {held}", held > 29 * gib)
check("more than all is refused", [out_of_memory(200 * gib) is None for _ in range(3)] == [False] * 3)
check(f"each failure is an entry: {failures()}", failures() == 3)
check(f"{held} bytes were held, now {torch.cuda.memory_reserved()}", torch.cuda.memory_reserved() == held)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    mended = torch.empty(60 * gib, dtype=torch.uint8, device="cuda")
check(f"what idle memory mended is none: {failures()}", failures() == 3)
del mended, pool
torch.cuda.memory._record_memory_history(enabled=None)
torch.cuda.empty_cache()

# Without caching every request is the device's own.
trainer.step()
check("the arena serves", from_arena(lambda: torch.empty(3 * mib, device="cuda")))
torch.cuda.caching_allocator_enable(False)
check("without caching it does not", not from_arena(lambda: torch.empty(3 * mib, device="cuda")))
before = torch.cuda.mem_get_info()[0]
block = torch.empty(64 * mib, dtype=torch.uint8, device="cuda")
check("a request takes device memory", torch.cuda.mem_get_info()[0] <= before - 64 * mib)
del block
check("and its end gives it back", torch.cuda.mem_get_info()[0] == before)
torch.cuda.caching_allocator_enable(True)
check("with caching it does again", from_arena(lambda: torch.empty(3 * mib, device="cuda")))

if "DUMP" in os.environ:
    torch.cuda.memory._dump_snapshot(os.environ["DUMP"])
for _ in range(2):
    torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:4")
print(json.dumps({"wrong": wrong}))
