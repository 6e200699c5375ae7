"""One trial: the levers are applied as the program comes to where they belong, and what was found is written down at its end."""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
from pathlib import Path
from typing import Any, Callable

from stalloc import _native
from stalloc._common import endings
from stalloc._common.output import say
from stalloc._levers import shared_start
from stalloc._levers.catalogue import LEVERS, Spill, chosen_of
from stalloc._levers.held import Held
from stalloc._levers.watching import Observed
from stalloc._steps.marks import phase


def start(torch: Any) -> None:
    """PyTorch has been imported: watch the program, and apply the levers that are named."""
    trial = _Trial(torch)
    for owner, name in ((torch.cuda, "_lazy_init"), (torch._C, "_cuda_getDeviceCount")):
        _before_first_call(owner, name, trial.share_start)
    endings.at_end(trial.write)


class _Trial(Observed):
    def __init__(self, torch: Any) -> None:
        self._costs, self._held = _Costs(), Held(torch)
        self._models: list[str] = []
        super().__init__(torch, chosen_of(os.environ["STALLOC_LEVERS"]))

    def share_start(self) -> None:
        """The program is about to use CUDA: trials go on from here."""
        program = self.program
        if not program.optimizers and not program.models and program.arguments is None:
            if shared_start.VARIABLE in os.environ:
                importlib.import_module("torch._dynamo")  # what making an optimizer imports, which takes longer than a trial's steps
            shared_start.leave_copy(self._gone_on)

    def _gone_on(self) -> None:
        self.program.torch.set_num_threads(1)  # those of the process that was copied are not in the copy
        self.chosen[:] = chosen_of(os.environ["STALLOC_LEVERS"])

    def arguments_made(self, _arguments: Any) -> None:
        self.share_start()

    def accepts(self, model: Any) -> bool:
        self._models.append(self.program.signature(model))
        return True

    def backward_called(self, *arguments: Any, **options: Any) -> None:
        super().backward_called(*arguments, **options)
        if self.program.torch._C._current_graph_task_id() == -1:  # checkpointed parts have their own, within it
            self.program.backward_called()
            phase("backward")

    def backward_done(self, *arguments: Any, **options: Any) -> None:
        super().backward_done(*arguments, **options)
        if self.program.torch._C._current_graph_task_id() == -1:
            phase("forward")

    def step_begins(self, optimizer: Any, arguments: Any, options: Any) -> None:
        super().step_begins(optimizer, arguments, options)
        self._held.step_begins(self.program, optimizer)

    def stepped(self, optimizer: Any) -> None:
        super().stepped(optimizer)
        if optimizer is self.program.optimizers[0]:
            self._costs.step_done()
        phase("forward")

    def write(self) -> None:
        """Leaves what was found where the trial's notes lie."""
        found = []
        for lever in LEVERS:
            try:
                found.append(lever.found(self.program))
            except Exception as error:  # one that does not understand the program is none of it
                say(f"lever {lever.name}: {error!r}")
        note = {"levers": found, "applied": self.applied, "flops": self._costs.flops, "host_bytes": self._costs.host_bytes}
        note["models"] = self._models
        for rehearsal in [lever.rehearsal for lever in self.chosen if isinstance(lever, Spill) and lever.rehearsal is not None]:
            note["spill"] = rehearsal.note()
            note["applied"] = [name for name in self.applied if name != Spill.name or note["spill"] is not None]
        note["places"] = self._held.places(self.program)
        Path(os.environ["STALLOC_TRIAL_NOTES"], f"{os.getpid()}.levers").write_text(json.dumps(note))


def _before_first_call(owner: Any, name: str, before: Callable[[], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def called(*arguments: Any, **options: Any) -> Any:
        if getattr(owner, name) is called:
            setattr(owner, name, original)
            before()
        return original(*arguments, **options)

    setattr(owner, name, called)


class _Costs:
    """What a step computes and copies: the difference between the last two steps of the first optimizer."""

    def __init__(self) -> None:
        self.flops: int | None = None
        self.host_bytes: int | None = None
        self._before: tuple[int | None, int | None] | None = None

    def step_done(self) -> None:
        """An optimizer has stepped."""
        now = _native.operations_counted(), _copied()
        if self._before is not None:
            self.flops, self.host_bytes = (
                None if later is None or earlier is None else later - earlier for later, earlier in zip(now, self._before)
            )
        self._before = now


def _copied() -> int | None:
    """Bytes that went between host and device so far, as the stand-in CUDA counted them."""
    try:
        library = ctypes.CDLL(None)
        text = ctypes.create_string_buffer(1 << 16)
        library.stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
        summary = json.loads(text.value)
        return int(summary["host_reads"]["bytes"] + summary["host_writes"]["bytes"])
    except (AttributeError, KeyError, ValueError):  # no stand-in, or another one
        return None
