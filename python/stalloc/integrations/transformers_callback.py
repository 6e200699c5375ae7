"""Memory figures in the logs of transformers' ``Trainer``, and marks of its steps, evaluations and checkpoints."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from stalloc._common.output import say
from stalloc.integrations.memory_figures import memory_figures, verdict
from stalloc._steps import marks


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """``TransformersCallback.attach(trainer)``; TRL's trainers and PEFT's models take it too.

    Each line that the trainer logs gets the figures of `memory_figures`: in TensorBoard, Weights & Biases or wherever it reports to, and in
    its history. At the end the verdict is said. In ``Trainer(..., callbacks=[TransformersCallback()])`` it works too, but the
    trainer asks its reporters first, so that only its history and progress lines have the figures.
    """

    @classmethod
    def attach(cls, trainer: Any) -> TransformersCallback:
        """Have a trainer call a new callback, before those that report."""
        callback = cls()
        trainer.callback_handler.callbacks.insert(0, callback)
        return callback

    def __init__(self) -> None:
        self._step = marks.step()
        self._is_open = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end_step()
        self._step.__enter__()
        self._is_open = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end_step()
        # What follows belongs to no step.
        if control.should_evaluate:
            marks.phase("evaluation")
        elif control.should_save:
            marks.phase("checkpoint")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save:
            marks.phase("checkpoint")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs is None:
            return
        figures = memory_figures()
        logs.update(figures)
        # The trainer has noted a copy of the line before it asks anybody.
        if state.log_history:
            state.log_history[-1].update(figures)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end_step()
        line = verdict() if state.is_world_process_zero else None
        if line is not None:
            say(line)

    def _end_step(self) -> None:
        if self._is_open:
            self._is_open = False
            self._step.__exit__()
