"""The hooks of modules and parameters, and what they can fill."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass, field
from typing import Any

from stalloc._common.users import is_users
from stalloc._out_of_memory.objects import CONTAINERS, attributes, is_a, items
from stalloc._out_of_memory.world import World, is_full, line_of, own_parameters


@dataclass
class Hooks:
    """The hooks that modules have."""

    functions: list[types.FunctionType] = field(default_factory=list)
    #: By the id of what a hook can fill, and of the hook: where the hook is.
    fills: dict[int, str] = field(default_factory=dict)


def hooks_of(world: World) -> Hooks:
    """All hooks of modules and parameters."""
    found = Hooks()
    for module in world.modules:
        own = attributes(module)
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            for hook in items(own.get(name)):
                with world.apart:
                    _note_hook(hook, found)
    for parameter in (one for root in world.roots for one in own_parameters(root) if world.is_tensor(one)):
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            for hook in items(world.is_tensor.read(parameter, name)):
                with world.apart:
                    _note_hook(hook, found)
    return found


def _note_hook(hook: Any, found: Hooks) -> None:
    function: Any = hook
    owner: Any = None
    while is_a(function, functools.partial):
        function = functools.partial.__dict__["func"].__get__(function)
    if type(function) is types.MethodType:
        function, owner = function.__func__, function.__self__
    if type(function) is not types.FunctionType or not is_users(function.__code__.co_filename):
        return
    code, place = function.__code__, line_of(function.__code__)
    if id(function) not in found.fills:
        found.functions.append(function)
    found.fills[id(function)] = place
    reached = [cell.cell_contents for cell in function.__closure__ or () if is_full(cell)]
    reached += [dict.get(function.__globals__, name) for name in code.co_names]
    reached += items(function.__defaults__)
    reached += attributes(owner).values()
    # What it names of the objects that it reaches.
    reached += [own[name] for own in map(attributes, list(reached)) for name in code.co_names if name in own]
    for thing in reached:
        if is_a(thing, *CONTAINERS):
            found.fills[id(thing)] = place
