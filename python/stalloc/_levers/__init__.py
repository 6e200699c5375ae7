"""Levers that save memory, applied from outside to a program that `stalloc levers` tries."""

from __future__ import annotations

import os

from stalloc._common import imports
from stalloc._common.output import say
from stalloc._levers import shared_start

#: It takes the place of a class that the program imports.
_FROM_THE_START = "optimizer_8bit"


def install() -> None:
    """Arrange for the levers of this trial once the program imports PyTorch."""
    if _FROM_THE_START in os.environ["STALLOC_LEVERS"]:
        os.environ.pop(shared_start.VARIABLE, None)
    shared_start.follow()
    # To ask whether there is a GPU shall not count as using it, or the process could not be copied any more.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

    def torch_imported(torch: object) -> None:
        from stalloc._levers import trial

        try:
            trial.start(torch)
        except Exception as error:  # whatever is wrong with us, the program runs; its trial says that nothing was applied
            say(f"no levers in this process: {error!r}")

    imports.after("torch", torch_imported)
