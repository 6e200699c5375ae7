"""Calls back at the end of a process, whichever way Python ends it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
from typing import Callable

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
