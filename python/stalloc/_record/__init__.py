"""Recording of the process that this is imported in; `stalloc trace` has it called by the bootstrap."""

from __future__ import annotations

import os
import time

from stalloc._common import imports

_is_installed = False


def install() -> None:
    """Arrange for everything to start once the program imports PyTorch; once is enough."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    if os.environ.get("STALLOC_TRIAL_NOTES"):
        from stalloc._record import host_weights, trial_notes

        host_weights.install()
        trial_notes.install()
    # What this process starts belongs to the same recording.
    os.environ.setdefault("STALLOC_TRACE_LAUNCH", f"{time.time_ns():x}-{os.getpid()}")

    def torch_imported(torch: object) -> None:
        from stalloc._record import session

        session.prepare(torch)

    imports.after("torch", torch_imported)
