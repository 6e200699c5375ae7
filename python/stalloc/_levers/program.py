"""What a lever has to know of a program: its models, their repeated blocks, its optimizers, and what it does already."""

from __future__ import annotations

import gc
import hashlib
import sys
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator

from stalloc._levers.applied import called, take_off
from stalloc._levers.source import Call, loop_names, place_in, program_frames

#: Variables of a frame that are looked through for the program's name of an object.
_MOST_VARIABLES = 2000


#: A linear layer with fewer outputs has no logits that hold the peak.
LEAST_CLASSES = 1000


@dataclass
class Blocks:
    """Equal modules that follow one another."""

    #: As the program would write it: ``model.layers``.
    name: str
    #: In order; a member that is a list stands for the blocks in it.
    members: list[Any]
    #: The same as something that can be sliced: ``list(model.layers.values())`` of a dictionary.
    as_list: str

    def count(self, part: slice = slice(None)) -> int:
        """How many blocks there are in a part of them."""
        return sum(1 for _ in called(self.members[part]))


@dataclass
class Names:
    """What the program calls its models and optimizers in one of its frames, and where lines with these names can stand."""

    models: list[str]
    optimizers: list[str]
    place: str | None = None


@dataclass
class Program:
    """The program of this process, as far as it has shown itself."""

    torch: Any
    #: Outermost modules that are called for training.
    models: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    #: Where the program makes the first.
    made_at: Call | None = None
    #: The line that each of the program's frames was at then, by its code.
    made_by: dict[Any, int] = field(default_factory=dict)
    #: Where its frames were when each model and optimizer was made, by its identity: a line gives it no name before that.
    made: dict[int, set[tuple[Any, int]]] = field(default_factory=dict)
    #: Its names where the last model was called: of models, of optimizers, of both; and of models before the optimizer is made.
    names: dict[str, Names] = field(default_factory=dict)
    #: Optimizers that there were then.
    known: int = 0
    #: The ``TrainingArguments`` of transformers' Trainer, and where the program makes them.
    arguments: Any = None
    arguments_at: Call | None = None
    #: What it does already, by the names of the catalogue's reasons.
    does: set[str] = field(default_factory=set)
    #: Modules that are compiled, with all inside.
    compiled: set[int] = field(default_factory=set)
    compiles_functions: bool = False
    #: Blocks that were called for training, and what each does that must not be done twice.
    calls: dict[int, str] = field(default_factory=dict)
    #: Of a checkpoint of the program's that is being called: blocks so far; and the most of any.
    in_checkpoint: int | None = None
    blocks_at_once: int = 0
    #: Optimizers whose gradients were freed since their last step.
    zeroed: set[int] = field(default_factory=set)
    #: The linear layer whose outputs go into a cross-entropy.
    head: Any = None

    #: Whether an optimizer that is being made is a lever's, not the program's.
    is_ours: bool = False
    #: Calls of ``backward`` since the last step.
    backwards: int = 0

    def model_called(self, model: Any) -> tuple[str, Any]:
        """A model is called for training for the first time."""
        parts = {id(part) for part in model.modules()}
        for part in [one for one in self.models if id(one) in parts]:  # called by themselves before, to learn a size
            take_off(part)
            self.models = [one for one in self.models if one is not part]
        self.models.append(model)
        self.find_names()
        for module in model.modules():
            if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
                self.compiled.update(id(inner) for inner in module.modules())
        return self.names["models"].models[-1], model

    def find_names(self) -> None:
        """What the program calls its models and optimizers is looked up, and where lines about them can stand."""
        self.known = len(self.optimizers)
        frames = program_frames()
        for of, (models, optimizers) in {
            "models": (self.models, []),
            "optimizers": ([], self.optimizers),
            "both": (self.models, self.optimizers),
        }.items():
            self.names[of] = names_in(frames, models, optimizers, self.made)
        self.names["before"] = names_in(frames, self.models, [], self.made, self.made_by)
        for frame in frames:
            # Before Python 3.13 a function's variables as they were now would be kept as long as it runs, tensors too.
            if sys.version_info < (3, 13) and frame.f_code.co_flags & CO_OPTIMIZED:
                frame.f_locals.clear()

    def is_being_made(self, what: Any) -> None:
        """A model or an optimizer is being made."""
        self.made[id(what)] = {(frame.f_code, frame.f_lineno) for frame in program_frames()}

    def signature(self, model: Any) -> str:
        """What tells a model from others: what is trained of which size, and the blocks."""
        parameters = [f"{name} {tuple(p.shape)} {p.dtype} {p.requires_grad}" for name, p in model.named_parameters()]
        blocks = [f"{blocks.name} {blocks.count()}" for blocks in blocks_of(self.torch, "", model)]
        return hashlib.sha256("\n".join([*parameters, *blocks]).encode()).hexdigest()[:16]

    def facts(self) -> set[str]:
        """What it does, and what it lacks."""
        parameters = [p for model in self.models for p in model.parameters()]
        kinds = [type(optimizer) for optimizer in self.optimizers]
        facts = {
            "no optimizer": not self.optimizers,
            "no model": not self.models,
            "no blocks": not self.blocks(),
            "no own": not self.does & {"checkpoint", "hooks"},
            "no logits": self.head is None,
            "gradients gone": "late zeroing" not in self.does,
            "16 bits": all(p.dtype != self.torch.float32 for p in parameters),
            "trainer": self.arguments is not None,
            "cells": any(isinstance(part, self.torch.nn.RNNCellBase) and part.weight_ih.is_cpu for model in self.models for part in model.modules()),
            "compile": any(id(model) in self.compiled for model in self.models),
            "several optimizers": len(self.optimizers) > 1,
            "before reduction": "distributed" in self.does,
            "unused parameters": any(getattr(model, "find_unused_parameters", False) for model in self.models),
            "compiles": self.compiles_functions,
            "captured": any(group.get("capturable") for o in self.optimizers for group in o.param_groups),
            "later optimizer": len(self.optimizers) > self.known,
            "own optimizer": any(not kind.__module__.startswith("torch.optim") or kind.__name__ == "LBFGS" for kind in kinds),
            "hooked optimizer": any(o._optimizer_step_post_hooks or o._optimizer_step_pre_hooks for o in self.optimizers),
            "shared parameters": len(self.trained()) < sum(len(g["params"]) for o in self.optimizers for g in o.param_groups),
        }
        return self.does | {fact for fact, holds in facts.items() if holds}

    def execute(self, lines: str, names: Names, **variables: Any) -> None:
        """Runs lines as if the program had them, and some variables besides."""
        named = [*zip(names.models, self.models), *zip(names.optimizers, self.optimizers)]
        for name, value in sorted(named, key=lambda one: -len(one[0])):
            if name.endswith("]"):  # one of a list: the line has a variable in its place
                lines, name = lines.replace(name, f"one{len(variables)}"), f"one{len(variables)}"
            owner, _, last = name.rpartition(".")
            if owner:
                setattr(variables.setdefault(owner, SimpleNamespace()), last, value)
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
        for optimizer in self.optimizers:
            if all(p.grad is None for group in optimizer.param_groups for p in group["params"]) and id(optimizer) not in self.zeroed:
                self.zeroed.add(id(optimizer))
                self.does.update({"own zeroing"} if self.has_stepped else ())
        self.backwards += 1

    #: The same as the backward pass, or what scales gradients back, left them.
    left: dict[int, Any] = field(default_factory=dict)

    @staticmethod
    def gradients(*optimizers: Any) -> dict[int, Any]:
        """Which gradient each parameter has, and how often it was changed."""
        parameters = (p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"])
        return {id(p): (id(p.grad), getattr(p.grad, "_version", None)) for p in parameters}

    def zeroing(self, parameters: set[int], set_to_none: bool, is_own: bool) -> None:
        """The program frees gradients, by an optimizer or in a way of its own."""
        self.does.update(() if set_to_none else {"zeros"})
        for optimizer in self.optimizers:
            if {id(p) for group in optimizer.param_groups for p in group["params"]} <= parameters:
                self.zeroed.add(id(optimizer))
                self.does.update({"own zeroing"} if is_own else ())

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        if self.backwards > 1:
            self.does.add("several backwards")
        if id(optimizer) not in self.zeroed and id(optimizer) in self._have_stepped:
            self.does.add("keeps gradients")
        self.zeroed.discard(id(optimizer))
        self._have_stepped.add(id(optimizer))
        self.backwards, self.has_stepped = 0, True

    _have_stepped: set[int] = field(default_factory=set)
    #: Whether an optimizer has stepped.
    has_stepped: bool = False

    #: The layer that may make logits by where its last outputs lie.
    outputs: dict[int, Any] = field(default_factory=dict)

    def cross_entropy_called(self, logits: Any, *_arguments: Any, **_options: Any) -> None:
        """A cross-entropy is computed: of the outputs of a layer, else of one that has as many."""
        if self.head is not None or not isinstance(logits, self.torch.Tensor) or logits.dim() < 2 or type(logits).__name__ == "FakeTensor":
            return
        made_by = self.outputs.get(logits.untyped_storage().data_ptr())
        classes = logits.shape[1] if logits.dim() > 2 else logits.shape[-1]
        candidates = [module for model in self.models for module in widening(self.torch, model)] if made_by is None else [made_by]
        for module in candidates:
            if module.out_features == classes:
                self.head = module

    def blocks(self) -> list[Blocks]:
        """The outermost lists of equal blocks of every model, of those that are called if that is known."""
        found = [blocks for name, model in self.named() for blocks in self.blocks_of(name, model)] + self.alike()
        return [one for one in found if not self.calls or any(id(member) in self.calls for member in called(one.members))]

    def blocks_of(self, name: str, model: Any) -> list[Blocks]:
        """The outermost lists of equal blocks of a model, but for what is compiled."""
        found = blocks_of(self.torch, name, model)
        return [blocks for blocks in found if not any(id(member) in self.compiled for member in called(blocks.members))]

    def named(self) -> list[tuple[str, Any]]:
        """Every model, with its name."""
        return list(zip(self.names["models"].models if "models" in self.names else [], self.models))

    def alike(self) -> list[Blocks]:
        """Models of one class that have no blocks inside: layers in a list of Python's."""
        found: dict[Any, list[tuple[str, Any]]] = {}
        for name, model in self.named():
            if self._is_block(model):
                found.setdefault(type(model), []).append((name, model))
        several = [of for of in found.values() if len(of) > 1]
        return [Blocks(of[0][0], [model for _, model in of], f"[{', '.join(name for name, _ in of)}]") for of in several]

    def _is_block(self, model: Any) -> bool:
        return id(model) not in self.compiled and any(True for _ in model.children()) and not self.blocks_of("", model)

    #: Models whose peers were asked for.
    _asked: set[int] = field(default_factory=set)

    def peers(self, model: Any) -> list[Any]:
        """The same while models are called for the first time: those like one that have their turn yet, too, as the optimizers have them."""
        if id(model) in self._asked or not self._is_block(model):
            return []
        order = {id(p): index for index, p in enumerate(p for o in self.optimizers for group in o.param_groups for p in group["params"])}
        found = {id(one): one for one in [*self.models, *(one for o in self.optimizers for one in models_of(self.torch, o))]}
        alike = [one for one in found.values() if type(one) is type(model) and self._is_block(one)]
        self._asked.update(map(id, alike))
        return sorted(alike, key=lambda one: min((order.get(id(p), len(order)) for p in one.parameters()), default=0)) if len(alike) > 1 else []

    def trained(self) -> set[int]:
        """Every parameter of an optimizer, by its identity."""
        return {id(p) for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]}

    def name_of(self, module: Any) -> str | None:
        """How the program would write a module of its models."""
        for name, model in zip(self.names["models"].models, self.models):
            for path, inner in model.named_modules():
                if inner is module:
                    return name + written(self.torch, model, path)
        return None

    def is_model(self, module: Any) -> bool:
        """Whether a module is one of the models."""
        return any(module is model for model in self.models)


def blocks_of(torch: Any, name: str, model: Any) -> list[Blocks]:
    """The outermost blocks of a model: those of its lists and dictionaries, and attributes of one class; where there are none, its parts."""
    found = list(_repeated(torch, name, model))
    path, module = "", model
    while not found and len(inner := _composite(module)) == 1:
        (at, module) = inner[0]
        path = f"{path}.{at}".strip(".")
    if not found and inner:
        found = [_attributes(name + written(torch, model, path), inner)]
    return found


def _repeated(torch: Any, name: str, model: Any) -> Iterator[Blocks]:
    inside: set[int] = set()
    kinds = torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict
    for path, module in model.named_modules():
        if id(module) in inside:
            continue
        where = name + written(torch, model, path)
        if not isinstance(module, kinds):
            alike = [one for one in _composite(module) if not isinstance(one[1], kinds) and not any(True for _ in _repeated(torch, "", one[1]))]
            classes = [type(member) for _, member in alike]
            alike = [one for one in alike if classes.count(type(one[1])) > 1]
            if alike:
                inside.update(id(inner) for _, member in alike for inner in member.modules())
                yield _attributes(where, alike)
            continue
        members = list(module.children())
        # What has no module inside is one operation: to compute it again saves nothing. Dictionaries in a list are looked into.
        blocks = [member for _, member in _composite(module) if not isinstance(member, kinds[2])]
        if len({type(member) for member in blocks}) < len(blocks) and any(called(blocks)):
            inside.update(id(inner) for inner in module.modules())
            where = f"list({where}.values())" if isinstance(module, kinds[2]) else where
            yield Blocks(name + written(torch, model, path), blocks, where if blocks == members else f"[b for b in {where} if any(True for _ in b.children())]")


def _composite(module: Any) -> list[tuple[str, Any]]:
    """Modules right inside a module that have modules inside, by their names."""
    return [(at, inner) for at, inner in module.named_children() if any(True for _ in inner.children())]


def _attributes(where: str, blocks: list[tuple[str, Any]]) -> Blocks:
    names = [f"{where}.{at}" if at.isidentifier() else f"{where}[{at}]" for at, _ in blocks]
    return Blocks(where, [member for _, member in blocks], f"[{', '.join(names)}]")


def models_of(torch: Any, optimizer: Any) -> list[Any]:
    """The outermost modules that have parameters of an optimizer."""
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return [m for m in modules if id(m) not in inner and any(id(p) in trained for p in m.parameters())]


def written(torch: Any, model: Any, path: str) -> str:
    """What follows a model's name for a module inside: ``.stages[0].blocks`` of ``stages.0.blocks``."""
    text = ""
    for part in path.split(".") if path else ():
        key = f'["{part}"]' if isinstance(model, torch.nn.ModuleDict) else f"[{part}]"
        text += f".{part}" if part.isidentifier() else key
        model = getattr(model, part)
    return text


def widening(torch: Any, model: Any) -> list[Any]:
    """Linear layers of a model that may make logits."""
    linear = [module for module in model.modules() if type(module) is torch.nn.Linear]
    return [module for module in linear if module.out_features >= max(LEAST_CLASSES, module.in_features)]


def names_in(frames: list[Any], models: list[Any], optimizers: list[Any], made: dict[int, Any], lines: dict[Any, int] | None = None) -> Names:
    """What the program calls them in the outermost of its frames where all have names and lines a place: of ``lines``, by code, alone."""
    values = [*models, *optimizers]
    making = {at for value in values for at in made.get(id(value), ())}
    unplaced = None
    for is_own in (True, False):
        for frame in frames:
            names = [_name(frame, value, is_own) for value in values]
            if values and all(names) and (lines is None or frame.f_code in lines):
                found = [name or "" for name in names]
                line = frame.f_lineno if lines is None else lines[frame.f_code]
                place = place_in(frame.f_code, line, found, {line for code, line in making if code is frame.f_code}, lines is not None)
                unplaced = unplaced or Names(found[: len(models)], found[len(models) :])
                if place is not None:
                    return Names(found[: len(models)], found[len(models) :], place)
    if unplaced is not None:
        return unplaced
    # Nowhere all of them: each where it has one.
    others = [f"{kind}{index or ''}" for kind, those in (("model", models), ("optimizer", optimizers)) for index in range(len(those))]
    each = [next(filter(None, (_name(frame, value, False) for frame in frames)), other) for value, other in zip(values, others)]
    return Names(each[: len(models)], each[len(models) :])


def _name(frame: Any, value: Any, is_own: bool) -> str | None:
    """A variable of a frame, or an attribute of one: of ``self`` alone, or of any."""
    turning = None
    for variables in (frame.f_locals, frame.f_globals):
        held = list(variables.items())[:_MOST_VARIABLES]
        for name, one in held:
            if one is value and not name.startswith("_"):
                # What a loop gives other values has its name among what the loop goes through, if it has one.
                if name not in loop_names(frame.f_code.co_filename):
                    return str(name)
                turning = str(name)
        for name, one in held:
            if not name.startswith("_") and (key := _key(one, value)):
                return f"{name}{key}"
            if (name == "self" or not is_own) and not isinstance(one, (type, ModuleType)) and not name.startswith("_"):
                held_by_it = getattr(one, "__dict__", {})
                for attribute, inner in [*(held_by_it.get("_modules") or {}).items(), *held_by_it.items()][:_MOST_VARIABLES]:
                    if inner is value:
                        return f"{name}.{attribute}"
                    if key := _key(inner, value):
                        return f"{name}.{attribute}{key}"
    return turning


def _key(held: Any, value: Any) -> str | None:
    """What follows the name of a list or dictionary, of Python's or of modules, for what it holds: ``[3]``."""
    if type(held).__name__ in ("ModuleList", "ModuleDict"):
        held = dict(held.items()) if type(held).__name__ == "ModuleDict" else list(held)
    if type(held) not in (list, tuple, dict) or len(held) > _MOST_VARIABLES:
        return None
    return next((f"[{key!r}]" for key, one in (held.items() if type(held) is dict else enumerate(held)) if one is value), None)
