"""What a lever has to know of a program: its models, their repeated blocks, its optimizers, and what it does already."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator

from stalloc._levers.source import Call, place_in, program_frames

#: Variables of a frame that are looked through for the program's name of an object.
_MOST_VARIABLES = 2000


#: A linear layer with fewer outputs has no logits that hold the peak.
LEAST_CLASSES = 1000


@dataclass
class Blocks:
    """Equal modules that follow one another."""

    #: As the program would write it: ``model.layers``.
    name: str
    members: list[Any]


@dataclass
class Program:
    """The program of this process, as far as it has shown itself."""

    torch: Any
    #: Outermost modules that are called for training, with the program's name for each.
    models: list[tuple[str, Any]] = field(default_factory=list)
    #: The same with the names of the outermost frame that has one: where the optimizer is made.
    made_as: list[tuple[str, Any]] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    #: What the program calls the optimizers, and where it makes the first.
    optimizer_names: list[str] = field(default_factory=list)
    made_at: Call | None = None
    #: The line that each of the program's frames was at then, by its code, and where lines that name everything stand.
    made_by: dict[Any, int] = field(default_factory=dict)
    place: str | None = None
    #: Whether all of the program's frames that call a model have the name ``torch``.
    has_torch: bool = True
    #: The ``TrainingArguments`` of transformers' Trainer, and where the program makes them.
    arguments: Any = None
    arguments_at: Call | None = None
    #: What it does already: ``checkpoint``, ``compile``, ``clip``, ``scaler``, ``autocast``, ``several backwards``, ``late zeroing``.
    does: set[str] = field(default_factory=set)
    #: The linear layer whose outputs go into a cross-entropy, with the program's name for it.
    head: tuple[str, Any] | None = None

    #: Whether an optimizer that is being made is a lever's, not the program's.
    is_ours: bool = False
    #: Calls of ``backward`` since the last step.
    backwards: int = 0

    def model_called(self, model: Any) -> tuple[str, Any]:
        """A model is called for training for the first time."""
        self.has_torch = all(frame.f_globals.get("torch") is self.torch for frame in program_frames())
        others = ["model", *["optimizer"] * len(self.optimizers)]
        (name, *self.optimizer_names), self.place = names_in_program([model, *self.optimizers], others, self.made_by)
        self.models.append((name, model))
        self.made_as.append((names_in_program([model], [name], {})[0][0], model))
        for module in model.modules():
            if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
                self.does.add("compile")
        return self.models[-1]

    def facts(self) -> set[str]:
        """What it does, and what it lacks."""
        parameters = [p for _name, model in self.models for p in model.parameters()]
        lacks = {
            "no optimizer": not self.optimizers,
            "no model": not self.models,
            "no blocks": not self.blocks(),
            "no logits": self.head is None,
            "gradients gone": "late zeroing" not in self.does,
            "16 bits": all(p.dtype != self.torch.float32 for p in parameters),
            "trainer": self.arguments is not None,
        }
        return self.does | {fact for fact, holds in lacks.items() if holds}

    def execute(self, lines: str) -> None:
        """Runs lines as if the program had them."""
        variables: dict[str, Any] = {"torch": self.torch}
        for name, value in [*self.models, *zip(self.optimizer_names, self.optimizers)]:
            *owners, last = name.split(".")
            if owners:
                setattr(variables.setdefault(owners[0], SimpleNamespace()), last, value)
            else:
                variables[last] = value
        self.is_ours = True
        try:
            exec(lines, variables)  # noqa: S102
        finally:
            self.is_ours = False

    def forward_called(self) -> None:
        """The first forward pass after a step begins."""
        if any(p.grad is not None for o in self.optimizers for group in o.param_groups for p in group["params"]):
            self.does.add("late zeroing")

    def backward_called(self) -> None:
        """The backward pass begins."""
        if self.backwards == 0 and self.has_stepped:
            self.forward_called()
        self.backwards += 1

    def stepped(self) -> None:
        """An optimizer has stepped."""
        if self.backwards > 1:
            self.does.add("several backwards")
        self.backwards, self.has_stepped = 0, True

    #: Whether an optimizer has stepped.
    has_stepped: bool = False

    def cross_entropy_called(self, logits: Any, *_arguments: Any, **_options: Any) -> None:
        """A cross-entropy is computed: of the outputs of the layer that has as many."""
        if self.head is not None or not hasattr(logits, "shape") or len(logits.shape) != 2:
            return
        for _name, model in self.models:
            for module in widening(self.torch, model):
                if module.out_features == logits.shape[-1]:
                    self.head = self.name_of(module) or "model.head", module

    def blocks(self) -> list[Blocks]:
        """The outermost lists of equal blocks of every model."""
        return [blocks for name, model in self.models for blocks in blocks_of(self.torch, name, model)]

    def trained(self) -> set[int]:
        """Every parameter of an optimizer, by its identity."""
        return {id(p) for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]}

    def name_of(self, module: Any) -> str | None:
        """How the program would write a module of its models."""
        for name, model in self.models:
            for path, inner in model.named_modules():
                if inner is module:
                    return name + written(path)
        return None

    def is_model(self, module: Any) -> bool:
        """Whether a module is one of the models."""
        return any(module is model for _name, model in self.models)

    def is_part_of_a_model(self, module: Any) -> bool:
        """Whether a module is one of the models, or inside one."""
        return any(module is inner for _name, model in self.models for inner in model.modules())


def blocks_of(torch: Any, name: str, model: Any) -> Iterator[Blocks]:
    """The outermost lists of equal blocks of a model."""
    inside: set[int] = set()
    for path, module in model.named_modules():
        if id(module) in inside:
            continue
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            members = list(module.children())
            # What has no module inside is one operation: to compute it again saves nothing.
            are_equal = len(members) > 1 and len({type(member) for member in members}) == 1
            if are_equal and all(any(True for _ in member.children()) for member in members):
                inside.update(id(inner) for inner in module.modules())
                yield Blocks(name + written(path), members)


def models_of(torch: Any, optimizer: Any) -> list[Any]:
    """The outermost modules that have parameters of an optimizer."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return [m for m in modules if id(m) not in inner and any(id(p) in trained for p in m.parameters())]


def written(path: str) -> str:
    """What follows a model's name for a module inside: ``.stages[0].blocks`` of ``stages.0.blocks``."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split(".") if part)


def widening(torch: Any, model: Any) -> list[Any]:
    """Linear layers of a model that may make logits."""
    linear = [module for module in model.modules() if type(module) is torch.nn.Linear]
    return [module for module in linear if module.out_features >= max(LEAST_CLASSES, module.in_features)]


def names_in_program(values: list[Any], otherwise: list[str], made_by: dict[Any, int]) -> tuple[list[str], str | None]:
    """What the program calls some objects where all of them have names, in the outermost such of its frames, and a place in it."""
    frames = program_frames()
    found = [[_name(frame, value, is_own) for value in values] for is_own in (True, False) for frame in frames]
    for frame in frames:
        # Before Python 3.13 a function's variables as they were now would be kept as long as it runs, tensors too.
        if sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
            frame.f_locals.clear()
    for frame, names in zip(frames + frames, found):
        if all(names):
            return [name or "" for name in names], place_in(frame, made_by)
    # Nowhere all of them: each where it has one.
    return [next(filter(None, names), other) for names, other in zip(zip(*found), otherwise)] or otherwise, None


def _name(frame: Any, value: Any, is_own: bool) -> str | None:
    """A variable of a frame, or an attribute of one: of ``self`` alone, or of any."""
    for variables in (frame.f_locals, frame.f_globals):
        held = list(variables.items())[:_MOST_VARIABLES]
        for name, one in held:
            if one is value and not name.startswith("_"):
                return str(name)
        for name, one in held:
            if (name == "self" or not is_own) and not isinstance(one, (type, ModuleType)) and not name.startswith("_"):
                held_by_it = getattr(one, "__dict__", {})
                for attribute, inner in [*held_by_it.items(), *(held_by_it.get("_modules") or {}).items()][:_MOST_VARIABLES]:
                    if inner is value:
                        return f"{name}.{attribute}"
    return None
