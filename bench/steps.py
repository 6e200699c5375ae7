"""What a training step costs the host: PyTorch's own allocator, the open arena, a plan, and learning while it trains.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env) bench/steps.py      # on the stand-in GPU
    ... python bench/steps.py --repeat 5 -- python examples/llama.py --steps 40

Runs a training command by turns with each of the four, in processes of their own, and takes the CPU time of each step: of all
threads but the one that learns, which is counted apart. CPU time rather than time, so that a busy machine does not
matter much. A step's figure is the median of the second half of a run; the least of the runs is printed, then the median.
In the dry run small integers are not computed, which costs time without stalloc's share in it and is never done natively.
"""

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODES = ("native", "open", "planned", "auto")
#: The thread's name, as the system cuts it.
LEARNER = "stalloc-learner"[:15]


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


def resident() -> int:
    """Memory of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(command: list[str]) -> None:
    """Runs a script and prints what each of its optimizer's steps took, as JSON."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times = [cpu()]
    register_optimizer_step_post_hook(lambda *_: times.append(cpu()))
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
    import stalloc

    figures = dict(stalloc.memory_stats() or {}) if "STALLOC_MODE" in os.environ else {}
    steps = [after[1] - before[1] for before, after in zip(times, times[1:])]
    learning = times[-1][0] - times[0][0]
    counted = {name: figures.get(name, 0) for name in ("requests", "planned", "plans")}
    print(json.dumps({"steps": steps, "learning": learning, "resident": resident(), **counted}), flush=True)


def run(stalloc: str, mode: str, folder: Path, command: list[str], gpu: list[str]) -> dict:
    """One run of the command with one of the four."""
    inner = [command[0], __file__, "--child", "--", *command[1:]]
    if mode == "native":
        inner = ["env", "-u", "STALLOC_MODE", *inner]
    options = ["--plan", str(folder / mode), "--frozen"] if mode in ("open", "planned") else []
    if mode == "native":  # what serves is taken away again: the stand-in stays
        options = ["--plan", str(folder / "open"), "--frozen"]
    environment = os.environ | {"STALLOC_DRYRUN_VALUES": "0"}
    done = subprocess.run([stalloc, "run", *options, *gpu, "--", *inner], stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


def record(stalloc: str, folder: Path, command: list[str], gpu: list[str]) -> None:
    """Make the plan, and one that has no offsets: of a single step, which nothing says will come again."""
    for mode, steps in (("open", 1), ("planned", 6)):
        options = ["trace", *gpu, "--steps", str(steps), "--stacks", "0", "-o", str(folder / mode), "--", *command]
        subprocess.run([stalloc, *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # With --frozen the folder is planned where it is not yet.
        subprocess.run([stalloc, "plan", str(folder / mode)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each")
    parser.add_argument("--on-gpu", action="store_true", help="on the real GPU rather than the stand-in")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help="what to run, after --; by default examples/gpt.py")
    options = parser.parse_args()
    if options.child:
        return child(options.command)
    import stalloc

    stalloc_command = str(Path(stalloc.__file__).parent / "_bin" / "stalloc")
    command = options.command or [sys.executable, str(ROOT / "examples" / "gpt.py"), "--steps", "40"]
    gpu = [] if options.on_gpu else ["--dry-run", "h100-80gb"]
    runs: dict[str, list[dict]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as scratch:
        record(stalloc_command, Path(scratch), command, gpu)
        for number in range(options.repeat):
            for mode in MODES[number % len(MODES) :] + MODES[: number % len(MODES)]:
                runs[mode].append(run(stalloc_command, mode, Path(scratch), command, gpu))
    rows = {mode: figures(each) for mode, each in runs.items()}
    if options.json:
        print(json.dumps(rows))
        return
    print("| | a step, ms of CPU: least (median) | to native | learning, % of a core | plans | from the plan | resident, MiB |")
    print("|---|---|---|---|---|---|---|")
    native = rows["native"]["least"]
    for mode, row in rows.items():
        cells = [f"{row['least'] / 1e6:.2f} ({row['median'] / 1e6:.2f})", f"{row['least'] / native:.3f}"]
        cells += [f"{100 * row['learning']:.1f}", f"{row['plans']}", f"{100 * row['planned']:.1f} %", f"{row['resident'] >> 20:,}"]
        print(f"| {mode} | {' | '.join(cells)} |")


def figures(runs: list[dict]) -> dict[str, float]:
    """What some runs of one kind say."""
    steps = [statistics.median(each["steps"][len(each["steps"]) // 2 :]) for each in runs]
    last = runs[-1]
    return {
        "least": min(steps),
        "median": statistics.median(steps),
        "learning": statistics.median(each["learning"] / sum(each["steps"]) for each in runs),
        "plans": last["plans"],
        "planned": last["planned"] / max(1, last["requests"]),
        "resident": max(each["resident"] for each in runs),
    }


if __name__ == "__main__":
    main()
