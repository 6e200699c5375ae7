"""What a trial of `stalloc fit` wants to know of a program besides its memory: the files that it is made of, and its process groups."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable

from stalloc._common import endings, imports
from stalloc._record.marks import Steps

#: Collectives of ``torch.distributed``; what C++ calls by itself (DDP's reducer) is not seen.
_COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "broadcast", "reduce", "gather"),
    *("scatter", "all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv", "batch_isend_irecv", "_all_gather_base"),
    *("_reduce_scatter_base", "all_reduce_coalesced", "all_gather_coalesced"),
)

#: Those between two ranks, as the stages of a pipeline call them.
_BETWEEN_TWO = ("send", "recv", "isend", "irecv", "batch_isend_irecv")

_used: set[Any] = set()
_all_to_all: set[Any] = set()
_between_two: set[Any] = set()
_has_convolutions = False


def install() -> None:
    """Note everything until the program ends, and write it then to the folder that ``STALLOC_TRIAL_NOTES`` names."""
    files: set[str] = set()

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        # What is opened to be written decides nothing, and may be gone by the next trial.
        if event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb", None) and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            # What this launch was told lies in a file of its own each time.
            if arguments[0] != os.environ.get("STALLOC_LAUNCH"):
                files.add(os.path.abspath(arguments[0]))

    sys.addaudithook(heard)
    imports.after("torch.distributed", _listen)
    imports.after("torch.nn.modules.conv", _see_convolutions)

    def write() -> None:
        told = _told()
        cudnn = told.get("cudnn", {})
        is_imitated = bool(cudnn.get("imitated", True) or not cudnn["answered"])
        outside = {
            "convolutions": _has_convolutions and is_imitated,
            "named": _has_convolutions and not is_imitated,
            "eager": os.environ.get("CUDA_MODULE_LOADING") == "EAGER",
            "loaded": _loaded(told),
        }
        note = {"sources": sorted(_sources(set(files))), "groups": _groups() | outside, "is_cut": Steps.is_cut}
        Path(os.environ["STALLOC_TRIAL_NOTES"], f"{os.getpid()}.json").write_text(json.dumps(note))

    endings.at_end(write)  # what a forked child is made of is its parent's


def _sources(files: set[str]) -> set[str]:
    """The files that decide what the program does: an installed package counts as one file, which a new version replaces."""
    modules = {str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    found = {sys.executable}
    for file in modules | files | {os.path.abspath(argument) for argument in getattr(sys, "orig_argv", sys.argv) if os.path.isfile(argument)}:
        for folder in ("/site-packages/", "/dist-packages/"):
            if folder in file:
                root, _, inside = file.rpartition(folder)
                package = f"{root}{folder}{inside.split('/')[0]}"
                init = os.path.join(package, "__init__.py")
                found.add(init if os.path.isfile(init) else package)
                break
        else:
            if os.path.isfile(file) and not file.startswith(("/proc/", "/sys/", "/dev/", sys.base_prefix + "/lib/python")):
                found.add(file)
    return found


def _told() -> dict[str, Any]:
    """What the stand-in CUDA says of the process; nothing if there is none, or another one."""
    try:
        text = ctypes.create_string_buffer(1 << 16)
        ctypes.CDLL(None).stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
        return dict(json.loads(text.value))
    except (AttributeError, ValueError):
        return {}


def _loaded(told: dict[str, Any]) -> list[str]:
    """What the process used whose kernels take memory when they are loaded."""
    stubs = {name: any(stub.startswith(name.lower()) for stub in told.get("not_imitated", ())) for name in ("cuSOLVER", "cuFFT")}
    return [name for name, is_used in {**stubs, "CUDA graphs": bool(told.get("graphs"))}.items() if is_used]


def _see_convolutions(conv: Any) -> None:
    made = conv._ConvNd.__init__

    @functools.wraps(made)
    def seen(*arguments: Any, **options: Any) -> None:
        global _has_convolutions
        _has_convolutions = True
        made(*arguments, **options)

    conv._ConvNd.__init__ = seen


def _listen(distributed: Any) -> None:
    if not distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    for name in _COLLECTIVES:
        original = getattr(c10d, name, None)
        if original is not None:
            also = _all_to_all if name.startswith("all_to_all") else _between_two if name in _BETWEEN_TWO else set()
            wrapped = _noting(original, also)
            for module in (c10d, distributed):
                if getattr(module, name, None) is original:
                    setattr(module, name, wrapped)


def _noting(original: Callable[..., Any], also: set[Any]) -> Callable[..., Any]:
    import torch

    # A compiler that follows the program would follow us; it knows the answer of this one.
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

    @functools.wraps(original)
    def called(*arguments: Any, **options: Any) -> Any:
        if not is_compiling():
            groups = _groups_of(arguments, options)
            _used.update(groups)
            also.update(groups)
        return original(*arguments, **options)

    return called


def _groups_of(arguments: tuple[Any, ...], options: dict[str, Any]) -> set[Any]:
    operations = options.get("p2p_op_list") or (arguments[0] if arguments else None)
    if isinstance(operations, list) and operations and hasattr(operations[0], "op"):  # of a batch each has its own
        return {operation.group for operation in operations}
    return {options.get("group") or next((a for a in arguments if _is_group(a)), None)}


def _is_group(value: Any) -> bool:
    from torch.distributed import ProcessGroup

    return isinstance(value, ProcessGroup)


def _groups() -> dict[str, Any]:
    """This rank's groups, those of it alone where it uses them: a communicator is for the ranks, however many groups have the same ones."""
    none = {"used": [], "unused": [], "all_to_all": 0, "stages": []}
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return none
    try:
        from torch.distributed import distributed_c10d as c10d

        ranks = {group: tuple(sorted(of)) for group, of in c10d._world.pg_group_ranks.items()}
        me = distributed.get_rank()
        world = tuple(range(distributed.get_world_size()))
        ranks[None] = world
        mine = {members for members in (*ranks.values(), world) if me in members}
        used = {members for group in _used if (members := ranks.get(group, ())) in mine}
        return {
            "used": sorted(map(len, used)),
            "unused": sorted(len(members) for members in mine - used if len(members) > 1),
            "all_to_all": max((len(ranks.get(group, ())) for group in _all_to_all), default=0),
            "stages": sorted({rank for group in _between_two for rank in ranks.get(group, ())}),
        }
    except (AttributeError, ImportError, RuntimeError):  # another version's internals
        return none
