"""What the report at out-of-memory costs: a step's host time with call stacks, and the dump with many tensors alive.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env frameworks) bench/out_of_memory.py loops
    ... bench/out_of_memory.py dump [100000]

`loops` runs training loops on the stand-in GPU, with the frameworks' interpreter. In one process ten steps with a call stack for each block
and ten without take turns, as in the first ten seconds of a job: of the ratio of each pair's CPU time the quartiles. Then the watch does as it
does after that, with at most 4,000 stacks a second: for which share of the time it has stacks, and the share that its own thread takes. A step costs
more by the product of the first two, and the third. `dump` lets a program die with N tensors alive: in a list, in objects, in graphs.
"""

from __future__ import annotations

import math
import os
import runpy
import statistics
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

from lib import pages, runs

LOOPS = ("examples/gpt.py --steps 1000000", "examples/variable_length.py --steps 1000000", "bench/frameworks/hf_trainer.py")
#: Tens of steps with or without a stack for each block, and seconds with the watch.
WHOLE, SECONDS = 60, 8


def loop(command: list[str]) -> None:
    """Runs a script, and tells what its steps took with stacks, by what they took without, and how often there are stacks."""
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
        runs.tell({"ratios": ratios, "ms": 1e2 * statistics.median(tens[::2]), "on": on / passed, "thread": spent / passed})
        os._exit(0)

    register_optimizer_step_post_hook(step)
    sys.argv = command
    sys.path.insert(0, str((runs.ROOT / command[0]).parent))
    runpy.run_path(str(runs.ROOT / command[0]), run_name="__main__")


def die(kind: str, count: int, folder: str) -> None:
    """Dies with that many tensors alive and tells what the dump took."""
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
    runs.tell({"live": live, "capture": caught, "of processor": used, "with page": time.monotonic() - began, "of processor with page": whole, **sizes})


def start(*arguments: object) -> dict:
    """The figures of this program's own process on the stand-in GPU, recorded by nobody; it may end with an error."""
    own = ["env", "-u", "STALLOC_TRACE_DIR", "STEPS=1000000", "EVALUATE=1000000", *runs.own(*arguments)]
    with tempfile.TemporaryDirectory() as scratch:
        done = runs.stalloc("trace", *runs.GPU, "-o", scratch, "--", *own, answers=None)
    return runs.told(done.stdout + done.stderr)


def main() -> None:
    if sys.argv[1:2] == ["--loop"]:
        return loop(sys.argv[2:])
    if sys.argv[1:2] == ["--die"]:
        return die(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    parser = runs.parser()
    parser.add_argument("what", choices=("loops", "dump"))
    parser.add_argument("tensors", nargs="?", type=int, default=100_000, help="of dump, alive at the end")
    options = parser.parse_args()
    if options.what == "dump":
        whole = "with recording, page and summary, s (of the processor)"
        print(pages.head(["tensors alive", "capture, s (of the processor)", whole, "recording, MB", "page, MB"]))
        for kind in ("list", "objects", "graphs"):
            with tempfile.TemporaryDirectory() as folder:
                row = start("--die", kind, options.tensors, folder)
            took = [f"{row['capture']:.2f} ({row['of processor']:.2f})", f"{row['with page']:.1f} ({row['of processor with page']:.1f})"]
            sizes = [f"{row[name] / 1e6 if name in row else 0:.1f}" for name in ("memory.pickle", "report.html")]
            print(pages.line([f"{row['live']:,}, {kind}", *took, *sizes]), flush=True)
        return
    print(pages.head(["loop", "a step without, ms of CPU", "with a stack for each block, times", "time with stacks", "the thread", "a step costs more"]))
    for command in LOOPS:
        row = start("--loop", *command.split())
        low, middle, high = statistics.quantiles(row["ratios"])
        cost = (middle - 1) * row["on"] + row["thread"]
        cells = [f"{row['ms']:.2f}", f"{low:.3f} / {middle:.3f} / {high:.3f}", f"{row['on']:.1%}", f"{row['thread']:.3%}", f"{cost:.2%}"]
        print(pages.line([command.split(" --")[0], *cells]), flush=True)


if __name__ == "__main__":
    main()
