"""What a training step costs the host: served in four ways, or recorded in three, by turns.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env) bench/steps.py      # on the stand-in GPU
    ... bench/steps.py --of recording --repeat 2 -- examples/gpt.py --layers 24 --steps 10

Runs a training script by turns in each way, in processes of their own, and takes the CPU time of each step: of all threads but the one
that learns, which is counted apart. CPU time rather than time, so that a busy machine does not matter much. Of serving a step's figure is
the median of the second half of a run; the least of the runs is printed, then the median. Of recording, the first step has the making of
the model in it; the least of the runs is printed. In the dry run small integers are not computed, which costs time without stalloc's
share in it and is never done natively.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import statistics
import sys
import tempfile
from pathlib import Path

from lib import pages, runs

#: The thread's name, as the system cuts it.
LEARNER = "stalloc-learner"[:15]
SERVING = ("native", "open", "planned", "auto")
RECORDING = {"not recorded": (), "no call stacks": ("--stacks", 0), "call stacks for two steps": ()}


def cpu() -> tuple[int, int]:
    """CPU time until now, nanoseconds: of the thread that learns, and of all others."""
    learning = others = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            spent = int((task / "schedstat").read_text().split()[0])
            name = (task / "comm").read_text().strip()
        except OSError:  # it has ended
            continue
        if name == LEARNER:
            learning += spent
        else:
            others += spent
    return learning, others


def child(command: list[str]) -> None:
    """Runs a script and tells what each of its optimizer's steps took."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times = [cpu()]
    register_optimizer_step_post_hook(lambda *_: times.append(cpu()))
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
    import stalloc

    figures = dict(stalloc.memory_stats() or {}) if "STALLOC_MODE" in os.environ else {}
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    steps = [after[1] - before[1] for before, after in zip(times, times[1:])]
    counted = {name: figures.get(name, 0) for name in ("requests", "planned", "plans")}
    runs.tell({"steps": steps, "learning": times[-1][0] - times[0][0], "resident": resident, **counted})


def start(way: str, number: int, folder: Path, gpu: tuple[str, ...], script: list[str]) -> dict:
    """The figures of one run in one way."""
    program = runs.own("--child", "--", *script)
    if way in RECORDING:
        words = ["trace", *RECORDING[way], "-o", folder / f"{number}"]
        program = ["env", "-u", "STALLOC_TRACE_DIR", *program] if way == "not recorded" else program
    else:  # natively, what serves is taken away again: the stand-in stays
        words = ["run"] if way == "auto" else ["run", "--plan", folder / ("open" if way == "native" else way), "--frozen"]
        program = ["env", "-u", "STALLOC_MODE", *program] if way == "native" else program
    # What records fails where nothing was recorded.
    done = runs.stalloc(*words, *gpu, "--", *program, env=runs.environment(STALLOC_DRYRUN_VALUES="0"), answers=None)
    return runs.told(done.stdout + done.stderr)


def plan(folder: Path, gpu: tuple[str, ...], script: list[str]) -> None:
    """Make the plan, and one that has no offsets: of a single step, which nothing says will come again."""
    for way, steps in (("open", 1), ("planned", 6)):
        runs.stalloc("trace", *gpu, "--steps", steps, "--stacks", 0, "-o", folder / way, "--", sys.executable, *script)
        # With --frozen the folder is planned where it is not yet.
        runs.stalloc("plan", folder / way)


def served(found: list[dict]) -> dict[str, float]:
    """The figures of some runs in one way."""
    steps = [statistics.median(each["steps"][len(each["steps"]) // 2 :]) for each in found]
    last = found[-1]
    return {
        "least": min(steps),
        "median": statistics.median(steps),
        "learning": statistics.median(each["learning"] / sum(each["steps"]) for each in found),
        "plans": last["plans"],
        "planned": last["planned"] / max(1, last["requests"]),
        "resident": max(each["resident"] for each in found),
    }


def recorded(found: list[dict]) -> list[float]:
    """Model and first step, the second, a later one in the mean, all of it: the least of some runs."""
    parts = [(one["steps"][0], one["steps"][1], statistics.mean(one["steps"][2:]), sum(one["steps"])) for one in found]
    return [min(each) for each in zip(*parts)]


def main() -> None:
    parser = runs.parser()
    parser.add_argument("--of", choices=("serving", "recording"), default="serving", help="what the ways differ in")
    parser.add_argument("--repeat", type=int, default=5, help="runs in each way")
    parser.add_argument("--on-gpu", action="store_true", help="on the real GPU rather than the stand-in")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("script", nargs="*", help="what to run and its arguments, after --; by default examples/gpt.py")
    options = parser.parse_args()
    if options.child:
        return child(options.script)
    script = options.script or [str(runs.ROOT / "examples" / "gpt.py"), "--steps", "40"]
    gpu = () if options.on_gpu else runs.GPU
    ways = SERVING if options.of == "serving" else tuple(RECORDING)
    found: dict[str, list[dict]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as scratch:
        if options.of == "serving":
            plan(Path(scratch), gpu, script)
        for turn in range(options.repeat):
            for number, way in enumerate(ways[turn % len(ways) :] + ways[: turn % len(ways)]):
                found[way].append(start(way, turn * len(ways) + number, Path(scratch), gpu, script))
    if options.json:
        print(json.dumps(found))
    elif options.of == "serving":
        print(pages.head(["", "a step, ms of CPU: least (median)", "to native", "learning, % of a core", "plans", "from the plan", "resident, MiB"]))
        rows = {way: served(each) for way, each in found.items()}
        for way, row in rows.items():
            cells = [f"{row['least'] / 1e6:.2f} ({row['median'] / 1e6:.2f})", f"{row['least'] / rows['native']['least']:.3f}"]
            cells += [f"{100 * row['learning']:.1f}", f"{row['plans']}", f"{100 * row['planned']:.1f} %", f"{row['resident'] >> 20:,}"]
            print(pages.line([way, *cells]))
    else:
        print(pages.head(["", "model and first step", "second step", "a later step", "whole, after the imports"]))
        base = recorded(found["not recorded"])
        for way, each in found.items():
            print(pages.line([way, *(f"{now / 1e6:.0f} ms ({now / then - 1:+.1%})" for now, then in zip(recorded(each), base))]))


if __name__ == "__main__":
    main()
