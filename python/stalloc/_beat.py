"""The beat of a training program: where one step ends and the next begins, when the script does not say."""

from __future__ import annotations

import weakref
from typing import Any, Protocol


class Steps(Protocol):
    """Whoever wants to know of steps."""

    is_open: bool

    def begin(self) -> None: ...

    def end(self) -> None: ...


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
