"""Memory that NCCL registers, and symmetric memory: programs that ask for it get what they get without stalloc."""

from __future__ import annotations

import json
import sys

import pytest
from runs import PROGRAMS, run

GPU = ("--dry-run", "h100-80gb")


def outcome(*act):
    process = run(*act, *GPU, "--", sys.executable, PROGRAMS / "registered.py")
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads([line for line in process.stdout.splitlines() if line.startswith('{"pool"')][-1])


@pytest.mark.parametrize("option", [[], ["--solid=2GiB"]], ids=["pages", "solid"])
def test_pools_with_nccls_allocator_and_symmetric_memory_are_as_without_stalloc(tmp_path, option):
    ours = outcome("run", *option)
    # Recording leaves PyTorch's allocator as it is.
    assert ours == outcome("trace", "-o", tmp_path)
    assert ours["pool"]["inside"] == [True] * 11 and ours["pool"]["outside"] == [False] * 2
    assert ours["symmetric"][1] is True
