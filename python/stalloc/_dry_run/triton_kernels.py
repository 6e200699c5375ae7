"""Kernels that Triton launches, in a dry run: what is known of other tensors stays known.

A kernel that no observed operation launched may write anywhere, so it ends all that a dry run knows of values
(`known_values`). Of a Triton kernel the arguments are seen here: it can write to the memory of the tensors that it is given, and nowhere
else. Where an argument is none that we understand (an address as a number, an object of its own), it ends all as before. Addresses that lie in
the memory of a tensor are not followed.
"""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType
from typing import Any, Callable, Iterator, Optional

from stalloc._common import imports

#: No size or count is as large, and addresses of the device are.
_ADDRESSES = 1 << 32
#: What is given to a launch and not to its kernel.
_NO_ARGUMENTS = ("grid", "stream", "warmup")


def install() -> None:
    """Look at the launches of Triton and of what torch.compile makes for it, once they are imported."""
    imports.after("triton.runtime.jit", lambda module: _observe(module, "JITFunction"))
    imports.after("torch._inductor.runtime.triton_heuristics", lambda module: _observe(module, "CachingAutotuner"))


def _observe(module: ModuleType, name: str) -> None:
    launcher = getattr(module, name, None)
    run = getattr(launcher, "run", None)
    if run is not None:
        setattr(launcher, "run", _observed(run, ctypes.CDLL(None)))


def _observed(run: Callable[..., Any], stand_in: Any) -> Callable[..., Any]:
    forget = stand_in.stalloc_dryrun_forget
    forget.argtypes, forget.restype = (ctypes.c_uint64, ctypes.c_uint64), None

    @functools.wraps(run)
    def observed(self: Any, *args: Any, **named: Any) -> Any:
        written = _memory((*args, *(value for name, value in named.items() if name not in _NO_ARGUMENTS)))
        if written is None:
            return run(self, *args, **named)
        stand_in.stalloc_dryrun_launch_begin()
        try:
            return run(self, *args, **named)
        finally:
            stand_in.stalloc_dryrun_launch_end()
            for address, size in written:
                forget(address, size)

    return observed


def _memory(arguments: Any) -> Optional[list[tuple[int, int]]]:
    """The memory, address and bytes, of all tensors among the arguments; None if that is not all that may be written to."""
    try:
        return list(_ranges(arguments))
    except (RuntimeError, TypeError, ValueError):  # of a tensor without memory, or what is not understood
        return None


def _ranges(arguments: Any) -> Iterator[tuple[int, int]]:
    import torch

    for value in arguments:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()
        elif isinstance(value, (tuple, list)):
            yield from _ranges(value)
        elif isinstance(value, int) and value >= _ADDRESSES or hasattr(value, "data_ptr") or hasattr(value, "base"):
            raise ValueError("not understood")
