"""Memory that NCCL registers, and symmetric memory: programs that ask for it get what they get without stalloc."""

from __future__ import annotations

import json
import sys

import pytest
from runs import PROGRAMS, run

GPU = ("--dry-run", "h100-80gb")
EVERYTHING = {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}


def outcome(*act, args=(), **options):
    process = run(*act, *GPU, "--", sys.executable, PROGRAMS / "registered.py", *args, **options)
    assert process.returncode == 0, process.stderr[-4000:]
    found = json.loads([line for line in process.stdout.splitlines() if line.startswith('{"pool"')][-1])
    return found, process.stderr


@pytest.mark.parametrize("option", [[], ["--solid=2GiB"]], ids=["pages", "solid"])
def test_pools_with_nccls_allocator_and_symmetric_memory_are_as_without_stalloc(tmp_path, option):
    ours, _ = outcome("run", *option, env={} if option else {"SLEEPS": "1"})
    # While all else sleeps, what is registered stays as it is, in memory of PyTorch's.
    assert ours["pool"].pop("slept", [True] * 3) == [True] * 3
    # Recording leaves PyTorch's allocator as it is.
    assert ours == outcome("trace", "-o", tmp_path)[0]
    assert ours["pool"]["inside"] == [True] * 11 and ours["pool"]["outside"] == [False] * 2
    # NCCL is told of the pool's memory, of what comes later too, and of nothing else.
    assert ours["pool"]["registered"] and ours["pool"]["later"] == [1, True] and ours["pool"]["left"] == []
    assert ours["symmetric"][1] is True


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_solid_arena_is_registered_as_a_whole_where_everything_is_to_be(when):
    ours, _ = outcome("run", "--solid=2GiB", args=[when], env=EVERYTHING)
    assert ours["pool"] == {"inside": [True] * 4, "ranges": 1, "bytes": 2 << 30}


@pytest.mark.parametrize("when", ["early", "late"])
def test_an_arena_of_pages_is_not_registered_and_a_line_says_so(when):
    ours, said = outcome("run", args=[when], env=EVERYTHING)
    assert ours["pool"] == {"inside": [False] * 4, "ranges": 0, "bytes": 0}
    assert "--solid" in said and "NCCL" in said
