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
    """Share of the requests of some work that were at planned offsets."""
    before = stalloc.memory_stats()
    work()
    after = stalloc.memory_stats()
    return (after["planned"] - before["planned"]) / (after["requests"] - before["requests"])


if len(sys.argv) > 1:  # another model
    trainer = Trainer(width=192, layers=3)
    for _ in range(6):
        trainer.step()
    print(json.dumps({"overlaps": overlaps()}))
    sys.exit()

trainer = Trainer()
kept = []


def keep_one_for_ever():
    kept.append(torch.empty(12345, device="cuda"))


def evaluate():
    with torch.no_grad():
        trainer.model.eval()(torch.randn(4, 64, 128).cuda())
        trainer.model.train()


def copy_weights():
    copies = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    del copies


def fail():
    try:
        trainer.step(rows=-1)
    except RuntimeError:
        trainer.optimizer.zero_grad()


def use_a_thread():
    thread = threading.Thread(target=lambda: [torch.empty(n * 999, device="cuda") for n in range(1, 50)])
    thread.start()
    trainer.step()
    thread.join()


for _ in range(4):
    trainer.step()
# Each is followed by two steps: the second is on the plan again.
shares = {}
for stray in [keep_one_for_ever, evaluate, lambda: trainer.step(rows=5), copy_weights, fail, use_a_thread, evaluate]:
    stray()
    torch.cuda.empty_cache()
    trainer.step()
    shares[f"{len(shares)}: {stray.__name__}"] = share(trainer.step)
print(json.dumps({"shares": shares, "overlaps": overlaps(), "stats": stalloc.memory_stats()}))
