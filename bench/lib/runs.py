"""Runs stalloc's command, of the package on PYTHONPATH, and a program's own processes under it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
#: The stand-in GPU of most pages.
GPU = ("--dry-run", "h100-80gb")
#: Frameworks use no network.
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
#: Imports that ask whether there is a GPU do not use CUDA, so that their process can be forked.
FORKED = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
#: A line of a process that has its figures.
MARK = "figures: "


class Failed(SystemExit):
    """A command failed: its text is what a program that does not catch it ends with."""


def parser(page: str = "") -> argparse.ArgumentParser:
    """The program's options, under its documentation; with `--write` where it fills tables of a page."""
    found = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    if page:
        found.add_argument("--write", action="store_true", help=f"put what was measured into bench/results/{page}")
    return found


def command() -> Path:
    """The `stalloc` command."""
    import stalloc

    return Path(stalloc.__file__).parent / "_bin" / "stalloc"


def environment(**more: str) -> dict[str, str]:
    """This process's own, without what stalloc is told by it, and with the package alone on PYTHONPATH where `more` has nothing else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STALLOC_")}
    return kept | {"PYTHONPATH": str(command().parents[2])} | more


def stalloc(
    *words: object, answers: tuple[int, ...] | None = (0,), env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command, which may end with one of the exit statuses `answers`, or in any way where that is none."""
    done = subprocess.run([str(command()), *map(str, words)], text=True, capture_output=True, env=env or environment(), cwd=cwd)
    if answers is not None and done.returncode not in answers:
        raise Failed(f"stalloc {' '.join(map(str, words))[:400]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done


def said(act: str, *words: object, **options: Any) -> Any:
    """What one command says as JSON."""
    return json.loads(stalloc(act, "--json", *words, **options).stdout)


def tell(figures: object) -> None:
    """Print a process's figures for :func:`told`."""
    print(MARK + json.dumps(figures), flush=True)


def told(output: str) -> Any:
    """The figures that a process told last."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise Failed(f"no figures were told:\n{output[-2000:]}")
    return json.loads(lines[-1].removeprefix(MARK))


def own(*arguments: object) -> list[str]:
    """The command of a process of the program itself."""
    return [sys.executable, str(Path(sys.argv[0]).resolve()), *map(str, arguments)]
