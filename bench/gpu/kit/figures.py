"""How the kit's programs end: their figures as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch


def write(output: Path, figures: dict[str, Any]) -> None:
    """Writes figures, with PyTorch's peaks, and what stalloc says of itself where the process runs under it."""
    output.write_text(whole(figures))


def whole(figures: dict[str, Any]) -> str:
    """What :func:`write` writes, in a line."""
    figures.update(peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())
    if "stalloc" in sys.modules:
        figures["stalloc"] = sys.modules["stalloc"].memory_stats()
    return json.dumps(figures, default=str)
