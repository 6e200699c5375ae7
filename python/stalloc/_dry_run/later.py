"""Large tensors that follow from known ones, computed when a program asks how much there is of them.

A mask over all pairs has millions of elements, and follows from a few thousand numbers that the host gave. Most such tensors decide
nothing, so what is kept of one is the operation and its inputs; `nonzero` and a read by the program have it computed.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Optional, Sequence

#: Operations that one value may follow from, one after another.
_DEEPEST = 64
#: Values that are kept, and bytes of known tensors that they follow from; the oldest go first.
_MOST_KEPT, _MOST_BYTES = 4096, 512 << 20

_numbers = itertools.count(1)
#: By the number that the stand-in has for it, oldest first: what is computed, and which of its outputs.
_kept: dict[int, tuple[Later, int]] = {}
_bytes = 0


class Later:
    """An operation, done later."""

    def __init__(self, run: Callable[[list[Any]], Sequence[Any]], inputs: list[Any], elements: int) -> None:
        self.run = run
        self.inputs = inputs
        earlier = [value[3].later for value in flattened(inputs) if is_later(value)]
        self.depth = 1 + max((later.depth for later in earlier), default=0)
        #: Elements of each operation that is done for it.
        self.elements = {id(self): elements}
        for later in earlier:
            self.elements.update(later.elements)
        self.bytes = sum(len(value[3]) for value in flattened(inputs) if isinstance(value, tuple) and isinstance(value[3], bytes))

    def outputs(self, done: dict[int, Sequence[Any]]) -> Sequence[Any]:
        """The tensors; what was computed on the way is in ``done``."""
        if id(self) not in done:
            done[id(self)] = self.run(computed(self.inputs, done))
        return done[id(self)]


class Part:
    """One output of such an operation, from one of its bytes on."""

    def __init__(self, later: Later, index: int, before: int) -> None:
        self.later, self.index, self.before = later, index, before


def is_later(value: Any) -> bool:
    """Whether an input is a tensor that is computed later."""
    return isinstance(value, tuple) and isinstance(value[3], Part)


def flattened(values: list[Any]) -> list[Any]:
    """Inputs, those in lists too."""
    flat: list[Any] = []
    for value in values:
        flat.extend(flattened(value) if isinstance(value, list) else [value])
    return flat


def found(value: Any) -> Any:
    """An input as the native side has it; in place of the number of what is computed later, that. KeyError if it is no longer kept."""
    if isinstance(value, list):
        return [found(element) for element in value]
    if not isinstance(value, tuple) or not isinstance(value[3], tuple):
        return value
    number, before = value[3]
    return (*value[:3], Part(*_kept[number], before))


def put_off(run: Callable[[list[Any]], Sequence[Any]], inputs: list[Any], elements: int, outputs: int) -> Optional[list[Any]]:
    """The outputs of an operation that is done later; None if that would be too much."""
    global _bytes
    later = Later(run, inputs, elements)
    if later.depth > _DEEPEST or not is_affordable(sum(later.elements.values())):
        return None
    numbers = [next(_numbers) for _ in range(outputs)]
    _kept.update((number, (later, index)) for index, number in enumerate(numbers))
    _bytes += later.bytes
    while _bytes > _MOST_BYTES or len(_kept) > _MOST_KEPT:
        oldest, index = _kept.pop(next(iter(_kept)))
        _bytes -= oldest.bytes if index == 0 else 0
    return [(255, [], (number, 0)) for number in numbers]


def is_affordable(elements: int) -> bool:
    """Whether the host has the memory for so many elements, at eight bytes, twice."""
    return 16 * elements < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def read(number: int, before: int, size: int) -> Optional[bytes]:
    """Bytes of what is computed later; None if it is no longer kept."""
    if number not in _kept:
        return None
    return bytes(_flat(Part(*_kept[number], before), {})[:size].numpy().tobytes())


def computed(inputs: list[Any], done: dict[int, Sequence[Any]]) -> list[Any]:
    """Inputs, with tensors of bytes in place of what is computed later."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return computed(value, done)
        return (*value[:3], _flat(value[3], done)) if is_later(value) else value

    return [one(value) for value in inputs]


def _flat(part: Part, done: dict[int, Sequence[Any]]) -> Any:
    import torch

    return part.later.outputs(done)[part.index].contiguous().reshape(-1).view(torch.uint8)[part.before :]
