"""Weights that a script makes in host memory take none of it in a trial: their initial values are not drawn.

Large memory that nobody writes to is not taken from the system. Most scripts build the model on the host and move it to the GPU then; what it
holds there decides nothing about memory. The generator goes on as if they were drawn: the order of batches, or which layers are left out, may
be drawn next.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from stalloc._common import imports

#: Methods that initialise weights. What programs draw for their data comes from functions that make tensors, which stay as they are.
_METHODS = ("normal_", "uniform_", "trunc_normal_", "fill_", "zero_")

#: Functions of ``torch.nn.init`` that work out what they write.
_FUNCTIONS = ("trunc_normal_", "orthogonal_", "sparse_", "dirac_", "eye_", "_no_grad_trunc_normal_")

#: Those that draw, and how long it takes for each value at most, in 11 ns: a truncated normal is drawn until all values are within.
_DRAWING = {"normal_": 1, "uniform_": 1, "orthogonal_": 1, "trunc_normal_": 7, "_no_grad_trunc_normal_": 7}

#: Values that are drawn and dropped at most, which takes a second (11 ns each): larger models go on with another state.
_MOST, _drawn = 1 << 27, [0]

#: Smaller ones are initialised: memory of this size comes fresh from the system, smaller memory may be used again.
_LARGE = 4 << 20


def install() -> None:
    """Leave out the initialisation of large weights in host memory from now on."""
    imports.after("torch.nn.init", _replace)


def _replace(init: Any) -> None:
    import torch

    for name in _METHODS:
        if original := getattr(torch.Tensor, name, None):
            setattr(torch.Tensor, name, _without_large(original))
    for name in _FUNCTIONS:
        if original := getattr(init, name, None):
            setattr(init, name, _without_large(original))


def _without_large(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def called(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if _is_large_weight(tensor):
            takes = _DRAWING.get(original.__name__, 0)
            _drawn[0] += tensor.numel() * takes
            if takes and _drawn[0] <= _MOST:
                values = tensor.new_empty(tensor.numel())
                if original.__name__ == "orthogonal_":
                    values.normal_(generator=options.get("generator"))
                else:
                    original(values, *arguments, **options)
            return tensor
        return original(tensor, *arguments, **options)

    return called


def _is_large_weight(tensor: Any) -> bool:
    import torch

    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.is_floating_point()
        and tensor.dim() > 1
        and tensor.numel() * tensor.element_size() >= _LARGE  # PyTorch 2.0 has no nbytes
    )
