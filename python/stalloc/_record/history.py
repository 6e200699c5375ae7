"""PyTorch's memory history: call stacks for the tracker's events, or all there is where there is no tracker.

Reading the history costs several microseconds an event, so with the tracker it is on only while the model is built and
for the first steps: later steps repeat them. Without the tracker it stays on, and only the stacks stop.

The history is read and cleared where nothing can be allocated in between: on the main thread, between two bytecodes,
outside a backward pass. The native side asks for that twice a second (a pending call of the interpreter), and each
step's end does.
"""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable

from stalloc import _native
from stalloc._common.output import say

_ALL_BUT_ALLOCATIONS = (
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)


class History:
    """PyTorch's memory history of this process."""

    def __init__(self, torch: Any, steps_with_stacks: int) -> None:
        self._torch = torch
        self._steps_with_stacks = steps_with_stacks
        self._set: Callable[..., None] = torch.cuda.memory._record_memory_history
        self._options = inspect.signature(self._set).parameters
        self._has_stacks = steps_with_stacks > 0
        self._is_on = False
        self._is_reading = False
        self._is_checked = False
        self.tracks = _attach(torch)
        if getattr(torch._C, "_cuda_isHistoryEnabled", bool)():  # by the program, before it used CUDA
            if not self.tracks:
                say("cannot record: the program uses PyTorch's memory history itself")
            return
        # Without stacks it is on with the tracker too, until what both saw first has been compared.
        self._is_on = True
        _native.wait_for_stacks(self.tracks)
        _native.on_flush(self.read)
        self._restart()
        self._make_way()

    def _restart(self) -> None:
        """Turn the history on, empty."""
        options: dict[str, Any] = {"context": "alloc" if self._has_stacks else None, "stacks": "python"}
        if self._is_checked and "skip_actions" in self._options:
            options["skip_actions"] = list(_ALL_BUT_ALLOCATIONS)
        if "clear_history" in self._options:
            options["clear_history"] = True
        else:
            self._set(None)
        self._set("all", **options)

    def _make_way(self) -> None:
        """Leave the history to a program that wants it for itself."""

        def record_memory_history(*args: Any, **kwargs: Any) -> None:
            if self._is_on and not self._is_reading:
                self.stop()
                if not self.tracks:
                    say("the program uses PyTorch's memory history itself: the recording ends here")
            self._set(*args, **kwargs)

        record_memory_history.__signature__ = inspect.signature(self._set)  # type: ignore[attr-defined]
        self._torch.cuda.memory._record_memory_history = record_memory_history

    def read(self) -> None:
        """Take what the history holds, unless a backward pass is running."""
        if not self._is_on or self._is_reading or self._torch._C._current_graph_task_id() != -1:
            return
        self._is_reading = True
        try:
            devices = self._snapshot()
            if self.tracks and not self._is_checked:
                self.tracks = all([_native.agrees(device, entries) for device, entries in enumerate(devices)])
                self._is_checked = self.tracks
                if not self.tracks:
                    say("the allocator's tracker and PyTorch's memory history differ: recording from the history")
                    _native.detach()
                elif not self._has_stacks:
                    self._off()
                    return
            self._restart()
            for device, entries in enumerate(devices):
                if not self.tracks:
                    _native.history(device, entries)
                elif not _native.stacks(device, entries):
                    _native.log("call stacks end here: other threads allocated while the history was read")
                    self._off()
                    return
        finally:
            self._is_reading = False

    def _snapshot(self) -> list[Any]:
        """The history of each device.

        PyTorch asks whether there is a `torch._inductor`, to name the frames of compiled code, and the asking imports it.
        That takes seconds; in the midst of another import it fails and is tried again each time, so that a program
        on a slow machine would hardly get any further. What is not imported has no frames: it is hidden.
        """
        torch = self._torch
        if "_inductor" in vars(torch):
            return torch.cuda.memory._snapshot()["device_traces"]
        torch._inductor = None
        try:
            return torch.cuda.memory._snapshot()["device_traces"]
        finally:
            if torch._inductor is None:
                del torch._inductor

    def before_mark(self) -> None:
        """A mark is about to be made: without the tracker, what the history holds comes before it."""
        if not self.tracks:
            self.read()

    def step_done(self, done: int) -> None:
        """So many steps are done."""
        self.read()
        if self._is_on and done == self._steps_with_stacks:
            if self.tracks:
                self.stop()
            else:
                self._has_stacks = False
                self._restart()

    def stop(self) -> None:
        """Read the rest and turn the history off."""
        if self._is_on:
            self.read()
            self._off()

    def _off(self) -> None:
        self._is_on = False
        self._set(None)
        _native.on_flush(None)
        _native.wait_for_stacks(False)


def _attach(torch: Any) -> bool:
    """Attach the tracker, where this PyTorch has what it takes."""
    try:
        _native.attach(os.path.join(os.path.dirname(torch.__file__), "lib"))
    except RuntimeError as reason:
        _native.log(f"no tracker, reading PyTorch's memory history instead: {reason}")
        return False
    return True
