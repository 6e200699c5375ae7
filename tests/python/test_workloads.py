"""Workloads of examples/, recorded, planned and run: they live where their plans say. `bench/workloads.py` has them all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import workloads  # noqa: E402

#: What is planned whole, also where a step differs now and then or in a part of its requests.
NAMES = ["gpt", "evaluation", "llama, recomputation", "megatron, virtual pipeline", "megatron, experts"]

#: Sequence lengths are drawn for each step, some of which were never recorded; the largest was in the first step only.
VARYING = "variable length"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return workloads.measure([*NAMES, VARYING], tmp_path_factory.mktemp("workloads"))


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_is_served_from_its_plan_and_reserves_what_the_plan_promises(outcomes, name):
    outcome = outcomes[name]
    assert outcome.share >= 0.999, outcome
    assert outcome.unknown <= outcome.dynamic / 100, outcome
    assert outcome.excess <= 0.01, outcome
    # PyTorch's own history is the log of all addresses.
    assert outcome.allocations >= outcome.requests > 1000, outcome
    assert outcome.overlaps == 0, outcome


def test_what_never_varies_is_served_from_the_plan_and_the_promise_is_kept_whatever_length_comes(outcomes):
    outcome = outcomes[VARYING]
    assert outcome.share >= 0.999, outcome
    assert outcome.dynamic > 100, outcome
    assert abs(outcome.excess) <= 0.01, outcome
    assert outcome.overlaps == 0, outcome
