"""Serving in one process: from PyTorch's import to the process's end."""

from __future__ import annotations

import atexit
import ctypes
import os
from pathlib import Path
from typing import Any

from stalloc import _marks, _native, _pluggable, _shim
from stalloc._beat import Beat
from stalloc._record import dryrun
from stalloc._record.output import say
from stalloc._serve import departure, report
from stalloc._serve.settings import Backend, Mode, Settings

# As many as the core has places for.
MOST_GPUS = 64


class Steps:
    """The steps of this process, told to the core."""

    def __init__(self, after: Any) -> None:
        self.is_open = False
        self._after = after

    def begin(self) -> None:
        """A step begins."""
        self.end()
        self.is_open = True
        _native.serve_step()

    def end(self) -> None:
        """A step ends."""
        if self.is_open:
            self.is_open = False
            self._after()

    def extend(self) -> None:
        """The core is told of beginnings only."""


class Marks(_marks.Listener):
    """Marks of the script go to the core."""

    def __init__(self, steps: Steps, beat: Beat) -> None:
        self._steps = steps
        self._beat = beat

    def step_begin(self) -> None:
        self._beat.stop()
        self._steps.begin()

    def step_end(self) -> None:
        self._steps.end()


def prepare(torch: Any, settings: Settings) -> None:
    """PyTorch has been imported, CUDA is still asleep."""
    dryrun.prepare()
    serves = settings.mode.serves
    try:
        if serves and not _serve(torch, settings):
            return
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever is wrong with us, the program runs: a panic of Rust's is no Exception
        say(f"this process runs with PyTorch's allocator: {error}")
        return
    if serves:
        departure.listen()
    steps = Steps(lambda: None if serves or settings.quiet else report.per_step(torch))
    _marks.listen(Marks(steps, Beat(torch, steps)))
    if serves:
        process = os.getpid()
        atexit.register(lambda: _end(torch, settings) if os.getpid() == process else None)


def _end(torch: Any, settings: Settings) -> None:
    try:
        if not settings.quiet:
            report.at_exit(torch, settings)
        if settings.mode is Mode.AUTO and settings.path is not None:
            _keep(settings.path, settings)
    except BaseException as error:  # the last lines are not worth a traceback
        say(f"no figures at the end: {error}")


def _keep(folder: Path, settings: Settings) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = _native.serve_keep(folder, settings.rank)
    except (OSError, RuntimeError) as error:
        say(f"what was learned is not kept: {error}")
        return
    if kept and not settings.quiet:
        say(f"what was learned is kept in {folder}: the next run starts with it")


def _serve(torch: Any, settings: Settings) -> bool:
    plans = {} if settings.path is None else _native.serve_plans(settings.path, settings.rank)
    learns = settings.mode is Mode.AUTO
    if not plans and not learns:
        say(f"no plan for rank {settings.rank} in {settings.path}: `stalloc plan TRACES -o PLANS` makes them")
        return False
    front = _front(settings)
    for device, file in _placed(torch, plans, settings.local_rank).items():
        _follow(torch, device, file, learns)
    if learns:
        for device in range(min(torch.cuda.device_count(), MOST_GPUS)):
            _native.serve_learn(device)
    problem = _pluggable.install(torch) if front is None else _install(front)
    if problem is not None:
        say(f"this process runs with PyTorch's allocator: {problem}")
    return problem is None


def _follow(torch: Any, device: int, file: Path, learns: bool) -> None:
    try:
        about = _native.serve_prepare(device, file)
    except ValueError as error:
        if not learns:
            raise
        say(f"{error}; device {device} starts without a plan")
        return
    made_for = about.get("torch")
    if made_for and made_for != str(torch.__version__):
        say(f"{file.name} was recorded with PyTorch {made_for}, this is {torch.__version__}: it may not fit")


def _placed(torch: Any, plans: dict[int, Path], local_rank: int | None) -> dict[int, Path]:
    """Plans by the devices that they are for here.

    A rank that was recorded alone, or elsewhere, was on another of the GPUs: its only plan is for the GPU of this
    process, which is the one of the same number as its rank on the machine, unless it sees no other.
    """
    if len(plans) == 1 and local_rank is not None and local_rank < torch.cuda.device_count():
        return {local_rank: next(iter(plans.values()))}
    return plans


def _front(settings: Settings) -> ctypes.CDLL | None:
    """The shim that stands in front of PyTorch's own allocator; None: take its place instead."""
    if settings.backend is Backend.PLUGGABLE:
        return None
    try:
        return _shim.load("front")
    except _shim.ShimError as error:
        if settings.backend is Backend.NATIVE:
            raise
        if not settings.quiet:
            say(f"{error}; serving through CUDAPluggableAllocator instead")
        return None


def _install(front: ctypes.CDLL) -> str | None:
    install = front.stalloc_front_install
    install.restype = ctypes.c_char_p
    install.argtypes = [ctypes.c_void_p, ctypes.c_int]
    problem: bytes | None = install(_native.serve_table(), MOST_GPUS)
    return None if problem is None else problem.decode()
