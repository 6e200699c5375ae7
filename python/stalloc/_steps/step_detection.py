"""Where one step ends and the next begins, when the script does not say."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Protocol


class Steps(Protocol):
    """Whoever wants to know of steps."""

    is_open: bool

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def extend(self) -> None:
        """The step that was said to end went on until here."""


class StepDetector:
    """Finds steps in a script that marks none.

    The first begins when a module is first called for training; one ends and the next begins when the leading optimizer
    has stepped. That is the first optimizer, until another one steps twice without it. Where several step one right
    after the other, no module being called in between, it is the last of them, so that no step begins in the midst of
    theirs: the first step tells, which is why the second begins only with such a call.
    """

    def __init__(self, torch: Any, steps: Steps) -> None:
        self._steps = steps
        self._leader: weakref.ref[Any] | None = None
        self._others: dict[int, int] = {}
        self._torch = torch
        self._is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        # Optimizers that stepped at the first step's end, while there may be more of them.
        self._together: set[int] | None = set()
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook

        # Our hook is there for a call or two, and does no harm when it is called twice.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        self._on_call = register_module_forward_pre_hook
        self._handles = [register_optimizer_step_post_hook(self._stepped), self._on_call(self._called)]

    def stop(self) -> None:
        """The script marks its steps itself."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _called(self, module: Any, _arguments: Any) -> None:
        if self._is_compiling():  # a call that is being traced is made later, where nobody hears of it
            return
        # After the first step any call tells that the optimizers are done, a validation's too.
        if self._together or (module.training and self._torch.is_grad_enabled()):
            self._handles.pop().remove()
            if self._together:
                self._together = None
            if not self._steps.is_open:
                self._steps.begin()

    def _stepped(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        if self._together is not None and self._steps_with_others(optimizer, self._together):
            return
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

    def _steps_with_others(self, optimizer: Any, together: set[int]) -> bool:
        """Whether an optimizer is one of those that step at the first step's end, ``together`` so far."""
        if not self._steps.is_open and not together or id(optimizer) in together:
            # Calls of modules are not seen: nothing tells which optimizers step together.
            self._together = None
            return False
        if together:
            self._steps.extend()
        else:
            self._steps.end()
            self._handles.append(self._on_call(self._called))
        together.add(id(optimizer))
        self._leader = weakref.ref(optimizer)
        return True
