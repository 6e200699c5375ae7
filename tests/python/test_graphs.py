"""CUDA graphs whose memory is the arena's: theirs as long as they live, and no more than the one needs that needs most."""

from __future__ import annotations

import json
import sys

import pytest
from runs import PROGRAMS, run

GPU = ("--dry-run", "h100-80gb")


def figures(process):
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads([line for line in process.stdout.splitlines() if line.startswith('{"wrong"')][-1])


@pytest.fixture(scope="module")
def ours():
    return run("run", *GPU, "--", sys.executable, PROGRAMS / "graphs.py")


def test_graphs_keep_what_is_theirs_and_give_it_back(ours):
    assert figures(ours)["wrong"] == []


def test_eight_shapes_need_what_the_largest_needs_where_pytorch_needs_more(ours, tmp_path):
    # Recording leaves PyTorch's allocator as it is.
    theirs = run("trace", *GPU, "-o", tmp_path, "--", sys.executable, PROGRAMS / "graphs.py")
    ours, theirs = figures(ours), figures(theirs)
    assert ours["held"] <= 1.02 * ours["needed"]
    assert "a pool's figures stay" not in theirs["wrong"]
    assert theirs["held"] > 1.5 * theirs["needed"]


def test_where_no_pages_can_be_shared_pools_are_pytorchs_own():
    process = run("run", "--solid=4GiB", *GPU, "--", sys.executable, PROGRAMS / "graphs.py")
    found = figures(process)
    assert found["wrong"] == []
    assert found["held"] > 1.5 * found["needed"]


@pytest.mark.parametrize("pages", [(), ("--solid=4GiB",)])
def test_another_threads_requests_end_no_capture(pages):
    process = run("run", *pages, *GPU, "--", sys.executable, PROGRAMS / "capture_and_threads.py")
    assert process.returncode == 0, process.stderr[-4000:]
    assert "replayed, 204800 elements" in process.stdout
