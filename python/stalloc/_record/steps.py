"""Training steps: as the script marks them, else as its optimizer takes them."""

from __future__ import annotations

import weakref
from typing import Any

from stalloc import _marks, _native
from stalloc._record.history import History


class Steps:
    """The steps of this process, from wherever they are known."""

    def __init__(self, history: History, last: int | None) -> None:
        self._history = history
        self._last = last
        self._done = 0
        self.is_open = False

    def begin(self) -> None:
        """A step begins."""
        self.end()
        self.is_open = True
        self._history.before_mark()
        _native.mark_step_begin()

    def end(self) -> None:
        """A step ends; the last one that was asked for ends the program."""
        if not self.is_open:
            return
        self.is_open = False
        self._history.before_mark()
        _native.mark_step_end()
        self._done += 1
        self._history.step_done(self._done)
        if self._done == self._last:
            raise SystemExit(0)


class Marks(_marks.Listener):
    """Marks of the script go into the trace; those of modules only where the tracker makes them cheap."""

    def __init__(self, steps: Steps, beat: Beat, history: History) -> None:
        self._steps = steps
        self._beat = beat
        self._history = history

    def step_begin(self) -> None:
        self._beat.stop()
        self._steps.begin()

    def step_end(self) -> None:
        self._steps.end()

    def phase(self, kind: str, micro_batch: int) -> None:
        self._history.before_mark()
        _native.mark_phase(kind, micro_batch)

    def module_enter(self, name: str) -> None:
        if self._history.tracks:
            _native.mark_module_enter(name)

    def module_exit(self, name: str) -> None:
        if self._history.tracks:
            _native.mark_module_exit(name)


class Beat:
    """Finds steps in a script that marks none.

    The first begins when a module is first called for training; one ends and the next begins when the optimizer that
    sets the beat has stepped. That is the first optimizer, until another one steps twice without it.
    """

    def __init__(self, torch: Any, steps: Steps) -> None:
        self._steps = steps
        self._leader: weakref.ref[Any] | None = None
        self._others: dict[int, int] = {}
        self._torch = torch
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handles = [
            register_module_forward_pre_hook(self._called),
            register_optimizer_step_post_hook(self._stepped),
        ]

    def stop(self) -> None:
        """The script marks its steps itself."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _called(self, module: Any, _arguments: Any) -> None:
        if module.training and self._torch.is_grad_enabled():
            self._handles.pop(0).remove()
            if not self._steps.is_open:
                self._steps.begin()

    def _stepped(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        leader = self._leader() if self._leader is not None else None
        if leader is not optimizer:
            count = self._others[id(optimizer)] = self._others.get(id(optimizer), 0) + 1
            if leader is not None and count < 2:
                return
            self._leader = weakref.ref(optimizer)
        self._others.clear()
        if not self._steps.is_open:  # the model is no torch.nn.Module
            self._steps.begin()
        self._steps.end()
        self._steps.begin()
