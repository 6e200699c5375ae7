"""Runs the workloads of a page of figures, each in a process of its own on the stand-in GPU, for the page's table.

A workload is a function without arguments; what it returns is held until the figures are read. Its documentation is its name in the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from lib import pages, runs


def model(length: int, width: int, heads: int, layers: int = 8):
    """A model like GPT-2."""
    sys.path.insert(0, str(runs.ROOT / "examples"))
    import gpt
    import torch

    return gpt.GPT(32000, length, width, heads, layers).to("cuda", torch.bfloat16)


def name(workload: Callable) -> str:
    """As it stands in the table."""
    return " ".join((workload.__doc__ or "").split()).rstrip(".")


def measure(workload: Callable, *act: object, **environment: str) -> dict:
    """The figures of a workload under `stalloc ACT`."""
    started = runs.own("--child", workload.__name__)
    return runs.told(runs.stalloc(*act, *runs.GPU, "--", *started, env=runs.environment(**environment)).stdout)


def main(workloads: Sequence[Callable], start: Callable, row: Callable, columns: Sequence[str], mark: str) -> None:
    """Measures workloads, and with `--write` puts their rows into the page; or runs one of them, and tells its figures.

    In a workload's process ``start()`` begins to count and returns a function for the figures. ``row(workload)`` makes the cells
    after the name. ``mark`` is the table's and the page's name.
    """
    known = {workload.__name__: workload for workload in workloads}
    parser = runs.parser(f"{mark}.md")
    parser.add_argument("--child", choices=known, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=known, help="one workload")
    options = parser.parse_args()
    if options.child:
        figures = start()
        held = known[options.child]()
        runs.tell(figures())
        del held
        return
    for workload in [known[options.only]] if options.only else workloads:
        line = pages.line([name(workload), *row(workload)])
        print(line, flush=True)
        if options.write:
            pages.put(mark, pages.head(columns), [line], f"{mark}.md")
