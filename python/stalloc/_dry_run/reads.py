"""Values that a program reads back from a device that does not compute them.

The stand-in CUDA calls back at each copy from device to host. Unless it knows the bytes, the program sees zeros, small fractions, or the
answer that the user gave for the place in the program, or one that is known. Each such read goes into the trace with
its call stack and with what answered it: a program that branches on a zero may take another way than on a GPU.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import FrameType

from stalloc import _native
from stalloc._common.output import say
from stalloc._dry_run import handlers, known_values, unknown_fractions
from stalloc._dry_run.answers import Answers
from stalloc._frameworks import framework_answers

_KNOWN = 1
_ASYNCHRONOUS = 2
_CHECK = 4
_DRAWN = 8
#: `item` copies asynchronously too; larger asynchronous copies are tensors being offloaded, not values being looked at.
_LARGEST_VALUES = 64 * 1024
_MOST_FRAMES = 64


def listen(answers: Answers) -> None:
    """Note the reads of this process from now on."""
    takes_none = os.environ.get("STALLOC_DRYRUN_GUESS") == "none"

    def by_user(destination: int, size: int) -> bool:
        try:
            frames = _stack(sys._getframe(1).f_back)
            if not answers.give(frames, destination, size):
                return False
            _native.host_read(size, frames, "by the user")
        except Exception as error:  # never into the program's copy
            if handlers.has_raised(error):
                raise
            say(f"cannot give the answer to a read from the device: {error}")
            return False
        return True

    def read(destination: int, size: int, source: int, flags: int) -> bool:
        is_offload = flags & _ASYNCHRONOUS and size > _LARGEST_VALUES
        if answers and not is_offload and by_user(destination, size):  # whatever is known
            return True
        # What an operation reads for itself it has just computed: what was at the place before does not count.
        found = _native.operation_reads(size) if size <= 8 else None
        if found is not None and found[1]:
            ctypes.memmove(destination, found[0].to_bytes(size, "little"), size)
            if found[2]:  # else it is as on a GPU
                _native.host_read(size, _stack(sys._getframe().f_back), "drawn at random")
            return True
        is_stale = flags & (_KNOWN | _DRAWN) and found is None and _native.operation_reads_its_own()
        if is_stale:
            ctypes.memset(destination, 0, size)
            flags &= ~(_KNOWN | _DRAWN | _CHECK)
        if flags & _KNOWN and (found is None or size == 1) or is_offload:
            return False
        try:
            number_and_place = None if found or flags & (_CHECK | _DRAWN) else _native.computed_later(source, size)
            data = known_values.value_of(*number_and_place, size) if number_and_place else None
            if data is not None:
                ctypes.memmove(destination, data, size)
                return True
            # None on a thread that runs no Python, as autograd's. Our own frame in a variable of its own would keep the program's and their tensors.
            frame = sys._getframe().f_back
            frames = _stack(frame)
            answer = _know(frame, destination, size)
            if answer is None and found is not None:
                chosen = 0 if takes_none and size > 1 else found[0]
                ctypes.memmove(destination, chosen.to_bytes(size, "little"), size)
                answer = "a check that holds" if size == 1 else f"{'every' if chosen else 'no'} element of {found[0]}"
            if answer is None and not flags & (_KNOWN | _CHECK | _DRAWN) and size <= _LARGEST_VALUES:
                small = unknown_fractions.in_place_of(size, frames[0][::2] if frames else ("", 0))
                if small is not None:
                    ctypes.memmove(destination, small, size)
                    answer = framework_answers.replaced.get() or "small fractions"
            otherwise = _outcome(destination, size) if flags & _CHECK else "drawn at random" if flags & _DRAWN else None
            if otherwise is None and size in (2, 4) and unknown_fractions.is_integer():
                otherwise = "zero, of an integer"
            _native.host_read(size, frames, answer or framework_answers.replaced.get() or otherwise)
            return answer is not None or bool(is_stale)
        except Exception as error:  # never into the program's copy
            if handlers.has_raised(error):
                raise
            say(f"cannot answer a read from the device: {error}")
            return False

    _native.answer_reads(read)


def _outcome(destination: int, size: int) -> str:
    """How a check came out."""
    return "a check that holds" if any(ctypes.string_at(destination, size)) else "a check that does not hold"


def _know(frame: FrameType | None, destination: int, size: int) -> str | None:
    """Write the answer that the reading function is known to need, if it is; says which."""
    if frame is None:
        return None
    code = frame.f_code
    for (file, function), (name, answer) in framework_answers.by_function.items():
        if code.co_name == function and code.co_filename.endswith(file):
            data = answer(frame, size)
            if data is not None:
                ctypes.memmove(destination, data, size)
                return name
    return None


def _stack(frame: FrameType | None) -> list[tuple[str, str, int]]:
    """The call stack from ``frame`` outwards, as (file, function, line)."""
    frames: list[tuple[str, str, int]] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno or 0))
        frame = frame.f_back
    return frames
