"""Where the program first left its plan: the call stack, by device."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from stalloc import _native

#: Frames that are kept, innermost first.
MOST_FRAMES = 32

_stacks: dict[int, list[str]] = {}


def listen() -> None:
    """Note the call stack at the first departure on each device.

    The note is taken when the main thread is back in Python, right after the operation; for a request of another
    thread that runs Python, where that thread is then; for autograd's threads, where the main thread is.
    """
    _native.serve_on_departure(_note)


def stack(device: int) -> list[str] | None:
    """``FILE:LINE in FUNCTION``, innermost first; None if the program has not left its plan there."""
    return _stacks.get(device)


def place(device: int) -> str | None:
    """The innermost line of the program's own, rather than of PyTorch."""
    frames = _stacks.get(device) or []
    own = [frame for frame in frames if "/torch/" not in frame.partition(" in ")[0]]
    return next(iter(own or frames), None)


def _is_computed_for_us(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("stalloc._dry_run.")


def _note(device: int, thread: int) -> None:
    here: FrameType | None = sys._getframe(1)  # what this call interrupted in the main thread
    frame = here if thread == threading.get_ident() else sys._current_frames().get(thread, here)
    frames: list[str] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        if _is_computed_for_us(frame):
            frames.clear()  # a dry run's own computing was under way
            frame = frame.f_back
            continue
        frames.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        frame = frame.f_back
    _stacks.setdefault(device, frames)
