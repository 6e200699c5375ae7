"""Marks: what a script says about its own structure."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Callable, ContextManager, TypeVar

from stalloc._common.output import say

if TYPE_CHECKING:
    import torch

F = TypeVar("F", bound=Callable[..., Any])


class Listener:
    """What marks are told to. This one, for programs that nobody records, does nothing."""

    def step_begin(self) -> None: ...

    def step_end(self) -> None: ...

    def phase(self, kind: str, micro_batch: int) -> None: ...

    def module_enter(self, name: str) -> None: ...

    def module_exit(self, name: str) -> None: ...


#: Steps that a trial makes beyond those that were asked for: a lever needs some to show what it does.
more_steps = 0

_nobody = Listener()
_listener = _nobody


def listen(listener: Listener) -> None:
    """Tell ``listener`` every mark from now on."""
    global _listener
    _listener = listener


class step:
    """One training step, as a context manager or a decorator of the function that makes one.

    A script that marks its steps is not looked at for steps of its own (``torch.optim``'s).
    """

    _is_used = False

    def __enter__(self) -> step:
        self._is_used = True
        _listener.step_begin()
        return self

    def __exit__(self, *exception: object) -> None:
        _listener.step_end()

    def __call__(self, function: F) -> F:
        self._is_used = True

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with step():
                return function(*args, **kwargs)

        return marked  # type: ignore[return-value]

    def __del__(self) -> None:
        if not self._is_used and not step._was_said:
            step._was_said = True
            say("`stalloc.step()` alone marks nothing: write `with stalloc.step():` around a training step, or put `@stalloc.step()` above its function")

    _was_said = False


def phase(kind: str, micro_batch: int = 0) -> ContextManager[None]:
    """A phase of a step begins: "forward", "backward", "weight" or "optimizer" of a micro-batch, counted from 0.

    It lasts until the next phase, or the step's end; used with ``with``, its block says so to the reader.
    """
    _listener.phase(kind, micro_batch)
    return contextlib.nullcontext()


def watch(module: torch.nn.Module, name: str | None = None) -> None:
    """Mark when each submodule of ``module`` is entered and left, in the forward pass and in the backward pass.

    The backward pass of the submodule ``x`` is called ``x:backward``. Modules called under ``torch.compile`` are
    seen as far as their hooks run.
    """
    backward = _Backward()
    for path, submodule in module.named_modules(prefix=name or ""):
        if path:
            _watch_one(submodule, path, backward)


def _watch_one(module: torch.nn.Module, name: str, backward: _Backward) -> None:
    def before(_module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        _on_gradient(arguments, lambda _gradient: backward.leave(name))
        _listener.module_enter(name)

    def after(_module: torch.nn.Module, _arguments: tuple[Any, ...], output: Any) -> None:
        _listener.module_exit(name)
        _on_gradient(output, lambda _gradient: backward.enter(name))

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


class _Backward:
    """Which submodules the backward pass is in, from gradients as they become known.

    The gradient of a module's output begins its backward pass, that of its input ends it. One tensor can be both, of
    several modules at once, and inputs may have no gradient: what is open is put in order here, so that marks nest.
    """

    def __init__(self) -> None:
        self._open: list[str] = []

    def enter(self, name: str) -> None:
        """The gradient of the module's output is known."""
        if name in self._open:
            return
        if not self._open:
            _at_end_of_backward(self._leave_all)
        while self._open and not name.startswith(self._open[-1] + "."):
            if self._open[-1].startswith(name + "."):  # the same tensor, and the inner module's hook ran first
                return
            self._leave_last()
        self._open.append(name)
        _listener.module_enter(f"{name}:backward")

    def leave(self, name: str) -> None:
        """The gradient of the module's input is known."""
        while name in self._open:
            self._leave_last()

    def _leave_last(self) -> None:
        _listener.module_exit(f"{self._open.pop()}:backward")

    def _leave_all(self) -> None:
        while self._open:
            self._leave_last()


def _at_end_of_backward(call: Callable[[], None]) -> None:
    from torch.autograd import Variable

    Variable._execution_engine.queue_callback(call)  # type: ignore[attr-defined]


def _on_gradient(value: Any, hook: Callable[[torch.Tensor], None]) -> None:
    """Call ``hook`` once the gradient of the first differentiable tensor of ``value`` is known.

    Hooks of tensors, not of modules: the latter put a node of their own into the graph, which would change what is
    recorded.
    """
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
    for item in values:
        if getattr(item, "requires_grad", False):
            item.register_hook(hook)
            return
