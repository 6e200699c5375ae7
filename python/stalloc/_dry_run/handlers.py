"""What the handlers of signals raise while a dry run looks at the program.

Python runs a handler in the midst of any code of the main thread. Our code that handles its own errors lets a handler's pass: the native side
keeps it for the program (``crates/python/src/observer/calls.rs``).
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from stalloc import _native


def guarded(function: Callable[..., Any], otherwise: Any) -> Callable[..., Any]:
    """A function that gives ``otherwise`` where an error of its own would end it."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            if has_raised(error):
                raise
            _native.log(f"an operation is not computed: {error}")
            return otherwise

    return call


def has_raised(error: BaseException) -> bool:
    """Whether the handler of a signal raised an error: Python gives it the frame that it interrupts, which is also its caller's."""
    if not isinstance(error, Exception):
        return True
    # The first frame has caught the error, and runs. Looked at, its variables would stay, the error among them: a circle, which would keep
    # the frames of the program below, and so its tensors.
    trace = error.__traceback__ and error.__traceback__.tb_next
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_back is not None and any(value is frame.f_back for value in frame.f_locals.values()):
            return True
        trace = trace.tb_next
    return False
