"""Runs programs under `stalloc trace`, on the stand-in CUDA, and reads what they left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stalloc

PROGRAMS = Path(__file__).parent / "programs"
#: What every program starts with: the compiler is not imported before it is used.
START = Path(__file__).parent / "start"
#: Seconds after which a run is one that hangs: the longest takes three minutes, and four times that next to other work.
HANGS = "900"
COMMAND = Path(stalloc.__file__).parent / "_bin" / "stalloc"


def run(*arguments: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the `stalloc` command."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STALLOC_TRACE")}
    clean["PYTHONPATH"] = str(START)
    command = ["timeout", "--kill-after=5", HANGS, COMMAND, *map(str, arguments)]  # ends the command's children too
    return subprocess.run(command, text=True, capture_output=True, env=clean | (env or {}), **options)


def own_cache(folder: Path) -> dict[str, str]:
    """An environment with a cache of its own that has no answers yet, but the shims that others compiled: one takes 20 s."""
    shims = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stalloc", "shims")
    if shims.is_dir():
        folder.mkdir(exist_ok=True)
        Path(folder, "stalloc").mkdir(mode=0o700)
        shutil.copytree(shims, Path(folder, "stalloc", "shims"), ignore=shutil.ignore_patterns("building"))
    return {"XDG_CACHE_HOME": str(folder)}


@dataclass
class Recorded:
    """A recorded run."""

    directory: Path
    process: subprocess.CompletedProcess[str]

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(self.process.stdout)

    def trace(self, rank: int = 0, device: int = 0) -> dict[str, Any]:
        recording = stalloc.read_trace(self.directory / f"rank{rank}_dev{device}.trace")
        (trace,) = recording["traces"]
        return trace

    def entries(self, rank: int = 0, device: int = 0) -> list[dict[str, Any]]:
        return self.trace(rank, device)["entries"]


def recorder(folder: Path):
    """A function that records a program of this folder (or any path) on a dry-run H100."""
    count = 0

    def record(program: str | Path, *arguments: str, options: tuple[str, ...] = (), ok: bool = True, python: str | Path = sys.executable, **env: str):
        nonlocal count
        count += 1
        directory = folder / f"traces{count}"
        process = run(
            *("trace", "--dry-run", "h100-80gb", "--json", "-o", directory, *options, "--"),
            *(python, PROGRAMS / program, *arguments),
            env=env,
        )
        if ok:
            assert process.returncode == 0, process.stderr
        return Recorded(directory, process)

    return record


def actions(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["action"] for entry in entries]
