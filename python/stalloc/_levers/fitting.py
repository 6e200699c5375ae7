"""`stalloc run --fit` in the job: the levers that were chosen are applied as a trial applied them, and the peak is compared with the trial's."""

from __future__ import annotations

import json
import os
from typing import Any

from stalloc._common.output import say
from stalloc._levers.catalogue import Spill, chosen_of
from stalloc._levers.watching import Watch

#: The steps after which the peak has shown: the first makes the optimizer's states.
_STEPS = 2

#: What the job is told, as JSON: ``levers``, ``models``, ``peak`` and, for the lever of that name, ``spill``.
VARIABLE = "STALLOC_FIT"


class Fitting(Watch):
    """Applies levers to the models that they were tried on; whatever goes wrong, the job goes on."""

    def __init__(self, torch: Any) -> None:
        told = json.loads(os.environ[VARIABLE])
        self._models, self._peak, self._steps = told["models"], told["peak"], 0
        chosen = chosen_of(",".join(told["levers"]))
        super().__init__(torch, [Spill(plan=told["spill"]) if isinstance(lever, Spill) else lever for lever in chosen])

    _has_refused = False

    def accepts(self, model: Any) -> bool:
        """Whether a model is one of those that the levers were tried on."""
        if self.program.signature(model) in self._models:
            return True
        self._has_refused = True
        say(f"--fit: {type(model).__name__} is not as it was when the levers were tried; it trains without them")
        return False

    def failed(self, lever: Any, error: Exception) -> None:
        """A lever could not be applied."""
        say(f"--fit: {lever.name} could not be applied: {error!r}; the job goes on without it")
        self.chosen = [other for other in self.chosen if other is not lever]

    def stepped(self, optimizer: Any) -> None:
        """Compares the peak once."""
        self._steps += optimizer is self.program.optimizers[0]
        if self._steps != _STEPS:
            return
        self._steps += 1  # once
        if os.environ.get("RANK", "0") != "0":
            return
        cuda = self.program.torch.cuda
        peak = max((cuda.memory_stats(device).get("allocated_bytes.all.peak", 0) for device in range(cuda.device_count())), default=0)
        missing = [lever.name for lever in self.chosen if lever.name not in self.applied and not self._has_refused]
        if missing:
            say(f"--fit: not applied: {', '.join(missing)}")
        say(f"--fit: after {_STEPS} steps the peak is {peak / 2**20:,.1f} MiB allocated; {self._peak / 2**20:,.1f} MiB were predicted")


def start(torch: Any) -> None:
    """PyTorch has been imported."""
    try:
        Fitting(torch)
    except Exception as error:  # the job runs as it is
        say(f"--fit: nothing is applied: {error!r}")
