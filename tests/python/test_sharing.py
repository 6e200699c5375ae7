"""Tensors of an arena that is mapped by pages, in another process: as PyTorch shares its expandable segments."""

from __future__ import annotations

import json
import sys

import pytest
from runs import PROGRAMS, run


def start(program, *arguments, options=(), gpu="h100-80gb", **env):
    process = run("run", *options, "--dry-run", gpu, "--", sys.executable, PROGRAMS / program, *arguments, env=env)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1]), process.stderr


@pytest.mark.parametrize(("sender", "receiver", "tight"), [("stalloc", "stalloc", "1"), ("stalloc", "plain", "0"), ("plain", "stalloc", "0")])
def test_two_processes_share_tensors_whether_stalloc_serves_both_or_one(sender, receiver, tight):
    found, said = start("sharing.py", sender, receiver, STALLOC_TIGHT=tight)
    assert found["wrong"] == [], said
    assert found["left"] == [0, 0, 0], "no memory stays reserved, exported or taken"
    if sender == "stalloc":
        # Three pages of the large tensor, and the page of the small one, which has addresses apart.
        assert found["exported"] == [4, 1, 0], "a descriptor for each page, as long as a shared tensor lies on it"
    assert found["opened"] == 0


def test_tensors_of_a_planned_training_are_shared(planned):
    found, said = start("shared.py", "8", "share", "pages", options=("--plan", planned, "--frozen"))
    assert found["wrong"] == [], said


def test_processes_that_die_while_they_hold_memory_of_another_leave_nothing_behind():
    found, said = start("sharing_deaths.py", "12")
    assert found["wrong"] == [] and found["held"] + found["refused"] == 18, said
    nothing = {"allocated": 0, "taken": 0, "exported": 0, "opened": 0}
    assert (found["after borrowers"], found["after lenders"]) == (nothing, nothing)


def test_what_cannot_be_shared_is_refused_with_what_to_do():
    said, _ = start("unshareable.py")
    assert said.pop("raised"), "the soft limit is raised to the hard one"
    assert said.pop("below the hard limit") is None, said
    for line in said.values():
        assert "stalloc: this tensor cannot be shared with another process: " in line and "--solid" in line, said
    assert "ulimit -n" in said["beyond the hard limit"] and "CUDA graph" in said["a graph's"], said


def test_a_tensor_on_handles_of_several_lengths_is_shared_from_memory_of_pytorchs_own():
    found, said = start("sharing_lengths.py", gpu="like=h100-80gb,memory=10GiB,name=small")  # with room they would be as long as one another
    assert found == {"wrong": [], "is elsewhere": True, "exit": 0}, said
