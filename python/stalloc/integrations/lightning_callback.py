"""Memory figures in the logs of Lightning's ``Trainer``, and marks of its validations and checkpoints."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # the package of the older name
    from pytorch_lightning import Callback

from stalloc._common.output import say
from stalloc.integrations.memory_figures import memory_figures, verdict
from stalloc._steps import marks


class LightningCallback(Callback):  # type: ignore[misc]
    """``Trainer(..., callbacks=[LightningCallback()])``: the figures of `memory_figures` go to the trainer's loggers."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        module.log_dict(memory_figures(), on_step=True, on_epoch=False, rank_zero_only=True)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        marks.phase("evaluation")

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        marks.phase("checkpoint")

    def on_predict_start(self, trainer: Any, module: Any) -> None:
        marks.phase("generation")

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        line = verdict() if trainer.is_global_zero else None
        if line is not None:
            say(line)
