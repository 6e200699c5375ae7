"""Judge the allocators on the jobs of bench/jobs, or on recordings of real jobs, and write bench/results/evaluation.md.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env) bench/jobs.py --all --write
    ... bench/jobs.py --recordings FOLDER... --write

Each job is recorded on a dry-run H100 twice, with different seeds: a few steps to plan from, and others, of which the
plan knows nothing, to judge on. Traces are kept in --cache: what is there is not recorded again. A recording of a real job,
a snapshot or a trace, is planned from itself.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs import JOBS, KINDS, Job
from lib import pages, runs

PAGE = "evaluation.md"
#: What `stalloc simulate` calls the allocators that are compared, and what their columns are called.
ALLOCATORS = {
    "pytorch": "PyTorch",
    "pytorch-expandable": "expandable",
    "gmlake": "GMLake",
    "stalloc-open": "stalloc, open",
    "stalloc": "stalloc, planned",
    "stalloc-auto": "stalloc, auto",
}
#: Those that remap memory.
REMAPPING = ("stalloc-open", "stalloc", "stalloc-auto")
#: Memory of the device in the replays that count remaps, as a multiple of the peak of live bytes.
CAPACITIES = (1.05, 1.01)
#: Steps whose remaps do not count: optimizer states are made, plans are learned.
FIRST_STEPS = 5
PLAN_SEED, JUDGE_SEED = 1, 2
#: Commands at the same time.
PROCESSES = 2
MIB = 1 << 20


def trace(cache: Path, name: str, seed: int, steps: int) -> Path:
    """The trace of a job, recorded now unless it is kept."""
    job, directory = JOBS[name], cache / f"{name}-{seed}"
    if not directory.exists():
        print(f"{name}: recording {steps} steps", file=sys.stderr, flush=True)
        # Named when it is whole: a recording that is interrupted leaves a trace, too.
        part = cache / f"{name}-{seed}.part"
        program = [sys.executable, job.script, *job.options, "--seed", seed, "--steps", steps]
        runs.stalloc("trace", "-o", part, *job.launch, *runs.GPU, "--", *program, cwd=runs.ROOT)
        part.rename(directory)
    return directory / "rank0_dev0.trace"


def recorded(cache: Path, name: str) -> dict:
    """Both recordings of a job, as the index of the cache lists them."""
    job = JOBS[name]
    plan, judge = trace(cache, name, PLAN_SEED, job.recorded), trace(cache, name, JUDGE_SEED, job.judged)
    found = runs.said("info", judge)
    entry = {"name": name, "kind": job.kind, "held_out": job.held_out, "plan": str(plan), "judge": str(judge)}
    return entry | {"peak_allocated": found["peak_allocated"], "requests": found["requests"]}


def judged(cache: Path, name: str) -> dict:
    """The figures of a job: on a device without limit, and on two that are hardly larger than what is live."""
    entry, plan = recorded(cache, name), cache / f"{name}.plan"
    runs.stalloc("plan", entry["plan"], "-o", plan)
    replay = ["simulate", entry["judge"], "--plan", plan]
    cell = runs.said(*replay, "--smallest")
    cell["limited"] = {}
    for multiple in CAPACITIES:
        # 1: not every allocator gets through.
        limited = runs.said(*replay, "--capacity", int(multiple * cell["peak_allocated"]), answers=(0, 1))
        cell["limited"][multiple] = by_allocator(limited)
    print(f"{name}: judged", file=sys.stderr, flush=True)
    return cell


def by_allocator(simulated: dict) -> dict[str, dict]:
    """The results of `stalloc simulate` by the allocator's name."""
    return {result["allocator"]: result for result in simulated["results"]}


def figures(cell: dict) -> dict[tuple, float]:
    """What a job's row says, by figure and allocator, as far as the command gave it.

    Where a job runs out of memory its remaps are infinite, as those made until then say nothing.
    """
    found = {}
    for name, result in by_allocator(cell).items():
        found["efficiency", name] = result["efficiency"]
        if result.get("smallest_capacity") is not None:
            found["capacity", name] = 1000 * result["smallest_capacity"] / cell["peak_allocated"]
    for multiple, results in cell["limited"].items():
        for name, result in results.items():
            if late := result.get("remaps_by_step", [])[FIRST_STEPS:]:
                found[multiple, name] = math.inf if result["oom"] else sum(late) / len(late)
    return found


def show(value: float | None, digits: int) -> str:
    """One figure, or a dash where there is none."""
    if value is None:
        return "-"
    return "out of memory" if value == math.inf else f"{value:.{digits}f}"


def row(first: list[str], found: dict[tuple, float]) -> str:
    """A line of the table."""
    cells = []
    for name in ALLOCATORS:
        cells.append(f"{show(found.get(('efficiency', name)), 3)} · {show(found.get(('capacity', name)), 1)}")
    cells += [" · ".join(show(found.get((multiple, name)), 2) for multiple in CAPACITIES) for name in REMAPPING]
    return pages.line([*first, *cells])


def middle(rows: list[dict[tuple, float]]) -> dict[tuple, float]:
    """The median of each figure, over the jobs that have it."""
    keys = {key for found in rows for key in found}
    return {key: statistics.median(found[key] for found in rows if key in found) for key in keys}


def worst(rows: list[dict[tuple, float]]) -> dict[tuple, float]:
    """The lowest efficiency, the largest of the other figures."""
    keys = {key for found in rows for key in found}
    pick = {key: min if key[0] == "efficiency" else max for key in keys}
    return {key: pick[key](found[key] for found in rows if key in found) for key in keys}


def table(cells: dict[str, dict]) -> str:
    """The cells as Markdown, with the median and the worst of each kind at the end."""
    columns = ["job", "kind", "peak, GiB", *(f"{title}: E · capacity" for title in ALLOCATORS.values())]
    lines = [pages.head([*columns, *(f"{ALLOCATORS[name]}: remaps" for name in REMAPPING)], texts=2)]
    rows: dict[str, list[dict[tuple, float]]] = {kind: [] for kind in KINDS}
    for name, cell in cells.items():
        job = JOBS[name]
        rows[job.kind].append(figures(cell))
        first = [name, job.kind + (", held out" if job.held_out else ""), f"{cell['peak_allocated'] / 2**30:.1f}"]
        lines.append(row(first, rows[job.kind][-1]))
    for kind, found in rows.items():
        if found:
            lines.append(row([f"**median of {len(found)}**", kind, ""], middle(found)))
            lines.append(row(["**worst**", kind, ""], worst(found)))
    return "\n".join(lines)


def summary(cells: dict[str, dict]) -> str:
    """Smallest capacities by kind of job, as Markdown."""
    lines = [pages.head(["jobs", *(f"{title}: median · worst" for title in ALLOCATORS.values())])]
    groups = {"**held out**": [name for name in cells if JOBS[name].held_out]}
    groups |= {kind: [name for name in cells if JOBS[name].kind == kind] for kind in KINDS} | {"all": list(cells)}
    for title, names in groups.items():
        if rows := [figures(cells[name]) for name in names]:
            both = middle(rows), worst(rows)
            shown = [" · ".join(show(found.get(("capacity", name)), 1) for found in both) for name in ALLOCATORS]
            lines.append(pages.line([f"{title} ({len(names)})", *shown]))
    return "\n".join(lines)


def of_recordings(folders: list[Path]) -> str:
    """A row for each device of each recording that asked for anything, as Markdown."""

    def row(recording: Path, device: int) -> str:
        said = runs.said("simulate", recording, "--device", device, "--smallest")
        peak, results, reserved = said["peak_allocated"], by_allocator(said), said["actual_peak_reserved"]
        cells = [recording.name.removesuffix(".zst").removesuffix(".pickle"), device, f"{said['requests']:,}", f"{peak / MIB:,.0f}"]
        cells.append(f"{peak / reserved:.3f}" if reserved else "-")
        for name in ALLOCATORS:
            capacity = results[name]["smallest_capacity"]
            cells.append(f"{results[name]['efficiency']:.3f} · {1000 * capacity / peak:.0f}" if capacity else "-")
        return pages.line([*cells, f"{100 * results['stalloc']['planned'] / said['requests']:.0f} %"])

    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    wanted = [(path, device["device"]) for path in files for device in runs.said("info", path)["devices"] if device["requests"]]
    columns = ["recording", "device", "requests", "peak allocated, MiB", "recorded E"]
    columns += [f"{title}: E · capacity" for title in ALLOCATORS.values()] + ["planned"]
    with ThreadPoolExecutor(PROCESSES) as pool:
        return "\n".join([pages.head(columns), *pool.map(lambda each: row(*each), wanted)])


def chosen(options: argparse.Namespace) -> list[str]:
    """The names of the jobs to run."""
    if options.only:
        return options.only
    kinds = options.kind or KINDS

    def wanted(job: Job) -> bool:
        return job.kind in kinds and (options.all or job.held_out == options.held_out)

    return [name for name, job in JOBS.items() if wanted(job)]


def in_parallel(make: Callable[[Path, str], dict], cache: Path, names: list[str]) -> Iterator[tuple[str, dict]]:
    """What is made for each name, in their order; a job that fails is named and left out."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        for name, done in [(name, pool.submit(make, cache, name)) for name in names]:
            try:
                yield name, done.result()
            except runs.Failed as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)


def list_recorded(cache: Path, names: list[str]) -> None:
    """Record jobs, and add each to the index as soon as it is there."""
    index = cache / "index.json"
    entries = {entry["name"]: entry for entry in json.loads(index.read_text())} if index.exists() else {}
    for name, entry in in_parallel(recorded, cache, names):
        entries[name] = entry
        written = index.with_suffix(".new")
        written.write_text(json.dumps([entries[name] for name in JOBS if name in entries], indent=1) + "\n")
        written.replace(index)


def main() -> None:
    parser = runs.parser(PAGE)
    parser.add_argument("--cache", type=Path, default=runs.ROOT / "target" / "jobs", help="where traces are kept")
    parser.add_argument("--only", nargs="*", choices=JOBS, metavar="JOB", help="jobs to run")
    parser.add_argument("--kind", nargs="*", choices=KINDS, help="kinds of jobs to run")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--held-out", action="store_true", help="only the jobs that nothing was chosen by")
    held.add_argument("--all", action="store_true", help="these, too")
    parser.add_argument("--record", action="store_true", help="only record, and list that in index.json of the cache")
    parser.add_argument("--recordings", nargs="+", type=Path, metavar="FOLDER", help="judge on these recordings instead: snapshots or traces")
    options = parser.parse_args()
    if options.recordings:
        found = of_recordings(options.recordings)
        print(found)
        return pages.write("recordings, written by bench/jobs.py", found, PAGE) if options.write else None
    options.cache.mkdir(parents=True, exist_ok=True)
    cache, names = options.cache.absolute(), chosen(options)
    if options.record:
        return list_recorded(cache, names)
    cells = dict(in_parallel(judged, cache, names))
    if options.write:
        pages.write("summary, written by bench/jobs.py", summary(cells), PAGE)
        pages.write("jobs, written by bench/jobs.py", table(cells), PAGE)
    print(summary(cells), table(cells), sep="\n\n")
    if len(cells) < len(names):
        sys.exit(f"failed: {', '.join(sorted(set(names) - set(cells)))}")


if __name__ == "__main__":
    main()
