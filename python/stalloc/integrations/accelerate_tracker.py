"""An Accelerate tracker that keeps memory figures next to whatever the program logs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from stalloc._common.output import say
from stalloc.integrations.memory_figures import memory_figures, verdict


class AccelerateTracker(GeneralTracker):  # type: ignore[misc]
    """``Accelerator(log_with=[AccelerateTracker(folder), "tensorboard"])``.

    Each ``accelerator.log(values, step)`` adds a line to ``FOLDER/memory.jsonl``: the step, the values that are numbers, and the
    figures of `memory_figures`. For the other trackers: ``accelerator.log({**values, **memory_figures()}, step)``.
    """

    name = "stalloc"
    requires_logging_directory = False

    @on_main_process  # type: ignore[untyped-decorator]
    def __init__(self, folder: str | os.PathLike[str] = ".") -> None:
        super().__init__()
        self._file = Path(folder) / "memory.jsonl"
        self._file.parent.mkdir(parents=True, exist_ok=True)

    @property
    def tracker(self) -> Path:
        """The file."""
        return self._file

    @on_main_process  # type: ignore[untyped-decorator]
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Begin the file anew; of the configuration nothing is kept."""
        self._file.write_text("")

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Add a line."""
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        with self._file.open("a") as file:
            file.write(json.dumps({"step": step, **numbers, **memory_figures()}) + "\n")

    @on_main_process  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """Say the verdict."""
        line = verdict()
        if line is not None:
            say(line)
