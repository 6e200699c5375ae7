"""A random program gets the same figures and the same exceptions from stalloc as from PyTorch alone.

What may differ is named in `MAY_DIFFER`, with what must hold instead. The program is `programs/differential.py`; with
``STALLOC_DIFFERENTIAL=SEED,ACTS`` one more is tried: ``STALLOC_DIFFERENTIAL=7,1000000 scripts/test-python
tests/python/test_differential.py`` makes a million acts.
"""

from __future__ import annotations

import json
import os
import sys

import pytest
from runs import PROGRAMS, run

pytestmark = pytest.mark.nightly

GPU = ("--dry-run", "h100-80gb")
WANTED = os.environ.get("STALLOC_DIFFERENTIAL")
PROGRAMS_TRIED = [tuple(WANTED.split(","))] if WANTED else [("1", "1500")]

#: Statistics that tell how memory is laid out, which is what stalloc is there to change; what holds for each is in `holds`.
MAY_DIFFER = (
    "reserved_bytes.",  # other memory is held for the same tensors
    "segment.",  # in other pieces
    "inactive_split",  # with other gaps in them
    "num_alloc_retries",  # so that cached memory goes back at other times,
    "num_device_",  # memory comes from the device at other times,
    "reserved_bytes_by_private_pools",  # which the way that needs no compiler does not tell,
    "num_sync_all_streams",  # and everything is waited for at other times
)


def looks(directory, seed, acts, before=(), **env):
    command = ("run", "--plan", directory, "--frozen", *GPU, "--", *before, sys.executable, PROGRAMS / "differential.py", seed, acts)
    process = run(*command, env=env)
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")], process.stderr


@pytest.fixture(scope="module")
def natively(planned):
    seen = {}

    def look(seed, acts):
        if (seed, acts) not in seen:
            alone = ("env", "STALLOC_MODE=Torch", "STALLOC_LOG_LEVEL=3")
            seen[seed, acts], _ = looks(planned, seed, acts, before=alone)
        return seen[seed, acts]

    return look


#: PyTorch's allocator leaves a rest of up to 1 MiB in a large block where it is too small for another, and counts it.
WITH_REST = ("allocated_bytes.", "active_bytes.")
REST = 1 << 20


def is_rest(name, ours, theirs, look):
    """Whether a difference is the rests in the large blocks that the figure counts."""
    blocks = look["stats"][f"allocation.large_pool.{name.rpartition('.')[2]}"]
    return 0 <= theirs - ours <= REST * blocks


def holds(look):
    """What is wrong with the figures that may differ, looked at for themselves."""
    stats, calls = look["stats"], look["calls"]
    for name, value in stats.items():
        if value < 0 and name != "max_split_size":
            yield f"{name} is {value}"
    for name in ["segment", "reserved_bytes", "inactive_split", "inactive_split_bytes", "active_bytes", "allocated_bytes"]:
        of = {kind: stats[f"{name}.all.{kind}"] for kind in ["current", "peak", "allocated", "freed"]}
        if of["peak"] < of["current"]:
            yield f"{name}: the peak is below what there is: {of}"
        pools = stats[f"{name}.small_pool.current"] + stats[f"{name}.large_pool.current"]
        if pools != of["current"]:
            yield f"{name}: the pools make {pools}, not {of['current']}"
    if not stats["reserved_bytes.all.current"] >= stats["active_bytes.all.current"] >= stats["allocated_bytes.all.current"]:
        yield "less is reserved than active, or less active than allocated"
    if look["segments"] != stats["reserved_bytes.all.current"]:
        yield f"segments hold {look['segments']}, reserved are {stats['reserved_bytes.all.current']}"
    if stats["allocated_bytes.all.current"] != calls["memory_allocated"][0]:
        yield "memory_allocated is not memory_stats()'s"
    if sum(size for size, _ in look["live"]) != stats["allocated_bytes.all.current"]:
        yield "the snapshot's live blocks are not what is allocated"
    if not look["filled"]:
        yield "a segment is not made of its blocks"
    if not look["accelerator"]:
        yield "torch.accelerator says something else than torch.cuda"
    for name, (cuda, accelerator) in calls.items():
        if cuda != accelerator:
            yield f"torch.cuda.{name}() is {cuda}, torch.accelerator's {accelerator}"
    if calls["max_memory_allocated"][0] < calls["memory_allocated"][0]:
        yield "max_memory_allocated is below memory_allocated"
    if not look.get("within", True):
        yield "more is held than the limit allows"


def differs(ours, theirs):
    """What is otherwise than natively and has no rule."""
    for name in sorted(set(ours["stats"]) | set(theirs["stats"])):
        mine, native = ours["stats"].get(name), theirs["stats"].get(name)
        if name.startswith(MAY_DIFFER) or mine == native:
            continue
        if name.startswith(WITH_REST) and ".small_pool" not in name and is_rest(name, mine, native, theirs):
            continue
        yield f"{name}: {mine}, natively {native}"
    if [requested for _, requested in ours["live"]] != [requested for _, requested in theirs["live"]]:
        yield "other blocks are live than natively"
    for name in ["fraction", "error", "huge", "requests", "out_of_memory", "uncounted"]:
        if ours.get(name) != theirs.get(name):
            yield f"{name}: {str(ours.get(name))[:300]}, natively {str(theirs.get(name))[:300]}"
    # Gaps that nothing fits into differ: memory may run out one block earlier, or later by what PyTorch holds in its gaps.
    if not -1 <= ours.get("room", 0) - theirs.get("room", 0) <= 1 + theirs.get("idle", 0):
        yield f"room for {ours['room']} blocks, natively {theirs['room']} and {theirs['idle']} in gaps"
    for action in ["alloc", "free_requested", "free_completed", "oom"]:
        if ours["history"].get(action) != theirs["history"].get(action):
            yield f"{action} in the history: {ours['history'].get(action)}, natively {theirs['history'].get(action)}"


@pytest.mark.parametrize(("seed", "acts"), PROGRAMS_TRIED)
def test_a_random_program_gets_the_figures_and_the_exceptions_that_it_gets_natively(planned, natively, seed, acts):
    theirs = natively(seed, acts)
    ours, lines = looks(planned, seed, acts)
    assert [look["what"] for look in ours] == [look["what"] for look in theirs]
    assert len(ours) > 10 and "requests at planned offsets" in lines
    wrong = [
        f"look {number} ({look['what']}): {problem}"
        for number, (look, native) in enumerate(zip(ours, theirs))
        for problem in [*holds(look), *differs(look, native)]
    ]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:40])
