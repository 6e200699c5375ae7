"""Makes steps of a program when it is told to, and says how long they took: one of the processes that by_turns.py leads."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import socket
import sys
import time
from typing import Any

import figures
import program
import torch


class Segments:
    """Segments of steps, each of as many as the leader asks for; the GPU is waited for at the end of each, and nowhere else."""

    def __init__(self, leader: socket.socket) -> None:
        self._lines = leader.makefile("rw")
        self.steps = program.Steps(self._ended)

    def begin(self) -> None:
        """Waits for the number of steps of the next segment; Enough if it is none."""
        self._left = int(self._lines.readline() or 0)
        if not self._left:
            raise program.Enough
        self._cpu = time.process_time()
        self._ends = [time.perf_counter()]

    def _ended(self, _: int) -> None:
        self._ends.append(time.perf_counter())
        self._left -= 1
        if not self._left:
            torch.cuda.synchronize()
            took = {"seconds": time.perf_counter() - self._ends[0], "cpu_seconds": time.process_time() - self._cpu}
            self.say({**took, "steps": [b - a for a, b in zip(self._ends, self._ends[1:])], **spent()})
            self.begin()

    def say(self, what: dict[str, Any]) -> None:
        print(json.dumps(what, default=str), file=self._lines, flush=True)


def spent() -> dict[str, Any]:
    """What stalloc's remaps have taken so far, where the process runs under it."""
    if "stalloc" not in sys.modules:
        return {}
    said = sys.modules["stalloc"].memory_stats()
    return {name: said[name] for name in ("driver_ms", "remaps")}


def digest(optimizer: torch.optim.Optimizer | None) -> str:
    """Of the bits of all parameters: differs where one does."""
    parameters = [p.detach() for group in (optimizer.param_groups if optimizer else []) for p in group["params"]]
    bits = [getattr(p, "_local_tensor", p).contiguous().view(torch.uint8).flatten() for p in parameters]
    found = []
    for each in bits:
        total = 0
        for at, piece in enumerate(each.split(1 << 22)):
            total += (at + 1) * int((piece.to(torch.int32) * (torch.arange(len(piece), device=piece.device, dtype=torch.int32) % 8191 + 1)).sum())
        found.append(total)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leader", required=True, help="the leader's socket")
    parser.add_argument("--way", required=True, help="what the leader calls this process")
    parser.add_argument("--one-step", action="store_true", help="stalloc sees the whole run as one step, so that it learns no plan")
    program.arguments(parser)
    options = parser.parse_args()
    run = program.load(options)
    leader = socket.socket(socket.AF_UNIX)
    leader.connect(options.leader)
    segments = Segments(leader)
    segments.say({"way": options.way})

    def led() -> None:
        segments.begin()
        with sys.modules["stalloc"].step() if options.one_step else contextlib.nullcontext():
            run()

    program.run(led)
    torch.cuda.synchronize()
    last = figures.complete({})  # before the digest takes memory
    segments.say({**last, "weights": digest(segments.steps.whose)})


if __name__ == "__main__":
    main()
