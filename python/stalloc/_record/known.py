"""Decisions of well-known programs that depend on values, made in a dry run as a real run makes them."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from stalloc._record import imports


def install() -> None:
    """Arrange for the decisions below, once the modules that make them are imported."""
    imports.after("transformers.masking_utils", _no_packed_sequences)
    imports.after("megatron.core.optimizer.clip_grads", _clips_gradients)


def _no_packed_sequences(masking_utils: ModuleType) -> None:
    """Positions count up from zero, one sequence per row: no mask is built for packed sequences."""
    if hasattr(masking_utils, "find_packed_sequence_indices"):
        masking_utils.find_packed_sequence_indices = lambda *_args, **_options: None  # type: ignore[attr-defined]


def _clips_gradients(clip_grads: ModuleType) -> None:
    """Gradients of early steps are larger than what they are clipped to: they are scaled."""
    norm = getattr(clip_grads, "get_grad_norm_fp32", None)
    if norm is None:
        return

    @functools.wraps(norm)
    def large_norm(*args: Any, **options: Any) -> float:
        norm(*args, **options)
        return 1e3

    clip_grads.get_grad_norm_fp32 = large_norm  # type: ignore[attr-defined]
