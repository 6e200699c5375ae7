"""Workloads of examples/, recorded, planned and run: they live where their plans say. `bench/workloads.py` has them all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import workloads  # noqa: E402

#: Whose steps repeat exactly.
REPEATING = ["gpt", "llama, recomputation", "megatron, virtual pipeline"]

#: Whose steps vary: they get no offsets.
VARYING = ["megatron, experts"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return workloads.measure([*REPEATING, *VARYING], tmp_path_factory.mktemp("workloads"))


@pytest.mark.parametrize("name", REPEATING)
def test_a_workload_that_repeats_is_at_planned_offsets_and_reserves_what_the_plan_promises(outcomes, name):
    outcome = outcomes[name]
    assert outcome.share >= 0.999, outcome
    assert outcome.excess <= 0.01, outcome
    # PyTorch's own history is the log of all addresses.
    assert outcome.allocations >= outcome.requests > 1000, outcome
    assert outcome.overlaps == 0, outcome


@pytest.mark.parametrize("name", VARYING)
def test_a_workload_that_varies_goes_where_it_fits_best_and_reserves_no_more_than_was_promised(outcomes, name):
    outcome = outcomes[name]
    assert outcome.share == 0 and outcome.open > 100, outcome
    assert outcome.excess <= 0.02, outcome
    assert outcome.overlaps == 0, outcome
