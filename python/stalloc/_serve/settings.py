"""What `stalloc.enable()` and the environment ask for."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping

from stalloc import _native
from stalloc._common import ranks


class Mode(enum.Enum):
    """What is done with a process's memory."""

    AUTO = "auto"  # one arena, good from the first request, that learns while the program runs
    TORCH = "torch"  # PyTorch's own allocator
    TRACE = "trace"  # record what is asked for
    ALLOC = "alloc"  # follow plans, and learn nothing

    @property
    def serves(self) -> bool:
        """Whether memory is served by stalloc."""
        return self in (Mode.AUTO, Mode.ALLOC)


def lib_path() -> str:
    """Path of the library that exports ``stalloc_malloc`` and ``stalloc_free`` (and ``my_malloc``, ``my_free``).

    For ``torch.cuda.memory.CUDAPluggableAllocator(stalloc.lib_path(), "stalloc_malloc", "stalloc_free")``. PyTorch tells such an
    allocator nothing of ``record_stream`` and CUDA graphs, and keeps no statistics: rather call `stalloc.enable()`.
    """
    return str(_native.__file__)


#: Switches of the artifact that turn something off which cannot be turned off here, and why.
_ALWAYS_ON = {
    "STALLOC_STATIC_FALLBACK": "a planned request whose address is taken is always served elsewhere",
    "STALLOC_TRACE_FAST_MODE": "traces are always taken over PyTorch's own allocator",
}


def without_effect(environment: Mapping[str, str]) -> list[str]:
    """A line for each switch of the artifact that asks for what cannot be had, and for each name that was mistyped."""
    off = [f"{name}=0 has no effect: {why}" for name, why in _ALWAYS_ON.items() if environment.get(name) == "0"]
    return off + _native.unknown_settings(list(environment))


@dataclass(frozen=True)
class Settings:
    """What the environment says of this process, read once at its start."""

    mode: Mode
    path: Path | None
    rank: int
    local_rank: int | None  # the rank among those of this machine, where a launcher says so
    is_one_of_several: bool  # a launcher says which rank this is
    quiet: bool
    pinned: bool = True  # pinned memory of the host is served too
    solid: int | None = None  # the arena is one allocation, so many bytes larger than its plan needs; None: it need not be

    @staticmethod
    def read(
        mode: str | None, path: str | None, environment: Mapping[str, str], solid: bool | int | str | None = None
    ) -> Settings:
        """Settings from arguments, else from the environment. Raises ValueError with what to write instead."""
        wanted = mode or environment.get("STALLOC_MODE") or Mode.AUTO.value
        try:
            chosen = Mode(wanted.lower())
        except ValueError:
            raise ValueError(f"mode {wanted!r} is none of auto, torch, trace, alloc (STALLOC_MODE)") from None
        folder = path or environment.get("STALLOC_MODEL_INFO_PATH")
        if folder is None and chosen in (Mode.TRACE, Mode.ALLOC):
            raise ValueError(f"mode {chosen.value} needs a folder: enable(path=...) or STALLOC_MODEL_INFO_PATH")
        level = environment.get("STALLOC_LOG_LEVEL", "1")
        rank, local_rank = ranks.of(environment), ranks.local(environment)
        return Settings(
            mode=chosen,
            path=Path(folder) if folder else None,
            rank=rank or 0,
            local_rank=local_rank,
            is_one_of_several=rank is not None,
            quiet=level.isdigit() and int(level) >= 3,
            pinned=_pinned(environment),
            solid=_solid(environment.get("STALLOC_SOLID", "") if solid is None else solid),
        )

    def in_child(self, environment: Mapping[str, str]) -> Settings:
        """The same for a forked child, whose launcher has said since which rank it is."""
        rank = ranks.of(environment)
        return replace(self, rank=rank or 0, local_rank=ranks.local(environment), is_one_of_several=rank is not None)

    @property
    def traces(self) -> Path:
        """Where traces go, as the artifact lays out its folder."""
        assert self.path is not None
        return self.path / "trace"


def _pinned(environment: Mapping[str, str]) -> bool:
    """Whether pinned memory is served: not where the program's settings say how PyTorch is to hold it."""
    told = (environment.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"))
    return environment.get("STALLOC_PINNED") != "0" and not any("pinned_" in text for text in told)


def _solid(wish: bool | int | str) -> int | None:
    """Bytes beyond what the plan needs; None if the arena need not be one allocation."""
    if isinstance(wish, bool):
        return 0 if wish else None
    try:
        return _native.serve_solid_size(wish) if isinstance(wish, str) else wish
    except ValueError as error:
        raise ValueError(f"solid (STALLOC_SOLID): {error}") from None
