"""Runs examples, each from a plan; prints what stalloc did and what PyTorch's own history says of the addresses.

    python watched.py "EXAMPLE:PLANS OPTIONS..."...
"""

import bisect
import json
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import stalloc
from stalloc import _dry_run

_dry_run.prepare()  # before the frameworks are imported, as in a process that is recorded
import examples  # noqa: E402


def overlaps(entries):
    """How many ranges were handed out while a part of them was live, by a history."""
    starts, ends, found = [], {}, 0
    for entry in entries:
        start, end = entry["addr"], entry["addr"] + max(entry["size"], 1)
        place = bisect.bisect_left(starts, start)
        if entry["action"] == "alloc":
            after = place < len(starts) and starts[place] < end
            before = place > 0 and ends[starts[place - 1]] > start
            found += after or before
            if start not in ends:
                starts.insert(place, start)
            ends[start] = end
        elif entry["action"] == "free_completed" and start in ends:
            starts.pop(place)
            del ends[start]
    return found


def watch(main, plans):
    """Runs an example from its plans and prints a line of JSON."""
    stalloc.enable(mode="alloc", path=plans)
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
    figures = []
    register_optimizer_step_post_hook(lambda *_: figures.append(stalloc.memory_stats()))
    main()
    end = stalloc.memory_stats()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    found = {"overlaps": overlaps(history), "allocations": sum(entry["action"] == "alloc" for entry in history)}
    print(json.dumps({"steps": figures, "end": end, **found}))


if __name__ == "__main__":
    examples.each(sys.argv[1:], watch)
