"""Judge the allocators on the jobs of bench/jobs: plan a few recorded steps, replay others, and write bench/results/evaluation.md.

    python bench/jobs.py --stalloc $(scripts/python-package --release)/stalloc/_bin/stalloc --write

Each job is recorded on a dry-run H100 twice, with different seeds: a few steps to plan from, and others, of which the
plan knows nothing, to judge on. Traces are kept in --cache: what is there is not recorded again.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import page
from allocators import ALLOCATORS
from jobs import JOBS, KINDS, Job

ROOT = Path(__file__).resolve().parent.parent
#: Those that remap memory.
REMAPPING = ("stalloc-open", "stalloc", "stalloc-auto")
#: Memory of the device in the replays that count remaps, as a multiple of the peak of live bytes.
CAPACITIES = (1.05, 1.01)
#: Steps whose remaps do not count: optimizer states are made, plans are learned.
FIRST_STEPS = 5
PLAN_SEED, JUDGE_SEED = 1, 2
#: Commands at the same time.
PROCESSES = 2


class Failed(Exception):
    """A command failed."""


class Bench:
    """Runs the `stalloc` command."""

    def __init__(self, command: str, cache: Path) -> None:
        self.command = command
        self.cache = cache

    def stalloc(self, *arguments: object, answers: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess:
        """One command, which may end with one of the exit statuses ``answers``."""
        done = subprocess.run([self.command, *map(str, arguments)], text=True, capture_output=True, cwd=ROOT)
        if done.returncode not in answers:
            raise Failed(f"stalloc {' '.join(map(str, arguments))}:\n{done.stderr[-2000:]}")
        return done

    def script(self, job: Job, seed: int, steps: int) -> list[str]:
        """The options of `stalloc trace` and `stalloc run` for a dry run, and the job's command."""
        command = [sys.executable, job.script, *job.options, "--seed", str(seed), "--steps", str(steps)]
        return ["--dry-run", "h100-80gb", "--", *command]

    def trace(self, name: str, seed: int, steps: int) -> Path:
        """The trace of a job, recorded now unless it is kept."""
        job, directory = JOBS[name], self.cache / f"{name}-{seed}"
        if not directory.exists():
            print(f"{name}: recording {steps} steps", file=sys.stderr, flush=True)
            # Named when it is whole: a recording that is interrupted leaves a trace, too.
            part = self.cache / f"{name}-{seed}.part"
            self.stalloc("trace", "-o", part, *job.launch, *self.script(job, seed, steps))
            part.rename(directory)
        return directory / "rank0_dev0.trace"

    def record(self, name: str) -> dict:
        """Both recordings of a job, as the index of the cache lists them."""
        job = JOBS[name]
        plan, judge = self.trace(name, PLAN_SEED, job.recorded), self.trace(name, JUDGE_SEED, job.judged)
        found = json.loads(self.stalloc("info", judge, "--json").stdout)
        entry = {"name": name, "kind": job.kind, "held_out": job.held_out, "plan": str(plan), "judge": str(judge)}
        return entry | {"peak_allocated": found["peak_allocated"], "requests": found["requests"]}

    def cell(self, name: str, served: bool) -> dict:
        """The figures of a job: on a device without limit, and on two that are hardly larger than what is live."""
        entry = self.record(name)
        plan = self.cache / f"{name}.plan"
        self.stalloc("plan", entry["plan"], "-o", plan)
        replay = ["simulate", entry["judge"], "--plan", plan, "--json"]
        cell = json.loads(self.stalloc(*replay, "--smallest").stdout)
        cell["limited"] = {}
        for multiple in CAPACITIES:
            capacity = int(multiple * cell["peak_allocated"])
            # 1: not every allocator gets through.
            limited = self.stalloc(*replay, "--capacity", capacity, answers=(0, 1)).stdout
            cell["limited"][multiple] = by_allocator(json.loads(limited))
        if served:
            cell["served"] = self.serve(name, Path(entry["plan"]).parent)
        print(f"{name}: judged", file=sys.stderr, flush=True)
        return cell

    def serve(self, name: str, traces: Path) -> str:
        """The efficiency that the job itself reports when it is served from the plan; a dash for one rank of several."""
        job = JOBS[name]
        if job.launch:
            return "-"
        report = self.stalloc("run", "--plan", traces, *self.script(job, JUDGE_SEED, job.judged)).stderr
        found = [line.rsplit("efficiency", 1)[1] for line in report.splitlines() if "efficiency" in line]
        return found[-1].strip(" .") if found else "-"


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


def row(first: list[str], found: dict[tuple, float], last: list[str]) -> str:
    """A line of the table."""
    cells = []
    for name in ALLOCATORS:
        cells.append(f"{show(found.get(('efficiency', name)), 3)} · {show(found.get(('capacity', name)), 1)}")
    cells += [" · ".join(show(found.get((multiple, name)), 2) for multiple in CAPACITIES) for name in REMAPPING]
    return "| " + " | ".join([*first, *cells, *last]) + " |"


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
    heads = ["job", "kind", "peak, GiB", *(f"{title}: E · capacity" for title in ALLOCATORS.values())]
    served = any("served" in cell for cell in cells.values())
    heads += [f"{ALLOCATORS[name]}: remaps" for name in REMAPPING] + ["`stalloc run`"] * served
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    rows: dict[str, list[dict[tuple, float]]] = {kind: [] for kind in KINDS}
    for name, cell in cells.items():
        job = JOBS[name]
        rows[job.kind].append(figures(cell))
        first = [name, job.kind + (", held out" if job.held_out else ""), f"{cell['peak_allocated'] / 2**30:.1f}"]
        lines.append(row(first, rows[job.kind][-1], [cell.get("served", "")] * served))
    for kind, found in rows.items():
        if found:
            lines.append(row([f"**median of {len(found)}**", kind, ""], middle(found), [""] * served))
            lines.append(row(["**worst**", kind, ""], worst(found), [""] * served))
    return "\n".join(lines)


def summary(cells: dict[str, dict]) -> str:
    """Smallest capacities by kind of job, as Markdown."""
    lines = ["| jobs | " + " | ".join(f"{title}: median · worst" for title in ALLOCATORS.values()) + " |"]
    lines.append("|---|" + "---:|" * len(ALLOCATORS))
    groups = {"**held out**": [name for name in cells if JOBS[name].held_out]}
    groups |= {kind: [name for name in cells if JOBS[name].kind == kind] for kind in KINDS} | {"all": list(cells)}
    for title, names in groups.items():
        if rows := [figures(cells[name]) for name in names]:
            both = middle(rows), worst(rows)
            shown = [" · ".join(show(found.get(("capacity", name)), 1) for found in both) for name in ALLOCATORS]
            lines.append(f"| {title} ({len(names)}) | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def chosen(options: argparse.Namespace) -> list[str]:
    """The names of the jobs to run."""
    if options.only:
        return options.only
    kinds = options.kind or KINDS

    def wanted(job: Job) -> bool:
        return job.kind in kinds and (options.all or job.held_out == options.held_out)

    return [name for name, job in JOBS.items() if wanted(job)]


def in_parallel(make: Callable[[str], dict], names: list[str]) -> Iterator[tuple[str, dict]]:
    """What is made for each name, in their order; a job that fails is named and left out."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        for name, done in [(name, pool.submit(make, name)) for name in names]:
            try:
                yield name, done.result()
            except Failed as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stalloc", default="stalloc", help="the command")
    parser.add_argument("--cache", type=Path, default=ROOT / "target" / "jobs", help="where traces are kept")
    parser.add_argument("--only", nargs="*", choices=JOBS, metavar="JOB", help="jobs to run")
    parser.add_argument("--kind", nargs="*", choices=KINDS, help="kinds of jobs to run")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--held-out", action="store_true", help="only the jobs that nothing was chosen by")
    held.add_argument("--all", action="store_true", help="these, too")
    parser.add_argument("--run", nargs="*", choices=JOBS, metavar="JOB", help="serve all jobs (or these), too")
    parser.add_argument("--record", action="store_true", help="only record, and list that in index.json of the cache")
    parser.add_argument("--write", action="store_true", help="write bench/results/evaluation.md")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    command = os.path.abspath(options.stalloc) if os.sep in options.stalloc else options.stalloc
    bench = Bench(command, options.cache.absolute())
    names = chosen(options)
    if options.record:
        record(bench, names)
        return
    served = options.run or (JOBS if options.run is not None else [])
    cells = dict(in_parallel(lambda name: bench.cell(name, name in served), names))
    if options.write:
        page.write("summary, written by bench/jobs.py", summary(cells))
        page.write("jobs, written by bench/jobs.py", table(cells))
    print(summary(cells), table(cells), sep="\n\n")
    if len(cells) < len(names):
        sys.exit(f"failed: {', '.join(sorted(set(names) - set(cells)))}")


def record(bench: Bench, names: list[str]) -> None:
    """Record jobs, and add each to the index as soon as it is there."""
    index = bench.cache / "index.json"
    entries = {entry["name"]: entry for entry in json.loads(index.read_text())} if index.exists() else {}
    for name, entry in in_parallel(bench.record, names):
        entries[name] = entry
        written = index.with_suffix(".new")
        written.write_text(json.dumps([entries[name] for name in JOBS if name in entries], indent=1) + "\n")
        written.replace(index)


if __name__ == "__main__":
    main()
