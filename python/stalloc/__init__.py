"""Planned GPU memory for PyTorch training.

A training script needs none of this: ``stalloc trace`` and ``stalloc run`` find its steps by themselves. A script that
says more gets more precise traces::

    for batch in batches:
        with stalloc.step():
            ...

Every mark is free of charge when nothing is being recorded.
"""

from stalloc._marks import phase, step, watch
from stalloc._native import __version__, read_trace
from stalloc._pluggable import lib_path
from stalloc._serve import enable, memory_stats

__all__ = ["__version__", "enable", "lib_path", "memory_stats", "phase", "read_trace", "step", "watch"]
