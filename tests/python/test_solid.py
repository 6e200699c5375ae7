"""An arena that is one allocation: for what memory mapped by pages cannot do, and for GPUs that cannot map pages."""

from __future__ import annotations

import json
import sys

from runs import PROGRAMS, run

MIB = 1 << 20


def start(program, *arguments, options=(), gpu="h100-80gb", **env):
    return run("run", *options, "--dry-run", gpu, "--", sys.executable, PROGRAMS / program, *arguments, env=env)


def figures(process):
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_two_processes_share_planned_tensors_and_steady_steps_never_ask_the_driver_for_memory(planned):
    found = figures(start("shared.py", "8", "share", options=("--plan", planned, "--frozen", "--solid=64MiB")))
    assert found["wrong"] == []
    assert found["asked"] == 0
    assert 64 * MIB < found["reserved"] < 256 * MIB, "as much as the plan needs, and what was asked for"


def test_a_gpu_that_cannot_map_pages_is_served_so_by_itself_and_one_line_says_how_large():
    process = start("straying.py", "another model", gpu="like=h100-80gb,pages=no")
    assert figures(process)["overlaps"] == 0
    assert process.stderr.count("this GPU cannot map pages; without a plan the arena takes") == 1, process.stderr
    assert ", 0 by PyTorch's allocator; 0 remaps" in process.stderr, process.stderr


def test_what_does_not_fit_in_the_one_allocation_is_served_by_the_fallback():
    process = start("straying.py", options=("--solid=32MiB",))
    assert process.returncode == 0, process.stderr
    assert "0 remaps" in process.stderr and ", 0 by " not in process.stderr, process.stderr
    assert figures(process)["overlaps"] == 0


def test_a_size_that_is_none_is_said_to_be_none():
    process = start("gpt.py", "1", options=("--solid=many",))
    assert process.returncode == 2 and "many" in process.stderr, process.stderr
