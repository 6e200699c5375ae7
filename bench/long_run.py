"""A long job on stalloc: does anything grow, and is any step held up?

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env) bench/long_run.py --steps 100000 [--write]

Trains a tiny model on the stand-in GPU in auto, with all that long jobs have: phases of training and evaluation, batches that grow now and
then, a side stream, two threads that allocate all the time, CUDA graphs that are captured anew, and requests that no GPU can serve, which the
program survives. At several points it notes what the process holds. The same job runs again on PyTorch's own allocator: what grows
there, too, is not stalloc's. A step is held up where it begins: the processor time of that is noted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path

from lib import pages, runs

POINTS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
#: Steps between events of each kind.
PHASE, LONGER_BATCH, REPLAY, CAPTURE, NO_MEMORY = 500, 37, 10, 2000, 250
HEAD = pages.head(
    ["steps done", "resident, MiB", "descriptors", "threads", "reserved, MiB", "longest begin of a step, ms of CPU", "longest step, ms of CPU", "a step, ms of CPU"],
    texts=0,
)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(steps: int) -> None:
    """The job; prints a JSON object at each point."""
    import torch

    import stalloc

    is_served = "STALLOC_MODE" in os.environ
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    side, ended = torch.cuda.Stream(), threading.Event()
    graph = held = None

    def others(number: int) -> None:
        stream = torch.cuda.Stream()
        while not ended.wait(0.02):
            with torch.cuda.stream(stream):
                kept = [torch.empty((number + n) * 10_000, device="cuda") for n in range(4)]
            kept[0].record_stream(torch.cuda.default_stream())

    threads = [threading.Thread(target=others, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()

    def train(step: int) -> None:
        batch = 48 if step % LONGER_BATCH == 0 else 32
        data = torch.empty(batch, 64, device="cuda")
        with torch.cuda.stream(side):
            copied = torch.empty(batch, 64, device="cuda")
        copied.record_stream(torch.cuda.current_stream())
        model(data + copied).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def evaluate() -> None:
        with torch.no_grad():
            for length in range(1, 9):
                model(torch.empty(length * 16, 64, device="cuda"))

    begins, whole, spent, next_point = 0, 0, time.thread_time_ns(), 0
    wanted = [max(1, int(steps * point)) for point in POINTS]
    for step in range(1, steps + 1):
        before = time.thread_time_ns()
        with stalloc.step() if is_served else nullcontext():
            begun = time.thread_time_ns()
            if step // PHASE % 4 == 3 and step % 5 == 0:
                evaluate()
            train(step)
        after = time.thread_time_ns()
        # Learning to run (imports, first kernels) is over by then.
        if step > wanted[0] // 2:
            begins, whole = max(begins, begun - before), max(whole, after - before)
        if step % CAPTURE == 1:
            graph = held = None
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                held = model(torch.empty(32, 64, device="cuda"))
        if step % REPLAY == 0 and graph is not None:
            graph.replay()
        if step % NO_MEMORY == 0:
            try:
                torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
                raise SystemExit("a GPU of 80 GB served 100 GiB")
            except torch.OutOfMemoryError:
                pass
        if step == wanted[next_point]:
            now = time.thread_time_ns()
            found = {
                "steps": step,
                "resident": resident(),
                "descriptors": len(os.listdir("/proc/self/fd")) - 1,
                "threads": len(os.listdir("/proc/self/task")),
                "reserved": torch.cuda.memory_reserved(),
                "begin": begins,
                "longest": whole,
                "step": (now - spent) / (step - (wanted[next_point - 1] if next_point else 0)),
            }
            print(json.dumps(found), flush=True)
            begins, whole, spent, next_point = 0, 0, time.thread_time_ns(), next_point + 1
    del held
    ended.set()
    for thread in threads:
        thread.join()


def run(steps: int, is_served: bool) -> list[str]:
    """The rows of one run, printed as they come."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        alone = [] if is_served else ["env", "-u", "STALLOC_MODE"]
        command = [runs.command(), "run", "--plan", folder, *runs.GPU, "--", *alone, *runs.own("--child", "--steps", steps)]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=runs.environment(STALLOC_DRYRUN_VALUES="0"))
        assert process.stdout
        for line in process.stdout:
            rows.append(row(json.loads(line)))
            print(rows[-1], flush=True)
        if process.wait():
            sys.exit(process.returncode)
    return rows


def row(found: dict) -> str:
    cells = [f"{found['steps']:,}", f"{found['resident'] / 2**20:,.0f}", found["descriptors"], found["threads"], f"{found['reserved'] / 2**20:,.0f}"]
    return pages.line([*cells, f"{found['begin'] / 1e6:.2f}", f"{found['longest'] / 1e6:.1f}", f"{found['step'] / 1e6:.2f}"])


def main() -> None:
    parser = runs.parser("long-run.md")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--only", choices=("served", "native"), help="one of the two")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.steps)
    for name in ("served", "native"):
        if options.only in (None, name):
            print(f"{name}\n{HEAD}", flush=True)
            rows = run(options.steps, name == "served")
            if options.write:
                pages.write(name, "\n".join([HEAD, *rows]), "long-run.md")


if __name__ == "__main__":
    main()
