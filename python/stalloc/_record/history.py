"""PyTorch's memory history: call stacks for the tracker's events, or all there is where there is no tracker.

Reading the history costs several microseconds an event. With the tracker it is read while the model is built and in the
first steps, whose events wait for their stacks. After them nothing waits: the history stays on, which costs about a
microsecond an allocation, is cleared unread, and is read only when live bytes have reached a new peak, at the program's
end, and when a request fails. What lives then has its stack all the same: the history knows that of every live block.
A program whose steps are alike pays nothing more: the history is off until one is not.
Without the tracker it stays on, and only the stacks stop.
A program that turns the history on for itself shares it: it is read at a new peak and at the end, and cleared by the program alone.

The history is read and cleared where nothing can be allocated in between: on the main thread, between two bytecodes,
outside a backward pass. The native side asks for that twice a second (a pending call of the interpreter), and each
step's end does.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from types import FrameType
from typing import Any, Callable

from stalloc import _native
from stalloc._common import snapshots
from stalloc._common.output import say
from stalloc._dry_run.handlers import has_raised

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

# Entries that the history keeps between two readings after the first steps: 200 MB at most, where a step has more than that,
# those before have no stacks.
_LATE_ENTRIES = 500_000


# Steps that are alike after which the history is off until one is not.
_SETTLED_AFTER = 10


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
        # Whether the first steps are over.
        self._is_late = False
        # How many steps, after the first ones, have been like the one before.
        self._settled_for = 0
        # Whether it is on because the program wants it: then it is read, and never cleared.
        self._is_shared = False
        # Whether it has call stacks that the program did not ask for.
        self._hides_stacks = False
        # Addresses of blocks that have the program's own call stacks.
        self._shown: set[int] = set()
        self.tracks = _attach(torch)
        if getattr(torch._C, "_cuda_isHistoryEnabled", bool)():  # by the program, before it used CUDA
            if not self.tracks:
                say("cannot record: the program uses PyTorch's memory history itself")
            elif self._has_stacks:
                self._is_on = self._is_shared = True
                _native.forget_recent()
                _native.on_flush(self.read)
                self._make_way()
                self._hear_failures()
            return
        # Without stacks it is on with the tracker too, until what both saw first has been compared.
        self._is_on = True
        _native.wait_for_stacks(self.tracks)
        _native.on_flush(self.read)
        self._restart()
        self._make_way()
        if self._has_stacks and self.tracks:
            self._hear_failures()

    def _hear_failures(self) -> None:
        observe = getattr(self._torch._C, "_cuda_attach_out_of_memory_observer", None)
        if observe is not None:
            observe(self._failed)

    def _restart(self) -> None:
        """Turn the history on, empty."""
        options: dict[str, Any] = {"context": "alloc" if self._has_stacks else None, "stacks": "python"}
        if self._is_checked and "skip_actions" in self._options:
            options["skip_actions"] = list(_ALL_BUT_ALLOCATIONS)
        if self._is_late and "max_entries" in self._options:
            options["max_entries"] = _LATE_ENTRIES
        if "clear_history" in self._options:
            options["clear_history"] = True
        else:
            self._set(None)
        self._set("all", **options)

    def _make_way(self) -> None:
        """Share the history with a program that wants it for itself; without the tracker, leave it to the program."""

        def record_memory_history(*args: Any, **kwargs: Any) -> None:
            if not self._is_on or self._is_reading:
                self._set(*args, **kwargs)
            elif self.tracks and self._has_stacks:
                self._share(args, kwargs)
            else:
                self.stop()
                if not self.tracks:
                    say("the program uses PyTorch's memory history itself: the recording ends here")
                self._set(*args, **kwargs)

        with_ours = self._torch._C._cuda_memorySnapshot

        def snapshot(*args: Any) -> Any:
            return self._as_asked(with_ours(*args))

        snapshot.with_ours = with_ours  # type: ignore[attr-defined]
        self._torch._C._cuda_memorySnapshot = snapshot
        record_memory_history.__signature__ = inspect.signature(self._set)  # type: ignore[attr-defined]
        self._torch.cuda.memory._record_memory_history = record_memory_history

    def _as_asked(self, taken: dict[str, Any]) -> dict[str, Any]:
        """A snapshot without what the program has not asked for."""
        if not self._is_on or self._is_shared and not self._hides_stacks:
            return taken
        for entry in (entry for entries in taken["device_traces"] for entry in entries):
            entry.pop("frames", None)
        if not self._is_shared:
            taken["device_traces"] = [[] for _ in taken["device_traces"]]
        for block in (block for segment in taken["segments"] for block in segment["blocks"]):
            if block["address"] not in self._shown:
                block["frames"] = []
        return taken

    def _share(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The program turns the history on as it wants it, or off: what we have not read yet is read before."""
        self.read(at_once=True)
        _native.wait_for_stacks(False)
        if self._is_shared and not self._hides_stacks:
            blocks = (block for segment in snapshots.take(self._torch)["segments"] for block in segment["blocks"])
            self._shown = {block["address"] for block in blocks if block.get("frames")}
        named = {**dict(zip(("enabled", "context", "stacks", "max_entries", "device"), args)), **kwargs}
        self._hides_stacks = named.get("context", "all") is None
        if self._hides_stacks:
            args, kwargs = (), {**named, "context": "alloc", "stacks": "python"}  # the recording has call stacks all the same
        if not self._is_shared:
            self._set(None)  # ours is not the program's to see
        self._set(*args, **kwargs)
        self._is_shared = bool(self._torch._C._cuda_isHistoryEnabled())
        _native.forget_recent()
        if not self._is_shared:
            self._is_late, self._settled_for = True, 0
            self._restart_late()

    def read(self, at_once: bool = False) -> None:
        """Take what the history holds, unless a backward pass is running; ``at_once``: even then."""
        if not self._is_on or self._is_reading:
            return
        if not at_once and self._torch._C._current_graph_task_id() != -1:
            return
        self._is_reading = True
        try:
            self._read(at_once)
        except Exception as error:  # PyTorch's own: of a file whose name is not UTF-8, for example
            if has_raised(error):  # the program's, which gets it
                raise
            end = "call stacks end here" if self.tracks else "the recording ends here"
            say(f"{end}: PyTorch cannot read its memory history ({str(error).partition('(')[0].strip()})")
            self._off()
        finally:
            self._is_reading = False

    def _read(self, at_once: bool) -> None:
        """Take what the history holds."""
        if self._is_shared:
            self._read_shared(at_once)
            return
        if self._is_late:
            self._read_late(at_once)
            return
        devices = snapshots.take(self._torch)["device_traces"]
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

    def _read_late(self, at_once: bool) -> None:
        """Tell the stacks of what lived at a new peak, and of what lives now."""
        if not _native.has_new_peak() and not at_once:
            self._restart_late()
            return
        self._tell_late()
        self._restart_late()

    def _read_shared(self, at_once: bool) -> None:
        """The same from a history that is the program's, and may hold what was before."""
        if _native.has_new_peak() or at_once:
            self._tell_late()
        _native.forget_recent()

    def _tell_late(self) -> None:
        snapshot = snapshots.take(self._torch)
        for device, entries in enumerate(snapshot["device_traces"]):
            if not _native.late_stacks(device, entries, self._is_shared):
                _native.log("no call stacks of this step: other threads allocated while the history was read")
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                frames = block.get("frames")
                if frames and block["state"] == "active_allocated":
                    stack = [(frame["filename"], frame["name"], frame["line"]) for frame in frames]
                    _native.stack_at(segment["device"], block["address"], stack)

    def _restart_late(self) -> None:
        """Turn the history on, empty, unless the program has settled."""
        if self._settled_for < _SETTLED_AFTER:
            self._restart()
        _native.forget_recent()

    def _count_settled(self) -> None:
        """A step after the first ones is done."""
        was_settled = self._settled_for >= _SETTLED_AFTER
        self._settled_for = 0 if _native.step_differs() else self._settled_for + 1
        if was_settled != (self._settled_for >= _SETTLED_AFTER):
            if was_settled:
                self._restart_late()
            else:
                self._set(None)

    def _failed(self, device: int, *_figures: int) -> None:
        """A request has failed: whoever catches the error frees what lives now."""
        try:
            frame: FrameType | None = sys._getframe(1)
        except ValueError:  # a thread of autograd's: what called it is where the main thread waits
            frame = sys._current_frames().get(threading.main_thread().ident or 0)
        try:
            frames = []
            while frame is not None:
                frames.append((frame, frame.f_lineno))
                frame = frame.f_back
            self.read(at_once=True)
            _native.stack_of_failed(device, snapshots.failed_stack(frames))
        except Exception as error:  # the program has trouble enough
            _native.log(f"no call stacks of what failed: {error!r}")

    def before_mark(self) -> None:
        """A mark is about to be made: without the tracker, what the history holds comes before it."""
        if not self.tracks:
            self.read()

    def step_done(self, done: int) -> None:
        """So many steps are done."""
        self.read()
        if self._is_shared:
            return
        if self._is_on and self._is_late:
            self._count_settled()
        if self._is_on and done == self._steps_with_stacks:
            if self.tracks:
                self._is_late = True
                _native.wait_for_stacks(False)
                _native.has_new_peak()
                _native.step_differs()
                self._restart_late()
            else:
                self._has_stacks = False
                self._restart()

    def stop(self) -> None:
        """Read the rest and turn the history off."""
        if self._is_on:
            self.read(at_once=True)
            self._off()

    def _off(self) -> None:
        self._is_on = False
        if not self._is_shared:
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
