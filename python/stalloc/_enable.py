"""What a process is set up for: served, recorded or left alone, as `enable()` or the environment asks."""

from __future__ import annotations

import atexit
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stalloc import _out_of_memory
from stalloc._common import imports
from stalloc._common.output import say
from stalloc._serve.settings import Mode, Settings, without_effect

if TYPE_CHECKING:
    from stalloc.results import MemoryStats


def enable(mode: str | None = None, path: str | None = None, solid: bool | int | str | None = None, fit: int | str | bool = False) -> None:
    """Have this process's GPU memory served by stalloc; call it before the first CUDA allocation.

    ``mode`` is "auto" (serve it from the first request, and learn while the program runs), "alloc" (follow plans and learn
    nothing), "trace" (record what is asked for) or "torch" (PyTorch's own allocator, with a line of figures per step); by
    default ``STALLOC_MODE`` says, else "auto". ``path`` is the folder that holds plans and receives what was learned, or
    receives traces; by default ``STALLOC_MODEL_INFO_PATH`` says. Mode "auto" needs none.

    ``solid`` takes the arena's memory in one allocation, for programs that call cudaIpcGetMemHandle or register memory with a network:
    True for as much as the plan needs, a number of bytes or "2GiB" for so much more; with neither a plan nor a size, 9/10 of what is
    free. By default ``STALLOC_SOLID`` says, else only GPUs that cannot map pages are served so.

    ``fit`` has the program tried without a GPU first, as `stalloc run --fit` does, and applies the cheapest set of levers that makes it
    fit: True for this GPU's memory, or a size, bytes or "24GB". Raises RuntimeError if none does.

    Whoever comes first decides: in a process that `stalloc run`, `stalloc trace` or the environment has set up, this does
    nothing, with a line if it asks for something else.

    Raises ValueError if the settings are invalid and RuntimeError if CUDA is in use already. What goes wrong later
    costs a warning, never the job.
    """
    settings = Settings.read(mode, path, os.environ, solid)
    is_decided = _is_decided(settings)
    if fit:
        from stalloc import _levers

        settings = replace(settings, path=_levers.decide(fit, settings.path))
    if is_decided:
        return
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("stalloc.enable() must come before the first use of CUDA: call it right after the imports")
    _install(settings)


def install() -> None:
    """As the environment says; the bootstrap of `stalloc run` and the start-up hook of the installed package call this."""
    settings = Settings.read(None, None, os.environ)
    if not _is_decided(settings):
        _install(settings)


def memory_stats(device: Any = None) -> MemoryStats:
    """What stalloc did on a device (by default the current one), bytes and counts; empty if it served nothing there.

    The torch.cuda memory statistics hold arena and fallback together; this tells them apart: requests at planned offsets,
    at the best fit (``open``) and by the fallback, why some were not at planned ones, and where the program first left its
    plan. ``remaps`` counts how often memory was taken from where no block was to serve elsewhere, and ``remapped_bytes``
    its bytes; ``plans`` how many plans were learned; ``driver_calls`` and ``driver_ms`` what mapping asked of the driver.
    """
    import torch

    from stalloc._serve import report

    if not torch.cuda.is_available():
        say("PyTorch sees no GPU here: nothing was served")
        return {}
    index = torch.cuda._utils._get_device_index(device, optional=True)
    return report.of(index) or {}


def release_memory(device: Any = None) -> int:
    """Give back to the device what no live tensor needs, arena and PyTorch's cache together; returns the bytes.

    It is what ``torch.cuda.empty_cache()`` does, on one device's figures. Plans and what was learned stay: the next request maps
    memory again. Waits for the device.
    """
    import torch

    if not torch.cuda.is_initialized():
        return 0
    before = int(torch.cuda.memory_reserved(device))
    torch.cuda.empty_cache()
    return max(before - int(torch.cuda.memory_reserved(device)), 0)


#: What this process was set up for.
_decided: Settings | None = None


def _is_decided(settings: Settings) -> bool:
    """Whether the process is set up already: two allocators, or a recording of the plan's own addresses, would be wrong."""
    if _decided is not None:
        if _decided != settings and not settings.quiet:
            say(f"this process is set up already, for mode {_decided.mode.value}; what enable() asks for is left aside")
        return True
    if os.environ.get("STALLOC_TRACE_DIR") and settings.mode is not Mode.TRACE:
        if not settings.quiet:
            say("this process is recorded; what enable() asks for is left aside")
        return True
    return False


def _install(settings: Settings) -> None:
    global _decided
    _decided = settings
    if not settings.quiet and settings.rank == 0:
        for line in without_effect(os.environ):
            say(line)
    if settings.mode is Mode.TRACE:
        os.environ.setdefault("STALLOC_TRACE_DIR", str(settings.traces))
        settings.traces.mkdir(parents=True, exist_ok=True)
        from stalloc import _record

        _say_at_the_end(settings)
        _record.install()
        _out_of_memory.install(quiet=settings.quiet, with_stacks=False)  # the recording has them
        return

    def torch_imported(torch: Any) -> None:
        from stalloc._serve import session

        session.prepare(torch, settings)

    imports.after("torch", torch_imported)
    _out_of_memory.install(quiet=settings.quiet)


def _say_at_the_end(settings: Settings) -> None:
    """Have the process say where its recording is: one of a job's processes for all."""
    if settings.quiet or settings.rank:
        return
    process, started = os.getpid(), time.time()

    def tell() -> None:
        if os.getpid() != process:
            return
        folder = Path(os.environ.get("STALLOC_TRACE_DIR", settings.traces))
        # A file system's clock may be a little behind ours.
        own = [path for path in sorted(folder.glob("rank0_dev*.trace")) if path.stat().st_mtime >= started - 2]
        if own:
            others = " (and those of the other ranks)" if settings.is_one_of_several else ""
            say(
                f"recording is kept in {own[0]}{others}: the same folder with STALLOC_MODE=Alloc serves from it, "
                f"`stalloc report {folder}` says what it shows"
            )

    def tell_or_not() -> None:
        try:
            tell()
        except OSError:  # the folder is gone: there is nothing to tell
            pass

    atexit.register(tell_or_not)  # runs after the recording has ended, which is registered later
