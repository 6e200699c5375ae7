"""Where one step ends and the next begins, when the script does not say."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Protocol


class Steps(Protocol):
    """Whoever wants to know of steps."""

    is_open: bool

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def extend(self) -> None:
        """The step that was said to end went on until here."""


class StepDetector:
    """Finds steps in a script that marks none.

    The first begins when a module is first called for training; one ends and the next begins when a leading optimizer
    has stepped. That is the first optimizer, and each that steps twice with no leader in between: a GAN's critic leads and
    its generator, once in a while, does not; tasks that take turns by chance all do. A first one that never stepped twice in
    a row leads no more then. Where several step one right after the other, no module being called in between, it is the
    last of them that leads, so that no step begins in the midst of theirs: the first step tells, which is why the second
    begins only with such a call. A gradient scaler that has an optimizer leave a step out ends it all the same.
    """

    def __init__(self, torch: Any, steps: Steps) -> None:
        self._steps = steps
        self._leaders: set[int] = set()
        # Whether the first leader has shown by two steps in a row that it is one.
        self._is_led = False
        # Who has stepped since a leader did, and itself.
        self._since: set[int] = set()
        self._torch = torch
        self._is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        # Optimizers that stepped at the first step's end, while there may be more of them.
        self._together: set[int] | None = set()
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook

        # Our hook is there for a call or two, and does no harm when it is called twice.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        self._on_call = register_module_forward_pre_hook
        # Before PyTorch 2.3 there is CUDA's alone.
        scaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler
        scaled = _ScaledSteps(scaler, self._stepped)
        self._handles = [register_optimizer_step_post_hook(scaled.stepped), scaled, self._on_call(self._called)]

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

    def _stepped(self, optimizer: Any) -> None:
        if self._together is not None and self._steps_with_others(optimizer, self._together):
            return
        number = id(optimizer)
        if number in self._since and number not in self._leaders and not self._is_led:
            self._leaders.clear()
        if number in self._since or not self._leaders:
            self._is_led |= number in self._since
            self._leaders.add(number)
        self._since.add(number)
        if number not in self._leaders:
            return
        self._since = {number}
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
        self._leaders, self._since = {id(optimizer)}, {id(optimizer)}
        return True


class _ScaledSteps:
    """Tells of each step of an optimizer, and of those that a gradient scaler has it leave out."""

    def __init__(self, scaler: Any, tell: Callable[[Any], None]) -> None:
        self._scaler = scaler
        self._tell = tell
        self._heard = 0
        self._step = step = scaler.step

        @functools.wraps(step)
        def told(this: Any, optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
            heard = self._heard
            result = step(this, optimizer, *arguments, **keywords)
            if heard == self._heard:
                self._tell(optimizer)
            return result

        self._told = scaler.step = told

    def stepped(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        """The optimizer has stepped."""
        self._heard += 1
        self._tell(optimizer)

    def remove(self) -> None:
        """Nothing is told of steps that are left out any more."""
        self._tell = lambda _optimizer: None
        if self._scaler.step is self._told:
            self._scaler.step = self._step
