"""What a program is told in a dry run, where values are not computed and other ranks may not exist.

The same whether it is recorded or served: a program that takes another way than it was recorded on leaves its plan.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import sys
import time
from pathlib import Path

from stalloc._common import build, imports
from stalloc._common.output import say
from stalloc._dry_run import known_values, reads
from stalloc._dry_run.answers import Answers
from stalloc._frameworks import fake_distributed, framework_answers


@functools.cache  # once: what is replaced twice would answer twice
def prepare() -> None:
    """PyTorch has been imported. Outside a dry run this does nothing, unless one rank is run without the others.

    Modules that were imported before keep what they took from the ones that are changed here.
    """
    is_dry = bool(os.environ.get("STALLOC_DRYRUN_GPU"))
    if is_dry or os.environ.get("STALLOC_TRACE_ALONE"):
        imports.after("torch.distributed", fake_distributed.install)
    if not is_dry:
        return
    try:
        build.check_dryrun(ctypes.CDLL(None))
    except build.Mismatch as error:
        say(str(error))
        sys.exit(2)
    try:
        answers = Answers.of_launch()
    except ValueError as error:
        say(str(error))
        sys.exit(2)
    reads.listen(answers)
    framework_answers.install()

    import torch

    torch.cuda._lazy_call(lambda: known_values.install(torch))
    atexit.register(_let_threads_settle)


def _let_threads_settle() -> None:
    """Give the other threads a chance to take the interpreter's lock before there is no interpreter.

    Autograd's thread lets go of a graph after ``backward()`` has returned, and needs the lock for that. In an interpreter that ends
    meanwhile it waits for ever, and PyTorch ten seconds for it; or it is ended inside of a C++ destructor, and the
    process with it. On a GPU the wait for the last kernels hides this. A thread that has nothing to do sleeps; so does one
    that waits for the lock, but not twice in a row, since it is free in between.
    """
    idle = 0
    for _ in range(1000):
        time.sleep(0.001)
        others = (task for task in Path("/proc/self/task").glob("[0-9]*") if int(task.name) != os.getpid())
        idle = 0 if any(map(_is_running, others)) else idle + 1
        if idle == 2:
            return


def _is_running(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
    except (OSError, IndexError):  # it has ended
        return False
