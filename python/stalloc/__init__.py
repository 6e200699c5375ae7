"""Planned GPU memory for PyTorch training.

A training script needs none of this: ``stalloc trace`` and ``stalloc run`` find its steps by themselves. A script that
says more gets more precise traces::

    for batch in batches:
        with stalloc.step():
            ...

Every mark is free of charge when nothing is being recorded.
"""

from stalloc._common import build as _build

_build.check()

from stalloc._enable import enable, memory_stats, release_memory  # noqa: E402
from stalloc._files import plan, plan_buffers, simulate  # noqa: E402
from stalloc._fit import fit, levers  # noqa: E402
from stalloc._levers import applied as apply  # noqa: E402
from stalloc._levers.chunked_loss import chunked_loss  # noqa: E402
from stalloc._native import __version__  # noqa: E402
from stalloc._notebook import load_ipython_extension, register as _register  # noqa: E402
from stalloc._out_of_memory import on_out_of_memory  # noqa: E402
from stalloc._read import read_trace  # noqa: E402
from stalloc._report import record, report  # noqa: E402
from stalloc._serve.settings import lib_path  # noqa: E402
from stalloc._sleep import asleep, sleep, wake  # noqa: E402
from stalloc._steps.marks import phase, step, watch  # noqa: E402

_register()

__all__ = [
    "__version__",
    "apply",
    "asleep",
    "chunked_loss",
    "enable",
    "fit",
    "levers",
    "lib_path",
    "load_ipython_extension",
    "memory_stats",
    "on_out_of_memory",
    "phase",
    "plan",
    "plan_buffers",
    "read_trace",
    "record",
    "release_memory",
    "report",
    "simulate",
    "sleep",
    "step",
    "wake",
    "watch",
]
