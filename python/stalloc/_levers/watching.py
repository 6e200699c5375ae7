"""Follows a program from the import of PyTorch on, and applies levers as it comes to where they belong."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from stalloc._common import imports
from stalloc._common.users import is_ours
from stalloc._levers.applied import called
from stalloc._levers.catalogue import Lever, WithoutOwn
from stalloc._levers.program import Program, models_of, widening
from stalloc._levers.source import Call, program_frames
from stalloc._levers.side_effects import hooked, of as side_effects, shown


class Watch:
    """Who applies levers to the program of this process."""

    def __init__(self, torch: Any, chosen: list[Lever]) -> None:
        self.program, self.chosen = Program(torch), chosen
        self.applied: list[str] = []
        made = torch.optim.Optimizer.__init__

        @functools.wraps(made)
        def optimizer_made(this: Any, params: Any, defaults: Any) -> None:
            self.program.is_being_made(this)
            made(this, params, defaults)
            self._optimizer_made(this)

        torch.optim.Optimizer.__init__ = optimizer_made
        watched(torch.autograd, "backward", self.backward_called, self.backward_done)
        call = torch.nn.Module.__call__

        # Not a hook: by the time it runs, `forward` and the module's own hooks have been read for the first step.
        @functools.wraps(call)
        def noted_call(module: Any, *arguments: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling():
                pass
            elif not self.is_done(module):
                self._called(module)
                return self.observed(call, module, arguments, options)
            else:
                torch.nn.Module.__call__ = call  # Whatever is trained was called: calls must be PyTorch's own when a step counts.
            return call(module, *arguments, **options)

        torch.nn.Module.__call__ = noted_call
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self.step_begins)
        register_optimizer_step_post_hook(lambda optimizer, *_: self._stepped(optimizer))
        imports.after("transformers.training_args", self._trainer_imported)

    def is_done(self, module: Any) -> bool:
        """Whether calls of modules say nothing new any more."""
        return self.program.has_stepped and self.program.is_model(module)

    def observed(self, call: Callable[..., Any], module: Any, arguments: Any, options: Any) -> Any:
        """Calls a module."""
        return call(module, *arguments, **options)

    def accepts(self, _model: Any) -> bool:
        """Whether levers are applied to a model."""
        return True

    def failed(self, _lever: Lever, error: Exception) -> None:
        """A lever could not be applied."""
        raise error

    def model_called(self) -> None:
        """A model was called for training for the first time, and has its levers."""

    def arguments_made(self, _arguments: Any) -> None:
        """transformers' arguments are being made."""

    def backward_called(self, *_arguments: Any, **_options: Any) -> None:
        """The backward pass begins, or one within it."""
        program = self.program
        if not program.models and not program.has_stepped:  # compiled ones are called by other means
            for model in [model for optimizer in program.optimizers for model in models_of(program.torch, optimizer)]:
                program.compiled.update(id(inner) for inner in model.modules() if program.compiles_functions)
                self._called(model)
        self._without_models()

    def _without_models(self) -> None:
        """Applies levers of optimizers of tensors that no module has, or that are made after a first call."""
        program = self.program
        if program.optimizers and not program.known and not program.has_stepped:
            program.find_names()
            for lever in self.chosen:
                if lever.about in ("optimizers", "both"):
                    self._apply(lever, "on_model", "", None)

    def backward_done(self, *_arguments: Any, **_options: Any) -> None:
        """A backward pass has ended."""

    def step_begins(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """An optimizer is about to step; its gradients may have come without a backward pass."""
        self._without_models()

    def stepped(self, optimizer: Any) -> None:
        """An optimizer of the program's has stepped."""

    def _apply(self, lever: Lever, what: str, *about: Any) -> None:
        program = self.program
        is_flag = program.arguments is not None and lever.flag_of(program.arguments) is not None
        try:
            is_applied = not is_flag and getattr(lever, what)(program, *about)
        except Exception as error:
            self.failed(lever, error)
            return
        if is_applied and lever.name not in self.applied:
            self.applied.append(lever.name)

    def _optimizer_made(self, optimizer: Any) -> None:
        program = self.program
        if program.is_ours or any(optimizer is other for other in program.optimizers):
            return
        program.optimizers.append(optimizer)
        if len(program.optimizers) == 1:
            program.made_at = Call.of(type(optimizer).__name__)
            program.made_by = {frame.f_code: frame.f_lineno for frame in program_frames()}
        for lever in self.chosen:
            self._apply(lever, "on_optimizer", optimizer)

    def _called(self, module: Any) -> None:
        program = self.program
        if not module.training or not program.torch.is_grad_enabled() or any(module is one for model in program.models for one in model.modules()):
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        model = program.model_called(module)
        for lever in self.chosen if self.accepts(module) else ():
            if not (lever.is_once and lever.name in self.applied):
                self._apply(lever, "on_model", *model)
        self.model_called()

    def _stepped(self, optimizer: Any) -> None:
        if any(optimizer is other for other in self.program.optimizers):
            for lever in self.chosen if optimizer is self.program.optimizers[0] else ():
                lever.stepped()
            self.stepped(optimizer)
            self.program.stepped(optimizer)

    def _trainer_imported(self, module: Any) -> None:
        made = module.TrainingArguments.__post_init__

        @functools.wraps(made)
        def arguments_made(this: Any) -> None:
            self.arguments_made(this)
            if self.program.arguments is None:
                self.program.arguments_at = Call.of(type(this).__name__)
            self.program.arguments = this
            for lever in self.chosen:
                flag = lever.flag_of(this)
                if flag is not None:
                    setattr(this, *flag)
                    self.applied.append(lever.name)
            made(this)

        module.TrainingArguments.__post_init__ = arguments_made


class Observed(Watch):
    """One that also notes what decides whether a lever can be used, for two steps."""

    def __init__(self, torch: Any, chosen: list[Lever]) -> None:
        super().__init__(torch, chosen)
        self._blocks: set[int] = set()
        self._heads: set[int] = set()
        #: Of each optimizer, as the last backward pass left them.
        self._options: dict[int, Any] = {}
        self._steps = 0
        watched(torch.nn.Module, "__init__", lambda module, *_arguments, **_options: self.program.is_being_made(module))
        _watch_what_it_does(torch, self.program, self.chosen)
        watched(torch.autograd, "grad", self._asked)

    def is_done(self, module: Any) -> bool:
        return self._steps >= (1 if self.chosen else 2) and self.program.is_model(module)

    def model_called(self) -> None:
        program = self.program
        model = program.models[-1]
        self._blocks.update(id(block) for blocks in program.blocks_of("", model) + program.alike() for block in called(blocks.members))
        self._heads.update(id(module) for module in widening(program.torch, model))

    def observed(self, call: Callable[..., Any], module: Any, arguments: Any, options: Any) -> Any:
        program, number = self.program, id(module)
        if program.has_stepped and program.is_model(module):
            program.forward_called()
        is_training = module.training and program.torch.is_grad_enabled() and program.torch._C._current_graph_task_id() == -1
        if not is_training or self.chosen or number not in self._blocks | self._heads:
            return call(module, *arguments, **options)
        if number in self._heads:
            outputs = call(module, *arguments, **options)
            if isinstance(outputs, program.torch.Tensor):
                program.outputs[outputs.untyped_storage().data_ptr()] = module
            return outputs
        if program.in_checkpoint is not None:
            program.in_checkpoint += 1
        handed = *arguments, *options.values()
        before = side_effects(module, *handed)
        outputs = call(module, *arguments, **options)
        after = side_effects(module, *handed)
        changed = [what for what, value in after.items() if before.get(what) != value]
        hook = hooked(module)
        why = f"a hook of {hook} would run twice" if hook else f"a block changes {changed[0]}, and would for a second time" if changed else ""
        program.calls[number] = why
        return outputs

    def backward_called(self, *arguments: Any, **options: Any) -> None:
        super().backward_called(*arguments, **options)
        self._retains(*arguments[2:4], **options)

    def backward_done(self, *_arguments: Any, **_options: Any) -> None:
        if self.program.torch._C._current_graph_task_id() == -1:
            self.program.left = self.program.gradients(*self.program.optimizers)
            self._options = {id(optimizer): options_of(optimizer) for optimizer in self.program.optimizers}

    def _asked(self, *arguments: Any, **options: Any) -> None:
        if self.program.has_stepped and not self.program.backwards:
            self.program.forward_called()
        self._retains(*arguments[3:5], **options)

    def _retains(self, *given: Any, **options: Any) -> None:
        retain, create = [*given, None, None][:2]
        self.program.does.update({"retains"} if retain or options.get("retain_graph") else ())
        self.program.does.update({"double backward"} if create or options.get("create_graph") else ())

    def step_begins(self, optimizer: Any, arguments: Any, options: Any) -> None:
        super().step_begins(optimizer, arguments, options)
        program = self.program
        now, options_now = program.gradients(optimizer), options_of(optimizer)
        if not now.items() <= (program.left or dict.fromkeys(now, (id(None), None))).items():
            program.does.add("clip")
        if self._options.get(id(optimizer), options_now) != options_now:
            program.does.add("late options")
        if (*arguments[1:], options.get("closure"))[0] is not None:  # the first is the optimizer
            self.program.does.add("closure")

    def stepped(self, optimizer: Any) -> None:
        self._steps += optimizer is self.program.optimizers[0]


def watched(
    owner: Any,
    name: str,
    note: Callable[..., None],
    after: Callable[..., None] = lambda *_, **_options: None,
    instead: Callable[[Any], Any] = lambda original: original,
) -> None:
    """Has ``note`` called before a function of ``owner``, and ``after`` after it, or something else ``instead`` of it, but where a lever calls it."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def called(*arguments: Any, **options: Any) -> Any:
        if is_ours(sys._getframe(1).f_code.co_filename):
            return original(*arguments, **options)
        note(*arguments, **options)
        result = instead(original)(*arguments, **options)
        after(*arguments, **options)
        return result

    setattr(owner, name, called)


def options_of(optimizer: Any) -> list[Any]:
    return [shown(value) for group in optimizer.param_groups for name, value in group.items() if name != "params"]


#: Options of a checkpoint, which the function in it has not.
_OF_CHECKPOINTS = "use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop", "respect_saved_tensors_hooks"


def _watch_what_it_does(torch: Any, program: Program, chosen: list[Lever]) -> None:
    """Notes calls that decide whether a lever can be used."""

    def does(what: str) -> Callable[..., None]:
        return lambda *_arguments, **_options: program.does.add(what)

    def compiles(what: Any = None, *_arguments: Any, **_options: Any) -> None:
        what = getattr(what, "__self__", what)
        if isinstance(what, torch.nn.Module):
            program.compiled.update(id(inner) for inner in what.modules())
        else:
            program.compiles_functions = True

    def checkpoints(*_arguments: Any, **_options: Any) -> None:
        program.does.add("checkpoint")
        program.in_checkpoint = 0

    def checkpointed(*_arguments: Any, **_options: Any) -> None:
        program.blocks_at_once, program.in_checkpoint = max(program.blocks_at_once, program.in_checkpoint or 0), None

    def uncheckpointed(function: Any, *arguments: Any, **options: Any) -> Any:
        return function(*arguments, **{name: value for name, value in options.items() if name not in _OF_CHECKPOINTS})

    def hooks(this: Any, *_arguments: Any) -> None:
        program.does.update({"hooks"} if type(this).__module__ != "torch.utils.checkpoint" else ())

    def left_out(other: Any) -> Callable[[Any], Any]:
        return lambda original: other if any(isinstance(lever, WithoutOwn) for lever in chosen) else original

    def zeroes(is_own: bool) -> Callable[..., None]:
        def zeroing(this: Any, set_to_none: bool = True) -> None:
            parameters = this.parameters() if is_own else (p for group in this.param_groups for p in group["params"])
            program.zeroing({id(p) for p in parameters}, set_to_none, is_own)

        return zeroing

    watched(torch.amp.GradScaler, "scale", does("scaler"))
    watched(torch.amp.GradScaler, "unscale_", lambda *_: None, lambda _, optimizer: program.left.update(program.gradients(optimizer)))
    watched(torch.autocast, "__enter__", lambda this: program.does.update({"autocast"} if this._enabled else ()))
    watched(torch, "compile", compiles)
    watched(torch.nn.Module, "compile", compiles)
    watched(torch.nn.Module, "zero_grad", zeroes(is_own=True))
    watched(torch.optim.Optimizer, "zero_grad", zeroes(is_own=False))
    watched(torch.optim.lr_scheduler.LRScheduler, "step", lambda *_, **_options: program.does.update({"schedule"} if program.has_stepped else ()))
    imports.after("torch.utils.checkpoint", lambda module: watched(module, "checkpoint", checkpoints, checkpointed, left_out(uncheckpointed)))
    begin = torch.autograd.graph.saved_tensors_hooks.__init__
    watched(torch.autograd.graph.saved_tensors_hooks, "__init__", hooks, instead=left_out(lambda this, *_: begin(this, *[lambda tensor: tensor] * 2)))
    for name in ("torch.distributed.distributed_c10d", "torch.distributed"):  # it has a name of its own for it
        imports.after(name, lambda module: watched(module, "init_process_group", does("distributed")))
    watched(torch.nn.functional, "cross_entropy", program.cross_entropy_called)
