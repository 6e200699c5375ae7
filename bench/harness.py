"""Runs the workloads of a page of figures, each in a process of its own on the stand-in GPU, and writes the page's table.

A workload is a function without arguments; what it returns is held until the figures are read. Its documentation is its name in the table.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parent.parent
#: A line of a workload's process that has its figures.
MARK = "figures: "


def model(length: int, width: int, heads: int, layers: int = 8):
    """A model like GPT-2."""
    sys.path.insert(0, str(ROOT / "examples"))
    import gpt
    import torch

    return gpt.GPT(32000, length, width, heads, layers).to("cuda", torch.bfloat16)


def name(workload: Callable) -> str:
    """As it stands in the table."""
    return " ".join((workload.__doc__ or "").split()).rstrip(".")


def measure(script: str, workload: Callable, act: Sequence[str], env: dict[str, str]) -> dict:
    """The figures of a workload, run by a script under `stalloc ACT`."""
    import stalloc

    program = str(Path(stalloc.__file__).parent / "_bin" / "stalloc")
    env = {**os.environ, **env}
    env.pop("PYTHONPATH", None)
    command = [program, *act, "--dry-run", "h100-80gb", "--", sys.executable, script, "--child", workload.__name__]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"{workload.__name__} under {' '.join(act)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(lines[-1].removeprefix(MARK))


def main(workloads: Sequence[Callable], start: Callable, row: Callable, head: Sequence[str], mark: str) -> None:
    """Measures all workloads, and writes the page's table; or one of them, and prints its row.

    In a workload's process ``start()`` begins to count and returns a function for the figures. ``row(workload)`` makes the cells
    after the name; ``head`` names the columns. ``mark`` is the table's and the page's name.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", help="one workload, by the name of its function; otherwise all, and the page is written anew")
    options = parser.parse_args()
    known = {workload.__name__: workload for workload in workloads}
    if options.child:
        figures = start()
        held = known[options.child]()
        print(MARK + json.dumps(figures()))
        del held
        return
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for workload in workloads:
        if options.only in (None, workload.__name__):
            lines.append(f"| {' | '.join([name(workload), *row(workload)])} |")
            print(lines[-1], flush=True)
    if options.only is None:
        page.write(mark, "\n".join(lines), f"{mark}.md")
