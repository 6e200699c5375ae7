"""Answers to what a program reads back, by the place in the program.

An answer is a number, or a list of them for reads of several values, given as `FILE:LINE=VALUE` or in a JSON file
`{"FILE:LINE": VALUE}`. FILE is the end of a path ("train.py", "moe/router.py"). The innermost line of the call stack
that has an answer gives it. A number with a decimal point is written as a floating-point number (bfloat16 if two bytes
are read), another as an integer, of the size that is read; a list has as many numbers as are read.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any, Sequence

from stalloc._common import launch
from stalloc._common.numbers import Number, encode

Frame = tuple[str, str, int]


class Answers:
    """The answers of one process."""

    def __init__(self, answers: dict[tuple[str, int], list[Number]]) -> None:
        self._answers = answers

    @classmethod
    def of_launch(cls) -> Answers:
        """Those that `stalloc trace` was given; ValueError, in a sentence, if one is invalid."""
        answers: dict[tuple[str, int], list[Number]] = {}
        for line in launch.told().get("answers", []):
            try:
                place, equals, value = line.partition("=")
                if not equals:
                    raise ValueError("it is not FILE:LINE=VALUE")
                answers[_place(place)] = _numbers(_value(value))
            except ValueError as error:
                raise ValueError(f"--answer {line}: {error}") from None
        path = launch.told().get("answers_file")
        if path:
            try:
                with open(path, encoding="utf-8") as file:
                    for place, value in json.load(file).items():
                        answers[_place(place)] = _numbers(value)
            except (OSError, ValueError) as error:
                raise ValueError(f"--answers-file {path}: {error}") from None
        return cls(answers)

    def __bool__(self) -> bool:
        return bool(self._answers)

    def give(self, frames: Sequence[Frame], destination: int, size: int) -> bool:
        """Write the answer for a read of ``size`` bytes to ``destination``, if there is one."""
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
        raise ValueError(f"{text!r} is not FILE:LINE")
    return file, int(line)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _numbers(value: Any) -> list[Number]:
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(f"{value!r} is not a number, nor a list of numbers")
    return numbers
