"""What a lever has to know of a program: its models, their repeated blocks, its optimizers, and what it does already."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass, field
from typing import Any, Iterator

#: Frames of PyTorch and of ours have no names of the program.
_NOT_THE_PROGRAM = (os.sep + "torch" + os.sep, os.sep + "stalloc" + os.sep)

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
    optimizers: list[Any] = field(default_factory=list)
    #: What it does already: ``checkpoint``, ``compile``, ``clip``, ``scaler``, ``autocast``, ``several backwards``, ``late zeroing``.
    does: set[str] = field(default_factory=set)
    #: The linear layer whose outputs go into a cross-entropy, with the program's name for it.
    head: tuple[str, Any] | None = None

    #: Whether an optimizer that is being made is a lever's, not the program's.
    is_ours: bool = False
    #: Calls of ``backward`` since the last step.
    backwards: int = 0

    def model_called(self, name: str, model: Any) -> None:
        """A model is called for training for the first time."""
        self.models.append((name, model))
        if self.torch.is_autocast_enabled("cuda"):
            self.does.add("autocast")
        for module in model.modules():
            if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
                self.does.add("compile")

    def backward_called(self) -> None:
        """The backward pass begins."""
        held = (p.grad is not None for o in self.optimizers for group in o.param_groups for p in group["params"])
        if self.backwards == 0 and self.has_stepped and any(held):
            self.does.add("late zeroing")
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
            for module in model.modules():
                is_head = type(module) is self.torch.nn.Linear and module.out_features == logits.shape[-1]
                if is_head and module.out_features >= max(LEAST_CLASSES, module.in_features):
                    self.head = self.name_of(module) or "model.head", module

    def blocks(self) -> list[Blocks]:
        """The outermost lists of equal blocks of every model."""
        return [blocks for name, model in self.models for blocks in blocks_of(self.torch, name, model)]

    def blocks_of(self, name: str) -> list[Blocks]:
        """Those of the model that has this name."""
        return [blocks for other, model in self.models if other == name for blocks in blocks_of(self.torch, name, model)]

    def trained(self) -> set[int]:
        """Every parameter of an optimizer, by its identity."""
        return {id(p) for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]}

    def name_of(self, module: Any) -> str | None:
        """How the program would write a module of its models."""
        for name, model in self.models:
            for path, inner in model.named_modules():
                if inner is module:
                    return name + _written(path)
        return None

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
                yield Blocks(name + _written(path), members)


def models_of(torch: Any, optimizer: Any) -> list[Any]:
    """The outermost modules that have parameters of an optimizer."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return [m for m in modules if id(m) not in inner and any(id(p) in trained for p in m.parameters())]


def _written(path: str) -> str:
    """What follows a model's name for a module inside: ``.stages[0].blocks`` of ``stages.0.blocks``."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split(".") if part)


def name_in_program(value: Any, otherwise: str) -> str:
    """What the program calls an object: a variable, or an attribute of ``self``, of the innermost of its frames that has it."""
    frame = sys._getframe(1)
    while frame is not None:
        if not any(part in frame.f_code.co_filename for part in _NOT_THE_PROGRAM):
            for variables in (frame.f_locals, frame.f_globals):
                for name, held in list(variables.items())[:_MOST_VARIABLES]:
                    if held is value and not name.startswith("_"):
                        return name
            this = frame.f_locals.get("self")
            for name, held in list(getattr(this, "__dict__", {}).items())[:_MOST_VARIABLES]:
                if held is value:
                    return f"self.{name}"
        frame = frame.f_back  # type: ignore[assignment]
    return otherwise
