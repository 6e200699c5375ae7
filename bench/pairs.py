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

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
    import time

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


def replay(folder: Path, rounds: int, unplanned: bool) -> None:
    """Runs under `stalloc run`: times both allocators and prints JSON."""
    import torch

    import stalloc
    from stalloc._serve import shim

    library = shim.load("pairs", ROOT / "bench")
    library.pairs_allocator.restype = ctypes.c_void_p
    library.pairs_use.argtypes = [ctypes.c_void_p]
    native = library.pairs_allocator()
    os.environ["STALLOC_LOG_LEVEL"] = "3"
    stalloc.enable(mode="alloc", path=str(folder))
    torch.cuda.init()
    ours = library.pairs_allocator()
    operations, start, requests = sequence(folder / "rank0_dev0.trace")
    if unplanned:
        for operation in operations[start:]:
            operation.size += LARGER if operation.size else 0
    array = (Operation * len(operations))(*operations)
    pairs = sum(operation.size > 0 for operation in operations[start:])
    out = {"pairs": pairs, "entries": {}}
    for name in ENTRIES:
        if name == "python":
            time = lambda: in_python(operations, start, torch)  # noqa: E731
        else:
            function = getattr(library, f"pairs_{name}")
            function.restype = ctypes.c_uint64
            function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]
            time = lambda: function(array, start, len(operations), requests)  # noqa: E731
        times: dict[str, list[float]] = {"native": [], "stalloc": []}
        before = stalloc.memory_stats()
        for number in range(rounds + 1):
            for allocator, pointer in (("native", native), ("stalloc", ours)):
                library.pairs_use(pointer)
                nanoseconds = time() / pairs
                if number > 0:  # the first fills the caches
                    times[allocator].append(nanoseconds)
            if number == 0:
                before = stalloc.memory_stats()
        after = stalloc.memory_stats()
        served = {by: (after[by] - before[by]) / (after["requests"] - before["requests"]) for by in ("planned", "open")}
        out["entries"][name] = served | {
            allocator: {"fastest": min(each), "median": statistics.median(each)} for allocator, each in times.items()
        }
    print(json.dumps(out))


class Cell(ctypes.Structure):
    """A cell of the grid: see pairs.cpp."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("streams", "live", "pairs", "threads", "smallest", "largest", "seed")]


class Took(ctypes.Structure):
    """What a cell took, nanoseconds."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("total", "first", "last", "longest")]


SMALL, WIDE, LARGE = (512, 256 << 10), (512, 4 << 20), (24 << 20, 112 << 20)


def grid(rounds: int, pairs: int, wanted: list[str]) -> None:
    """Runs under `stalloc run`: times the cells of the grid with both allocators, by turns, and prints JSON."""
    import torch

    import stalloc
    from stalloc._serve import shim

    library = shim.load("pairs", ROOT / "bench")
    library.pairs_allocator.restype = ctypes.c_void_p
    library.pairs_use.argtypes = [ctypes.c_void_p]
    library.pairs_exchange.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    native = library.pairs_allocator()
    os.environ["STALLOC_LOG_LEVEL"] = "3"
    stalloc.enable(mode="auto")
    torch.cuda.init()
    ours = library.pairs_allocator()

    def ratio(streams: int, live: int, threads: int = 1, sizes: tuple[int, int] = SMALL, count: int = pairs) -> dict:
        times: dict[str, list[Took]] = {"native": [], "stalloc": []}
        for number in range(rounds):
            for allocator, pointer in (("native", native), ("stalloc", ours)):
                library.pairs_use(pointer)
                took = Took()
                cell = Cell(streams, live, count, threads, *sizes, number)
                library.pairs_exchange(ctypes.byref(cell), ctypes.byref(took))
                times[allocator].append(took)
        # Neither may hold what the other needs in the next cell.
        library.pairs_use(ours)
        torch.cuda.empty_cache()
        best = {who: {what: min(getattr(one, what) for one in all_of) for what, _ in Took._fields_} for who, all_of in times.items()}
        of = lambda what: best["stalloc"][what] / max(best["native"][what], 1)  # noqa: E731
        ns = {who: best[who]["total"] / count for who in best}
        first_round = times["stalloc"][0].total / max(times["native"][0].total, 1)
        flat = best["stalloc"]["last"] / max(best["stalloc"]["first"], 1)
        return {"ratio": of("total"), "first round": first_round, "longest": of("longest"), "last to first": flat, "ns": ns}

    cells = []

    def cell(name: str, **what) -> None:
        if not wanted or any(part in name for part in wanted):
            cells.append({"cell": name} | ratio(**what))
            print(f"{name}: {cells[-1]['ratio']:.2f} ({cells[-1]['ns']['stalloc']:.0f} ns)", file=sys.stderr)

    history = lambda on: torch.cuda.memory._record_memory_history(enabled="all" if on else None, context=None, max_entries=10_000)  # noqa: E731
    cell("large blocks, before", streams=1, live=8, sizes=LARGE)
    for on in (False, True):
        library.pairs_use(ours)
        history(on)
        for streams in (1, 2, 8, 64):
            for live in (100, 1_000, 10_000, 100_000):
                for threads in (1, 4):
                    name = f"{streams} stream{'s' * (streams > 1)}, {live:,} live, {threads} thread{'s' * (threads > 1)}"
                    cell(name + (", history" if on else ""), streams=streams, live=live, threads=threads)
            for live in (100, 1_000):
                cell(f"{streams} stream{'s' * (streams > 1)}, {live:,} live, wide sizes" + (", history" if on else ""), streams=streams, live=live, sizes=WIDE)
        library.pairs_use(ours)
        history(False)
    for pointer in (native, ours):
        library.pairs_use(pointer)
        library.pairs_exchange(ctypes.byref(Cell(8, 10_000, 20_000, 1, *SMALL, 77)), ctypes.byref(Took()))
    cell("large blocks, after", streams=1, live=8, sizes=LARGE)
    print(json.dumps({"cells": cells}))


def print_grid(figures: dict) -> None:
    """The grid as a table."""
    print("| cell | stalloc, ns a pair | native | ratio | of the first round | longest malloc, ratio | last tenth to first |\n|---|---|---|---|---|---|---|")
    for row in figures["cells"]:
        ns = row["ns"]
        print(f"| {row['cell']} | {ns['stalloc']:.0f} | {ns['native']:.0f} | {row['ratio']:.2f} | {row['first round']:.2f} | {row['longest']:.2f} | {row['last to first']:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each allocator")
    parser.add_argument("--on-gpu", action="store_true", help="on the real GPU rather than the stand-in")
    parser.add_argument("--unplanned", action="store_true", help="time requests that are not in the plan")
    parser.add_argument("--plans", type=Path, help="keep the recording and its plan here")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--grid", action="store_true", help="time drawn requests on many streams instead of a recording's")
    parser.add_argument("--cells", action="append", default=[], help="of the grid, only cells whose name holds this; may be repeated")
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs that a cell of the grid times")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--replay-grid", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help="what to record, after --; by default examples/gpt.py")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay, options.rounds, options.unplanned)
    if options.replay_grid:
        return grid(min(options.rounds, 5), options.pairs, options.cells)
    command = options.command or [sys.executable, str(ROOT / "examples" / "gpt.py"), "--steps", str(STEPS)]
    import stalloc

    stalloc_command = str(Path(stalloc.__file__).parent / "_bin" / "stalloc")
    gpu = [] if options.on_gpu else ["--dry-run", "h100-80gb"]
    if options.grid:
        inner = ["env", "-u", "STALLOC_MODE", sys.executable, __file__, "--replay-grid", "--pairs", str(options.pairs)]
        inner += ["--rounds", str(options.rounds), *(f"--cells={name}" for name in options.cells)]
        done = subprocess.run([stalloc_command, "run", *gpu, "--", *inner], stdout=subprocess.PIPE, check=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        return print(json.dumps(figures)) if options.json else print_grid(figures)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.plans or Path(scratch)
        if not (folder / "rank0_dev0.plan").exists():
            record = [stalloc_command, "trace", *gpu, "--steps", str(STEPS), "-o", str(folder), "--", *command]
            subprocess.run(record, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # The replay takes its allocator itself, after a look at the native one.
        inner = ["env", "-u", "STALLOC_MODE", sys.executable, __file__, "--replay", str(folder)]
        inner += ["--rounds", str(options.rounds)]
        inner += ["--unplanned"] if options.unplanned else []
        done = subprocess.run([stalloc_command, "run", "--plan", str(folder), "--frozen", *gpu, "--", *inner], stdout=subprocess.PIPE)
        if done.returncode:
            sys.exit(done.returncode)
    figures = json.loads(done.stdout.splitlines()[-1])
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{figures['pairs']:,} pairs a round; nanoseconds per pair, fastest (median) of {options.rounds} rounds\n")
    print("| entry point | native | stalloc | ratio | from the plan | by search |\n|---|---|---|---|---|---|")
    for name, row in figures["entries"].items():
        cells = [f"{row[who]['fastest']:.0f} ({row[who]['median']:.0f})" for who in ("native", "stalloc")]
        ratio = row["stalloc"]["fastest"] / row["native"]["fastest"]
        print(f"| {ENTRIES[name]} | {cells[0]} | {cells[1]} | {ratio:.2f} | {100 * row['planned']:.2f} % | {100 * row['open']:.2f} % |")


if __name__ == "__main__":
    main()
