"""Runs a program and notes how long the kernels of some of its steps take, while no other such process does."""

from __future__ import annotations

import argparse
import fcntl
import time
from pathlib import Path
from typing import Any

import figures
import program
import torch


class Profile:
    """The kernels of some steps."""

    def __init__(self, after: int, steps: int) -> None:
        self._first, self._steps = after, steps
        self.found: dict[str, Any] = {}
        program.Steps(self._ended)

    def _ended(self, made: int) -> None:
        if made == self._first:
            torch.cuda.synchronize()
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profiler.start()
            self._from = time.perf_counter()
        elif made == self._first + self._steps:
            torch.cuda.synchronize()
            seconds = time.perf_counter() - self._from
            self._profiler.stop()
            events = [(event.self_device_time_total, event.count, event.key[:120]) for event in self._profiler.key_averages()]
            self.found = {"seconds": seconds, "steps": self._steps, "busy_us": sum(took for took, *_ in events), "by_name": sorted(events, reverse=True)[:60]}
            raise program.Enough


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--turn", type=Path, required=True, help="a file that only one process locks at a time")
    parser.add_argument("--after", type=int, default=5, help="the steps before")
    parser.add_argument("--steps", type=int, default=3)
    program.arguments(parser)
    options = parser.parse_args()
    run = program.load(options)
    with options.turn.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        profile = Profile(options.after, options.steps)
        program.run(run)
        figures.write(options.output, {"kernels": profile.found})


if __name__ == "__main__":
    main()
