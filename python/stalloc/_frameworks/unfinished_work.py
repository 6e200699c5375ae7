"""What asynchronous collectives hold until the GPU has done them.

From PyTorch 2.8 on, NCCL's back end keeps the tensors of a collective that was called with ``async_op=True`` alive until its
work is waited for or, where nobody waits, until a later collective finds it done. A dry run does everything at once,
and the work of a `fake` group holds nothing: this holds the tensors as long as a GPU would be busy with them.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from typing import Any, Callable

#: The collectives that can be asynchronous.
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)


def is_held() -> bool:
    """Whether this PyTorch's work holds its tensors."""
    import torch

    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


class Unfinished:
    """The collectives that nobody has waited for."""

    def __init__(self, c10d: Any) -> None:
        library = ctypes.CDLL(None)
        self._start, self._ended = library.stalloc_dryrun_start_work, library.stalloc_dryrun_work_ended
        self._start.restype = self._ended.restype = ctypes.c_uint64
        self._held: deque[tuple[int, list[Any]]] = deque()
        self._work = _work_class(c10d)

    def holding(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        """``collective`` with work that holds its tensors."""

        @functools.wraps(collective)
        def called(*args: Any, **options: Any) -> Any:
            ended = self._ended()
            while self._held and (self._held[0][0] <= ended or not self._held[0][1]):
                self._held.popleft()[1].clear()
            work = collective(*args, **options)
            if work is None:
                return None
            tensors = list(_on_device((*args, *options.values())))
            if not tensors:
                return work
            self._held.append((self._start(), tensors))
            return self._work(work, tensors)

        return called


def _on_device(values: Any) -> Any:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _on_device(value)
        elif getattr(value, "is_cuda", False):
            yield value


def _work_class(c10d: Any) -> Any:
    """The class of the work: one of PyTorch's, for programs ask whether it is."""

    class Work(c10d.Work):  # type: ignore[misc, name-defined]
        def __init__(self, work: Any, tensors: list[Any]) -> None:
            super().__init__()
            self._of, self._tensors = work, tensors

        def wait(self, *timeout: Any, **options: Any) -> Any:
            done = self._of.wait(*timeout, **options)
            self._tensors.clear()
            return done

    def of(name: str) -> Any:
        return lambda self, *args, **options: getattr(self._of, name)(*args, **options)

    for name in ("exception", "get_future", "get_future_result", "is_completed", "is_success", "result", "source_rank", "synchronize"):
        setattr(Work, name, of(name))
    return Work
