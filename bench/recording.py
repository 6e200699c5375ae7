"""What recording costs: CPU time of a training program's parts, not recorded, recorded without and with call stacks.

    bench/recording.py --stalloc target/python-release/stalloc/_bin/stalloc --rounds 3 -- examples/gpt.py --layers 24 --steps 12

Each round runs the program on the dry run once in each way, one after another, so that what else the machine does falls
on all of them. CPU time is that of all threads; the least of all rounds counts.
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {"not recorded": None, "no call stacks": ("--stacks", "0"), "call stacks for two steps": ()}


def child(out: str, program: str, arguments: list[str]) -> None:
    """Run a program and write the CPU time at its start and after each step of its optimizer, in seconds."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times = [time.process_time()]
    register_optimizer_step_post_hook(lambda *_: times.append(time.process_time()))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
    Path(out).write_text(json.dumps(times))


def parts(stalloc: str, options: tuple[str, ...] | None, program: list[str]) -> list[float]:
    """CPU time of one run, after its imports: up to the end of the first step, the second, the mean of the others, all of it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        unrecorded = ("env", "-u", "STALLOC_TRACE_DIR") if options is None else ()
        command = [stalloc, "trace", "--dry-run", "h100-80gb", *(options or ()), "-o", f"{folder}/traces", "--", *unrecorded]
        command += [sys.executable, __file__, "--child", str(out), *program]
        done = subprocess.run(command, capture_output=True, text=True)
        if not out.exists():
            sys.exit(done.stderr)
        times = json.loads(out.read_text())
    later = len(times) - 3
    return [times[1] - times[0], times[2] - times[1], (times[-1] - times[2]) / later, times[-1] - times[0]]


def main() -> None:
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stalloc", default="stalloc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    least: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for way, trace_options in WAYS.items():
            found = parts(options.stalloc, trace_options, options.program)
            least[way] = [min(pair) for pair in zip(least.get(way, found), found)]
    base = least["not recorded"]
    print("| | model and first step | second step | a later step | whole, after the imports |\n|---|---|---|---|---|")
    for way, figures in least.items():
        cells = [f"{1e3 * now:.0f} ms ({now / then - 1:+.1%})" for now, then in zip(figures, base)]
        print(f"| {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
