"""Levers that save memory, applied from outside to a program that `stalloc levers` tries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stalloc._common import imports
from stalloc._common.output import say
from stalloc._levers import shared_start


def decide(size: int | str | bool, plans: Path | None) -> Path | None:
    """Have this program's command tried without a GPU, and what makes it fit applied from here on; the folder of its plan.

    Raises RuntimeError if nothing makes it fit.
    """
    if os.environ.get("STALLOC_FIT") or os.environ.get("STALLOC_TRACE_DIR"):  # decided already, or a trial itself
        return plans
    option = "--fit" if size is True else f"--fit={size}"
    program = Path(__file__).parents[1] / "_bin" / "stalloc"
    own = ["--plan", str(plans)] if plans else []
    command = [str(program), "run", option, "--only-say", *own, "--", sys.executable, *sys.orig_argv[1:]]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        raise RuntimeError("stalloc.enable(fit=...): the job was not started; the lines above say why")
    told, _, folder = process.stdout.strip().partition("\n")
    if told:
        os.environ["STALLOC_FIT"] = told
        install_fit()
    return Path(folder) if folder else plans


def install_fit() -> None:
    """Arrange for the levers that `stalloc run --fit` chose."""

    def torch_imported(torch: object) -> None:
        from stalloc._levers import fitting

        fitting.start(torch)

    imports.after("torch", torch_imported)


def install() -> None:
    """Arrange for the levers of this trial once the program imports PyTorch."""
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
