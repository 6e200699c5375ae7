"""What else is known when memory runs out: states that are still to come, the memory of others, how the model is run."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from stalloc import _native
from stalloc._out_of_memory.claims import OF_MODEL, Claims
from stalloc._out_of_memory.objects import attributes, is_a, items, length, name_of, named, text
from stalloc._out_of_memory.world import World, optimized, own_parameters


def gather(world: World, claims: Claims, size: int, total: int, free: int) -> dict[str, Any]:
    """The facts of this moment."""
    torch = world.torch
    stats = torch._C._cuda_memoryStats(world.device)
    reserved = int(stats["reserved_bytes"]["all"]["current"])
    known: dict[str, Any] = {
        "size": size,
        "total": total,
        "free": free,
        "reserved": reserved,
        "allowed": allowed(torch, world.device, total),
        "grad_enabled": bool(torch.is_grad_enabled()),
        "is_uncached": not torch.is_autocast_cache_enabled(),
        "evaluating": bool(world.roots) and not any(attributes(root).get("training") is True for root in world.roots),
        "optimizers": [],
        "missing_gradients": 0,
        "logits": _apart_from_models(claims, world.wide),
        "remade": _apart_from_models(claims, world.remade),
        "command": command(),
        "pinned": _pinned(torch),
        "processes": processes(torch, world.device),
        "pid": os.getpid(),
        "steps": (_native.serve_report(world.device) or {}).get("steps") or None,
        "dry_run": os.environ.get("STALLOC_DRYRUN_GPU", ""),
    }
    for optimizer in world.optimizers:
        with world.apart:
            known["optimizers"].append(_optimizer(world, optimizer))
    with world.apart:
        known["missing_gradients"] = _missing_gradients(world)
    return known


def _apart_from_models(claims: Claims, addresses: set[int]) -> int:
    """Bytes of some blocks, models' own apart."""
    return sum(claims.sizes[one] for one in addresses if one in claims.sizes and (one not in claims.of or claims.of[one].kind not in OF_MODEL))


def command() -> str:
    """The command line, without what looks like a secret."""
    return _native.redacted([text(word) for word in getattr(sys, "orig_argv", sys.argv)])


#: Tensors of a parameter's size that a family of optimizers keeps for each parameter.
_STATES = {"adam": 2, "lamb": 2, "adan": 3, "lion": 1, "rmsprop": 1, "adadelta": 2}


def _optimizer(world: World, optimizer: Any) -> dict[str, Any]:
    """How large the states are that an optimizer has not made yet."""
    name, own = name_of(type(optimizer)), attributes(optimizer)
    each = next((count for family, count in _STATES.items() if family in name.lower()), 0)
    states: Any = own.get("state")
    has_state = {id(key) for key, state in dict.items(states) if length(state)} if is_a(states, dict) else set()
    missing = held = orphaned = 0
    own_of_models = {id(one) for root in world.roots for one in own_parameters(root)}
    for group in map(named, items(own.get("param_groups"))):
        kept = each + int(bool(group.get("amsgrad"))) + int("sgd" in name.lower() and bool(group.get("momentum")))
        for parameter in items(group.get("params")):
            if world.is_tensor(parameter) and world.is_tensor.read(parameter, "is_cuda") and world.is_tensor.read(parameter, "requires_grad"):
                size = world.is_tensor.bytes_of(parameter)
                held += size
                orphaned += size if own_of_models and id(parameter) not in own_of_models else 0
                if id(parameter) not in has_state:
                    missing += kept * size
    return {"name": name, "parameters": held, "missing": missing, "has_states": bool(has_state), "orphaned": orphaned}


def _missing_gradients(world: World) -> int:
    """Bytes of gradients that the optimizers' parameters have not yet."""
    missing: dict[int, int] = {}
    read = world.is_tensor.read
    for parameter in (each for optimizer in world.optimizers for each in optimized(world, optimizer)):
        if read(parameter, "requires_grad") and read(parameter, "is_leaf") and read(parameter, "grad") is None:
            address = world.address(parameter)
            if address is not None:
                missing[address] = world.is_tensor.bytes_of(parameter)
    return sum(missing.values())


def allowed(torch: Any, device: int, total: int) -> int:
    """Bytes that the program allows itself (`set_per_process_memory_fraction`); all of the device where it says nothing."""
    fraction = getattr(torch.cuda.memory, "get_per_process_memory_fraction", None)
    return int(total * float(fraction(device))) if fraction is not None else total


def _pinned(torch: Any) -> int:
    """Bytes of pinned memory of the host that PyTorch holds."""
    try:
        return int(torch.cuda.host_memory_stats().get("allocated_bytes.current", 0))
    except Exception:
        return 0


class _Process(ctypes.Structure):
    """``nvmlProcessInfo_t``."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    ]


def processes(torch: Any, device: int) -> list[dict[str, Any]]:
    """The processes that NVML sees on a device, with their bytes; empty where it does not say."""
    try:
        return _processes(torch, device)
    except Exception:
        return []


def _processes(torch: Any, device: int) -> list[dict[str, Any]]:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() != 0:
        return []
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}".encode(), ctypes.byref(handle)) != 0:
        return []
    count = ctypes.c_uint(64)
    list_of = (_Process * count.value)()
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), list_of) != 0:
        return []
    unknown = (1 << 64) - 1
    return [
        {"pid": one.pid, "name": _name_of(one.pid), "bytes": one.used}
        for one in list_of[: min(count.value, 64)]
        if one.used != unknown
    ]


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode(errors="replace").split("\0")
        return _native.redacted([word for word in words[:3] if word])[:120]
    except OSError:
        return ""
