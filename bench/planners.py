"""The planner and its rivals on the same instances, limits and machine: the table of bench/results/planner.md.

    cargo build --release -p stalloc-cli
    cargo build --release -p stalloc-planner --example tight
    python bench/planners.py --stalloc target/release/stalloc --tight target/release/examples/tight

Rivals are installed into --environment, a virtual environment that is made where there is none: OmniMalloc's SuperMalloc and
OR-tools' CP-SAT, told the load as a lower bound. MiniMalloc (github.com/google/minimalloc, its program `minimalloc`) takes part where `--minimalloc` names it; it only answers
whether a capacity is enough, so it is asked about the load first, then about whatever is enough, then halfway between the best so far and the highest that
it gave up, each time for a part of what is left of the limit. idealloc (github.com/cappadokes/idealloc) takes part where `--idealloc` names it; it knows no limit and says no
offsets: it is given as many lives as fit, and its own word counts. Instances are CSV files and names that `tight` knows. Every other answer is checked here, by code that shares nothing
with any of them. One that is given up (too long, too much memory, wrong) is shown as `-`. Ratios are peak to largest live load, one for each limit; the last column
has the seconds of CPU that all processes and threads of ours took, and the least that a rival took which ended higher, with the start of the program and its reading. MiniMalloc
has one thread; with `--threads 1` everybody has the same CPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lib import pages, runs

RIVALS = ["supermalloc", "cp-sat"]
INSTANCES = ["cut:1000", "slack5:300", "slack15:300", "slack5:1000", "slack15:1000", "slack15:2000", "slack5:5000", "pools:1000"]
#: Seconds that a solver may take beyond its limit, for its start and for reading.
GRACE = 20.0
#: CP-SAT is not asked about more buffers: its constraint alone takes longer than the longest limit.
CP_SAT_BUFFERS = 20_000


def read(path):
    """Buffers `(lower, upper, size)` of a CSV file, and their offsets where it has some."""
    with open(path) as file:
        rows = list(csv.DictReader(file))
    offsets = [int(row["offset"]) for row in rows] if rows and "offset" in rows[0] else None
    return [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows], offsets


def load(buffers):
    """The largest live load: no plan can have a lower peak."""
    changes = sorted([(lower, 1, size) for lower, _, size in buffers] + [(upper, 0, -size) for _, upper, size in buffers])
    live = most = 0
    for _, _, change in changes:
        live += change
        most = max(most, live)
    return most


def peak(buffers, offsets):
    """The peak of a plan, or None if two buffers that live together overlap."""
    if offsets is None or len(offsets) != len(buffers) or min(offsets, default=0) < 0:
        return None
    events = sorted([(b[0], 1, i) for i, b in enumerate(buffers)] + [(b[1], 0, i) for i, b in enumerate(buffers)])
    live = {}
    for _, begins, i in events:
        if buffers[i][0] == buffers[i][1] or buffers[i][2] == 0:
            continue
        if not begins:
            del live[i]
            continue
        low, high = offsets[i], offsets[i] + buffers[i][2]
        if any(low < other_high and other_low < high for other_low, other_high in live.values()):
            return None
        live[i] = (low, high)
    return max((offset + b[2] for offset, b in zip(offsets, buffers)), default=0)


def solve(rival, buffers, limit, threads):
    """Offsets by a rival; runs in the rivals' environment."""
    if rival == "cp-sat":
        return cp_sat(buffers, limit, threads)
    import omnimalloc
    from omnimalloc.allocators import supermalloc

    make = lambda i, b: omnimalloc.Allocation(id=i, size=b[2], start=b[0], end=b[1])
    rules = supermalloc.SupermallocAllocator(timeout=limit, num_threads=threads)
    placed = omnimalloc.allocate([make(i, b) for i, b in enumerate(buffers)], rules)
    offsets = {a.id: a.offset for a in placed}
    return [offsets[i] for i in range(len(buffers))]


def minimalloc(program, path, limit):
    """The lowest peak of MiniMalloc, asked about one capacity after another within the limit."""
    buffers, until = read(path)[0], time.monotonic() + limit
    answer = path.with_suffix(".answer")

    def ask_for(capacity, share):
        left = until - time.monotonic()
        if left <= 0:
            return None
        answer.unlink(missing_ok=True)
        command = [program, f"--capacity={capacity}", f"--timeout={left * share}s", f"--input={path}", f"--output={answer}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return peak(buffers, read(answer)[1]) if answer.exists() else None

    low = load(buffers)
    best = ask_for(low, 0.4) or ask_for(2 * low, 0.8)
    low += 1
    while best is not None and low < best and time.monotonic() < until:
        middle = (low + best - 1) // 2
        top = ask_for(middle, 0.3)
        low, best = (low, top) if top is not None else (middle + 1, best)
    return best


def idealloc(program, path, limit, threads):
    """The lowest peak that idealloc names within the limit, which it has as lives: one first, then as many as that says."""
    until, lives, best = time.monotonic() + limit, 1, None
    # Doubled, as it ends in an error where a lifetime is a single instant.
    twice = path.with_suffix(".twice")
    twice.write_text("id,lower,upper,size\n" + "".join(f"{i},{2 * b[0]},{2 * b[1]},{b[2]}\n" for i, b in enumerate(read(path)[0])))
    while (left := until - time.monotonic()) > 0:
        command = [program, "--input", twice, "ex-csv", "--max-lives", str(lives)]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=left, env={**os.environ, "RAYON_NUM_THREADS": str(threads)})
        except subprocess.TimeoutExpired:
            break
        peaks = [int(top) for top in re.findall(r"Makespan:\s+(\d+)", said.stdout)]
        best = min([best] * (best is not None) + peaks, default=None)
        took = left - (until - time.monotonic())
        lives = int(min(max(1, 0.9 * lives * (left - took) / took), 1_000_000))
    return best


def cp_sat(buffers, limit, threads):
    """Offsets by CP-SAT: rectangles of fixed extent in time that do not overlap, the highest top as low as can be."""
    from ortools.sat.python import cp_model

    if len(buffers) > CP_SAT_BUFFERS:
        return None
    model, most = cp_model.CpModel(), 3 * load(buffers)
    offsets = [model.new_int_var(0, most - size, "") for _, _, size in buffers]
    top = model.new_int_var(load(buffers), most, "")
    times, places = [], []
    for (lower, upper, size), offset in zip(buffers, offsets):
        times.append(model.new_fixed_size_interval_var(lower, upper - lower, ""))
        places.append(model.new_fixed_size_interval_var(offset, size, ""))
        model.add(offset + size <= top)
    model.add_no_overlap_2d(times, places)
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = limit, threads
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [solver.value(offset) for offset in offsets]


def environment(folder):
    """The Python of the rivals' environment, made where there is none."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "omnimalloc==1.0.0", "ortools==9.15.6755"], check=True)
    return python


def cpu():
    """Seconds of CPU of all processes that have ended under this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def planned(command, out, buffers, limit):
    """The peak of the offsets that a command leaves in a file, or None."""
    out.unlink(missing_ok=True)
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=limit + GRACE)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or not out.exists():
        return None
    return peak(buffers, json.loads(out.read_text()) if out.suffix == ".json" else read(out)[1])


def answer(who, path, buffers, limit, options):
    """The ratio that a planner comes to within a limit, or None, and the seconds of CPU that it took."""
    start = cpu()
    if who == "stalloc":
        out = path.with_name("plan.csv")
        command = [options.stalloc, "plan", path, "-o", out, "--time-limit", limit, "--threads", options.threads, "--json"]
        top = planned(command, out, buffers, limit)
    elif who == "minimalloc":
        top = minimalloc(options.minimalloc, path, limit)
    elif who == "idealloc":
        top = idealloc(options.idealloc, path, limit, options.threads)
    else:
        out = path.with_name("plan.json")
        command = [environment(options.environment), __file__, "--solve", who, path, limit, out, "--threads", options.threads]
        top = planned(command, out, buffers, limit)
    return (None if top is None else top / load(buffers)), cpu() - start


def main():
    parser = runs.parser()
    parser.add_argument("instances", nargs="*", default=INSTANCES)
    parser.add_argument("--stalloc", type=Path, default=Path("target/release/stalloc"))
    parser.add_argument("--tight", type=Path, default=Path("target/release/examples/tight"))
    parser.add_argument("--environment", type=Path, default=Path(tempfile.gettempdir()) / "stalloc-rival-planners")
    parser.add_argument("--limits", default="0.1,1,10", help="seconds, separated by commas")
    parser.add_argument("--rivals", default=",".join(RIVALS), help="of the environment")
    parser.add_argument("--minimalloc", type=Path, help="MiniMalloc's program")
    parser.add_argument("--idealloc", type=Path, help="idealloc's program")
    parser.add_argument("--threads", type=int, default=2, help="of each that can have several")
    parser.add_argument("--solve", nargs=4, metavar=("RIVAL", "CSV", "LIMIT", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.solve:
        rival, path, limit, out = options.solve
        Path(out).write_text(json.dumps(solve(rival, read(path)[0], float(limit), options.threads)))
        return
    rivals = [*filter(None, options.rivals.split(",")), *(name for name in ("minimalloc", "idealloc") if getattr(options, name))]
    columns = ["instance", "buffers", "stalloc", *rivals, "CPU, s"]
    print(f"Limits: {options.limits} s.\n\n{pages.head(columns, texts=len(columns))}")
    behind = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.instances:
            path = Path(name)
            if not path.suffix:
                subprocess.run([options.tight, "--write", folder, name], check=True, stdout=subprocess.DEVNULL)
                path = Path(folder) / f"{name.replace(':', '_')}.csv"
            buffers, _ = read(path)
            # What the instance was made from is nobody's business.
            bare = Path(folder) / "instance.csv"
            bare.write_text("id,lower,upper,size\n" + "".join(f"{i},{b[0]},{b[1]},{b[2]}\n" for i, b in enumerate(buffers)))
            found = []
            for limit in map(float, options.limits.split(",")):
                ours, *others = (answer(who, bare, buffers, limit, options) for who in ("stalloc", *rivals))
                best = min((ratio for ratio, _ in others if ratio), default=None)
                behind += best is not None and (ours[0] is None or ours[0] > best + 1e-9)
                above = [seconds for ratio, seconds in others if (ratio or 9) > (ours[0] or 9)]
                took = f"{ours[1]:.1f} / {min(above):.1f}" if above else f"{ours[1]:.1f} / -"
                found.append([f"{ratio:.4f}" if ratio else "-" for ratio, _ in (ours, *others)] + [took])
            print(pages.line([path.stem, len(buffers), *(" · ".join(cells) for cells in zip(*found))]), flush=True)
    print(f"\nBehind the best of the others in {behind} rows.")


if __name__ == "__main__":
    main()
