"""Answers to what a program reads back, by the place in the program.

An answer is a number, or a list of them for reads of several values, given as `FILE:LINE=VALUE` or in a JSON file
`{"FILE:LINE": VALUE}`. FILE is the end of a path ("train.py", "moe/router.py"). The innermost line of the call stack
that has an answer gives it. A number with a decimal point is written as a floating-point number (bfloat16 if two bytes
are read), another as an integer, of the size that is read; a list has as many numbers as are read.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from typing import Any, Sequence, Union

Number = Union[int, float, bool]
Frame = tuple[str, str, int]

_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {2: "bfloat16", 4: "f", 8: "d"}


class Answers:
    """The answers of one process."""

    def __init__(self, answers: dict[tuple[str, int], list[Number]]) -> None:
        self._answers = answers

    @classmethod
    def of_environment(cls) -> Answers:
        """Those that `stalloc trace` was given; ValueError if one makes no sense."""
        answers: dict[tuple[str, int], list[Number]] = {}
        for line in os.environ.get("STALLOC_TRACE_ANSWERS", "").splitlines():
            place, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"the answer {line!r} is not FILE:LINE=VALUE")
            answers[_place(place)] = _numbers(json.loads(value))
        path = os.environ.get("STALLOC_TRACE_ANSWERS_FILE")
        if path:
            with open(path, encoding="utf-8") as file:
                for place, value in json.load(file).items():
                    answers[_place(place)] = _numbers(value)
        return cls(answers)

    def give(self, frames: Sequence[Frame], destination: int, size: int) -> bool:
        """Write the answer for a read of ``size`` bytes to ``destination``, if there is one."""
        if not self._answers:
            return False
        for file, _function, line in frames:
            for (ending, at), numbers in self._answers.items():
                if at == line and (file == ending or file.endswith("/" + ending)):
                    data = encode(numbers, size)
                    ctypes.memmove(destination, data, size)
                    return True
        return False


def _place(text: str) -> tuple[str, int]:
    file, colon, line = text.strip().rpartition(":")
    if not colon or not line.isdigit():
        raise ValueError(f"{text!r} is no place in a program: FILE:LINE")
    return file, int(line)


def _numbers(value: Any) -> list[Number]:
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(f"{value!r} is neither a number nor a list of numbers")
    return numbers


def encode(numbers: Sequence[Number], size: int) -> bytes:
    """``numbers`` in ``size`` bytes; ValueError if they do not fill them."""
    width, rest = divmod(size, len(numbers))
    is_float = any(isinstance(number, float) for number in numbers)
    if rest or width not in (_FLOATS if is_float else _INTEGERS):
        raise ValueError(f"{len(numbers)} numbers do not fill the {size} bytes that are read")
    if is_float and width == 2:  # bfloat16: the upper half of a float32
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    return struct.pack(f"<{len(numbers)}{(_FLOATS if is_float else _INTEGERS)[width]}", *numbers)
