"""What PyTorch says of its memory after each of some small programs: under stalloc as with expandable segments natively.

The arena counts as an expandable segment, so that is what it is compared with. What may differ is named in `MAY_DIFFER`, as
docs/serving.md names it, with what must hold instead.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest
from runs import PROGRAMS, run

GPU = ("--dry-run", "h100-80gb")
SEGMENTS = ("segment_map", "segment_unmap", "segment_alloc", "segment_free")

#: Statistics that say how memory is laid out, which is what stalloc is there to change.
MAY_DIFFER = (
    "reserved_bytes.",  # pages of 2 MiB, and small blocks on any of them
    "reserved_bytes_by_private_pools.",
    "num_device_",  # taken at other times
    "oversize_",  # the arena splits what PyTorch would keep whole
)

#: Programs in which the settings ask PyTorch's allocator for what the arena need not do, and the statistics that differ by that.
SETTINGS = {
    "set_to_round_up": ("active_bytes.", "allocated_bytes."),  # the arena rounds to 512 bytes
    "set_to_expand_no_more": ("segment.", "inactive_split"),  # the arena is expandable, whatever is set
}


def looks(*before):
    # What is not the arena's, as a pool that the program makes, is expandable too.
    env = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    process = run("run", *GPU, "--", *before, sys.executable, PROGRAMS / "allocation.py", env=env)
    assert process.returncode == 0, process.stderr
    found = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    return {look["name"]: look for look in found}


@pytest.fixture(scope="module")
def natively():
    return looks("env", "STALLOC_MODE=Torch", "STALLOC_LOG_LEVEL=3")


@pytest.fixture(scope="module")
def served():
    return looks()


def entries(look):
    """The history but for what tells of segments, and for the snapshots that the report of a failure takes."""
    others = SEGMENTS if look["name"] == "snapshots_taken" else (*SEGMENTS, "snapshot")
    return [entry for entry in look["history"] if entry["action"] not in others]


def blocks(look):
    """Blocks that are not free, with the pool that they lie in and what a snapshot says of them."""
    found = [(block["requested_size"], block["state"], segment["pool"], block["frames"], block["keys"]) for segment in look["segments"] for block in segment["blocks"]]
    return sorted((block for block in found if block[1] != "inactive"), key=str)


def differs(name, ours, theirs):
    """What is otherwise than natively."""
    for what in ("said", "keys", "summary"):
        if ours[what] != theirs[what]:
            yield f"{what}: {ours[what]}, natively {theirs[what]}"
    for key in sorted(set(ours["stats"]) | set(theirs["stats"])):
        mine, native = ours["stats"].get(key), theirs["stats"].get(key)
        is_known = key.startswith(MAY_DIFFER + SETTINGS.get(name, ()))
        if mine != native and not (is_known and None not in (mine, native)):
            yield f"{key}: {mine}, natively {native}"
    for number, (mine, native) in enumerate(zip(entries(ours), entries(theirs))):
        if mine != native:
            yield f"entry {number} of the history: {mine}, natively {native}"
    if len(entries(ours)) != len(entries(theirs)):
        yield f"{len(entries(ours))} entries, natively {len(entries(theirs))}"
    if blocks(ours) != blocks(theirs):
        yield f"blocks {blocks(ours)}, natively {blocks(theirs)}"
    if ours["segments"] and theirs["segments"] and ours["segments"][0]["keys"] != theirs["segments"][0]["keys"]:
        yield "segments have other keys"


def is_inconsistent(look):
    """What does not fit together in one look, by what PyTorch's own tests ask of it."""
    stats, sums = look["stats"], Counter()
    for segment in look["segments"]:
        pool, own = f"{segment['segment_type']}_pool", segment["blocks"]
        for kind in ("all", pool):
            sums[f"reserved_bytes.{kind}.current"] += segment["total_size"]
            for figure in ("allocated", "active", "requested"):
                sums[f"{figure}_bytes.{kind}.current"] += segment[f"{figure}_size"]
            if not segment["is_expandable"]:
                sums[f"segment.{kind}.current"] += 1
        if sum(block["size"] for block in own) != segment["total_size"]:
            yield "a segment is not made of its blocks"
        if any(one["state"] == next["state"] == "inactive" for one, next in zip(own, own[1:])):
            yield "two free blocks lie side by side"
    # With a history, whose entries tell of whole ranges, the arena's segments hold blocks of both kinds.
    of_both = any(segment["is_expandable"] for segment in look["segments"]) and look["name"] != "no_history"
    for key, value in sums.items():
        if stats[key] != value and (".all." in key or not of_both):
            yield f"{key} is {stats[key]}, of the segments {value}"
    for key, value in stats.items():
        if value < 0 and key != "max_split_size":
            yield f"{key} is {value}"
    for key in [key for key in stats if key.endswith(".peak")]:
        if stats[key] < stats[key.replace(".peak", ".current")]:
            yield f"{key} is below what there is"
    grew = Counter(entry["action"] for entry in look["history"] if entry["action"] in SEGMENTS)
    if sum(grew.values()) and look["name"] != "of_both_kinds" and stats["num_device_alloc"] != grew["segment_map"] + grew["segment_alloc"]:
        yield f"num_device_alloc is {stats['num_device_alloc']}, the history has {grew}"


def test_small_programs_get_the_figures_the_history_and_the_snapshot_that_they_get_natively(natively, served):
    assert list(served) == list(natively) and len(served) >= 30
    wrong = [f"{name}: {problem}" for name, look in served.items() for problem in [*differs(name, look, natively[name]), *is_inconsistent(look)]]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:60])


def test_a_refused_request_raises_no_peak_and_takes_nothing(natively, served):
    for name in ("limit_reached", "limit_reached_while_cached", "refused_by_the_device", "refused_and_told"):
        ours, theirs = served[name]["stats"], natively[name]["stats"]
        for kind in ("peak", "allocated", "freed"):
            key = f"reserved_bytes.all.{kind}"
            assert ours[key] <= theirs[key] + (2 << 20), f"{name}: {key} is {ours[key]}, natively {theirs[key]}"
