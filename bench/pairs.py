"""What a malloc and its free cost through PyTorch: the plan and PyTorch's own allocator, in one process.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env) bench/pairs.py      # on the stand-in GPU
    ... python bench/pairs.py --on-gpu -- python examples/llama.py --steps 8
    ... python bench/pairs.py --grid      # no recording: streams x live blocks x history x threads

Records a training command for eight steps, plans it, and replays the requests of its recording from the second half
of its steps, repeatedly, through PyTorch's entry points: by turns with the native caching allocator and with
stalloc in front of it, so that a busy machine treats both alike. Prints
the fastest and the median round.

The shares are of the whole replay, of which only the second half is timed. With --unplanned the requests that are timed
are a little larger than those that were recorded: the plan has a place for none of them, and each is found one by the
search in the arena.

With --grid nothing is recorded: on 1 to 64 streams 100 to 100,000 blocks of drawn sizes live, of which threads exchange one
after another, with PyTorch's memory history off and on. The figures are stalloc's processor time divided by the native
allocator's, and so is the longest malloc. *After*: large blocks on one stream, before and after 10,000 small ones lived on eight.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lib import pages, runs

STEPS = 8
#: By so many bytes a request of --unplanned is larger than the recorded one.
LARGER = 7 * 512
ENTRIES = {
    "storage": "allocate() and the deleter, as tensors",
    "raw": "raw_alloc() and raw_delete()",
    "tensor": "at::empty() and its end, in C++",
    "python": "torch.empty() and del, in Python",
}


class Operation(ctypes.Structure):
    """An allocation, or with size 0 a free."""

    _fields_ = [("request", ctypes.c_uint32), ("size", ctypes.c_int64)]


def sequence(trace: Path) -> tuple[list[Operation], int, int]:
    """A recording's operations, where its second half begins, and how many requests it makes."""
    import stalloc

    operations: list[Operation] = []
    live: dict[int, int] = {}
    steps, requests = [], 0
    for entry in stalloc.read_trace(trace)["traces"][0]["entries"]:
        action = entry["action"]
        if action == "step_begin":
            steps.append(len(operations))
        elif action == "alloc":
            if entry["stream"] != 0:
                sys.exit(f"{trace}: the replay knows one stream only")
            live[entry["addr"]] = requests
            operations.append(Operation(requests, entry["size"]))
            requests += 1
        elif action == "free_requested" and entry["addr"] in live:
            operations.append(Operation(live.pop(entry["addr"]), 0))
    if len(steps) < 4:
        sys.exit(f"{trace}: too few steps were found")
    return operations, steps[len(steps) // 2], requests


def in_python(operations, start: int, torch) -> int:
    """The replay through torch.empty; returns nanoseconds."""
    work = [(operation.request, operation.size) for operation in operations]
    blocks, began, empty = {}, 0, torch.empty
    for number, (request, size) in enumerate(work):
        if number == start:
            began = time.perf_counter_ns()
        if size:
            blocks[request] = empty(size, dtype=torch.uint8, device="cuda")
        else:
            del blocks[request]
    return time.perf_counter_ns() - began


class Both:
    """Both allocators in this process, which `stalloc run` started: the native one, and stalloc in front of it."""

    def __init__(self, **enable: str) -> None:
        import torch

        import stalloc
        from stalloc._serve import shim

        self.library = shim.load("pairs", runs.BENCH)
        self.library.pairs_allocator.restype = ctypes.c_void_p
        self.library.pairs_use.argtypes = [ctypes.c_void_p]
        native = self.library.pairs_allocator()
        os.environ["STALLOC_LOG_LEVEL"] = "3"
        stalloc.enable(**enable)
        torch.cuda.init()
        self.pointers = {"native": native, "stalloc": self.library.pairs_allocator()}

    def use(self, allocator: str) -> None:
        self.library.pairs_use(self.pointers[allocator])


def replay(folder: Path, repeats: int, unplanned: bool) -> None:
    """Times both allocators, and tells the figures."""
    import torch

    import stalloc

    both = Both(mode="alloc", path=str(folder))
    operations, start, requests = sequence(folder / "rank0_dev0.trace")
    if unplanned:
        for operation in operations[start:]:
            operation.size += LARGER if operation.size else 0
    array = (Operation * len(operations))(*operations)
    pairs = sum(operation.size > 0 for operation in operations[start:])
    out: dict[str, Any] = {"pairs": pairs, "entries": {}}
    for name in ENTRIES:
        if name == "python":
            once = lambda: in_python(operations, start, torch)
        else:
            function = getattr(both.library, f"pairs_{name}")
            function.restype = ctypes.c_uint64
            function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]
            once = lambda: function(array, start, len(operations), requests)
        times: dict[str, list[float]] = {"native": [], "stalloc": []}
        before = stalloc.memory_stats()
        for number in range(repeats + 1):
            for allocator in times:
                both.use(allocator)
                nanoseconds = once() / pairs
                if number > 0:  # the first fills the caches
                    times[allocator].append(nanoseconds)
            if number == 0:
                before = stalloc.memory_stats()
        after = stalloc.memory_stats()
        served = {by: (after[by] - before[by]) / (after["requests"] - before["requests"]) for by in ("planned", "open")}
        out["entries"][name] = served | {
            allocator: {"fastest": min(each), "median": statistics.median(each)} for allocator, each in times.items()
        }
    runs.tell(out)


class Cell(ctypes.Structure):
    """A cell of the grid: see pairs.cpp."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("streams", "live", "pairs", "threads", "smallest", "largest", "seed")]


class Took(ctypes.Structure):
    """What a cell took, nanoseconds."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("total", "longest")]


SMALL, WIDE, LARGE = (512, 256 << 10), (512, 4 << 20), (24 << 20, 112 << 20)


def grid(repeats: int, pairs: int, wanted: list[str]) -> None:
    """Times the cells of the grid with both allocators, by turns, and tells the figures."""
    import torch

    both = Both(mode="auto")
    exchange = both.library.pairs_exchange
    exchange.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def took(*cell: int) -> Took:
        found = Took()
        exchange(ctypes.byref(Cell(*cell)), ctypes.byref(found))
        return found

    def measure(streams: int, live: int, threads: int = 1, sizes: tuple[int, int] = SMALL) -> dict:
        times: dict[str, list[Took]] = {"native": [], "stalloc": []}
        for number in range(repeats):
            for allocator in times:
                both.use(allocator)
                times[allocator].append(took(streams, live, pairs, threads, *sizes, number))
        # Neither may hold what the other needs in the next cell.
        both.use("stalloc")
        torch.cuda.empty_cache()
        best = {who: {what: min(getattr(one, what) for one in all_of) for what, _ in Took._fields_} for who, all_of in times.items()}
        of = lambda what: best["stalloc"][what] / max(best["native"][what], 1)
        ns = {who: best[who]["total"] / pairs for who in best}
        first_round = times["stalloc"][0].total / max(times["native"][0].total, 1)
        return {"ratio": of("total"), "first round": first_round, "longest": of("longest"), "ns": ns}

    cells = []

    def cell(name: str, **what: Any) -> None:
        if not wanted or any(part in name for part in wanted):
            cells.append({"cell": name} | measure(**what))
            print(f"{name}: {cells[-1]['ratio']:.2f} ({cells[-1]['ns']['stalloc']:.0f} ns)", file=sys.stderr)

    cell("large blocks, before", streams=1, live=8, sizes=LARGE)
    for history in ("", ", history"):
        both.use("stalloc")
        torch.cuda.memory._record_memory_history(enabled="all" if history else None, context=None, max_entries=10_000)
        for streams in (1, 2, 8, 64):
            of = f"{streams} stream{'s' * (streams > 1)}"
            for live in (100, 1_000, 10_000, 100_000):
                for threads in (1, 4):
                    cell(f"{of}, {live:,} live, {threads} thread{'s' * (threads > 1)}{history}", streams=streams, live=live, threads=threads)
            for live in (100, 1_000):
                cell(f"{of}, {live:,} live, wide sizes{history}", streams=streams, live=live, sizes=WIDE)
    both.use("stalloc")
    torch.cuda.memory._record_memory_history(enabled=None)
    for allocator in both.pointers:
        both.use(allocator)
        took(8, 10_000, 20_000, 1, *SMALL, 77)
    cell("large blocks, after", streams=1, live=8, sizes=LARGE)
    runs.tell({"cells": cells})


def print_grid(figures: dict) -> None:
    """The grid as a table."""
    print(pages.head(["cell", "stalloc, ns a pair", "native", "ratio", "of the first round", "longest malloc, ratio"]))
    for row in figures["cells"]:
        ratios = [f"{row[name]:.2f}" for name in ("ratio", "first round", "longest")]
        print(pages.line([row["cell"], *(f"{row['ns'][who]:.0f}" for who in ("stalloc", "native")), *ratios]))


def print_replay(figures: dict, repeats: int) -> None:
    """A row for each entry point."""
    print(f"{figures['pairs']:,} pairs a round; nanoseconds per pair, fastest (median) of {repeats} rounds\n")
    print(pages.head(["entry point", "native", "stalloc", "ratio", "from the plan", "by search"]))
    for name, row in figures["entries"].items():
        times = [f"{row[who]['fastest']:.0f} ({row[who]['median']:.0f})" for who in ("native", "stalloc")]
        ratio = row["stalloc"]["fastest"] / row["native"]["fastest"]
        print(pages.line([ENTRIES[name], *times, f"{ratio:.2f}", f"{100 * row['planned']:.2f} %", f"{100 * row['open']:.2f} %"]))


def main() -> None:
    parser = runs.parser()
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each allocator")
    parser.add_argument("--on-gpu", action="store_true", help="on the real GPU rather than the stand-in")
    parser.add_argument("--unplanned", action="store_true", help="time requests that are not in the plan")
    parser.add_argument("--plans", type=Path, help="keep the recording and its plan here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--grid", action="store_true", help="time drawn requests on many streams instead of a recording's")
    parser.add_argument("--cells", action="append", default=[], help="of the grid, only cells whose name holds this; may be repeated")
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs that a cell of the grid times")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help="what to record, after --; by default examples/gpt.py")
    options = parser.parse_args()
    if options.child:
        return grid(min(options.rounds, 5), options.pairs, options.cells) if options.grid else replay(options.child, options.rounds, options.unplanned)
    gpu = () if options.on_gpu else runs.GPU
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.plans or Path(scratch)
        # The process takes its allocator itself, after a look at the native one.
        own = ["env", "-u", "STALLOC_MODE", *runs.own("--child", folder, *sys.argv[1:])]
        frozen = () if options.grid else ("--plan", folder, "--frozen")
        if not options.grid and not (folder / "rank0_dev0.plan").exists():
            command = options.command or [sys.executable, runs.ROOT / "examples" / "gpt.py", "--steps", STEPS]
            runs.stalloc("trace", *gpu, "--steps", STEPS, "-o", folder, "--", *command)
        done = runs.stalloc("run", *frozen, *gpu, "--", *own)
    print(done.stderr, end="", file=sys.stderr)
    figures = runs.told(done.stdout)
    if options.json:
        print(json.dumps(figures))
    elif options.grid:
        print_grid(figures)
    else:
        print_replay(figures, options.rounds)


if __name__ == "__main__":
    main()
