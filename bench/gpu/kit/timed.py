"""Runs a job of bench/jobs and times its steps, one job on the GPU at a time: what is imported is imported before its turn.

A step ends where the first optimizer that steps does. The host's clock says it, which the GPU is waited for only at the beginning and
the end of what is timed.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import runpy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import figures
import torch
from torch.optim import optimizer as optim

#: Steps that fill caches and arenas: their time is told apart.
FIRST = 5


class Clock:
    """When each step of the first optimizer ended, by the host's clock."""

    def __init__(self, profiled: int) -> None:
        self.began = time.perf_counter()
        self.profiled = profiled
        self.ends: list[float] = []
        self._whose: Any = None

    def stepped(self, whose: Any, *_: Any) -> None:
        """An optimizer has made a step."""
        self._whose = self._whose or whose
        if whose is self._whose:
            if len(self.ends) + 1 == FIRST:
                torch.cuda.synchronize()
            self.ends.append(time.perf_counter())
            if self.profiled and len(self.ends) in (FIRST, FIRST + self.profiled):
                self._profile()

    def _profile(self) -> None:
        torch.cuda.synchronize()
        if len(self.ends) == FIRST:
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profiler.start()
            self._from = time.perf_counter()
            return
        self.kernels: dict[str, Any] = {"seconds": time.perf_counter() - self._from, "steps": self.profiled}
        self._profiler.stop()
        found = [(event.self_device_time_total, event.count, event.key[:120]) for event in self._profiler.key_averages()]
        self.kernels |= {"busy_us": sum(took for took, *_ in found), "by_name": sorted(found, reverse=True)[:60]}

    def figures(self) -> dict[str, Any]:
        """Seconds: of the first steps, of each after them by the host's clock, and of all of these with what the GPU still had to do."""
        torch.cuda.synchronize()
        ended = time.perf_counter()
        steps = [after - before for before, after in zip(self.ends[FIRST - 1 :], self.ends[FIRST:])]
        return {
            **({"kernels": self.kernels} if self.profiled else {}),
            "first_seconds": self.ends[FIRST - 1] - self.began,
            "steps": len(steps),
            "seconds": ended - self.ends[FIRST - 1],
            "median_seconds": statistics.median(steps),
            "longest_seconds": max(steps),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--turn", type=Path, required=True, help="a file that only one process locks at a time")
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="after the first, note the time of kernels in so many")
    parser.add_argument("script", help="or MODULE.py:FUNCTION, whose argument is the module's STEPS")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    script, _, function = options.script.partition(":")
    jobs = Path(__file__).parent / "bench" / "jobs"
    sys.path[:0] = [str(Path(script).parent), str(jobs.parent), str(jobs)]
    import training  # noqa: F401 - the jobs' own module, and what it imports

    if function:
        module = importlib.import_module(Path(script).stem)
        (module.STEPS,) = map(int, options.arguments)
        run = getattr(module, function)
    else:
        sys.argv = [script, *options.arguments]
        run = lambda: runpy.run_path(script, run_name="__main__")
    with options.turn.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        torch.cuda.init()
        clock = Clock(options.profile)
        optim.register_optimizer_step_post_hook(clock.stepped)
        run()
        figures.write(options.output, clock.figures())


if __name__ == "__main__":
    main()
