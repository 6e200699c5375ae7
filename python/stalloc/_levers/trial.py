"""One trial: the levers are applied as the program comes to where they belong, and what was found is written down at its end."""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable

from stalloc import _native
from stalloc._common import endings, imports
from stalloc._common.output import say
from stalloc._levers import shared_start
from stalloc._levers.catalogue import LEVERS, Lever
from stalloc._levers.held import Held
from stalloc._levers.program import Program, models_of
from stalloc._levers.source import Call, is_of_the_program, program_frames
from stalloc._steps.marks import phase


def start(torch: Any) -> None:
    """PyTorch has been imported: watch the program, and apply the levers that are named."""
    program = Program(torch)
    chosen: list[Lever] = []
    applied: list[str] = []
    costs, held = _Costs(), Held(torch)

    def choose() -> None:
        names = os.environ["STALLOC_LEVERS"].split(",")
        chosen[:] = [lever for lever in LEVERS if lever.name in names]

    def apply(lever: Lever, what: str, *about: Any) -> None:
        is_flag = program.arguments is not None and lever.flag_of(program.arguments) is not None
        if not is_flag and getattr(lever, what)(program, *about) and lever.name not in applied:
            applied.append(lever.name)

    def gone_on() -> None:
        torch.set_num_threads(1)  # those of the process that was copied are not in the copy
        choose()

    def share_start() -> None:
        if not program.optimizers and not program.models and program.arguments is None:
            if shared_start.VARIABLE in os.environ:
                importlib.import_module("torch._dynamo")  # what making an optimizer imports, which takes longer than a trial's steps
            shared_start.leave_copy(gone_on)

    choose()
    for lever in chosen:
        apply(lever, "on_torch")
    for owner, name in ((torch.cuda, "_lazy_init"), (torch._C, "_cuda_getDeviceCount")):
        _before_first_call(owner, name, share_start)
    _watch_what_it_does(torch, program)
    made = torch.optim.Optimizer.__init__

    @functools.wraps(made)
    def optimizer_made(this: Any, params: Any, defaults: Any) -> None:
        made(this, params, defaults)
        if program.is_ours or any(this is other for other in program.optimizers):
            return
        program.optimizers.append(this)
        if len(program.optimizers) == 1:
            program.made_at = Call.of(type(this).__name__)
            program.made_by = {frame.f_code: frame.f_lineno for frame in program_frames()}
        for lever in chosen:
            apply(lever, "on_optimizer", this)

    torch.optim.Optimizer.__init__ = optimizer_made

    def note_call(module: Any) -> None:
        if not module.training or not torch.is_grad_enabled() or program.is_part_of_a_model(module):
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        model = program.model_called(module)
        for lever in chosen:
            apply(lever, "on_model", *model)

    def backward_called(*_arguments: Any, **_options: Any) -> None:
        if not program.models and not program.has_stepped:  # compiled ones are called by other means
            for model in [model for optimizer in program.optimizers for model in models_of(torch, optimizer)]:
                note_call(model)
        if torch._C._current_graph_task_id() == -1:  # checkpointed parts have their own, within it
            program.backward_called()
            phase("backward")

    def backward_done(*_arguments: Any, **_options: Any) -> None:
        if torch._C._current_graph_task_id() == -1:
            phase("forward")

    _watched(torch.autograd, "backward", backward_called, backward_done)

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(lambda optimizer, *_: held.step_begins(program, optimizer))

    call = torch.nn.Module.__call__

    # Not a hook: by the time it runs, `forward` and the module's own hooks have been read for the first step.
    @functools.wraps(call)
    def noted_call(module: Any, *arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            pass
        elif not program.has_stepped:
            note_call(module)
        elif program.is_model(module):
            program.forward_called()
            torch.nn.Module.__call__ = call  # Whatever is trained was called: calls must be PyTorch's own when a step counts.
        return call(module, *arguments, **options)

    torch.nn.Module.__call__ = noted_call

    def stepped(optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        if not any(optimizer is other for other in program.optimizers):
            return  # a lever's, for one parameter
        if optimizer is program.optimizers[0]:
            costs.step_done()
        program.stepped()
        phase("forward")

    register_optimizer_step_post_hook(stepped)

    def trainer_imported(module: Any) -> None:
        made = module.TrainingArguments.__post_init__

        @functools.wraps(made)
        def arguments_made(this: Any) -> None:
            share_start()
            if program.arguments is None:
                program.arguments_at = Call.of(type(this).__name__)
            program.arguments = this
            for lever in chosen:
                flag = lever.flag_of(this)
                if flag is not None:
                    setattr(this, *flag)
                    applied.append(lever.name)
            made(this)

        module.TrainingArguments.__post_init__ = arguments_made

    imports.after("transformers.training_args", trainer_imported)

    def write() -> None:
        found = []
        for lever in LEVERS:
            try:
                found.append(lever.found(program))
            except Exception as error:  # one that does not understand the program is none of it
                say(f"lever {lever.name}: {error!r}")
        note = {"levers": found, "applied": applied, "flops": costs.flops, "host_bytes": costs.host_bytes, "places": held.places(program)}
        Path(os.environ["STALLOC_TRIAL_NOTES"], f"{os.getpid()}.levers").write_text(json.dumps(note))

    endings.at_end(write)


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
        size = library.stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
        if size > len(text):
            return None
        summary = json.loads(text.value)
        return int(summary["host_reads"]["bytes"] + summary["host_writes"]["bytes"])
    except (AttributeError, KeyError, ValueError):  # no stand-in, or another one
        return None


def _watched(owner: Any, name: str, note: Callable[..., None], after: Callable[..., None] = lambda *_, **_options: None) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def called(*arguments: Any, **options: Any) -> Any:
        note(*arguments, **options)
        result = original(*arguments, **options)
        after(*arguments, **options)
        return result

    setattr(owner, name, called)


def _watch_what_it_does(torch: Any, program: Program) -> None:
    """Notes calls that decide whether a lever can be used."""

    def does(what: str) -> Callable[..., None]:
        return lambda *_arguments, **_options: program.does.add(what)

    _watched(torch.nn.utils, "clip_grad_norm_", does("clip"))
    _watched(torch.nn.utils, "clip_grad_value_", does("clip"))
    _watched(torch.amp.GradScaler, "scale", does("scaler"))
    _watched(torch.autocast, "__enter__", lambda this: program.does.update({"autocast"} if this._enabled and this.device == "cuda" else ()))
    def compiles(*_arguments: Any, **_options: Any) -> None:
        if is_of_the_program(sys._getframe(2).f_code.co_filename):  # libraries compile functions of theirs
            program.does.add("compile")

    _watched(torch, "compile", compiles)
    _watched(torch.nn.Module, "compile", compiles)
    imports.after("torch.utils.checkpoint", lambda module: _watched(module, "checkpoint", does("checkpoint")))
    for name in ("torch.distributed.distributed_c10d", "torch.distributed"):  # it has a name of its own for it
        imports.after(name, lambda module: _watched(module, "init_process_group", does("distributed")))
    _watched(torch.nn.functional, "cross_entropy", program.cross_entropy_called)
