"""The recording of one process: from PyTorch's import to the process's end."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from stalloc import _dry_run, _native
from stalloc._common import endings, launch, ranks
from stalloc._common.output import say
from stalloc._record.history import History
from stalloc._record.marks import Early, Marks, Steps
from stalloc._steps import marks as script
from stalloc._steps.step_detection import StepDetector


def prepare(torch: Any) -> None:
    """PyTorch has been imported, CUDA is still asleep."""
    if torch.version.cuda is None and torch.version.hip is None:
        say(f"this PyTorch ({torch.__version__}) is built without CUDA: there is nothing to record")
        sys.exit(2)
    _dry_run.prepare()

    early = Early()
    script.listen(early)

    def initialised() -> None:
        try:
            _start(torch, early)
        except Exception as error:  # whatever is wrong with us, the program runs
            _native.abandon()
            say(f"cannot record this process: {error!r}")

    torch.cuda._lazy_call(initialised)


def _start(torch: Any, early: Early) -> None:
    """CUDA has just been initialised, nothing has been allocated."""
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        say(f"cannot record: the program replaced PyTorch's allocator ({backend})")
        return
    settings = torch.cuda.memory._snapshot().get("allocator_settings", {})
    _native.start(os.environ["STALLOC_TRACE_DIR"], _rank(torch), _metadata(torch, settings), settings)
    last_step = launch.number("steps", 0) or None
    if launch.told().get("progress") and (ranks.local(os.environ) or 0) == 0:
        _native.show_progress(last_step)
    history = History(torch, launch.number("stacks", 2))
    is_trial = bool(os.environ.get("STALLOC_TRIAL_NOTES"))
    steps = Steps(history, last_step, (lambda: _live_bytes(torch)) if is_trial else None)
    marks = Marks(steps, StepDetector(torch, steps), history)
    early.hand_over(marks)
    script.listen(marks)

    ended_by = endings.exception(torch.cuda.OutOfMemoryError)

    def finish() -> None:
        history.stop()
        try:
            _native.finish(_rank(torch), ended_by())
        except OSError as error:
            say(str(error))

    endings.at_end(finish)
    os.register_at_fork(after_in_child=_in_child)


def _live_bytes(torch: Any) -> list[int]:
    return [torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count())]


def _in_child() -> None:
    """A forked child cannot use CUDA, and the files are its parent's."""
    script.listen(script.Listener())
    _native.leave_to_parent()


def _rank(torch: Any) -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return ranks.of(os.environ) or 0


def _metadata(torch: Any, settings: dict[str, Any]) -> dict[str, str]:
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    known = {
        "torch": str(torch.__version__),
        "python": sys.version.split()[0],
        "device_name": device.name,
        "total_memory": str(device.total_memory),
        "PYTORCH_CUDA_ALLOC_CONF": settings.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "command": launch.told().get("command") or _native.redacted(sys.orig_argv),
        "rank": str(_rank(torch)),
        "world_size": os.environ.get("WORLD_SIZE", "1"),
        "dry_run": os.environ.get("STALLOC_DRYRUN_GPU", ""),
        # Whose recording it is: see claim.rs of the recorder.
        "launch": os.environ.get("STALLOC_TRACE_LAUNCH", ""),
        "host": platform.node(),
    }
    return {key: value for key, value in known.items() if value}
