"""What a program reads where a fraction, a loss or a norm as a rule, is not known: small, above zero, and finite.

Zero is what such values are not in a training that goes well, and programs stumble over it: they divide by a loss, take its logarithm, or skip a step
whose loss is zero. One would end a PPO epoch by its divergence, and be all of an accuracy. It falls from read to read, ever more slowly, by a
fifth in all, as a loss does. Several fractions in one read differ, as scores and costs do, and are the same whenever as many are read.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections import Counter

from stalloc import _native

#: Exact in every type, it and a fourth more; below the usual limits of divergences (0.015), above those of convergence (0.01).
SMALL = 3 / 256
#: Reads at one place after which zeros are read there: a loop that waits for a fraction to vanish ends, if it counts nothing.
_MOST_AT_A_PLACE = 10_000
#: Bytes of a type, and how `struct` calls it; bfloat16 is the upper half of a float32.
_TYPES = {5: (2, "e"), 6: (4, "f"), 7: (8, "d"), 15: (2, "f")}
_GOLDEN_RATIO = 0.6180339887498949

_reads = itertools.count(1)
_places: Counter[tuple[str, int]] = Counter()


def is_integer() -> bool:
    """Whether the operation that runs reads integers."""
    kind = _native.numbers_read()
    return kind is not None and kind not in _TYPES


def in_place_of(size: int, place: tuple[str, int]) -> bytes | None:
    """What is read at a place in so many bytes; None unless the operation that runs reads fractions."""
    kind = _native.numbers_read()
    width = _TYPES.get(kind, (0, ""))[0] if kind is not None else 0
    if kind is None or width == 0 or size % width:
        return None
    _places[place] += 1
    if _places[place] > _MOST_AT_A_PLACE:
        return None
    # A loss that does not change from step to step has converged.
    return numbers(kind, 1, 1 + 0.25 * next(_reads) ** -0.1) if size == width else numbers(kind, size // width)


@functools.lru_cache(maxsize=64)
def numbers(kind: int, count: int, times: float = 1.0) -> bytes | None:
    """So many of a type: the first is ``times`` `SMALL`, the others between that and its half; None if the type is none of fractions."""
    if kind not in _TYPES:
        return None
    fractions = [times * SMALL * (1 - (index * _GOLDEN_RATIO) % 1 / 2) for index in range(count)]
    width, code = _TYPES[kind]
    if kind != 15:
        return struct.pack(f"<{count}{code}", *fractions)
    return b"".join(struct.pack("<f", number)[-width:] for number in fractions)
