"""Listens to memory in every way that PyTorch has; prints what is wrong with what was heard."""

import json
import threading

import torch
from gpt_step import Trainer

wrong = []


def check(what, holds):
    if not holds:
        wrong.append(what)


def heard():
    return torch.cuda.memory._snapshot()["device_traces"][0]


memory = torch.cuda.memory
trainer = Trainer()
for _ in range(3):
    trainer.step()

# Metadata of the thread, and of a block that is there already.
memory._record_memory_history(max_entries=10000, context=None)
memory._set_memory_metadata("first")
first = torch.empty(1000, device="cuda")
thread = threading.Thread(target=lambda: torch.empty(3000, device="cuda"))
thread.start()
thread.join()
memory._annotate_tensor(first, "remembered")
check("metadata can be asked for", memory._get_memory_metadata() == "first")
memory._set_memory_metadata("")
del first
said = {(entry["action"], entry["size"]): entry["user_metadata"] for entry in heard()}
check(f"allocations carry what their thread says: {said}", said.get(("alloc", 4000)) == "first" and said.get(("alloc", 12000)) == "")
check("a block can be told of later", said.get(("annotate", 4000)) == "remembered")

# What another stream uses ends later than it is given back, and nothing is handed out before its end.
memory._record_memory_history(max_entries=10000, context=None, clear_history=True)
side = torch.cuda.Stream()
used = torch.empty(1 << 20, device="cuda")
address = used.data_ptr()
used.record_stream(side)
del used
mine = [entry["action"] for entry in heard() if entry.get("addr") == address]
check(f"it is given back and waits: {mine}", mine == ["alloc", "free_requested"])
torch.cuda.synchronize()
torch.empty(1 << 20, device="cuda")
mine = [entry["action"] for entry in heard() if entry.get("addr") == address]
check(f"and ends: {mine}", mine[:3] == ["alloc", "free_requested", "free_completed"])

# Actions that are not wanted are left out.
memory._record_memory_history(max_entries=10000, context=None, clear_history=True, skip_actions=["free_requested"])
torch.empty(1000, device="cuda")
actions = {entry["action"] for entry in heard()}
check(f"skipped actions: {actions}", "free_completed" in actions and "free_requested" not in actions)
memory._record_memory_history(enabled=None)

# Two threads that hand addresses to each other: no overlap that never was.
memory._record_memory_history(max_entries=100000, context=None, clear_history=True)
threads = [threading.Thread(target=lambda: [torch.empty(1000, device="cuda") for _ in range(2000)]) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
live, overlaps = {}, 0
for entry in heard():
    if entry["action"] == "alloc":
        overlaps += entry["addr"] in live
        live[entry["addr"]] = entry["size"]
    elif entry["action"] == "free_completed":
        live.pop(entry["addr"], None)
check(f"{overlaps} addresses were in use when they were handed out, by the history", overlaps == 0)
memory._record_memory_history(enabled=None)

# Call stacks: of all events, and of every live block though the history keeps one event only.
def ask():
    return torch.empty(5000, device="cuda")


def give_back(kept):
    kept.clear()


def names(frames):
    return {frame["name"] for frame in frames}


def live_blocks():
    blocks = [block for segment in memory._snapshot()["segments"] for block in segment["blocks"]]
    return {block["address"]: names(block["frames"]) for block in blocks if block["state"] == "active_allocated"}


memory._record_memory_history(max_entries=10000, stacks="python", clear_history=True)
kept = [ask()]
check("a live block knows who asked for it", "ask" in live_blocks()[kept[0].data_ptr()])
if hasattr(memory, "_allocation_traceback"):
    check("and can be asked for it", "ask" in names(memory._allocation_traceback(kept[0].data_ptr())))
large = torch.empty(256 << 20, device="cuda")
give_back(kept)
del large
torch.cuda.empty_cache()
of: dict = {}
for entry in heard():
    of.setdefault(entry["action"], set()).update(names(entry.get("frames", [])))
check(f"events know where they come from: {of}", "ask" in of["alloc"] and "give_back" in of["free_requested"])
gone = of.get("segment_unmap", of.get("segment_free", set()))
check(f"and so does memory that goes: {of}", "empty_cache" in gone)
memory._record_memory_history(enabled=None)
memory._record_memory_history(enabled="state", stacks="python")
kept = [ask(), ask()]
known = live_blocks()
check("every live block knows who asked for it", all("ask" in known[one.data_ptr()] for one in kept))
check("one event is kept", len(heard()) == 1)
memory._record_memory_history(enabled=None)
memory._record_memory_history(max_entries=10000, context="state", stacks="python")
kept = [ask(), ask()]
known = live_blocks()
check("every live block knows who asked for it again", all("ask" in known[one.data_ptr()] for one in kept))
check("no event does", not any(entry.get("frames") for entry in heard()))
memory._record_memory_history(enabled=None)

# The profiler's memory events.
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
    kept = torch.empty(1 << 20, device="cuda")
    del kept
events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
check("the profiler is told", {event.nbytes() for event in events} >= {4 << 20, -(4 << 20)})
print(json.dumps({"wrong": wrong}))
