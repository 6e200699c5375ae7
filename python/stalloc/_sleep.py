"""The GPU given away between steps and had back: `sleep()`, `wake()`."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, TypeVar

from stalloc import _native
from stalloc._serve import report

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True)
class OnCard:
    """What is left on a GPU, in bytes, by whose it is. ``others``: CUDA, other libraries and other processes."""

    arena: int
    pytorch: int
    others: int


@dataclass(frozen=True)
class Moved:
    """What sleeping or waking did: ``bytes`` copied in ``seconds`` by ``copies``, device ``memory`` given back or taken, page-locked
    memory of the ``host`` that is kept for the next time, and what is ``left`` on the GPU."""

    device: int
    bytes: int
    seconds: float
    copies: int
    memory: int
    host: int
    left: OnCard

    @property
    def gib_per_second(self) -> float:
        """Bytes over all of the time: mapping, and page-locking the first time, included."""
        return self.bytes / self.seconds / (1 << 30) if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {**asdict(self), "gib_per_second": self.gib_per_second}

    def __repr__(self) -> str:
        size, left = _native.format_bytes, self.left
        return (
            f"<{type(self).__name__} GPU {self.device}: {size(self.bytes)} copied in {self.seconds:.2f} s ({self.gib_per_second:.1f} GiB/s), "
            f"{size(self.memory)} of GPU memory {self._done}; on the GPU: arena {size(left.arena)}, PyTorch {size(left.pytorch)}, "
            f"CUDA and others {size(left.others)}; kept on the host: {size(self.host)}>"
        )

    _done = "moved"


class Asleep(Moved):
    """What `sleep()` did. As a context manager it wakes at the end of the block."""

    _done = "given back"

    def __enter__(self) -> Asleep:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        wake(device=self.device)


class Awake(Moved):
    """What `wake()` did."""

    _done = "taken"


_M = TypeVar("_M", bound=Moved)


def sleep(keep: Any = None, discard: Any = None, device: Any = None) -> Asleep:
    """Copy what lives on a GPU to page-locked host memory, and give the GPU's memory back until `wake()`.

    Addresses stay, so after `wake()` tensors, views, CUDA graphs and optimizers are what they were. ``keep`` stays on the GPU; of
    ``discard``, which is written anew before it is read, the contents are not kept. Both are modules, optimizers, tensors, or lists or
    dicts of them. PyTorch's caches are emptied. Meanwhile new tensors come from PyTorch's own allocator, tensors may be deleted, and a
    module or optimizer that is used raises RuntimeError. A kernel that reads a tensor which sleeps fails. A second call puts to sleep
    what is awake. Waits for all GPUs of this process. ``with stalloc.sleep(): ...`` wakes at the end.

    Raises RuntimeError if it cannot be: a graph is being captured, tensors are shared with other processes, NCCL may have registered what
    graphs use, the arena is in one allocation (``solid``), stalloc does not serve this GPU; MemoryError if the host or the job's control group lacks memory. Then all is
    as it was. If the driver fails in the middle, it raises too: every byte is kept, and `sleep()` goes on or `wake()` goes back.
    """
    import torch

    index = torch.cuda._utils._get_device_index(device, optional=True)
    _native.serve_can_sleep(index)  # before anything is waited for, which would end a capture
    _check_registered(torch, index)
    kept, discarded = _ranges(keep, index), _ranges(discard, index)
    if torch.cuda.is_initialized():
        # A kernel of another GPU may read what lives here.
        for other in range(torch.cuda.device_count()):
            if torch._C._cuda_hasPrimaryContext(other):
                torch.cuda.synchronize(other)
    began = time.perf_counter()
    try:
        figures = _native.serve_sleep(index, kept, discarded)
    except MemoryError as error:
        error.args = (f"GPU {index} cannot sleep: {error}; nothing was moved: name in keep= or discard= what need not be copied",)
        raise
    finally:
        _guard(torch)
    report.slept.add(index)
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # not before: memory that the arena holds without use comes back with the rest
    if figures is None and torch.cuda.is_initialized() and torch.cuda.memory_allocated(index):
        raise RuntimeError(f"GPU {index} cannot sleep: stalloc does not serve it; use `stalloc run`, or stalloc.enable() before CUDA")
    return _told(torch, Asleep, index, figures, began)


def _check_registered(torch: Any, index: int) -> None:
    """Pools that programs register are not the arena's. NCCL itself registers what captured graphs use, and would go on with pages that
    are gone."""
    if os.environ.get("NCCL_GRAPH_REGISTER", "0") == "0" or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    if any(segment["device"] == index and segment["segment_pool_id"] != (0, 0) for segment in torch.cuda.memory_snapshot()):
        raise RuntimeError(f"GPU {index} cannot sleep: NCCL may have registered memory of its CUDA graphs: set NCCL_GRAPH_REGISTER=0")


def wake(first: Any = None, device: Any = None) -> Awake:
    """Take GPU memory again for all that sleeps, at the same addresses, and copy it back, what ``first`` names first.

    What was deleted meanwhile is not brought back. Does nothing where nothing sleeps. Raises torch.cuda.OutOfMemoryError if the GPU has
    not enough memory: all sleeps on, so have who has it give it back and call again.
    """
    import torch

    index = torch.cuda._utils._get_device_index(device, optional=True)
    urgent = _ranges(first, index)
    began = time.perf_counter()
    if asleep(index):
        torch.cuda.empty_cache()
    try:
        figures = _native.serve_wake(index, urgent)
    except torch.cuda.OutOfMemoryError as error:
        error.args = (f"GPU {index} cannot wake: {error}; all sleeps on: free its memory, then call stalloc.wake() again",)
        raise
    finally:
        _guard(torch)
    return _told(torch, Awake, index, figures, began)


def asleep(device: Any = None) -> bool:
    """Whether what lives on a GPU, or a part of it, sleeps."""
    import torch

    return _native.serve_asleep(torch.cuda._utils._get_device_index(device, optional=True)) is not None


def _told(torch: Any, kind: type[_M], index: int, figures: dict[str, int] | None, began: float) -> _M:
    seconds = time.perf_counter() - began
    left = OnCard(0, 0, 0)
    if torch.cuda.is_initialized():
        free, total = torch.cuda.mem_get_info(index)
        reserved = int(torch.cuda.memory_reserved(index))
        report = _native.serve_report(index)
        pytorch = min(report["fallback_reserved"], reserved) if report else reserved
        left = OnCard(reserved - pytorch, pytorch, max(total - free - reserved, 0))
    return kind(device=index, seconds=seconds, left=left, **(figures or dict.fromkeys(("bytes", "copies", "memory", "host"), 0)))


def _tensors(things: Any) -> Iterator[Any]:
    import torch

    if things is None:
        return
    if isinstance(things, torch.Tensor):
        yield things
    elif isinstance(things, torch.nn.Module):
        yield from things.parameters()
        yield from things.buffers()
    elif isinstance(things, torch.optim.Optimizer):
        for state in things.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))
    elif isinstance(things, (dict, list, tuple, set, frozenset)) or hasattr(things, "__next__"):
        for thing in things.values() if isinstance(things, dict) else things:
            yield from _tensors(thing)
    else:
        raise TypeError(f"{type(things).__name__} is no module, optimizer or tensor, nor a list or dict of them")


def _ranges(things: Any, index: int) -> list[tuple[int, int]]:
    """Where the memory of what is named begins on a GPU, and its bytes."""
    found = set()
    for tensor in map(_plain, _tensors(things)):
        if tensor.device.type == "cuda" and tensor.device.index == index:
            storage = tensor.untyped_storage()
            found.add((storage.data_ptr(), storage.nbytes()))
    return sorted(found)


def _plain(tensor: Any) -> Any:
    """This process's part of a distributed tensor."""
    return getattr(tensor, "_local_tensor", tensor)


#: What ends the guard.
_guards: list[Callable[[], None]] = []


def _guard(torch: Any) -> None:
    """While something sleeps, have modules and optimizers refuse to work on it: a kernel would end the process."""
    sleeps = any(_native.serve_asleep(index) is not None for index in range(torch.cuda.device_count()))
    if not sleeps:
        while _guards:
            _guards.pop()()
    elif not _guards:
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def forward(module: Any, _: Any) -> None:
            _refuse(module, module._parameters.values())

        def step(optimizer: Any, *_: Any) -> None:
            _refuse(optimizer, [*(tensor for group in optimizer.param_groups for tensor in group["params"]), *_tensors(optimizer)])

        _guards.append(register_module_forward_pre_hook(forward).remove)
        _guards.append(register_optimizer_step_pre_hook(step).remove)


def _refuse(user: Any, tensors: Any) -> None:
    for tensor in map(_plain, tensors):
        if tensor is not None and tensor.is_cuda and _native.serve_sleeps_at(tensor.untyped_storage().data_ptr()):
            raise RuntimeError(f"{type(user).__name__} is asleep: call stalloc.wake() before it is used")
