"""Where no compiler is, stalloc takes the place of PyTorch's allocator, and answers for it."""

from __future__ import annotations

import json
import re
import sys

import pytest
from runs import PROGRAMS, run

import stalloc
from stalloc._serve.settings import Settings

GPU = ("--dry-run", "h100-80gb")
NO_COMPILER = {"CXX": "/no/compiler", "STALLOC_BACKEND": ""}


def serve(directory, program, *arguments, before=(), **env):
    command = ("run", "--plan", directory, "--frozen", *GPU, "--", *before, sys.executable, PROGRAMS / program, *arguments)
    process = run(*command, env={"STALLOC_BACKEND": "pluggable"} | env)
    assert process.returncode == 0, process.stderr
    return process


def served(process):
    """Share of requests at planned offsets, by the line at exit."""
    found = re.search(r"dev0: ([\d.]+) % of ([\d,]+) requests at planned offsets", process.stderr)
    assert found, process.stderr
    return float(found[1])


def test_without_a_compiler_the_job_is_served_all_the_same_and_told_so_in_one_line(planned):
    process = serve(planned, "gpt.py", "12", **NO_COMPILER)
    assert process.stdout.count("loss") == 12
    assert served(process) > 99.9
    assert process.stderr.count("no C++ compiler was found") == process.stderr.count("CUDAPluggableAllocator") == 1


def test_a_program_that_strays_gets_the_statistics_that_it_gets_from_pytorchs_own_allocator(planned):
    ours, theirs = (
        json.loads(process.stdout.splitlines()[-1])
        for process in (
            serve(planned, "in_its_place.py"),
            serve(planned, "in_its_place.py", before=("env", "STALLOC_MODE=Torch", "STALLOC_LOG_LEVEL=3")),
        )
    )
    assert (ours["backend"], theirs["backend"]) == ("pluggable", "native")
    assert (ours["wrong"], theirs["wrong"]) == ([], [])
    assert len(ours["log"]) == 9
    assert ours["log"] == theirs["log"]


def test_given_to_pytorch_by_its_path_it_serves_what_the_environment_says_and_no_address_twice(planned):
    process = serve(planned, "by_hand.py", stalloc.lib_path(), before=("env", "-u", "PYTHONPATH"))
    figures = json.loads(process.stdout.splitlines()[-1])
    assert figures["requests"] > 2500
    assert figures["overlaps"] == 0
    assert served(process) > 80
    assert process.stderr.count("without hooks") == 1


def test_given_to_pytorch_by_its_path_it_raises_pytorchs_exception_and_warns_of_another_programs_plan_once(planned):
    process = serve(planned, "by_hand.py", stalloc.lib_path(), "by name", before=("env", "-u", "PYTHONPATH"))
    assert process.stdout.strip() == "CUDA out of memory"
    assert process.stderr.count("record and plan it again") == 1


def test_a_way_into_pytorch_that_there_is_none_of_is_named():
    with pytest.raises(ValueError, match="clever.*neither native nor pluggable"):
        Settings.read("torch", None, {"STALLOC_BACKEND": "clever"})


def test_limits_resets_and_switches_hold_for_arena_and_fallback(planned):
    process = serve(planned, "limits.py")
    assert json.loads(process.stdout.splitlines()[-1])["wrong"] == []
