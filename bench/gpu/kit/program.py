"""A program whose steps are measured from outside: a script of bench/jobs, or a function of bench/jobs/unseen.py.

    python program.py steps 20 SCRIPT ARGUMENTS      so many steps
    python program.py led LEADER WAY ...             when by_turns.py tells it to, and says how long they took
    python program.py profile OUTPUT TURN ...        and how long the kernels of some of its steps take, while no other such process does

A step ends where the first optimizer that steps does.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib
import json
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any, Callable

import figures
import torch
from torch.optim import optimizer as optim

#: Steps before those whose kernels are timed, and how many these are.
BEFORE, PROFILED = 5, 3


class Enough(BaseException):
    """The program has made the steps that were asked of it: no program catches it."""


def load(options: argparse.Namespace) -> Callable[[], Any]:
    """What runs the program; all that it imports is imported."""
    script, _, function = options.script.partition(":")
    here = Path(__file__).resolve().parent
    bench = here / "bench" if (here / "bench").exists() else here.parents[1]  # packed, or where it is kept
    sys.path[:0] = [str(Path(script).parent), str(bench), str(bench / "jobs")]
    import training  # noqa: F401 - the jobs' own module, and what it imports

    if not function:
        sys.argv = [script, *options.arguments]
        return lambda: runpy.run_path(script, run_name="__main__")
    module = importlib.import_module(Path(script).stem)
    (module.STEPS,) = map(int, options.arguments)
    return getattr(module, function)


class Steps:
    """Calls a function at the end of each step with the number of steps, and knows the optimizer that makes them."""

    def __init__(self, ended: Callable[[int], None]) -> None:
        self.made = 0
        self.whose: torch.optim.Optimizer | None = None
        self._ended = ended
        optim.register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, whose: Any, *_: Any) -> None:
        self.whose = self.whose or whose
        if whose is self.whose:
            self.made += 1
            self._ended(self.made)


class Segments:
    """Segments of steps, each of as many as the leader asks for; the GPU is waited for at the end of each, and nowhere else."""

    def __init__(self, leader: socket.socket) -> None:
        self._lines = leader.makefile("rw")
        self.steps = Steps(self._ended)

    def begin(self) -> None:
        """Waits for the number of steps of the next segment; Enough if it is none."""
        self._left = int(self._lines.readline() or 0)
        if not self._left:
            raise Enough
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


def led(options: argparse.Namespace) -> None:
    """Steps as the leader asks for them."""
    run = load(options)
    leader = socket.socket(socket.AF_UNIX)
    leader.connect(options.leader)
    segments = Segments(leader)
    segments.say({"way": options.way})
    with contextlib.suppress(Enough):
        segments.begin()
        with sys.modules["stalloc"].step() if options.one_step else contextlib.nullcontext():
            run()
    torch.cuda.synchronize()
    last = figures.complete({})  # before the digest takes memory
    segments.say({**last, "weights": digest(segments.steps.whose)})


def steps(options: argparse.Namespace) -> None:
    """So many steps."""

    def ended(made: int) -> None:
        if made == options.steps:
            raise Enough

    run = load(options)
    Steps(ended)
    with contextlib.suppress(Enough):
        run()


def profile(options: argparse.Namespace) -> None:
    """The kernels of some steps."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    began = seconds = 0.0

    def ended(made: int) -> None:
        nonlocal began, seconds
        if made == BEFORE:
            torch.cuda.synchronize()
            profiler.start()
            began = time.perf_counter()
        elif made == BEFORE + PROFILED:
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
            profiler.stop()
            raise Enough

    run = load(options)
    with options.turn.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        Steps(ended)
        with contextlib.suppress(Enough):
            run()
        events = [(event.self_device_time_total, event.count, event.key[:120]) for event in profiler.key_averages()]
        busy = sum(took for took, *_ in events)
        kernels = {"seconds": seconds, "steps": PROFILED, "busy_us": busy, "by_name": sorted(events, reverse=True)[:60]}
        figures.write(options.output, {"kernels": kernels})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(required=True)
    for way in (steps, led, profile):
        of = ways.add_parser(way.__name__, help=way.__doc__)
        of.set_defaults(way_of=way)
        if way is steps:
            of.add_argument("steps", type=int)
        elif way is led:
            of.add_argument("leader", help="the leader's socket")
            of.add_argument("way", help="what the leader calls this process")
            of.add_argument("--one-step", action="store_true", help="stalloc sees the whole run as one step, so that it learns no plan")
        else:
            of.add_argument("output", type=Path, help="where the figures go")
            of.add_argument("turn", type=Path, help="a file that only one process locks at a time")
        of.add_argument("script", help="or MODULE.py:FUNCTION, whose argument is the module's STEPS")
        of.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    options.way_of(options)


if __name__ == "__main__":
    main()
