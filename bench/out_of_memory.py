"""What the report at out-of-memory costs: a step's host time while nothing happens, and the dump with many tensors alive.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/out_of_memory.py loops [--repeat 3]
    ... bench/out_of_memory.py dump [--tensors 100000]

`loops` runs training loops by turns with no watch, with the watch alone (as under `stalloc run`) and with call
stacks (`on_out_of_memory(DIR)`), on the stand-in GPU, and takes the CPU time of all threads for each step: the medians from 2 to 9 s after the
first step, when every block has a stack, and from 12 to 24 s, when at most 4,000 a second have one. Least of the runs. `dump` lets
a program die with so many tensors alive, in one list, in objects, and in autograd graphs.
"""

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODES = ("none", "watch", "stacks")
LOOPS = ("examples/gpt.py --steps 100000", "examples/variable_length.py --steps 100000", "bench/out_of_memory.py convnet")
SPANS = {"first seconds": (2.0, 9.0), "later": (12.0, 24.0)}


def loop(mode: str, command: list[str]) -> None:
    """Runs a script for 24 s of steps and prints what they took, as JSON."""
    import stalloc
    from stalloc import _out_of_memory

    if mode == "stacks":
        stalloc.on_out_of_memory(tempfile.mkdtemp())
    elif mode == "watch":
        _out_of_memory.install(quiet=True)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times: list[tuple[float, float]] = []

    def step(*_: object) -> None:
        times.append((time.monotonic(), time.process_time()))
        if times[-1][0] - times[0][0] > 24:
            first = times[0][0]
            spans = {
                span: [b[1] - a[1] for a, b in zip(times, times[1:]) if begin <= b[0] - first < end] for span, (begin, end) in SPANS.items()
            }
            print(json.dumps({span: (statistics.fmean(took), len(took)) for span, took in spans.items()}), flush=True)
            os._exit(0)

    register_optimizer_step_post_hook(step)
    sys.argv = command
    sys.path.insert(0, str((ROOT / command[0]).parent))
    runpy.run_path(str(ROOT / command[0]), run_name="__main__")


def convnet() -> None:
    """A convolutional network, which the examples do not have."""
    import torch
    from torch import nn

    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())

    net = nn.Sequential(nn.Conv2d(3, 64, 3), *(block(64) for _ in range(30)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    while True:
        images, labels = torch.randn(64, 3, 64, 64, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def die(kind: str, count: int, folder: str) -> None:
    """Dies with so many tensors alive and prints what the dump took, as JSON."""
    import torch

    import stalloc

    class Item:
        def __init__(self) -> None:
            self.values = torch.zeros(128, device="cuda")

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
            kept.append(Item() if kind == "objects" else torch.zeros(128, device="cuda"))
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
    what = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if what == "child":
        return loop(sys.argv[2], sys.argv[3:])
    if what == "convnet":
        return convnet()
    if what == "die":
        return die(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["loops", "dump"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tensors", type=int, default=100_000)
    options = parser.parse_args()
    if options.what == "dump":
        print("| tensors alive | capture, s (of the processor) | with recording, page and summary, s | recording, MB | page, MB |\n|---|---|---|---|---|")
        for kind in ("list", "objects", "graphs"):
            with tempfile.TemporaryDirectory() as folder:
                row = start("die", kind, str(options.tensors), folder)
            print(
                f"| {row['live']:,}, {kind} | {row['capture']:.2f} ({row['of processor']:.2f}) | {row['with page']:.1f} | "
                f"{row['memory.pickle'] / 1e6:.1f} | {row.get('report.html', 0) / 1e6:.1f} |"
            )
        return
    print("| loop | steps' ms of CPU: none | watch | stacks, first seconds | stacks, later |\n|---|---|---|---|---|")
    for command in LOOPS:
        runs: dict[str, list[dict]] = {mode: [] for mode in MODES}
        for number in range(options.repeat):
            for mode in MODES[number % 3 :] + MODES[: number % 3]:
                runs[mode].append(start("child", mode, *command.split()))
        least = {(mode, span): min(run[span][0] for run in of) * 1e3 for mode, of in runs.items() for span in SPANS}
        without = {span: least["none", span] for span in SPANS}
        cells = [f"{least['none', 'later']:.2f}"]
        for mode, span in (("watch", "later"), ("stacks", "first seconds"), ("stacks", "later")):
            cells.append(f"{least[mode, span]:.2f} ({100 * (least[mode, span] / without[span] - 1):+.1f} %)")
        print(f"| {command.split(' --')[0]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
