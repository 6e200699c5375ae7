"""The way into PyTorch that needs no compiler: ``torch.cuda.memory.CUDAPluggableAllocator`` with all its hooks set.

PyTorch asks such an allocator for addresses only: its statistics, snapshots and history end in C functions that raise.
They are answered here while the allocator is in use, by putting ours in the place of those C functions, so that
everything above them (``torch.cuda.memory_stats``, ``memory_summary``, ``max_memory_allocated``, ``torch.accelerator``'s
counterparts, imported by whatever name) works as it is.

What stays refused, by PyTorch and in its words: ``MemPool``, ``torch.compile``'s reduce-overhead mode, sharing tensors
between processes, callbacks on every allocation from C++. cuDNN's benchmark stays off, and settings do not change while the
program runs; both with a line. CUDA graphs work.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Sequence

from stalloc import _native
from stalloc._common.output import say


def lib_path() -> str:
    """Path of the library that exports ``stalloc_malloc`` and ``stalloc_free`` (and ``my_malloc``, ``my_free``).

    For ``torch.cuda.memory.CUDAPluggableAllocator(stalloc.lib_path(), "stalloc_malloc", "stalloc_free")``. Set up like
    that the hooks are missing, so that PyTorch tells nothing of ``record_stream`` and CUDA graphs: rather call
    `stalloc.enable()` with ``STALLOC_BACKEND=pluggable``.
    """
    return str(_native.__file__)


def install(torch: Any) -> str | None:
    """Make stalloc PyTorch's allocator. Returns None, or why it cannot be."""
    if not _native.pluggable_can_raise():
        return f"PyTorch {torch.__version__} does not export its OutOfMemoryError"
    try:
        snapshot = torch._C._cuda_memorySnapshot(None)
    except TypeError:  # older versions know no pools
        snapshot = torch._C._cuda_memorySnapshot()
    settings = snapshot.get("allocator_settings", {})
    addresses = _native.pluggable_install(settings)
    inner = torch._C._cuda_customAllocator(addresses.pop("malloc"), addresses.pop("free"))
    for name, address in addresses.items():
        if not hasattr(inner, name):
            # Serving all the same would be wrong: graphs and streams would lose their memory to others.
            return f"PyTorch {torch.__version__} does not tell an allocator all that it must know ({name})"
        getattr(inner, name)(address)
    global _installed
    _installed = inner
    try:
        torch.cuda.memory.change_current_allocator(torch.cuda.memory._CUDAAllocator(inner))
    except RuntimeError as error:
        return str(error).splitlines()[0]
    _answer(torch, settings)
    _forgo_benchmark(torch)
    _say_what_is_missing(torch)
    return None


#: What was installed.
_installed: Any = None


def is_ours(allocator: Any) -> bool:
    """Whether an inner allocator of PyTorch's is the one that was installed here."""
    return _installed is not None and allocator is _installed


def _replace(torch: Any, name: str, function: Callable[..., Any]) -> None:
    if hasattr(torch._C, name):
        setattr(torch._C, name, function)


def when_used(torch: Any, install: Callable[[], None]) -> None:
    """Call `install` when the allocator is about to be used: PyTorch lets nobody take the place of a pluggable one, and until
    then the program may want it for its own."""
    originals: dict[str, Any] = {}

    def first(name: str) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if originals:
                for other, function in originals.items():
                    setattr(torch._C, other, function)
                originals.clear()
                install()
            return getattr(torch._C, name)(*arguments, **options)

        return called

    asked = [name for name in _answers(torch, {}) if name != "_accelerator_isAllocatorInitialized"]
    for name in ["_cuda_init", *asked]:
        if hasattr(torch._C, name):
            originals[name] = getattr(torch._C, name)
            setattr(torch._C, name, first(name))


def _answer(torch: Any, settings: dict[str, Any]) -> None:
    """Put our answers where PyTorch asks its allocator."""
    for name, answer in _answers(torch, settings).items():
        _replace(torch, name, answer)
    _native.pluggable_on_out_of_memory(_tell_observers)


def _answers(torch: Any, settings: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Our answers by the names of PyTorch's functions."""

    def of_device(answer: Callable[[int], Any]) -> Callable[[int], Any]:
        def checked(device: int) -> Any:
            if not 0 <= device < torch.cuda.device_count():
                raise RuntimeError(f"Invalid device argument {device}: did you call init?")
            return answer(device)

        return checked

    return {
        "_cuda_memoryStats": of_device(_native.pluggable_stats),
        "_cuda_resetPeakMemoryStats": of_device(_native.pluggable_reset_peaks),
        "_cuda_resetAccumulatedMemoryStats": of_device(_native.pluggable_reset_accumulated),
        "_cuda_getMemoryFraction": of_device(_native.pluggable_memory_fraction),
        "_cuda_memorySnapshot": lambda pool=None: _snapshot(torch, pool, settings),
        "_cuda_cudaCachingAllocator_enable": _enable_caching,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: _caching,
        "_cuda_attach_out_of_memory_observer": _observe,
        "_cuda_memoryMetadataSupported": lambda: True,
        "_cuda_setMemoryMetadata": _native.pluggable_set_metadata,
        "_cuda_getMemoryMetadata": _native.pluggable_metadata,
        "_cuda_annotateMemory": _native.pluggable_annotate,
        "_cuda_record_memory_history": lambda *arguments: _record_history(torch, *arguments),
        "_cuda_record_memory_history_legacy": lambda *arguments: _record_history_as_before(torch, *arguments),
        "_cuda_allocationTraceback": lambda address: _frames(torch, [_native.pluggable_stack_of(address)])[0],
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_getDeviceStats": of_device(_native.pluggable_stats),
        "_accelerator_resetPeakStats": of_device(_native.pluggable_reset_peaks),
        "_accelerator_resetAccumulatedStats": of_device(_native.pluggable_reset_accumulated),
    }


_caching = True


def _enable_caching(wanted: bool) -> None:
    global _caching
    _caching = bool(wanted)
    _native.pluggable_set_caching(_caching)


_observers: list[Callable[[int, int, int, int], None]] = []


def _observe(observer: Callable[[int, int, int, int], None]) -> None:
    _observers.append(observer)


def _tell_observers(device: int, size: int, allowed: int, free: int) -> None:
    for observer in list(_observers):
        observer(device, size, allowed, free)


#: What does not reach an allocator of this kind, and what to say when a program asks for it.
_MISSING = {
    "_accelerator_setAllocatorSettings": "allocator settings that change while the program runs have no effect here",
    "_cuda_cudaCachingAllocator_set_allocator_settings": "allocator settings that change while the program runs have no effect here",
    "_activate_gpu_trace": "the CUDA sanitizer and GPU traces see no allocations here",
}


def _say_what_is_missing(torch: Any) -> None:
    def told(name: str, line: str) -> None:
        function = getattr(torch._C, name, None)
        if function is None:
            return
        said = False

        def tell(*arguments: Any) -> Any:
            nonlocal said
            if not said:
                said = True
                say(f"{line}: STALLOC_BACKEND=native has them")
            return function(*arguments)

        _replace(torch, name, tell)

    for name, line in _MISSING.items():
        told(name, line)


def _forgo_benchmark(torch: Any) -> None:
    """Keep cuDNN's benchmark off, which asks the allocator what this kind of one has no answer to, and would end the job."""
    switch: Callable[[bool], None] = torch._C._set_cudnn_benchmark

    said = False

    def refuse(wanted: bool) -> None:
        nonlocal said
        if wanted and not said:
            said = True
            say("torch.backends.cudnn.benchmark stays off: it needs PyTorch's own allocator (STALLOC_BACKEND=native)")
        switch(False)

    torch._C._set_cudnn_benchmark = refuse
    flag = vars(type(torch.backends.cudnn)).get("benchmark")
    if hasattr(flag, "setter"):
        flag.setter = refuse  # it keeps the function that it was made with
    if torch._C._get_cudnn_benchmark():
        refuse(True)


def _devices(torch: Any) -> range:
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)


def _snapshot(torch: Any, pool: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A snapshot of every device; ``pool``: None, or a pool's two numbers and whether the history is wanted."""
    wanted = tuple(pool[:2]) if pool is not None else (0, 0)
    traces = pool is None or len(pool) < 3 or pool[2]
    segments = [segment for device in _devices(torch) for segment in _native.pluggable_segments(device)]
    if wanted != (0, 0):
        segments = [segment for segment in segments if segment["segment_pool_id"] == wanted]
    histories = [_native.pluggable_history(device) if traces else [] for device in _devices(torch)]
    blocks = [block for segment in segments for block in segment["blocks"]]
    with_stacks = [*blocks, *(event for history in histories for event in history)]
    for one, frames in zip(with_stacks, _frames(torch, [one["frames"] for one in with_stacks])):
        one["frames"] = frames or []
    for event in with_stacks[len(blocks) :]:
        if not event["frames"]:
            del event["frames"]  # as PyTorch has it
    return {
        "segments": segments,
        "device_traces": histories,
        "allocator_settings": dict(settings),
        "external_annotations": [],
    }


def _frames(torch: Any, stacks: list[Any]) -> list[list[dict[str, Any]] | None]:
    """The frames of call stacks, in PyTorch's form; None for what is no stack."""
    kept = {id(stack): stack for stack in stacks if stack is not None}
    if not kept:
        return [None] * len(stacks)
    told = dict(zip(kept, torch._C._profiler.symbolize_tracebacks(list(kept.values()))))
    return [told.get(id(stack)) for stack in stacks]


#: Of what call stacks are kept, by the words of `torch.cuda.memory._record_memory_history`.
_LEVELS = {"state": 1, "alloc": 2, "all": 3}


def _record_history(
    torch: Any,
    enabled: Any,
    context: Any = None,
    stacks: Any = None,
    max_entries: int = sys.maxsize,
    clear: bool = False,
    compile_context: bool = False,
    annotations: bool = False,
    skip_actions: Sequence[str] = (),
    *_: Any,
) -> None:
    """Keep a history, as the C function of this name does; for "state" only of the last event."""
    for value, allowed in [(enabled, ("state", "all")), (context, tuple(_LEVELS)), (stacks, ("python", "all"))]:
        if value is not None and value not in allowed:
            raise RuntimeError(f"expected one of {', '.join(allowed)}, not {value!r}")
    most = 0 if enabled is None else max(1, min(int(max_entries), sys.maxsize)) if enabled == "all" else 1
    _keep_history(torch, most, _LEVELS.get(context, 0), stacks == "all", bool(clear), skip_actions)


def _record_history_as_before(
    torch: Any,
    enabled: bool,
    record_context: bool = True,
    most: int = 1,
    of_allocations: bool = False,
    cpp: bool = False,
    clear: bool = False,
    compile_context: bool = False,
    annotations: bool = False,
    skip_actions: Sequence[str] = (),
    *_: Any,
) -> None:
    """The same by the arguments of PyTorch 2.0."""
    level = _LEVELS["all"] if of_allocations else _LEVELS["state"] if record_context else 0
    _keep_history(torch, max(1, int(most)) if enabled else 0, level, bool(cpp), bool(clear), skip_actions)


def _keep_history(torch: Any, most: int, level: int, cpp: bool, clear: bool, skipped: Sequence[str]) -> None:
    gather = functools.partial(torch._C._profiler.gather_traceback, True, True, cpp) if most and level else None
    _native.pluggable_keep_history(most, level, clear, list(skipped or ()), gather)
