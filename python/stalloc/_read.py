"""Recordings as dicts and lists of PyTorch's shape, which say what they hold in a line and not in megabytes."""

from __future__ import annotations

import os
from typing import Any

from stalloc import _native


class Recording(dict[str, Any]):
    """A file's devices: ``traces``."""

    def __repr__(self) -> str:
        return f"<recording of {len(self['traces'])} devices: {', '.join(map(repr, self['traces']))}>"


class Trace(dict[str, Any]):
    """A device's events: ``entries``, as in PyTorch's memory history."""

    def __repr__(self) -> str:
        return f"<trace of device {self.get('device', '?')}, {len(self['entries']):,} entries>"


class Entries(list[dict[str, Any]]):
    """Events in order."""

    def __repr__(self) -> str:
        return f"<{len(self):,} entries, from {self[0]['action']} to {self[-1]['action']}>" if self else "<no entries>"


def read_trace(path: str | os.PathLike[str]) -> Recording:
    """Read a recording of any known format; ValueError, in a sentence, if the file cannot be understood.

    ``traces`` has for each device its ``entries``, dicts as PyTorch's memory history has them (``action``, ``addr``,
    ``size``, ``stream``, ``frames``, ``time_us``), with marks in their places.
    """
    recording = Recording(_native.read_trace(os.fspath(path)))
    recording["traces"] = [Trace(trace, entries=Entries(trace["entries"])) for trace in recording["traces"]]
    return recording
