"""What `stalloc trace` and `stalloc run` tell the processes that they start, in the file that ``STALLOC_LAUNCH`` names."""

from __future__ import annotations

import functools
import json
import os
from typing import Any

from stalloc._common.output import say


@functools.cache
def told() -> dict[str, Any]:
    """All of it: ``command``, ``answers``, ``answers_file``, ``steps``, ``stacks``, ``progress``, each only if it is there."""
    path = os.environ.get("STALLOC_LAUNCH")
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        say(f"the options of this launch cannot be read, so they have no effect here: {error}")
        return {}
    return found if isinstance(found, dict) else {}


def number(name: str, default: int) -> int:
    """A number of it."""
    value = told().get(name)
    return value if isinstance(value, int) else default
