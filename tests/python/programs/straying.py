"""Trains under a plan and strays from it; checks by PyTorch's own history that no two live tensors overlap."""

import json
import sys
import threading

import torch
from gpt_step import Trainer

import stalloc

torch.cuda.memory._record_memory_history(max_entries=1000000, context=None)


def overlaps():
    """Live ranges that were handed out twice, by the history."""
    live, found = {}, 0
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        start, size = entry["addr"], entry["size"]
        if entry["action"] == "alloc":
            found += any(start < other + length and other < start + size for other, length in live.items())
            live[start] = size
        elif entry["action"] == "free_completed":
            live.pop(start, None)
    return found


def share(work):
    """Share of the requests of some work that were served from the plan."""
    before = stalloc.memory_stats()
    work()
    after = stalloc.memory_stats()
    return (after["planned"] - before["planned"]) / (after["requests"] - before["requests"])


if len(sys.argv) > 1:  # another program altogether
    kept = [torch.empty(size * 777, device="cuda") for size in range(1, 400)]
    for size in range(1, 400, 3):
        kept[size] = torch.empty(size * 333, device="cuda")
    print(json.dumps({"overlaps": overlaps()}))
    sys.exit()

trainer = Trainer()
kept = []
for step in range(12):
    if step == 4:
        kept.append(torch.empty(12345, device="cuda"))  # for ever
    if step == 5:
        with torch.no_grad():
            trainer.model.eval()(torch.randn(4, 64, 128).cuda())
            trainer.model.train()
    if step == 6:
        trainer.step(rows=5)
    if step == 7:
        copies = [parameter.detach().clone() for parameter in trainer.model.parameters()]
        del copies
    if step == 8:
        try:
            trainer.step(rows=-1)
        except RuntimeError:
            trainer.optimizer.zero_grad()
    if step == 9:
        thread = threading.Thread(target=lambda: [torch.empty(n * 999, device="cuda") for n in range(1, 50)])
        thread.start()
        trainer.step()
        thread.join()
    torch.cuda.empty_cache()
    trainer.step()
last = share(trainer.step)
first = stalloc.memory_stats()["departure"]
print(json.dumps({"last_step_share": last, "overlaps": overlaps(), "departure": first}))
