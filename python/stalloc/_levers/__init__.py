"""Levers that save memory, applied from outside to a program that `stalloc levers` tries."""

from __future__ import annotations

import os

from stalloc._common import imports
from stalloc._common.output import say


def install() -> None:
    """Arrange for the levers of this trial once the program imports PyTorch."""
    names = [name for name in os.environ.get("STALLOC_LEVERS", "").split(",") if name]

    def torch_imported(torch: object) -> None:
        from stalloc._levers import trial

        try:
            trial.start(torch, names, os.environ["STALLOC_TRIAL_NOTES"])
        except Exception as error:  # whatever is wrong with us, the program runs; its trial says that nothing was applied
            say(f"no levers in this process: {error!r}")

    imports.after("torch", torch_imported)
