"""A program that is recorded looks at its memory history and its profile: they are as it asked for, with nothing of the recording."""

import sys

import torch
from torch.profiler import _utils, profile

memory = torch.cuda.memory
blocks = []


def seen():
    """Entries of the history; those of them, and live blocks of this program, that have call stacks."""
    snapshot = memory._snapshot()
    entries = [entry for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
    framed = {block["address"] for segment in snapshot["segments"] for block in segment["blocks"] if block.get("frames")}
    assert snapshot["segments"] == memory.memory_snapshot()
    return len(entries), sum("frames" in entry for entry in entries), [block.data_ptr() in framed for block in blocks]


def allocate():
    blocks.append(torch.zeros(64, device="cuda"))


allocate()
assert seen() == (0, 0, [False]), "nobody asked for a history"
memory._record_memory_history(context=None)
allocate()
assert seen() == (1, 0, [False, False]), "nor for call stacks"
memory._record_memory_history("all", context="all", stacks="python")
allocate()
assert seen()[2][-1], "now it did"
memory._record_memory_history("all", None)
allocate()
assert seen()[2][2:] == [True, False], "what has call stacks keeps them"
memory._record_memory_history(None)
assert seen()[0] == 0
with profile(profile_memory=True, record_shapes=True, with_stack=True) as profiler:
    numbers = torch.arange(4, device="cuda")
    torch.cat([numbers, numbers * 2]).sum()
nodes = list(_utils.traverse_dfs(profiler.profiler.kineto_results.experimental_event_tree()))
assert not [node.name for node in nodes if "stalloc" in node.name]
on_host = [node.extra_fields.alloc_size for node in nodes if node.name == "[memory]" and node.extra_fields.device.type == "cpu"]
assert on_host == [8, -8], "the number 2 alone: what the observer computes there is not the program's"
assert any(node.name == "aten::cat" for node in nodes)
print("passed", file=sys.stderr)
