"""PyTorch's memory snapshot, at the price of a snapshot, and the stack of a request that failed."""

from __future__ import annotations

import linecache
import re
from types import FrameType
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


#: What computes a loss over classes, in C++ too, where no frame says so.
_LOSS = re.compile(r"\b(log_softmax|logsumexp|cross_entropy|nll_loss)\(")


def failed_stack(frames: list[tuple[FrameType, int]]) -> list[tuple[str, str, int]]:
    """The stack of a request that failed, innermost first; a line that calls such a loss has the frame of `torch.nn.functional`'s."""
    stack = [(frame.f_code.co_filename, frame.f_code.co_name, line) for frame, line in frames]
    is_loss = stack and _LOSS.search(linecache.getline(stack[0][0], stack[0][2]))
    return [("torch/nn/functional.py", "log_softmax", 0), *stack] if is_loss else stack
