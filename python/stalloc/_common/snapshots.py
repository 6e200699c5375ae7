"""PyTorch's memory snapshot, at the price of a snapshot."""

from __future__ import annotations

from typing import Any


def take(torch: Any) -> dict[str, Any]:
    """The history and the segments of every device.

    PyTorch asks whether there is a `torch._inductor`, to name the frames of compiled code, and the asking imports it.
    That takes seconds; in the midst of another import it fails and is tried again each time, so that a program
    on a slow machine would hardly get any further. What is not imported has no frames: it is hidden.
    """
    native = torch._C._cuda_memorySnapshot
    is_hidden = "_inductor" not in vars(torch)
    if is_hidden:
        torch._inductor = None
    try:
        torch._C._cuda_memorySnapshot = getattr(native, "with_ours", native)
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        return snapshot
    finally:
        torch._C._cuda_memorySnapshot = native
        if is_hidden and torch._inductor is None:
            del torch._inductor
