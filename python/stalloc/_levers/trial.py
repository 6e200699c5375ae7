"""One trial: the levers are applied as the program comes to where they belong, and what was found is written down at its end."""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
from pathlib import Path
from typing import Any, Callable

from stalloc import _native
from stalloc._common import imports
from stalloc._common.output import say
from stalloc._levers.catalogue import LEVERS, Lever
from stalloc._levers.program import Program, name_in_program


def start(torch: Any, names: list[str], folder: str) -> None:
    """PyTorch has been imported: watch the program, and apply the levers that are named."""
    program = Program(torch)
    chosen = [lever for lever in LEVERS if lever.name in names]
    applied: list[str] = []
    costs = _Costs()
    process = os.getpid()

    def apply(lever: Lever, what: str, *about: Any) -> None:
        if getattr(lever, what)(program, *about) and lever.name not in applied:
            applied.append(lever.name)

    for lever in chosen:
        apply(lever, "on_torch")
    _watch_what_it_does(torch, program)
    made = torch.optim.Optimizer.__init__

    @functools.wraps(made)
    def optimizer_made(this: Any, params: Any, defaults: Any) -> None:
        made(this, params, defaults)
        if program.is_ours or any(this is other for other in program.optimizers):
            return
        program.optimizers.append(this)
        for lever in chosen:
            apply(lever, "on_optimizer", this)

    torch.optim.Optimizer.__init__ = optimizer_made

    def called(module: Any, _arguments: Any) -> None:
        if not module.training or not torch.is_grad_enabled() or program.is_part_of_a_model(module):
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        if torch.compiler.is_compiling():
            return
        model = name_in_program(module, "model"), module
        program.model_called(*model)
        for lever in chosen:
            apply(lever, "on_model", *model)

    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    calls = register_module_forward_pre_hook(called)

    def stepped(optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        # Whatever is called for training was called in the first step: the hook must not be there when a step is recorded that counts.
        calls.remove()
        if program.optimizers and optimizer is program.optimizers[0]:
            costs.step_done()
        program.stepped()
        for lever in chosen:
            apply(lever, "on_step", optimizer)

    register_optimizer_step_post_hook(stepped)

    def write() -> None:
        if os.getpid() != process:
            return
        found = []
        for lever in LEVERS:
            try:
                found.append(lever.found(program))
            except Exception as error:  # one that does not understand the program is none of it
                say(f"lever {lever.name}: {error!r}")
        note = {"levers": found, "applied": applied, "flops": costs.flops, "host_bytes": costs.host_bytes}
        Path(folder, f"{process}.levers").write_text(json.dumps(note))

    atexit.register(write)


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
        size = library.stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
        if size > len(text):
            return None
        summary = json.loads(text.value)
        return int(summary["host_reads"]["bytes"] + summary["host_writes"]["bytes"])
    except (AttributeError, KeyError, ValueError):  # no stand-in, or another one
        return None


def _watch_what_it_does(torch: Any, program: Program) -> None:
    """Notes calls that decide whether a lever can be used."""

    def watched(owner: Any, name: str, note: Callable[..., None]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def called(*arguments: Any, **options: Any) -> Any:
            note(*arguments, **options)
            return original(*arguments, **options)

        setattr(owner, name, called)

    def does(what: str) -> Callable[..., None]:
        return lambda *_arguments, **_options: program.does.add(what)

    watched(torch.nn.utils, "clip_grad_norm_", does("clip"))
    watched(torch.nn.utils, "clip_grad_value_", does("clip"))
    watched(torch.amp.GradScaler, "scale", does("scaler"))
    watched(torch.autograd, "backward", lambda *_arguments, **_options: program.backward_called())
    imports.after("torch.utils.checkpoint", lambda module: watched(module, "checkpoint", does("checkpoint")))
    imports.after("torch.distributed.distributed_c10d", lambda module: watched(module, "init_process_group", does("distributed")))
    watched(torch.nn.functional, "cross_entropy", program.cross_entropy_called)
