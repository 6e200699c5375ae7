"""Pinned memory of the host: served in few regions, handed out again only when streams are done with it, PyTorch's figures true."""

from __future__ import annotations

import json
import sys

import pytest
from runs import PROGRAMS, run

MIB = 1 << 20
GPU = ("--dry-run", "h100-80gb")


def figures(process):
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads([line for line in process.stdout.splitlines() if line.startswith('{"wrong"')][-1])


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    # Recording leaves PyTorch's allocators as they are.
    return figures(run("trace", *GPU, "-o", tmp_path_factory.mktemp("recorded"), "--", sys.executable, PROGRAMS / "pinned.py"))


def test_programs_use_pinned_memory_as_ever_and_it_is_not_rounded_up(theirs):
    ours = figures(run("run", *GPU, "--", sys.executable, PROGRAMS / "pinned.py"))
    assert ours["wrong"] == [] and theirs["wrong"] == []
    assert ours["grown"] == 8 * MIB + 4096
    assert theirs["grown"] == 12 * MIB, "PyTorch takes powers of two: then this says nothing"
    assert ours["out_of_memory"] == theirs["out_of_memory"] != "none", "the exception is PyTorch's"


@pytest.mark.parametrize("env", [{"STALLOC_PINNED": "0"}, {"PYTORCH_CUDA_ALLOC_CONF": "pinned_num_register_threads:2"}])
def test_it_can_be_left_to_pytorch_and_is_where_the_program_has_settings_for_it(theirs, env):
    ours = figures(run("run", *GPU, "--", sys.executable, PROGRAMS / "pinned.py", env=env))
    assert (ours["wrong"], ours["grown"]) == ([], theirs["grown"])
