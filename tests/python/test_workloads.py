"""Workloads of examples/, recorded, planned and run by PyTorch for twice as many steps: they live where their plans say.

STALLOC_ALL_WORKLOADS=1 runs all of them, not four; with `-s` each says what came of it, as bench/results/serving.md shows it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

import pytest
from runs import COMMAND, PROGRAMS, run

MEGATRON = "megatron_gpt --layers 4 --micro-batches 4"
EVERYTHING = "--experts 8 --expert 2 --pipeline 2 --chunks 2 --data 4 --recompute full --distributed-optimizer"
#: The example and its options; how many steps to record, since what varies is known once it was seen; whether its steps repeat exactly. All are rank 3 of 8.
WORKLOADS = {
    "gpt": ("gpt --layers 2", 4, True),
    "evaluation": ("evaluation --layers 2", 7, True),
    "variable length": ("variable_length --layers 2", 12, None),  # it goes on with other lengths
    "offload": ("offload --layers 2", 8, False),
    "llama": ("llama --layers 2 --length 256", 4, True),
    "llama, recomputation": ("llama --layers 2 --length 256 --checkpoint", 4, True),
    "megatron": (f"{MEGATRON} --data 8", 4, True),
    "megatron, full recomputation": (f"{MEGATRON} --tensor 4 --recompute full", 4, True),
    "megatron, selective recomputation": (f"{MEGATRON} --recompute selective", 4, True),
    "megatron, distributed optimizer": (f"{MEGATRON} --data 8 --distributed-optimizer", 4, True),
    "megatron, pipeline": (f"{MEGATRON} --pipeline 4", 4, True),
    "megatron, virtual pipeline": (f"{MEGATRON} --pipeline 2 --chunks 2", 4, True),
    "megatron, experts": (f"{MEGATRON} --experts 8 --expert 2", 4, False),
    "megatron, all of it": (f"{MEGATRON} {EVERYTHING}", 4, False),
}
FEW = ["gpt", "llama, recomputation", "megatron, virtual pipeline", "megatron, experts"]
NAMES = list(WORKLOADS) if os.environ.get("STALLOC_ALL_WORKLOADS") else FEW


@dataclass
class Outcome:
    """What came of a workload. Sizes are bytes."""

    requests: int
    share: float  # of the steady steps' requests, those at planned offsets
    open: int  # requests in the steady steps that went where they fitted best
    reserved: int
    excess: float  # reserved beyond what the plan promised, as a part of it
    overlaps: int  # addresses handed out while a part of them was in use, by PyTorch's own history
    allocations: int  # by PyTorch's history


def stalloc(*words: object) -> str:
    process = run(*words, env={"RANK": "3", "WORLD_SIZE": "8", "PYTHONPATH": str(COMMAND.parents[2])})
    assert process.returncode == 0 and "ended with 1" not in process.stdout + process.stderr, process.stdout[-2000:] + process.stderr[-3000:]
    return process.stdout


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("workloads")
    program = ["--dry-run", "h100-80gb", "--", sys.executable]
    examples = [f"{line} --steps {steps}" for line, steps, _ in (WORKLOADS[name] for name in NAMES)]
    stalloc("trace", "-o", folder / "recordings", *program, PROGRAMS / "examples.py", *examples)
    traces = sorted((folder / "recordings").glob("*_dev0*.trace"), key=lambda path: path.stat().st_mtime_ns)
    promised, lines = [], []
    for number, (name, trace) in enumerate(zip(NAMES, traces, strict=True)):
        plans = folder / f"plans{number}"
        plans.mkdir()
        planned = stalloc("plan", trace, "-o", plans / "rank3_dev0.plan", "--json")
        promised.append(json.loads(planned)["planned_reserved"])
        example, _, options = WORKLOADS[name][0].partition(" ")
        lines.append(f"{example}:{plans} {options} --steps {2 * WORKLOADS[name][1]}")
    # The program takes its plans itself, one for each child.
    program[3:3] = ["env", "-u", "STALLOC_MODE", "STALLOC_TIGHT=1"]
    output = stalloc("run", "--plan", folder / "plans0", "--frozen", *program, PROGRAMS / "watched.py", *lines)
    seen = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {name: outcome(*both) for name, both in zip(NAMES, zip(seen, promised, strict=True), strict=True)}


def outcome(seen: dict, promised: int) -> Outcome:
    """From what watched.py printed; the second half of the steps is steady."""
    before, end = seen["steps"][len(seen["steps"]) // 2 - 1], seen["end"]
    requests, planned, opened = (end[name] - before[name] for name in ("requests", "planned", "open"))
    reserved = end["peak_reserved"]
    return Outcome(end["requests"], planned / max(requests, 1), opened, reserved, reserved / promised - 1, seen["overlaps"], seen["allocations"])


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_is_where_its_plan_says_or_fits_best_and_reserves_what_was_promised(outcomes, name):
    found, repeats = outcomes[name], WORKLOADS[name][2]
    print(f"| {name} | {found.requests:,} | {100 * found.share:.0f} % | {found.reserved / 2**20:,.0f} MiB ({100 * found.excess:+.1f} %) | {found.overlaps} |")
    # PyTorch's own history is the log of all addresses.
    assert found.overlaps == 0 and found.allocations >= found.requests > 1000, found
    if repeats:
        assert found.share >= 0.999 and found.excess <= 0.01, found
    elif repeats is False:
        assert found.share == 0 and found.open > 100 and found.excess <= 0.02, found
