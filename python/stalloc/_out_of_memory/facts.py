"""What else is known when memory runs out: states that are still to come, the memory of others, how the model is run."""

from __future__ import annotations

import ctypes
import os
import shlex
import sys
from typing import Any

from stalloc._out_of_memory.holders import World


def gather(world: World, size: int, total: int, free: int) -> dict[str, Any]:
    """The facts of this moment."""
    torch = world.torch
    stats = torch._C._cuda_memoryStats(world.device)
    reserved = int(stats["reserved_bytes"]["all"]["current"])
    return {
        "size": size,
        "total": total,
        "free": free,
        "reserved": reserved,
        "allowed": allowed(torch, world.device, total),
        "grad_enabled": bool(torch.is_grad_enabled()),
        "evaluating": bool(world.roots) and not any(root.training for root in world.roots),
        "optimizers": [_optimizer(one) for one in world.optimizers],
        "missing_gradients": _missing_gradients(world),
        "command": shlex.join(getattr(sys, "orig_argv", sys.argv))[:2000],
        "pinned": _pinned(torch),
        "processes": processes(torch, world.device),
        "pid": os.getpid(),
    }


#: Tensors of a parameter's size that a family of optimizers keeps for each parameter.
_STATES = {"adam": 2, "lamb": 2, "adan": 3, "lion": 1, "rmsprop": 1, "adadelta": 2}


def _optimizer(optimizer: Any) -> dict[str, Any]:
    """How large the states are that an optimizer has not made yet."""
    name = type(optimizer).__name__
    each = next((count for family, count in _STATES.items() if family in name.lower()), 0)
    missing = held = 0
    for group in optimizer.param_groups:
        kept = each + int(bool(group.get("amsgrad"))) + int("sgd" in name.lower() and bool(group.get("momentum")))
        for parameter in group["params"]:
            if not getattr(parameter, "is_cuda", False) or not parameter.requires_grad:
                continue
            size = parameter.numel() * parameter.element_size()
            held += size
            if not optimizer.state.get(parameter):
                missing += kept * size
    return {"name": name, "parameters": held, "missing": missing}


def _missing_gradients(world: World) -> int:
    """Bytes of gradients that the optimizers' parameters have not yet."""
    missing: dict[int, int] = {}
    for optimizer in world.optimizers:
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            if parameter.requires_grad and parameter.is_leaf and parameter.grad is None:
                address = world.address(parameter)
                if address is not None:
                    missing[address] = parameter.numel() * parameter.element_size()
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
            words = file.read(4096).split(b"\0")
        return b" ".join(word for word in words[:3] if word).decode(errors="replace")[:120]
    except OSError:
        return ""
