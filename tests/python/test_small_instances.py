"""Small instances of every kind, planned, and held against every order in which their buffers can be put as low as they go.

STALLOC_INSTANCES=SEED,COUNT tries others, or more.
"""

import itertools
import math
import os
import random

import stalloc


def drawn(draw: random.Random) -> tuple[list[int], list[int], list[int], dict]:
    """Lifetimes, sizes and what else an instance may have."""
    count = draw.randint(2, 6)
    lower = [draw.randrange(9) for _ in range(count)]
    upper = [begin + draw.randint(1, 6) for begin in lower]
    alignment = [draw.choice([1, 1, 2, 4]) for _ in range(count)]
    fixed = [alignment[0] * draw.randrange(4) if draw.random() < 0.4 else None] + [None] * (count - 1)
    idle = draw.randrange(count)
    return (
        lower,
        upper,
        [draw.randint(1, 9) for _ in range(count)],
        {
            "alignment": alignment,
            "fixed": fixed,
            "period": draw.choice([None, None, 9]),
            "conflicts": [pair for pair in itertools.combinations(range(count), 2) if draw.random() < 0.1],
            "gaps": [(idle, lower[idle] + 1, lower[idle] + 2)] if upper[idle] - lower[idle] > 2 and draw.random() < 0.3 else [],
        },
    )


def apart(lower: list[int], upper: list[int], more: dict) -> set[tuple[int, int]]:
    """Pairs that share no address."""
    times = lambda begin, end: {time % (more["period"] or 99) for time in range(begin, end)}  # noqa: E731
    needed = [times(begin, end) for begin, end in zip(lower, upper, strict=True)]
    for buffer, begin, end in more["gaps"]:
        needed[buffer] -= times(begin, end)
    pairs = itertools.permutations(range(len(lower)), 2)
    return {(one, other) for one, other in pairs if needed[one] & needed[other] or tuple(sorted((one, other))) in more["conflicts"]}


def least(size: list[int], more: dict, both: set[tuple[int, int]]) -> int:
    """The lowest peak: in some order each buffer is as low as those before it let it be."""
    fixed = {buffer: offset for buffer, offset in enumerate(more["fixed"]) if offset is not None}
    peaks = []
    for order in itertools.permutations(set(range(len(size))) - set(fixed)):
        offsets = dict(fixed)
        for buffer in order:
            step = more["alignment"][buffer]
            blocked = [(at, at + size[other]) for other, at in offsets.items() if (buffer, other) in both]
            starts = [0] + [math.ceil(end / step) * step for _, end in blocked]
            free = [start for start in starts if all(start >= end or start + size[buffer] <= at for at, end in blocked)]
            offsets[buffer] = min(free)
        peaks.append(max(offset + size[buffer] for buffer, offset in offsets.items()))
    return min(peaks)


def test_no_plan_of_a_small_instance_overlaps_or_claims_what_is_not_so_and_none_is_above_the_least_by_a_step_of_its_alignments():
    seed, count = map(int, os.environ.get("STALLOC_INSTANCES", "1,400").split(","))
    draw = random.Random(seed)
    proven = 0
    for _ in range(count):
        lower, upper, size, more = drawn(draw)
        plan = stalloc.plan_buffers(lower, upper, size, work_limit=100_000, threads=1, **more)
        where = f"{lower}, {upper}, {size}, {more}: {plan.offsets}"
        both, at = apart(lower, upper, more), plan.offsets
        assert all(at[one] >= at[other] + size[other] or at[other] >= at[one] + size[one] for one, other in both), where
        assert all(offset % step == 0 for offset, step in zip(at, more["alignment"], strict=True)), where
        assert all(wanted in (None, offset) for wanted, offset in zip(more["fixed"], at, strict=True)), where
        assert plan.peak == max(offset + bytes_ for offset, bytes_ in zip(at, size, strict=True)), where
        lowest = least(size, more, both)
        assert plan.lower_bound <= lowest <= plan.peak, where
        assert plan.peak == lowest or not plan.optimal, where
        # Offsets are counted in the alignments' common step, and sizes rounded up to it.
        assert plan.peak - lowest < math.gcd(*more["alignment"], *filter(None, more["fixed"])), where
        proven += plan.optimal
    assert proven > count / 2
