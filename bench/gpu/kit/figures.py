"""How the kit's programs begin and end: their options, and their figures as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch


def parser() -> argparse.ArgumentParser:
    """The options that all have."""
    found = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--tiny", action="store_true", help="sizes for a rehearsal")
    found.add_argument("--output", type=Path, required=True, help="where the figures go")
    return found


def write(output: Path, figures: dict[str, Any]) -> None:
    """Writes figures, with PyTorch's peaks, and what stalloc says of itself where the process runs under it."""
    output.write_text(json.dumps(complete(figures), default=str))


def complete(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures with what :func:`write` adds to them, as it is now."""
    figures.update(peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())
    if "stalloc" in sys.modules:
        figures["stalloc"] = sys.modules["stalloc"].memory_stats()
    return figures
