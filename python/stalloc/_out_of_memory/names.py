"""What has a name in the program and holds tensors: variables of modules, attributes of objects, closures."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import types
from collections import Counter
from dataclasses import dataclass
from typing import Any

from stalloc._common.users import is_users
from stalloc._out_of_memory.bindings import bound_at, class_line, is_users_class
from stalloc._out_of_memory.hooks import hooks_of
from stalloc._out_of_memory.kinds import Kind
from stalloc._out_of_memory.objects import CONTAINERS, attributes, is_a, length, module_of, mro_of, name_of, named, scope_of, text, unwrapped, variables
from stalloc._out_of_memory.world import World, is_full, line_of, short, tensors_in

#: As many models of one class were not built to train together.
MANY_MODELS = 4
#: What is said of these.
GARBAGE = ", in reference cycles that nothing else refers to"
#: Items that are looked at to find out whether something holds a tensor.
MOST_TRIED = 20_000
#: What `functools.lru_cache` makes of a function.
_CACHED = type(functools.lru_cache(lambda: None))
#: Attributes of modules and optimizers that have names of their own.
_OWN = ("_parameters", "_buffers", "_modules", "param_groups", "state", "grad", "_grad")


@dataclass
class Name:
    """What holds tensors, by name."""

    kind: Kind
    text: str
    line: str | None
    variable: str
    #: What is held by that name.
    values: list[Any]
    is_tensor: bool = False
    is_bounded: bool = False
    is_each: bool = False
    is_mapping: bool = False
    #: The full name of the class that has it as an attribute.
    owner: str = ""


class Names:
    """Everything that has a name and holds tensors: variables of modules, attributes of objects, closures of hooks."""

    def __init__(self, world: World, frames: list[types.FrameType]) -> None:
        self._world = world
        self.hooks = hooks_of(world)
        self.containers: list[Name] = []
        self.tensors: list[Name] = []
        self._scopes: dict[int, tuple[dict[str, Any], str]] = {}
        for module in list(sys.modules.values()):
            own = scope_of(module)
            file = text(own.get("__file__"))
            if own and (is_users(file) or text(own.get("__name__")) == "__main__"):
                self._scopes[id(own)] = (own, file)
        for frame in frames:
            if is_users(frame.f_code.co_filename):
                file = text(dict.get(frame.f_globals, "__file__"))
                self._scopes[id(frame.f_globals)] = (frame.f_globals, file or frame.f_code.co_filename)

    def look(self) -> None:
        """Look at all of them."""
        apart = self._world.apart
        for function in self.hooks.functions:
            with apart:
                self.of_function(function)
        for scope, file in self._scopes.values():
            for variable, value in named(scope).items():
                with apart:
                    self._of_variable(value, variable, file)
        # The program's own classes first: there may be no time for all.
        kept = [one for cycle in self._world.by_type.pop(id(itertools.cycle), []) for one in gc.get_referents(cycle) if is_a(one, list)]
        if self._holds(kept):
            self._add(Name(Kind.ITERATOR, "itertools.cycle, which keeps all that it has once been given", None, "itertools.cycle", kept))
        kinds = ((type(things[0]), things) for things in self._world.by_type.values())
        for kind, things in sorted(kinds, key=lambda one: not is_users_class(one[0])):
            if self._world.is_late:
                return
            with apart:
                if is_users_class(kind):
                    self._of_class(kind)
                self._of_objects(kind, things)
        for code, things in self._world.by_code.values():
            with apart:
                holding = [thing for thing in things if not self._world.is_late and self._holds([thing])]
                if len(holding) == 1 and type(holding[0]) is types.FunctionType:
                    self.of_function(holding[0])
                elif holding:
                    self._of_code(code, holding)

    def _holds(self, value: Any, inside: bool = True) -> bool:
        world = self._world
        if world.is_tensor(value):
            return world.address(value) is not None
        value = unwrapped(value)
        if length(value) == 0:
            return False
        return any(world.address(tensor) is not None for tensor in tensors_in(value, world, objects=inside, most=MOST_TRIED))

    def _add(self, name: Name) -> None:
        (self.tensors if name.is_tensor else self.containers).append(name)

    def _of_variable(self, value: Any, variable: str, file: str) -> None:
        if type(value) is _CACHED:
            self._of_cache(value)
        elif type(value) is types.FunctionType:
            if not self._world.is_late:
                self.of_function(value)
                for attribute, kept in attributes(value).items():
                    if attribute != "__wrapped__":
                        self._of_variable(kept, f"{variable}.{attribute}", file)
        elif not variable.startswith("__") and self._holds(value):
            line = bound_at(file, variable)
            place = f"{short(file)}:{line}" if line else short(file)
            # A result of the step that runs has a name in a script, and is not kept for all that.
            is_result = self._world.is_tensor(value) and self._world.is_tensor.read(value, "grad_fn") is not None
            kind = Kind.VARIABLE if is_result else Kind.CONTAINER
            self._add(self._named(value, variable, place, f" in {place}", kind))

    def _of_code(self, code: types.CodeType, things: list[Any]) -> None:
        kind = Kind.CLOSURE if type(things[0]) is types.FunctionType else Kind(name_of(type(things[0])))
        name = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
        what = "closure of" if kind is Kind.CLOSURE else kind.value.replace("_", " ")
        many = f" ({len(things)} of them)" if len(things) > 1 else ""
        is_waiting = kind is Kind.CLOSURE and len(things) >= MANY_MODELS and are_garbage(self._world, things)
        kind, many = (Kind.GARBAGE, many + GARBAGE) if is_waiting else (kind, many)
        self._add(Name(kind, f"{what} `{name}` at {line_of(code)}{many}", line_of(code), f"`{name}`", things, is_each=not is_waiting))

    def _named(self, value: Any, variable: str, place: str, where: str, kind: Kind) -> Name:
        is_tensor = self._world.is_tensor(value)
        hook = None if is_tensor or kind in (Kind.HOOK, Kind.CLOSURE) else self.hooks.fills.get(id(value))
        filled = f", filled by hook at {hook}" if hook else ""
        what = "tensor" if is_tensor else name_of(type(value))
        values = [unwrapped(value)]
        return Name(Kind.HOOK if hook else kind, f"{what} `{variable}`{where}{filled}", hook or place, f"`{variable}`", values, is_tensor and kind is not Kind.HOOK, is_mapping=is_a(value, dict))

    def _of_cache(self, wrapper: Any) -> None:
        function: Any = attributes(wrapper).get("__wrapped__")
        place, at = None, "`a function`"
        if type(function) is types.FunctionType:
            place, at = line_of(function.__code__), f"`{function.__qualname__}` at {line_of(function.__code__)}"
        values = [thing for thing in gc.get_referents(wrapper) if is_a(thing, dict)]
        if self._holds(values):
            self._add(Name(Kind.CACHE, f"lru_cache of {at}", place, "lru_cache", values))

    def of_function(self, function: types.FunctionType) -> None:
        """What the closure of a function and its default arguments hold."""
        code = function.__code__
        place = line_of(code)
        is_hook = id(function) in self.hooks.fills
        where = f" in the closure of hook at {place}" if is_hook else f" in the closure of `{function.__qualname__}` at {place}"
        for variable, cell in zip(code.co_freevars, function.__closure__ or ()):
            if is_full(cell) and self._holds(cell.cell_contents):
                self._add(self._named(cell.cell_contents, variable, place, where, Kind.HOOK if is_hook else Kind.CLOSURE))
        if self._holds(function.__defaults__):
            self._add(Name(Kind.CLOSURE, f"default arguments of `{function.__qualname__}` at {place}", place, "a default", [function.__defaults__]))

    def _of_class(self, kind: type) -> None:
        """Variables of a class that all of its objects share."""
        for variable, value in variables(kind).items():
            if type(value) is _CACHED:
                self._of_cache(value)
            elif is_a(value, self._world.torch.Tensor, *CONTAINERS) and self._holds(value):
                place, name = class_line(kind, variable), f"`{name_of(kind)}.{variable}`"
                self._add(Name(Kind.CONTAINER, f"{name_of(type(value))} {name}" + (f" in {place}" if place else ""), place, name, [value], is_mapping=is_a(value, dict)))

    def _of_objects(self, kind: type, things: list[Any]) -> None:
        """Attributes of all objects of a class, by attribute."""
        held: dict[str, list[Any]] = {}
        inside = is_users_class(kind)
        slots = [(name, slot) for one in mro_of(kind) for name, slot in variables(one).items() if type(slot) is types.MemberDescriptorType]
        for thing in things:
            if self._world.is_late:
                break
            with self._world.apart:
                graphs = ((name, one) for name, one in named(attributes(thing).get("_buffers")).items() if self._world.is_tensor(one) and self._world.is_tensor.read(one, "grad_fn"))  # a buffer may end one
                for attribute, value in [*attributes(thing).items(), *graphs, *((name, _slot(slot, thing)) for name, slot in slots)]:
                    value = unwrapped(value)
                    if attribute not in _OWN and is_a(value, self._world.torch.Tensor, *CONTAINERS) and self._holds(value, inside):
                        held.setdefault(attribute, []).append(value)
        for attribute, values in held.items():
            many = f" ({len(values)} of them)" if len(values) > 1 else ""
            hook = next((self.hooks.fills[id(value)] for value in values if id(value) in self.hooks.fills), None)
            is_tensor, own = self._world.is_tensor, name_of(kind)
            what = "" if is_tensor(values[0]) else f"{name_of(type(values[0]))} "
            filled = f", filled by hook at {hook}" if hook else ""
            label = f"{what}`self.{attribute}` of `{own}`{many}{filled}"
            role = Kind.HOOK if hook else Kind.DATASET if self._is_dataset(kind) else Kind.QUEUE if own.endswith("Queue") else Kind.ATTRIBUTE
            one = Name(role, label, hook or class_line(kind, attribute), f"`self.{attribute}` of `{own}`", values, owner=f"{module_of(kind)}.{own}")
            is_module = type.__subclasscheck__(self._world.torch.nn.Module, kind)
            if role is Kind.ATTRIBUTE and len(values) >= MANY_MODELS and are_garbage(self._world, things):
                one.kind, one.text = Kind.GARBAGE, label + GARBAGE
            one.is_mapping = is_a(values[0], dict)
            one.is_bounded = is_module and all(map(is_tensor, values))
            one.is_each = len(values) >= MANY_MODELS and not is_module and one.kind is Kind.ATTRIBUTE
            self._add(one)

    def _is_dataset(self, kind: type) -> bool:
        data = sys.modules.get("torch.utils.data")
        return data is not None and any(type.__subclasscheck__(base, kind) for base in (data.Dataset, data.IterableDataset))


def are_garbage(world: World, alike: list[Any]) -> bool:
    """Whether objects wait for the garbage collector: to two of them nothing refers but what they refer to. Each look takes long."""
    lists = world.lists if any(one is alike for one in world.lists) else [*world.lists, alike]
    ours, listed = set(map(id, lists)), Counter(id(one) for things in lists for one in things)
    new: list[Any] = [alike[len(alike) // 3], alike[len(alike) * 2 // 3]]
    things = {id(one): one for one in new}
    while new:
        above = gc.get_referrers(*new)
        if len(things) > 64 or world.is_late:
            return False
        ours.update((id(new), id(things), id(above)))
        new = [one for one in above if id(one) not in things and id(one) not in ours]
        if any(is_a(one, types.FrameType, types.ModuleType) for one in new):
            return False
        things.update((id(one), one) for one in new)
    within = Counter(id(one) for thing in things.values() for one in gc.get_referents(thing))
    # Those of the dictionary, of the call, and of our lists are ours.
    new = above = []
    return all(sys.getrefcount(things[key]) - 2 - listed[key] <= within[key] for key in list(things))


def _slot(slot: Any, thing: Any) -> Any:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return None
