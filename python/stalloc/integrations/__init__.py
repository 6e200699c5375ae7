"""Memory figures where a framework's users look for them: in its own logs.

::

    from stalloc.integrations import TransformersCallback   # TransformersCallback.attach(trainer)
    from stalloc.integrations import LightningCallback      # Trainer(..., callbacks=[LightningCallback()])
    from stalloc.integrations import AccelerateTracker      # Accelerator(log_with=[AccelerateTracker("out")])
    from stalloc.integrations import memory_figures         # any other loop: log(memory_figures())

A framework is imported only when its own class is asked for. They work with any allocator; where stalloc serves, they say how.
"""

from __future__ import annotations

import importlib
from typing import Any

from stalloc.integrations.memory_figures import memory_figures, verdict

__all__ = ["memory_figures", "verdict"]

_MODULES = {
    "AccelerateTracker": "accelerate_tracker",
    "LightningCallback": "lightning_callback",
    "TransformersCallback": "transformers_callback",
}


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"stalloc.integrations.{_MODULES[name]}"), name)
