"""A program whose steps are measured from outside: a script of bench/jobs, or a function of bench/unseen.py.

A step ends where the first optimizer that steps does. Run by itself it makes so many: `python program.py --steps 20 SCRIPT ARGUMENTS`.
"""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from pathlib import Path
from typing import Any, Callable

import torch
from torch.optim import optimizer as optim


class Enough(BaseException):
    """The program has made the steps that were asked of it: no program catches it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What names a program and is given to it."""
    parser.add_argument("script", help="or MODULE.py:FUNCTION, whose argument is the module's STEPS")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


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


def run(program: Callable[[], Any]) -> None:
    """Runs a program to its end, or until its steps are enough."""
    try:
        program()
    except Enough:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    arguments(parser)
    options = parser.parse_args()

    def ended(made: int) -> None:
        if made == options.steps:
            raise Enough

    program = load(options)
    Steps(ended)
    run(program)


if __name__ == "__main__":
    main()
