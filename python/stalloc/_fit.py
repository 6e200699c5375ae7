"""What fits, and what would make it fit, asked from Python: the same as ``stalloc fit`` and ``stalloc levers``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

if TYPE_CHECKING:
    from stalloc.results import FitAnswer, LeversAnswer, Value


def fit(
    command: str | Sequence[str],
    gpus: str | Iterable[str] = "h100-80gb",
    *,
    vary: Mapping[str, Iterable[Value]] | None = None,
    world_size: int | str | None = None,
    ranks: Iterable[int] = (),
    steps: int = 3,
) -> FitAnswer:
    """What fits of a training command, tried without a GPU; what ``stalloc fit --json`` prints.

    Args:
        command: The command with ``{NAME}`` where values belong, as a list of words or as a shell would read it.
        gpus: Presets (``"h100-80gb"``), or descriptions (``"sm=132,memory=80GiB,capability=9.0,name=mine"``).
        vary: For each name a ``range``, of which the largest value that fits is searched, or the values to try.
        world_size: Ranks of the job, each of which is run alone; names of ``vary`` multiplied, as in ``"{TP}x{PP}x{DP}"``, for several jobs.
        ranks: The ranks to try; by default those that may differ.
        steps: Training steps of each trial.

    Raises:
        ValueError: The question is invalid, or the command does not run; the message says why.
    """
    options = ["--steps", str(steps)]
    for gpu in [gpus] if isinstance(gpus, str) else gpus:
        options += ["--dry-run", gpu]
    for name, values in (vary or {}).items():
        options += ["--vary", f"{name}={_values(values)}"]
    if world_size is not None:
        options += ["--world-size", str(world_size)]
    if chosen := ",".join(map(str, ranks)):
        options += ["--ranks", chosen]
    answer: FitAnswer = _asked("fit", command, options)
    return answer


def levers(
    command: str | Sequence[str],
    gpu: str = "h100-80gb",
    *,
    goal: int | str | None = None,
    vary: Mapping[str, Iterable[Value]] | None = None,
    steps: int = 3,
) -> LeversAnswer:
    """What would make a training command fit: each lever tried without a GPU; what ``stalloc levers --json`` prints.

    Args:
        command: The command, as a list of words or as a shell would read it, with ``{NAME}`` where the value of ``vary`` belongs.
        gpu: A preset (``"h100-80gb"``), or a description (``"sm=132,memory=80GiB,capability=9.0,name=mine"``).
        goal: The memory to fit into, in bytes or as in ``"24GB"``; by default the GPU's.
        vary: One name and a ``range``, of which the largest value that fits is searched with each lever.
        steps: Training steps of each trial.

    Raises:
        ValueError: The question is invalid, or the command does not run; the message says why.
    """
    options = ["--steps", str(steps), "--dry-run", gpu]
    if goal is not None:
        options += ["--goal", str(goal)]
    for name, values in (vary or {}).items():
        options += ["--vary", f"{name}={_values(values)}"]
    answer: LeversAnswer = _asked("levers", command, options)
    return answer


def _asked(subcommand: str, command: str | Sequence[str], options: list[str]) -> Any:
    import json  # what every recorded process would import for nothing
    import shlex
    import subprocess

    words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    program = Path(__file__).parent / "_bin" / "stalloc"
    process = subprocess.run(
        [program, subcommand, "--json", *options, "--", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if process.returncode not in (0, 1):
        said = [line for line in process.stderr.splitlines() if line]
        raise ValueError("\n".join(said).removeprefix("stalloc: ") or f"stalloc {subcommand} ended with status {process.returncode}")
    return json.loads(process.stdout)


def _values(values: Iterable[Value]) -> str:
    if isinstance(values, range):
        if not values or values.step < 1:
            raise ValueError(f"{values} has nothing to search: write range(first, last + 1) or range(first, last + 1, step)")
        return f"{values[0]}..{values[-1]}:{values.step}"
    return ",".join(map(str, values))
