"""Where numbers are computed: models trained on the CPU, their tensors served from a plan, learn what they learn without.

What two live tensors share by mistake, or what is moved while it is in use, would show in the losses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import COMMAND, PROGRAMS

import stalloc

MODELS = ("mlp", "transformer", "convolutions")
ANOTHER_SIZE = 12  # the step whose batch is smaller than those that were recorded


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per model, as the program describes."""
    folder = tmp_path_factory.mktemp("numerics")
    command = ["timeout", "--kill-after=5", "300", sys.executable, PROGRAMS / "numerics.py", folder, COMMAND]
    process = subprocess.run(command, text=True, capture_output=True, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    assert process.returncode == 0, process.stderr
    return folder


def figures(runs: Path, model: str, how: str) -> dict[str, Any]:
    return json.loads((runs / model / f"{how}.json").read_text())


@pytest.mark.parametrize("model", [*MODELS, "threads"])
def test_losses_and_weights_are_bit_for_bit_those_without_a_plan(runs, model):
    plain, served = figures(runs, model, "plain"), figures(runs, model, "serve")
    assert served["losses"] == plain["losses"]
    assert served["weights"] == plain["weights"]
    # Threads take turns as it comes: no step of theirs repeats.
    assert model == "threads" or served["stats"]["planned"] > served["stats"]["requests"] * 0.9


@pytest.mark.parametrize("model", [*MODELS, "threads"])
def test_losses_and_weights_are_the_same_while_plans_are_learned_and_adopted(runs, model):
    plain, learned = figures(runs, model, "plain"), figures(runs, model, "learn")
    assert learned["losses"] == plain["losses"]
    assert learned["weights"] == plain["weights"]
    assert learned["stats"]["fallback"] == 0
    if model in ("mlp", "transformer"):
        assert learned["stats"]["plans"] > 0, learned["stats"]


@pytest.mark.parametrize("model", ["mlp", "transformer"])
def test_losses_and_weights_are_the_same_where_memory_goes_away_and_comes_back_between_operations(runs, model):
    plain, slept = figures(runs, model, "plain"), figures(runs, model, "sleep")
    assert slept["losses"] == plain["losses"]
    assert slept["weights"] == plain["weights"]
    assert slept["sleeps"] > 30 and slept["stats"]["fallback"] == 0, slept


@pytest.mark.parametrize("model", MODELS)
def test_a_recorded_run_computes_the_same(runs, model):
    plain, recorded = figures(runs, model, "plain"), figures(runs, model, "record")
    assert recorded["losses"] == plain["losses"][: len(recorded["losses"])]


@pytest.mark.parametrize("model", MODELS)
def test_steady_steps_are_served_from_the_plan(runs, model):
    shares = figures(runs, model, "serve")["shares"]
    assert len(shares) == 20
    steady = [share for step, share in enumerate(shares) if step != ANOTHER_SIZE]
    # What is left of another step, or what a thread of PyTorch's own asks for now and then, may be at a planned address.
    assert sum(share < 0.99 for share in steady) <= 2 and min(steady) > 0.8, shares


@pytest.mark.parametrize(("how", "log"), [("serve", "log"), ("learn", "learned")])
@pytest.mark.parametrize("model", [*MODELS, "threads"])
def test_no_two_live_tensors_overlap_and_all_are_aligned(runs, model, how, log):
    (trace,) = stalloc.read_trace(runs / model / log / "rank0_dev0.trace")["traces"]
    live: dict[int, int] = {}
    allocations = 0
    for entry in trace["entries"]:
        if entry["action"] == "alloc":
            start, size = entry["addr"], entry["size"]
            assert start % 64 == 0, hex(start)
            clash = [hex(other) for other, length in live.items() if start < other + length and other < start + size]
            assert not clash, f"{start:#x}+{size} was handed out while {clash} lived there"
            live[start] = size
            allocations += 1
        elif entry["action"] == "free_completed":
            del live[entry["addr"]]
    assert allocations == figures(runs, model, how)["stats"]["requests"]
