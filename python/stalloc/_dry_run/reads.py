"""Values that a program reads back from a device that does not compute them.

The stand-in CUDA calls back at each copy from device to host. Unless it knows the bytes, the program sees zeros, small fractions, or the
answer that the user gave for the place in the program, or one that is known. Each such read goes into the trace with
its call stack and with what answered it: a program that branches on a zero may take another way than on a GPU.
"""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any

from stalloc import _native
from stalloc._common.output import say
from stalloc._dry_run import unknown_fractions
from stalloc._dry_run.answers import Answers
from stalloc._frameworks import framework_answers

_KNOWN = 1
_ASYNCHRONOUS = 2
_CHECK = 4
_DRAWN = 8
#: `item` copies asynchronously too; larger asynchronous copies are tensors being offloaded, not values being looked at.
_LARGEST_VALUES = 64 * 1024
_MOST_FRAMES = 64

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # user
    ctypes.c_void_p,  # destination
    ctypes.c_uint64,  # bytes
    ctypes.c_uint64,  # source
    ctypes.c_int,  # device
    ctypes.c_uint64,  # stream
    ctypes.c_int,  # flags
)

#: Kept alive as long as the library may call it.
_callback: Any = None


def listen(answers: Answers) -> None:
    """Note the reads of this process from now on."""

    def by_user(destination: int, size: int) -> bool:
        try:
            frames = _stack(sys._getframe(1).f_back)
            if not answers.give(frames, destination, size):
                return False
            _native.host_read(size, frames, "by the user")
        except Exception as error:  # never into the program's copy
            say(f"cannot give the answer to a read from the device: {error}")
            return False
        return True

    def read(_user: int, destination: int, size: int, _source: int, _device: int, _stream: int, flags: int) -> int:
        is_offload = flags & _ASYNCHRONOUS and size > _LARGEST_VALUES
        if answers and not is_offload and by_user(destination, size):  # whatever is known
            return 1
        # What an operation reads for itself it has just computed: what was at the place before does not count.
        found = _native.operation_reads(size) if size <= 8 else None
        if found is not None and found[1]:  # as on a GPU
            ctypes.memmove(destination, found[0].to_bytes(size, "little"), size)
            return 1
        is_stale = flags & (_KNOWN | _DRAWN) and found is None and _native.operation_reads_its_own()
        if is_stale:
            ctypes.memset(destination, 0, size)
            flags &= ~(_KNOWN | _DRAWN | _CHECK)
        if flags & _KNOWN and (found is None or size == 1) or is_offload:
            return 0
        try:
            frame = sys._getframe().f_back  # none on a thread that runs no Python, as autograd's
            frames = _stack(frame)
            answer = _know(frame, destination, size)
            if answer is None and found is not None:
                ctypes.memmove(destination, found[0].to_bytes(size, "little"), size)
                answer = "a check that holds" if size == 1 else "every element"
            if answer is None and not flags & (_KNOWN | _CHECK | _DRAWN) and size <= _LARGEST_VALUES:
                small = unknown_fractions.in_place_of(size, frames[0][::2] if frames else ("", 0))
                if small is not None:
                    ctypes.memmove(destination, small, size)
                    answer = framework_answers.replaced.get() or "small fractions"
            otherwise = _outcome(destination, size) if flags & _CHECK else "drawn at random" if flags & _DRAWN else None
            _native.host_read(size, frames, answer or framework_answers.replaced.get() or otherwise)
            return int(answer is not None or bool(is_stale))
        except Exception as error:  # never into the program's copy
            say(f"cannot answer a read from the device: {error}")
            return 0

    global _callback
    _callback = _Callback(read)
    ctypes.CDLL(None).stalloc_dryrun_on_host_read(_callback, None)


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
