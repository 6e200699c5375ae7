"""Calls back at the end of a process, whichever way Python ends it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import traceback
from typing import Any, Callable

from stalloc._common.users import is_users

#: The process whose end is the program's: not a child that it forks, unless that goes on in its place (a trial from a copy).
own_process = os.getpid()


def at_end(callback: Callable[[], None]) -> None:
    """Call ``callback`` once at the end of this process, or of the copy that goes on in its place; not in other children that it forks."""
    process = os.getpid()
    done: list[bool] = []

    def once() -> None:
        if os.getpid() in (process, own_process) and not done:
            done.append(True)
            callback()

    atexit.register(once)
    if multiprocessing.parent_process() is not None:  # a child that was forked ends without what is registered with atexit
        from multiprocessing import util

        util.Finalize(None, once, exitpriority=1)


def exception(*apart: type[BaseException]) -> Callable[[], str | None]:
    """What tells which exception ended the program, by its class and the program's own line; of its text nothing, which may be a secret.

    Those ``apart``, and what a user ends the program with, are none.
    """
    found: list[str] = []
    hook = sys.excepthook

    def uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        hook(kind, error, trace)
        if not issubclass(kind, (KeyboardInterrupt, *apart)):
            frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(trace)]
            own = [one for one in frames if is_users(one[0].co_filename)] or frames
            at = [f" at {'/'.join(code.co_filename.split('/')[-2:])}:{line} {code.co_name}" for code, line in own[-1:]]
            found.append(f"{kind.__name__}{''.join(at)}")

    sys.excepthook = uncaught
    return lambda: found[-1] if found else None
