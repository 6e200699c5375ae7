"""Every workload of examples/ under its plan: recorded, planned and run by PyTorch; prints what came of it.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env) bench/workloads.py [NAME...]

Each is recorded on the stand-in GPU for a few steps and then run for twice as many, from its plan. `from the plan` counts
all requests, in the second half of the run, and `open` and `unknown` the others; `reserved` is
the peak of arena and fallback together, and what the plan promises; `overlaps` counts addresses that PyTorch's own
history shows handed out while a part of them was in use.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "python" / "programs"

MEGATRON = "megatron_gpt --layers 4 --micro-batches 4"
#: The example and its options; then how many steps to record: what varies is known once it was seen. All are rank 3 of 8.
WORKLOADS = {
    "gpt": ("gpt --layers 2", 4),
    "evaluation": ("evaluation --layers 2", 7),
    "variable length": ("variable_length --layers 2", 12),
    "offload": ("offload --layers 2", 8),
    "llama": ("llama --layers 2 --length 256", 4),
    "llama, recomputation": ("llama --layers 2 --length 256 --checkpoint", 4),
    "megatron": (f"{MEGATRON} --data 8", 4),
    "megatron, full recomputation": (f"{MEGATRON} --tensor 4 --recompute full", 4),
    "megatron, selective recomputation": (f"{MEGATRON} --recompute selective", 4),
    "megatron, distributed optimizer": (f"{MEGATRON} --data 8 --distributed-optimizer", 4),
    "megatron, pipeline": (f"{MEGATRON} --pipeline 4", 4),
    "megatron, virtual pipeline": (f"{MEGATRON} --pipeline 2 --chunks 2", 4),
    "megatron, experts": (f"{MEGATRON} --experts 8 --expert 2", 4),
    "megatron, all of it": (
        f"{MEGATRON} --experts 8 --expert 2 --pipeline 2 --chunks 2 --data 4 --recompute full --distributed-optimizer",
        4,
    ),
}
RANK = {"RANK": "3", "WORLD_SIZE": "8"}


@dataclass
class Outcome:
    """What came of a workload. Sizes are bytes."""

    requests: int
    share: float  # of the steady steps' requests, those at planned offsets
    open: int  # requests in the steady steps that went where they fitted best
    unknown: int  # and those that it does not know
    reserved: int
    promised: int
    overlaps: int
    allocations: int  # by PyTorch's history
    causes: dict[str, int]

    @property
    def excess(self) -> float:
        """What was reserved beyond the promise, as a part of it."""
        return self.reserved / self.promised - 1


def stalloc(*arguments: str) -> str:
    """What the `stalloc` command of the package on PYTHONPATH prints; RuntimeError if it fails."""
    import stalloc as package

    command = str(Path(package.__file__).parent / "_bin" / "stalloc")
    environment = os.environ | RANK
    done = subprocess.run([command, *arguments], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode or "ended with 1" in done.stdout + done.stderr:
        raise RuntimeError(f"stalloc {arguments[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def measure(names: list[str], folder: Path) -> dict[str, Outcome]:
    """Records, plans and runs workloads on the stand-in GPU."""
    examples = [f"{WORKLOADS[name][0]} --steps {WORKLOADS[name][1]}" for name in names]
    program = ["--dry-run", "h100-80gb", "--", sys.executable]
    recordings = folder / "recordings"
    stalloc("trace", "-o", str(recordings), *program, str(PROGRAMS / "examples.py"), *examples)
    traces = sorted(recordings.glob("*_dev0*.trace"), key=lambda path: path.stat().st_mtime_ns)
    promised, lines = [], []
    for number, ((line, steps), trace) in enumerate(zip((WORKLOADS[name] for name in names), traces, strict=True)):
        plans = folder / f"plans{number}"
        plans.mkdir()
        planned = stalloc("plan", str(trace), "-o", str(plans / "rank3_dev0.plan"), "--json")
        promised.append(json.loads(planned)["planned_reserved"])
        name, _, options = line.partition(" ")
        lines.append(f"{name}:{plans} {options} --steps {2 * steps}")
    # The program takes its plans itself, one for each child.
    program[3:3] = ["env", "-u", "STALLOC_MODE", "STALLOC_TIGHT=1"]
    output = stalloc("run", "--plan", str(folder / "plans0"), "--frozen", *program, str(PROGRAMS / "watched.py"), *lines)
    seen = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {name: outcome(*both) for name, both in zip(names, zip(seen, promised, strict=True), strict=True)}


def outcome(seen: dict, promised: int) -> Outcome:
    """From what watched.py printed."""
    before, end = seen["steps"][len(seen["steps"]) // 2 - 1], seen["end"]
    causes = {cause: count - before["causes"][cause] for cause, count in end["causes"].items()}
    planned = end["planned"] - before["planned"]
    requests = end["requests"] - before["requests"]
    return Outcome(
        requests=end["requests"],
        share=planned / max(requests, 1),
        open=end["open"] - before["open"],
        unknown=sum(causes[cause] for cause in ("not_in_plan", "position_unknown", "refused")),
        reserved=end["peak_reserved"],
        promised=promised,
        overlaps=seen["overlaps"],
        allocations=seen["allocations"],
        causes={cause: count for cause, count in causes.items() if count},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    options = parser.parse_args()
    print("| workload | requests | planned | open | unknown | reserved | promised | overlaps |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = measure(options.names or list(WORKLOADS), Path(scratch))
    mib = 1 << 20
    for name, one in outcomes.items():
        print(
            f"| {name} | {one.requests:,} | {100 * one.share:.2f} % | {one.open:,} | {one.unknown:,} | "
            f"{one.reserved / mib:.0f} MiB ({100 * one.excess:+.1f} %) | {one.promised / mib:.0f} MiB | {one.overlaps} |"
        )
        if one.causes:
            print(f"{name}: not at planned offsets: {one.causes}", file=sys.stderr)


if __name__ == "__main__":
    main()
