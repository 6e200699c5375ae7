"""Trains in an arena of one allocation, or of `pages`, and shares tensors of it with another process; prints what is wrong."""

import ctypes
import json
import os
import sys

import torch
import torch.multiprocessing as multiprocessing
from gpt_step import Trainer

wrong = []


def check(what, holds):
    if not holds:
        wrong.append(what)


def memory_calls():
    """How often the stand-in GPU was asked for memory, for its mapping, or to take it back."""
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(None).stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["memory_calls"]


def receive(given, answers):
    """Reads what it is given, and writes into it."""
    first, inside, count = given.get()
    answers.put((first.tolist(), inside.tolist(), count.item(), first.device.type))
    inside.copy_(torch.arange(100, 200))
    count.fill_(7)
    torch.cuda.synchronize()
    answers.put(os.getpid())
    given.get()


def share():
    context = multiprocessing.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(given, answers))
    child.start()
    weights = torch.arange(1000, dtype=torch.int64).cuda()
    count = torch.full((1,), 5, device="cuda")
    noise = torch.arange(512, dtype=torch.int64).cuda()  # what lies between is not theirs
    given.put((weights[:10], weights[500:600], count))
    check("the other process reads what was written here", answers.get(timeout=300) == ([*range(10)], [*range(500, 600)], 5, "cuda"))
    check("it is another process", answers.get(timeout=300) != os.getpid())
    check("what it writes is read here", weights[500:600].tolist() == [*range(100, 200)] and count.item() == 7)
    check("and nothing else is changed", weights[:500].tolist() == [*range(500)] and noise.tolist() == [*range(512)])
    given.put(None)
    child.join(120)
    check("it ends well", child.exitcode == 0)


if __name__ == "__main__":
    trainer = Trainer()
    steps = int(sys.argv[1])
    trainer.step()
    before = memory_calls()
    check("the arena itself was asked for", before > 0)
    for _ in range(steps):
        trainer.step()
    asked = memory_calls() - before
    arena = max(torch.cuda.memory_snapshot(), key=lambda segment: segment["total_size"])
    check("the arena is one segment that grows if it is of pages", arena["is_expandable"] == ("pages" in sys.argv))
    if "share" in sys.argv:
        share()
    print(json.dumps({"wrong": wrong, "asked": asked, "reserved": torch.cuda.memory_reserved(), "arena": arena["total_size"]}))
