"""Jobs whose steps differ: plan a few recorded steps, replay many others, and write the table of docs/evaluation.md.

    python bench/dynamic.py --stalloc target/release/stalloc --write

Each job is recorded on a dry-run H100 twice, with different seeds: a few steps to plan from, and a run of at least twenty
others, of which the plan knows nothing. Traces are kept in --cache: what is there is not recorded again.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parent.parent

MEGATRON = [
    *("megatron_gpt.py", "--layers", "4", "--hidden", "1024", "--feed-forward", "4096", "--vocabulary", "32000"),
    *("--length", "1024", "--micro-batch", "4"),
]
LLAMA = ["llama.py", "--layers", "6"]
SMALL = ["--width", "1024", "--heads", "16", "--layers", "8", "--length", "1024"]
BUCKETS = "512,768,1024,1280,1536,1792,2048,2304"
#: Steps of each run that is replayed.
STEPS = 28


@dataclass
class Job:
    """A script, how many of its steps are recorded for the plan, and the efficiency to reach."""

    title: str
    script: list[str]
    recorded: int
    goal: float


def moe(experts: int, top_k: int, micro_batches: int, recompute: bool) -> Job:
    """A mixture of experts."""
    script = [*MEGATRON, "--experts", str(experts), "--top-k", str(top_k), "--micro-batches", str(micro_batches)]
    title = f"MoE, top-{top_k} of {experts}" + (", recomputation" if recompute else "")
    script += ["--recompute", "full"] if recompute else []
    return Job(title, script, 4, 0.98 if recompute else 0.97)


JOBS = {
    "moe8-recompute": moe(8, 2, 4, True),
    "moe60-recompute": moe(60, 4, 2, True),
    "moe8": moe(8, 2, 4, False),
    "moe60": moe(60, 4, 2, False),
    "buckets-batch4": Job("Llama, 8 buckets, batch 4", [*LLAMA, "--batch", "4", "--lengths", BUCKETS], 16, 0.97),
    "buckets-batch3": Job("Llama, 8 buckets, batch 3", [*LLAMA, "--batch", "3", "--lengths", BUCKETS], 16, 0.97),
    "any-length": Job("Llama, any length of 256 to 2304", [*LLAMA, "--batch", "4", "--lengths", "256-2304"], 4, 0.93),
    "evaluation": Job("GPT, evaluation every third step", ["evaluation.py", *SMALL], 6, 0.97),
    "offload": Job("GPT, generation, offload, checkpoint", ["offload.py", *SMALL], 5, 0.97),
}
ALLOCATORS = {"pytorch": "PyTorch", "pytorch-expandable": "expandable", "gmlake": "GMLake", "stalloc": "stalloc"}
RECORD_SEED, RUN_SEED = 1, 2


class Bench:
    """Runs the `stalloc` command."""

    def __init__(self, command: str, cache: Path) -> None:
        self.command = command
        self.cache = cache

    def stalloc(self, *arguments: object) -> subprocess.CompletedProcess:
        """One command; ends the program if it fails."""
        done = subprocess.run([self.command, *map(str, arguments)], text=True, capture_output=True, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(f"stalloc {' '.join(map(str, arguments))}:\n{done.stderr[-2000:]}")
        return done

    def script(self, job: Job, seed: int, steps: int) -> list[str]:
        """The job's command."""
        name, *options = job.script
        return ["--", sys.executable, f"examples/{name}", *options, "--seed", str(seed), "--steps", str(steps)]

    def trace(self, name: str, seed: int, steps: int) -> Path:
        """The trace of a job, recorded now unless it is kept."""
        directory = self.cache / f"{name}-{seed}"
        trace = directory / "rank0_dev0.trace"
        if not trace.exists():
            print(f"{name}: recording {steps} steps", file=sys.stderr, flush=True)
            self.stalloc("trace", "--dry-run", "h100-80gb", "-o", directory, *self.script(JOBS[name], seed, steps))
        return trace

    def cell(self, name: str, served: bool) -> dict:
        """The figures of a job."""
        job = JOBS[name]
        recorded = self.trace(name, RECORD_SEED, job.recorded)
        run = self.trace(name, RUN_SEED, STEPS)
        plan = self.cache / f"{name}.plan"
        self.stalloc("plan", recorded, "-o", plan)
        cell = json.loads(self.stalloc("simulate", run, "--plan", plan, "--json").stdout)
        if served:
            cell["served"] = self.serve(job, recorded.parent)
        return cell

    def serve(self, job: Job, traces: Path) -> str:
        """The efficiency that the job itself reports when it is served from the plan."""
        script = self.script(job, RUN_SEED, STEPS)
        report = self.stalloc("run", "--plan", traces, "--dry-run", "h100-80gb", *script).stderr
        found = [line.rsplit("efficiency", 1)[1] for line in report.splitlines() if "efficiency" in line]
        return found[-1].strip(" .") if found else ""


def table(cells: dict[str, dict]) -> str:
    """The cells as Markdown."""
    heads = ["job", "goal", "steps planned from", "peak allocated, GiB", *(f"{name} E" for name in ALLOCATORS.values())]
    heads += ["moves a step", "`stalloc run`"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---:|---:|---:|" + "---:|" * (len(ALLOCATORS) + 2)]
    for name, cell in cells.items():
        job = JOBS[name]
        found = {result["allocator"]: f"{result['efficiency']:.3f}" for result in cell["results"]}
        row = [job.title, f"{job.goal:.2f}", str(job.recorded), f"{cell['peak_allocated'] / 2**30:.1f}"]
        row += [found.get(allocator, "") for allocator in ALLOCATORS]
        moves = sum(result.get("moves", 0) for result in cell["results"])
        row += [f"{moves / STEPS:.1f}", cell.get("served", "")]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stalloc", default="stalloc", help="the command")
    parser.add_argument("--cache", type=Path, default=ROOT / "target" / "dynamic", help="where traces are kept")
    parser.add_argument("--only", nargs="*", default=list(JOBS), choices=JOBS, help="jobs to run")
    parser.add_argument("--run", nargs="*", choices=JOBS, metavar="JOB", help="also serve the jobs (or these) from their plans")
    parser.add_argument("--write", action="store_true", help="write docs/evaluation.md")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    bench = Bench(os.path.abspath(options.stalloc) if os.sep in options.stalloc else options.stalloc, options.cache)
    served = options.run or (JOBS if options.run is not None else [])
    cells = {name: bench.cell(name, name in served) for name in options.only}
    if options.write:
        page.write("jobs, written by bench/dynamic.py", table(cells))
    print(table(cells))


if __name__ == "__main__":
    main()
