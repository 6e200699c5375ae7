"""``from stalloc.utils.hook_model import hook_memory_model``, as scripts for the paper's artifact have it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

Model = TypeVar("Model", bound="torch.nn.Module")


def hook_memory_model(model: Model, args: Any = None) -> Model:
    """The model, whose modules are marked in the recording while one is made (``STALLOC_MODE=Trace``); else as it is.

    ``args``, Megatron's options, are not needed.
    """
    if os.environ.get("STALLOC_MODE", "").lower() == "trace":
        from stalloc._steps.marks import watch

        watch(model)
    return model
