"""DistributedDataParallel on one rank alone.

Its reducer wants the reduced gradients from the future of an all-reduce; a `fake` process group's holds nothing. So each
bucket of gradients is handed back as it is, and whoever asks for the future of an all-reduce gets the tensors.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable


class Work:
    """The work of a `fake` collective with its result."""

    def __init__(self, work: Any, tensor: Any) -> None:
        self._work = work
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def get_future(self) -> Any:
        """A future that holds the tensors of the collective, as NCCL's does."""
        return _done([self._tensor], self._tensor)


def _done(result: Any, tensor: Any) -> Any:
    import torch

    future: Any = torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else [])
    future.set_result(result)
    return future


def install(module: ModuleType, is_alone: Callable[[], bool]) -> None:
    """Have every DistributedDataParallel of ``module`` reduce its gradients alone, unless its script says how."""
    from torch import distributed

    model = module.DistributedDataParallel  # type: ignore[attr-defined]
    initialise, register_builtin = model.__init__, distributed._register_builtin_comm_hook

    def as_they_are(_state: Any, bucket: Any) -> Any:
        return _done(bucket.buffer(), bucket.buffer())

    @functools.wraps(initialise)
    def initialise_alone(self: Any, *args: Any, **options: Any) -> None:
        initialise(self, *args, **options)
        if not is_alone():
            return

        def before_first_forward(_module: Any, _arguments: Any) -> None:
            handle.remove()
            if not getattr(self, "_comm_hooks", None):
                distributed._register_comm_hook(self.reducer, None, as_they_are)

        handle = self.register_forward_pre_hook(before_first_forward)

    def register_builtin_alone(*args: Any) -> None:
        if not is_alone():  # else it would end in an all-reduce of which it wants the result
            register_builtin(*args)

    model.__init__ = initialise_alone
    distributed._register_builtin_comm_hook = register_builtin_alone
