"""What the report at out-of-memory costs: a step's host time with call stacks, and the dump with many tensors alive.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/out_of_memory.py loops
    ... bench/out_of_memory.py dump [100000]

`loops` runs training loops on the stand-in GPU. In one process ten steps with a call stack for each block and ten without take turns:
the CPU time of all threads, the ratio of each pair, and of these the quartiles. A program that allocates more than 4,000 times a second
pays less: it has stacks for a share of the time. `dump` lets a program die with N tensors alive: in a list, in objects, in graphs.
"""

import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOPS = ("examples/gpt.py --steps 100000", "examples/variable_length.py --steps 100000")


def loop(command: list[str]) -> None:
    """Runs a script for 800 steps, and prints what ten steps took with stacks, by what they took without, as JSON."""
    from stalloc._out_of_memory.stacks import Stacks

    from torch.optim.optimizer import register_optimizer_step_post_hook

    times: list[float] = []
    stacks: list = []

    def step(*_: object) -> None:
        import torch

        times.append(time.process_time())
        if len(times) % 10 == 0:
            stacks or stacks.append(Stacks(torch))
            stacks[0]._switch(len(times) // 10 % 2 == 1)
        if len(times) > 800:
            tens = [b - a for a, b in zip(times[100::10], times[110::10])]
            print(json.dumps({"ratios": [on / off for on, off in zip(tens[1::2], tens[::2])], "ms": 1e3 * statistics.median(tens[::2]) / 10}), flush=True)
            os._exit(0)

    register_optimizer_step_post_hook(step)
    sys.argv = command
    sys.path.insert(0, str((ROOT / command[0]).parent))
    runpy.run_path(str(ROOT / command[0]), run_name="__main__")


def die(kind: str, count: int, folder: str) -> None:
    """Dies with so many tensors alive and prints what the dump took, as JSON."""
    import torch

    import stalloc

    stalloc.on_out_of_memory(folder)
    weight = torch.nn.Parameter(torch.ones(128, device="cuda"))
    kept: list[object] = []
    for index in range(count if kind != "graphs" else count // 100):
        if kind == "graphs":
            total = weight
            for _ in range(100):
                total = (total * weight).tanh()
            kept.append(total)
        else:
            kept.append(types.SimpleNamespace(values=torch.zeros(128, device="cuda")) if kind == "objects" else torch.zeros(128, device="cuda"))
    live = torch.cuda.memory_stats()["active.all.current"]
    began, spent = time.monotonic(), time.process_time()
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.cuda.OutOfMemoryError:
        caught, used = time.monotonic() - began, time.process_time() - spent
        sys.excepthook(*sys.exc_info())
    (place,) = Path(folder).iterdir()
    sizes = {file.name: file.stat().st_size for file in place.iterdir()}
    print(json.dumps({"live": live, "capture": caught, "of processor": used, "with page": time.monotonic() - began, **sizes}))


def start(*arguments: str) -> dict:
    """This file's own process on the stand-in GPU, recorded by nobody."""
    import stalloc

    command = str(Path(stalloc.__file__).parent / "_bin" / "stalloc")
    own = ["env", "-u", "STALLOC_TRACE_DIR", sys.executable, __file__, *arguments]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [command, "trace", "--dry-run", "h100-80gb", "-o", scratch, "--", *own], stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(done.stdout + done.stderr)
    return json.loads(lines[-1])


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
    if what == "child":
        return loop(sys.argv[2:])
    if what == "die":
        return die(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    if what == "dump":
        print("| tensors alive | capture, s (of the processor) | with recording, page and summary, s | recording, MB | page, MB |\n|---|---|---|---|---|")
        for kind in ("list", "objects", "graphs"):
            with tempfile.TemporaryDirectory() as folder:
                row = start("die", kind, *(sys.argv[2:] or ["100000"]), folder)
            print(
                f"| {row['live']:,}, {kind} | {row['capture']:.2f} ({row['of processor']:.2f}) | {row['with page']:.1f} | "
                f"{row['memory.pickle'] / 1e6:.1f} | {row.get('report.html', 0) / 1e6:.1f} |"
            )
        return
    print("| loop | a step without stacks, ms of CPU | with them: quartiles of the ratio |\n|---|---|---|")
    for command in LOOPS:
        row = start("child", *command.split())
        quartiles = " / ".join(f"{one:.2f}" for one in statistics.quantiles(row["ratios"]))
        print(f"| {command.split(' --')[0]} | {row['ms']:.2f} | {quartiles} |", flush=True)


if __name__ == "__main__":
    main()
