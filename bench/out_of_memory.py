"""What the report at out-of-memory costs: a step's host time with call stacks, and the dump with many tensors alive.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env frameworks) bench/out_of_memory.py loops
    ... bench/out_of_memory.py dump [100000]

`loops` runs training loops on the stand-in GPU, with the frameworks' interpreter. In one process ten steps with a call stack for each block
and ten without take turns, as in the first ten seconds of a job: of the ratio of each pair's CPU time the quartiles. Then the watch does as it
does after that, with at most 4,000 stacks a second: for which share of the time it has stacks, and the share that its own thread takes. A step costs
more by the product of the first two, and the third. `dump` lets a program die with N tensors alive: in a list, in objects, in graphs.
"""

import json
import math
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOPS = ("examples/gpt.py --steps 1000000", "examples/variable_length.py --steps 1000000", "bench/frameworks/hf_trainer.py")
#: Tens of steps with or without a stack for each block, and seconds with the watch.
WHOLE, SECONDS = 60, 8


def loop(command: list[str]) -> None:
    """Runs a script, and prints what its steps took with stacks, by what they took without, and how often there are stacks, as JSON."""
    from stalloc._out_of_memory.watch import Watch

    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    watch, steps, times = Watch(torch, Path("unused")), 0, []

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps <= WHOLE * 10:
            times.append(time.process_time())
            if steps % 10 == 0:
                watch._stacks._switch(steps // 10 % 2 == 1)
        if steps == WHOLE * 10:
            threading.Thread(target=seconds).start()

    def seconds() -> None:
        """What `Watch._each_second` does, long after the model has been built; how long stacks were on, and what the thread itself took."""
        watch._stacks._began = -math.inf
        watch._stacks.tick()
        began, spent, on = time.monotonic(), time.thread_time(), 0.0
        for _ in range(SECONDS):
            time.sleep(1.0)
            ticked = time.monotonic()
            watch._live.tick()
            watch._stacks.tick()
            on += time.monotonic() - ticked if not watch._stacks._is_on else 1.0
        passed, spent = time.monotonic() - began, time.thread_time() - spent
        tens = [b - a for a, b in zip(times[99::10], times[109::10])]
        ratios = [on / off for on, off in zip(tens[1::2], tens[::2])]
        print(json.dumps({"ratios": ratios, "ms": 1e2 * statistics.median(tens[::2]), "on": on / passed, "thread": spent / passed}), flush=True)
        os._exit(0)

    register_optimizer_step_post_hook(step)
    sys.argv = command
    sys.path.insert(0, str((ROOT / command[0]).parent))
    runpy.run_path(str(ROOT / command[0]), run_name="__main__")


def die(kind: str, count: int, folder: str) -> None:
    """Dies with that many tensors alive and prints what the dump took, as JSON."""
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
    began, spent = time.monotonic(), sum(os.times()[:4])
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.cuda.OutOfMemoryError:
        caught, used = time.monotonic() - began, sum(os.times()[:4]) - spent
        sys.excepthook(*sys.exc_info())
    whole = sum(os.times()[:4]) - spent
    (place,) = Path(folder).iterdir()
    sizes = {file.name: file.stat().st_size for file in place.iterdir()}
    print(json.dumps({"live": live, "capture": caught, "of processor": used, "with page": time.monotonic() - began, "of processor with page": whole, **sizes}))


def start(*arguments: str) -> dict:
    """This file's own process on the stand-in GPU, recorded by nobody."""
    import stalloc

    command = str(Path(stalloc.__file__).parent / "_bin" / "stalloc")
    own = ["env", "-u", "STALLOC_TRACE_DIR", "STEPS=1000000", "EVALUATE=1000000", sys.executable, __file__, *arguments]
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
        print("| tensors alive | capture, s (of the processor) | with recording, page and summary, s (of the processor) | recording, MB | page, MB |\n|---|---|---|---|---|")
        for kind in ("list", "objects", "graphs"):
            with tempfile.TemporaryDirectory() as folder:
                row = start("die", kind, *(sys.argv[2:] or ["100000"]), folder)
            print(
                f"| {row['live']:,}, {kind} | {row['capture']:.2f} ({row['of processor']:.2f}) | {row['with page']:.1f} ({row['of processor with page']:.1f}) | "
                f"{row['memory.pickle'] / 1e6:.1f} | {row.get('report.html', 0) / 1e6:.1f} |"
            )
        return
    print("| loop | a step without, ms of CPU | with a stack for each block, times | time with stacks | the thread | a step costs more |\n|---|---|---|---|---|---|")
    for command in LOOPS:
        row = start("child", *command.split())
        low, middle, high = statistics.quantiles(row["ratios"])
        cost = (middle - 1) * row["on"] + row["thread"]
        print(
            f"| {command.split(' --')[0]} | {row['ms']:.2f} | {low:.3f} / {middle:.3f} / {high:.3f} | {row['on']:.1%} | {row['thread']:.3%} | {cost:.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
