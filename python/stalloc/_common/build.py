"""Whether the part of stalloc in Rust and the part in Python are of one build.

They are not where one was replaced without the other: sources that were updated in place, an installation that broke off.
What would follow is an error at some later time, and a recording without events.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from stalloc import _native

_INTERFACE = Path(__file__).parent.parent / "_native.pyi"
#: What a stand-in CUDA of this build says.
_DRYRUN_VERSION = 1


class Mismatch(ImportError):
    """Parts of different builds. Nothing works that the user asked for, and the message says what to do."""


def check() -> None:
    """Raise :class:`Mismatch` if the native module was built from other sources."""
    if getattr(_native, "interface", None) != zlib.crc32(_INTERFACE.read_bytes()):
        raise Mismatch(f"{_native.__file__} is of another build than the Python files next to it: install stalloc again")


def check_dryrun(library: object) -> None:
    """Raise :class:`Mismatch` if ``library``, the process's stand-in CUDA, is of another version."""
    version = getattr(library, "stalloc_dryrun_version", None)
    if version is None or version() != _DRYRUN_VERSION:
        raise Mismatch("the stand-in CUDA (libstalloc_dryrun.so) is of another build than stalloc: install stalloc again")
