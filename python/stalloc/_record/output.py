"""What the recorder tells the user."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line on standard error."""
    print(f"stalloc: {text}", file=sys.stderr, flush=True)
