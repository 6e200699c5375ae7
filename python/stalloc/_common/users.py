"""Which code is the user's own."""

from __future__ import annotations

import functools
from pathlib import Path

_OURS = str(Path(__file__).parents[1]).replace("\\", "/") + "/"
_FOREIGN = ("/site-packages/", "/dist-packages/", "/lib/python3.", "<frozen", "importlib")


@functools.lru_cache(maxsize=4096)
def is_users(path: str) -> bool:
    """Whether a file is the user's own: not Python's, PyTorch's, a framework's or ours."""
    path = path.replace("\\", "/")
    return not is_ours(path) and not any(part in path for part in _FOREIGN)


def is_ours(path: str) -> bool:
    """Whether a file is of this package."""
    return path.replace("\\", "/").startswith(_OURS)
