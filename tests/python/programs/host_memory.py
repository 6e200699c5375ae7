"""PyTorch's CPU tensors, recorded and served: how the core is held to real arithmetic where there is no GPU.

A GPU's tensors cannot be computed on a machine without one, but the same core (plan, arena, cursor, locks) serves host
memory as well. A program calls :func:`record` or :func:`serve` right after ``import torch``; with the plan made from the
recording it has to compute, bit for bit, what it computes without. Nothing here makes a CPU program faster.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stalloc import _native
from stalloc._serve import shim
from stalloc._steps import marks
from stalloc._steps.step_detection import StepDetector

if TYPE_CHECKING:
    from stalloc.results import MemoryStats

# The core's number for host memory.
_HOST = -1


class _Steps(marks.Listener):
    """The steps of this process, told to the recorder and to the core."""

    def __init__(self, torch: Any) -> None:
        self.is_open = False
        self._detector = StepDetector(torch, self)

    def begin(self) -> None:
        """A step begins."""
        self.end()
        self.is_open = True
        _native.mark_step_begin()
        _native.serve_step()

    def end(self) -> None:
        """A step ends."""
        if self.is_open:
            self.is_open = False
            self.extend()

    def extend(self) -> None:
        """The step that was said to end went on until here."""
        _native.mark_step_end()

    def step_begin(self) -> None:
        self._detector.stop()
        self.begin()

    def step_end(self) -> None:
        self.end()


def record(directory: str | os.PathLike[str]) -> None:
    """Record what this process asks of host memory, from now on, as ``rank0_dev0.trace``."""
    _start_recording(Path(directory))
    _install(serves=False, records=True)


def serve(plan: str | os.PathLike[str], log: str | os.PathLike[str] | None = None) -> None:
    """Serve this process's CPU tensors from a plan; with ``log``, a folder, record every address that is handed out."""
    _native.serve_prepare(_HOST, Path(plan))
    if log is not None:
        _start_recording(Path(log))
    _install(serves=True, records=log is not None)


def learn(log: str | os.PathLike[str] | None = None) -> None:
    """Serve this process's CPU tensors from an arena that learns; with ``log`` as :func:`serve`."""
    _native.serve_learn(_HOST)
    if log is not None:
        _start_recording(Path(log))
    _install(serves=True, records=log is not None)


def stats() -> MemoryStats:
    """What came from the plan so far and what did not, as :func:`stalloc.memory_stats` has it for a GPU."""
    return _native.serve_report(_HOST) or {}


def _start_recording(directory: Path) -> None:
    import torch

    directory.mkdir(parents=True, exist_ok=True)
    metadata = {"torch": str(torch.__version__), "python": sys.version.split()[0], "device_name": "host"}
    _native.start(str(directory), 0, metadata, {})
    process = os.getpid()
    atexit.register(lambda: _native.finish(0) if os.getpid() == process else None)
    os.register_at_fork(after_in_child=_native.abandon)  # the files are the parent's


def _install(serves: bool, records: bool) -> None:
    import torch

    install = shim.load("host_memory", Path(__file__).parent, gpu=False).stalloc_host_install
    install.restype = ctypes.c_char_p
    install.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    problem = install(_native.serve_table() if serves else None, _native.host_log() if records else None)
    if problem is not None:
        raise RuntimeError(f"host memory cannot be served: {problem.decode()}")
    marks.listen(_Steps(torch))
