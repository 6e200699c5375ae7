"""Who holds the GPU's memory: the Python objects that refer to tensors, named as a person would name them.

Nothing of the program is changed or kept alive: the locals of frames that still run are not read (before Python 3.13 that copies them
into the frame), and no saved tensor is unpacked (that runs the program's hooks). What is returned is text and numbers.
"""

from __future__ import annotations

import ast
import functools
import gc
import logging
import os
import sys
import time
import traceback
import types
import weakref
from collections import Counter, UserDict, UserList, deque
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator

from stalloc._common.users import is_users

#: Nodes of autograd graphs that are visited at most.
MOST_NODES = 300_000
#: Items of containers that are looked at.
MOST_ITEMS = 500_000
#: Containers and objects inside of each other that are looked into.
MOST_DEPTH = 12
#: As many models of one class were not built to train together.
MANY_MODELS = 4
#: Items that are looked at to find out whether something holds a tensor.
MOST_TRIED = 20_000
#: Holders that are told of, and addresses of each.
MOST_HOLDERS = 24
MOST_ADDRESSES = 64

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
#: What keeps a container in its `data`.
WRAPPERS: tuple[Any, ...] = (weakref.WeakKeyDictionary, UserDict, UserList)
#: What may wait with variables of its own.
SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
#: What leads to everything, or nowhere.
_OPAQUE = (type, types.ModuleType, types.FrameType, types.CodeType, types.TracebackType, str, bytes, int, float, logging.Logger)


@dataclass
class Holder:
    """What holds some blocks."""

    kind: str
    name: str
    line: str | None = None
    addresses: list[int] = field(default_factory=list)
    #: Of graphs without a name: where the tensors lie that end them.
    ends: list[int] = field(default_factory=list)
    #: Bytes that the tensors themselves use: less than what they keep, where they are views.
    used: int = 0
    #: Whether it has one tensor for each object, so that it cannot grow while no objects are added.
    is_bounded: bool = False
    #: Whether it is many objects of one kind: what holds these objects has the better name.
    is_each: bool = False
    #: Whether it is a graph that ends in no parameter that an optimizer has.
    is_untrained: bool = False
    #: The class of what is in it, where these are no tensors.
    content: str = ""


def line_of(code: types.CodeType, line: int | None = None) -> str:
    """``FILE:LINE`` with the last two parts of the path, as the report names places."""
    return f"{short(code.co_filename)}:{line or code.co_firstlineno}"


def short(path: str) -> str:
    """The last two parts of a path."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])


class World:
    """All tensors of a device that Python knows, and what else says who holds memory."""

    def __init__(self, torch: Any, device: int, deadline: float) -> None:
        self.torch = torch
        self.device = device
        self.deadline = deadline
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        #: Tensors by the address of their storage.
        self.tensors: dict[int, list[Any]] = {}
        #: By the id of each of these tensors, where its storage begins.
        self._places: dict[int, int] = {}
        self.by_type: dict[type, list[Any]] = {}
        #: Generators and coroutines that wait, and functions with a closure, by their code.
        self.by_code: dict[types.CodeType, list[Any]] = {}
        #: Exceptions with a traceback.
        self.exceptions: list[BaseException] = []
        roles: dict[type, str] = {}
        for thing in gc.get_objects():
            kind = type(thing)
            role = roles.get(kind)
            if role is None:
                role = roles[kind] = self._role(kind)
            if role == "tensor":
                self._add(thing)
            elif role == "module":
                self.modules.append(thing)
            elif role == "optimizer":
                self.optimizers.append(thing)
            elif role == "exception" and thing.__traceback__ is not None:
                self.exceptions.append(thing)
            elif role == "code":
                self._add_code(thing)
            if role == "module" or role == "instance":
                self.by_type.setdefault(kind, []).append(thing)

    @functools.cached_property
    def roots(self) -> list[Any]:
        """Modules that are no part of another, and have parameters."""
        parts = {id(part) for module in self.modules for part in (module.__dict__.get("_modules") or {}).values()}
        outermost = (module for module in self.modules if id(module) not in parts)
        return [root for root in outermost if any(one is not None for one in own_parameters(root))]

    def _add_code(self, thing: Any) -> None:
        if not isinstance(thing, types.FunctionType):
            code = next(getattr(thing, f"{kind}_code") for kind in ("gi", "cr", "ag") if hasattr(thing, f"{kind}_code"))
        elif thing.__closure__ or thing.__defaults__:
            code = thing.__code__
        else:
            return
        if is_users(code.co_filename):
            self.by_code.setdefault(code, []).append(thing)

    def _role(self, kind: type) -> str:
        torch = self.torch
        if kind in (*SUSPENDED, types.FunctionType):
            return "code"
        mro = type.__dict__["__mro__"].__get__(kind)
        if torch.Tensor in mro:
            return "tensor"
        if torch.nn.Module in mro:
            return "module"
        if torch.optim.Optimizer in mro:
            return "optimizer"
        if BaseException in mro:
            return "exception"
        module = kind.__module__
        foreign = ("builtins", "types", "typing", "abc", "functools", "weakref", "collections", "enum", "_io")
        if not isinstance(module, str):
            return "other"
        is_own = module.startswith("torch.utils.data") or (module not in foreign and module.split(".")[0] not in ("torch", "stalloc"))
        return "instance" if is_own else "other"

    def address(self, tensor: Any) -> int | None:
        """Where the storage of a tensor of this device begins; None for any other."""
        if (known := self._places.get(id(tensor))) is not None:
            return known
        try:
            if tensor.is_cuda and tensor.device.index == self.device:
                return int(tensor.untyped_storage().data_ptr()) or None
        except Exception:  # noqa: S110 - tensors that have no storage: fake, sparse, of a functorch level
            pass
        return None

    def _add(self, tensor: Any) -> None:
        address = self.address(tensor)
        if address is not None:
            self.tensors.setdefault(address, []).append(tensor)
            self._places[id(tensor)] = address

    @property
    def is_late(self) -> bool:
        """Whether the time for all this is over."""
        return time.thread_time() > self.deadline


class Claims:
    """Which holder each block is of: the first that claims it."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.of: dict[int, Holder] = {}
        self.holders: dict[tuple[str, str], Holder] = {}

    def claim(self, kind: str, name: str, addresses: Iterable[int], line: str | None = None) -> Holder | None:
        """Add blocks to a holder, those that have none yet; a dictionary has the bytes that are used of each."""
        free = [address for address in addresses if address in self.sizes and address not in self.of]
        if not free:
            return None
        holder = self.holders.setdefault((kind, name), Holder(kind, name, line))
        for address in free:
            if address not in self.of:
                self.of[address] = holder
                holder.addresses.append(address)
                holder.used += addresses[address] if isinstance(addresses, dict) else self.sizes[address]
        return holder

    def listed(self) -> list[dict[str, Any]]:
        """The largest holders, as they are written down."""
        size = self.sizes.__getitem__
        named = sorted(self.holders.values(), key=lambda one: -sum(map(size, one.addresses)))
        return [
            vars(one) | {"bytes": sum(map(size, one.addresses)), "tensors": len(one.addresses), "addresses": self._some(one.addresses)}
            for one in named[:MOST_HOLDERS]
        ]

    def _some(self, addresses: list[int]) -> list[int]:
        """The largest; of many that are equally large some evenly over all, so that they tell how long it took to fill."""
        least = sorted((self.sizes[one] for one in addresses), reverse=True)[:MOST_ADDRESSES][-1]
        large = [one for one in addresses if self.sizes[one] >= least]
        chosen = {large[i * len(large) // MOST_ADDRESSES] for i in range(MOST_ADDRESSES)}
        return sorted(chosen, key=self.sizes.__getitem__, reverse=True)


def own_parameters(root: Any) -> Iterator[Any]:
    """The parameters of a module and its parts."""
    return (parameter for module in submodules(root) for parameter in (module.__dict__.get("_parameters") or {}).values())


def submodules(root: Any) -> Iterator[Any]:
    """A module and its parts, each once."""
    seen, waiting = set(), [root]
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        waiting.extend((module.__dict__.get("_modules") or {}).values())


def tensors_in(value: Any, torch: Any, depth: int = MOST_DEPTH, objects: bool = True, most: int = MOST_ITEMS) -> Iterator[Any]:
    """The tensors of nested containers and, where asked for, of whatever the garbage collector reaches from them: objects, closures,
    generators that wait. Never of a whole module, or of a frame that runs."""
    waiting = [(value, depth)]
    seen: set[int] = set()
    for _ in range(most):
        if not waiting:
            return
        item, left = waiting.pop()
        if isinstance(item, torch.Tensor):
            yield item
        elif left > 0 and id(item) not in seen:
            seen.add(id(item))
            if isinstance(item, dict):
                waiting.extend((each, left - 1) for each in list(item.values()))
                waiting.extend((each, left - 1) for each in list(item) if isinstance(each, torch.Tensor))
            elif isinstance(item, CONTAINERS):
                waiting.extend((each, left - 1) for each in list(item))
            elif objects and not isinstance(item, _OPAQUE):
                waiting.extend((each, left - 1) for each in parts_of(item))


def unwrapped(value: Any) -> Any:
    """The container that something wraps, or itself."""
    return value.data if isinstance(value, WRAPPERS) else value


def content_of(value: Any, torch: Any) -> str:
    """The class of what a container has, where these are no tensors or containers of tensors."""
    items = list(value.values() if isinstance(value, dict) else value)[-1:] if isinstance(value, CONTAINERS) else []
    return "".join(type(one).__name__ for one in items if not isinstance(one, (torch.Tensor, *CONTAINERS)))


def parts_of(item: Any) -> list[Any]:
    """What an object refers to; of a function only its closure, its defaults and its attributes."""
    if isinstance(item, types.FunctionType):
        return [item.__defaults__, item.__kwdefaults__, item.__dict__, *(cell.cell_contents for cell in item.__closure__ or () if _is_full(cell))]
    return gc.get_referents(item)


def find(world: World, sizes: dict[int, int], frames: list[types.FrameType]) -> Claims:
    """The holders of blocks. ``sizes``: bytes of each live block by address; ``frames``: what runs, innermost first."""
    claims = Claims(sizes)
    _by_roles(world, claims)
    _by_exceptions(world, claims, frames)
    graphs = _graphs(world, claims)
    _by_names(world, claims, frames, graphs)
    return claims


def _by_roles(world: World, claims: Claims, many: bool = False) -> None:
    """Parameters, buffers, gradients and optimizer states; ``many``: of models of which there are too many to be trained together."""
    torch = world.torch
    often = Counter(type(root) for root in world.roots)
    kinds = ("models", "models", "models") if many else ("parameters", "gradients", "optimizer_states")
    for root in world.roots:
        if (often[type(root)] >= MANY_MODELS) != many:
            continue
        each = f" ({often[type(root)]} models)" if many else ""
        addresses: list[int | None] = []
        buffers: dict[str, list[int | None]] = {}
        gradients: list[int | None] = []
        for module in submodules(root):
            for name in ("_parameters", "_buffers"):
                for own, tensor in (module.__dict__.get(name) or {}).items():
                    if tensor is not None:
                        of = addresses if name == "_parameters" else buffers.setdefault(f"buffer `{own}` of `{type(module).__name__}`", [])
                        of.append(world.address(tensor))
                        if tensor.is_leaf and tensor.grad is not None:
                            gradients.append(world.address(tensor.grad))
        claims.claim(kinds[0], f"parameters of `{type(root).__name__}`{each}", filter(None, addresses))
        for text, places in buffers.items():
            claims.claim("models" if many else "buffer", text, filter(None, places))
        claims.claim(kinds[1], f"gradients of `{type(root).__name__}`{each}", filter(None, gradients))
    for optimizer in world.optimizers if (len(world.optimizers) >= MANY_MODELS) == many else ():
        name = type(optimizer).__name__
        states = (world.address(tensor) for state in list(optimizer.state.values()) for tensor in tensors_in(state, torch))
        claims.claim(kinds[2], f"optimizer states of {name}", filter(None, states))
        held = [tensor for group in optimizer.param_groups for tensor in group.get("params", ()) if isinstance(tensor, torch.Tensor)]
        claims.claim(kinds[0], f"parameters of {name}", filter(None, map(world.address, held)))
        grads = (world.address(tensor.grad) for tensor in held if tensor.is_leaf and tensor.grad is not None)
        claims.claim(kinds[1], f"gradients of {name}'s parameters", filter(None, grads))


def handled() -> list[BaseException]:
    """The exceptions that are being handled: each holds the frames it came through."""
    found: list[BaseException] = []
    error = sys.exc_info()[1]
    while error is not None and error not in found and len(found) < 8:
        found.append(error)
        error = error.__context__ or error.__cause__
    return found


def _by_exceptions(world: World, claims: Claims, frames: list[types.FrameType]) -> None:
    """What the frames of an exception that is handled hold."""
    running = {id(frame) for frame in frames}
    now = handled()
    alike = Counter(type(error) for error in world.exceptions if error not in now)
    for error in [*now, *(one for one in world.exceptions if one not in now)]:
        for frame, line in traceback.walk_tb(error.__traceback__):
            if id(frame) in running:
                continue
            # The frame has ended: what a look at its locals copies goes when it goes.
            tensors = list(tensors_in(dict(frame.f_locals), world.torch, depth=4))
            addresses = [world.address(tensor) for tensor in tensors]
            nodes = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
            _visit(world, nodes, set(), addresses.append)
            place = line_of(frame.f_code, line)
            kept = "`sys.last_value`, an exception" if error is getattr(sys, "last_value", None) else f"a `{type(error).__name__}`"
            which = "the exception being handled" if error in now else f"{kept} that is kept"
            count = alike[type(error)]
            name = f"{which} (traceback frame {place})" + (f", one of {count}" if error not in now and count >= MANY_MODELS else "")
            claims.claim("exception", name, filter(None, addresses), place)


@dataclass
class Graph:
    """An autograd graph that a tensor is the end of."""

    tensor: Any
    blocks: list[int]
    #: How often one parameter takes part: in as many forward passes, or steps of a recurrent network.
    passes: int
    #: Whether it ends in no parameter that an optimizer has, while there are optimizers.
    is_untrained: bool


#: By the class of a node the names of what it saves.
_saved: dict[Any, tuple[str, ...]] = {}


def _saved_names(kind: Any) -> tuple[str, ...]:
    if kind not in _saved:
        _saved[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return _saved[kind]


def _visit(world: World, roots: list[Any], seen: set[Any], found: Any) -> dict[Any, int]:
    """Visit the nodes of graphs, once each; the addresses of what they save go to ``found``. How often leaves are used."""
    waiting = list(roots)
    leaves: dict[Any, int] = {}
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) % 256 == 0 and world.is_late:
            break
        for name in _saved_names(type(node)):
            try:
                saved = getattr(node, name)
                for one in saved if isinstance(saved, (tuple, list)) else (saved,):
                    data = getattr(one, "data", None)
                    if isinstance(data, world.torch.Tensor):
                        found(world.address(data))
            except Exception:  # noqa: S110 - freed already, or of a kind that has none
                pass
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following.name().endswith("AccumulateGrad"):
                leaves[following] = leaves.get(following, 0) + 1
            else:
                waiting.append(following)
    return leaves


def _graphs(world: World, claims: Claims) -> list[Graph]:
    """The autograd graphs, each with what only it saves; of two that share nodes the later one has them."""
    ends = [tensor for tensors in world.tensors.values() for tensor in tensors if tensor.grad_fn is not None]
    ends.sort(key=lambda tensor: -tensor.grad_fn._sequence_nr() if hasattr(tensor.grad_fn, "_sequence_nr") else 0)
    seen: set[Any] = set()
    trained = {id(one) for optimizer in world.optimizers for group in optimizer.param_groups for one in group["params"]}
    graphs = []
    for tensor in ends:
        if tensor.grad_fn in seen or world.is_late:
            continue
        blocks: list[int | None] = []
        leaves = _visit(world, [tensor.grad_fn], seen, blocks.append)
        is_untrained = bool(trained and leaves) and all(id(leaf.variable) not in trained for leaf in leaves)
        found = list({address for address in blocks if address})
        graphs.append(Graph(tensor, found, max(leaves.values(), default=0), is_untrained))
    return graphs


def _by_names(world: World, claims: Claims, frames: list[types.FrameType], graphs: list[Graph]) -> None:
    """What variables, attributes and closures hold, and graphs by the name of the tensor that ends them."""
    names = Names(world, frames)
    names.look()
    containers = [name for name in names.containers if isinstance(name.values[0], CONTAINERS)]
    for name in (one for one in containers if not one.is_each):
        _claim_name(world, claims, name, inside=False)
    # What is in objects inside of containers is of those that have most.
    whole: set[int] = set()
    for name in sorted(containers, key=lambda one: -sum(map(len, one.values))):
        if not world.is_late and not name.is_each and sum(map(len, name.values)) >= MANY_MODELS:
            _claim_name(world, claims, name)
            whole.add(id(name))
    _claim_graphs(world, claims, graphs, names)
    for name in sorted((one for one in [*names.containers, *names.tensors] if id(one) not in whole), key=lambda one: one.is_each):
        _claim_name(world, claims, name)
    _by_roles(world, claims, many=True)
    left = [address for address in world.tensors if address in claims.sizes and address not in claims.of]
    claims.claim("local", "a local variable, or an operation that runs", left)


def _claim_name(world: World, claims: Claims, name: Name, inside: bool = True) -> None:
    holder = claims.claim(name.kind, name.text, _addresses(world, name.values, inside), name.line)
    if holder is not None:
        holder.is_bounded, holder.is_each, holder.content = name.is_bounded, name.is_each, content_of(name.values[0], world.torch)


def _claim_graphs(world: World, claims: Claims, graphs: list[Graph], names: Names) -> None:
    """Graphs whose ends one container holds are one holder."""
    by_end: dict[int, Name] = {}
    for name in [*names.tensors, *names.containers]:
        for tensor in tensors_in(name.values, world.torch):
            if tensor.grad_fn is not None:
                by_end[id(tensor)] = name
    for graph in sorted(graphs, key=lambda graph: -sum(claims.sizes.get(address, 0) for address in graph.blocks)):
        found = by_end.get(id(graph.tensor))
        kind = "graph_of_many" if graph.passes >= 3 else "graph"
        if found is not None and not found.is_tensor:
            holder = claims.claim("graph_of_many", f"autograd graphs of {found.text}", graph.blocks, found.line)
        elif found is not None:
            holder = claims.claim(kind, f"autograd graph of {found.variable}, {found.line}", graph.blocks, found.line)
        else:
            holder = claims.claim(kind, f"autograd graph of a result of `{_operation(graph.tensor.grad_fn)}`", graph.blocks)
            end = world.address(graph.tensor)
            if holder is not None and end is not None and len(holder.ends) < MOST_ADDRESSES:
                holder.ends.append(end)
        if holder is not None:
            holder.is_untrained = graph.is_untrained


def _addresses(world: World, values: list[Any], inside: bool = True) -> dict[int, int]:
    """Where tensors lie, with the bytes that they use there; ``inside``: also those in objects."""
    return used_by(world, (tensor for value in values for tensor in tensors_in(value, world.torch, objects=inside)))


def used_by(world: World, tensors: Iterable[Any]) -> dict[int, int]:
    """Where some tensors lie, and the bytes that they use of what is kept there."""
    found: dict[int, int] = {}
    for tensor in tensors:
        address = world.address(tensor)
        if address is not None:
            found[address] = found.get(address, 0) + tensor.nbytes
    return found


def _operation(node: Any) -> str:
    """`LayerNorm` of `NativeLayerNormBackward0`."""
    name = str(node.name()).split("::")[-1]
    name = name.removeprefix("torch").split("Backward")[0].removeprefix("Native")
    return name or "unknown"


@dataclass
class Name:
    """What holds tensors, by name."""

    kind: str
    text: str
    line: str | None
    variable: str
    #: What is held by that name.
    values: list[Any]
    is_tensor: bool = False
    is_bounded: bool = False
    is_each: bool = False


class Names:
    """Everything that has a name and holds tensors: variables of modules, attributes of objects, closures of hooks."""

    def __init__(self, world: World, frames: list[types.FrameType]) -> None:
        self._world = world
        self.hooks = _hooks(world)
        self.containers: list[Name] = []
        self.tensors: list[Name] = []
        self._scopes: dict[int, tuple[dict[str, Any], str]] = {}
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None) or ""
            if isinstance(module, types.ModuleType) and (is_users(file) or module.__name__ == "__main__"):
                self._scopes[id(module.__dict__)] = (module.__dict__, file)
        for frame in frames:
            if is_users(frame.f_code.co_filename):
                self._scopes[id(frame.f_globals)] = (frame.f_globals, str(frame.f_globals.get("__file__") or frame.f_code.co_filename))

    def look(self) -> None:
        """Look at all of them."""
        for function in self.hooks.functions:
            self.of_function(function)
        for scope, file in self._scopes.values():
            for variable, value in list(scope.items()):
                self._of_variable(value, variable, file)
        # The program's own classes first: there may be no time for all.
        for kind, things in sorted(self._world.by_type.items(), key=lambda one: not _is_users_class(one[0])):
            if self._world.is_late:
                return
            if _is_users_class(kind):
                self._of_class(kind)
            self._of_objects(kind, things)
        for code, things in self._world.by_code.items():
            holding = [thing for thing in things if not self._world.is_late and self._holds([thing])]
            if len(holding) == 1 and isinstance(holding[0], types.FunctionType):
                self.of_function(holding[0])
            elif holding:
                self._of_code(code, holding)

    def _holds(self, value: Any, inside: bool = True) -> bool:
        world = self._world
        if isinstance(value, world.torch.Tensor):
            return world.address(value) is not None
        value = unwrapped(value)
        if not isinstance(value, CONTAINERS) or not value:
            return False
        return any(world.address(tensor) is not None for tensor in tensors_in(value, world.torch, objects=inside, most=MOST_TRIED))

    def _add(self, name: Name) -> None:
        (self.tensors if name.is_tensor else self.containers).append(name)

    def _of_variable(self, value: Any, variable: str, file: str) -> None:
        if type(value).__name__ == "_lru_cache_wrapper":
            self._of_cache(value)
        elif isinstance(value, types.FunctionType):
            if not self._world.is_late:
                self.of_function(value)
                for attribute, kept in list(vars(value).items()):
                    if attribute != "__wrapped__":
                        self._of_variable(kept, f"{variable}.{attribute}", file)
        elif not variable.startswith("__") and self._holds(value):
            line = _bound_at(file, variable)
            place = f"{short(file)}:{line}" if line else short(file)
            # A result of the step that runs has a name in a script, and is not kept for all that.
            kind = "variable" if getattr(value, "grad_fn", None) is not None else "container"
            self._add(self._named(value, variable, place, f" in {place}", kind))

    def _of_code(self, code: types.CodeType, things: list[Any]) -> None:
        kind = "closure" if isinstance(things[0], types.FunctionType) else type(things[0]).__name__
        name = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
        what = "closure of" if kind == "closure" else kind.replace("_", " ")
        many = f" ({len(things)} of them)" if len(things) > 1 else ""
        self._add(Name(kind, f"{what} `{name}` at {line_of(code)}{many}", line_of(code), f"`{name}`", things, is_each=True))

    def _named(self, value: Any, variable: str, place: str, where: str, kind: str) -> Name:
        is_tensor = isinstance(value, self._world.torch.Tensor)
        hook = None if is_tensor or kind in ("hook", "closure") else self.hooks.fills.get(id(value))
        filled = f", filled by hook at {hook}" if hook else ""
        what = "tensor" if is_tensor else type(value).__name__
        values = [unwrapped(value)]
        return Name("hook" if hook else kind, f"{what} `{variable}`{where}{filled}", hook or place, f"`{variable}`", values, is_tensor and kind != "hook")

    def _of_cache(self, wrapper: Any) -> None:
        function = getattr(wrapper, "__wrapped__", None)
        code = getattr(function, "__code__", None)
        place = line_of(code) if code else None
        at = f" at {place}" if place else ""
        values = [thing for thing in gc.get_referents(wrapper) if isinstance(thing, dict)]
        if self._holds(values):
            self._add(Name("cache", f"lru_cache of `{getattr(function, '__qualname__', 'a function')}`{at}", place, "lru_cache", values))

    def of_function(self, function: types.FunctionType) -> None:
        """What the closure of a function and its default arguments hold."""
        code = function.__code__
        place = line_of(code)
        is_hook = id(function) in self.hooks.fills
        where = f" in the closure of hook at {place}" if is_hook else f" in the closure of `{function.__qualname__}` at {place}"
        for variable, cell in zip(code.co_freevars, function.__closure__ or ()):
            if _is_full(cell) and self._holds(cell.cell_contents):
                self._add(self._named(cell.cell_contents, variable, place, where, "hook" if is_hook else "closure"))
        if self._holds(function.__defaults__):
            self._add(Name("closure", f"default arguments of `{function.__qualname__}` at {place}", place, "a default", [function.__defaults__]))

    def _of_class(self, kind: type) -> None:
        """Variables of a class that all of its objects share."""
        for variable, value in list(vars(kind).items()):
            if type(value).__name__ == "_lru_cache_wrapper":
                self._of_cache(value)
            elif isinstance(value, (self._world.torch.Tensor, *CONTAINERS)) and self._holds(value):
                place = _class_line(kind, variable)
                text = f"{type(value).__name__} `{kind.__name__}.{variable}`" + (f" in {place}" if place else "")
                self._add(Name("container", text, place, f"`{kind.__name__}.{variable}`", [value]))

    def _of_objects(self, kind: type, things: list[Any]) -> None:
        """Attributes of all objects of a class, by attribute."""
        held: dict[str, list[Any]] = {}
        inside = _is_users_class(kind)
        slots = [name for one in type.mro(kind) for name, slot in vars(one).items() if isinstance(slot, types.MemberDescriptorType)]
        for thing in things:
            attributes = getattr(thing, "__dict__", None)
            attributes = attributes if isinstance(attributes, dict) else {}
            if slots:
                attributes = {**attributes, **{slot: getattr(thing, slot, None) for slot in slots}}
            for attribute, value in list(attributes.items()):
                value = unwrapped(value)
                if attribute not in _OWN and isinstance(value, (self._world.torch.Tensor, *CONTAINERS)) and self._holds(value, inside):
                    held.setdefault(attribute, []).append(value)
        for attribute, values in held.items():
            many = f" ({len(values)} of them)" if len(values) > 1 else ""
            hook = next((self.hooks.fills[id(value)] for value in values if id(value) in self.hooks.fills), None)
            what = "" if isinstance(values[0], self._world.torch.Tensor) else f"{type(values[0]).__name__} "
            filled = f", filled by hook at {hook}" if hook else ""
            text = f"{what}`self.{attribute}` of `{kind.__name__}`{many}{filled}"
            role = "hook" if hook else "dataset" if self._is_dataset(kind) else "queue" if kind.__name__.endswith("Queue") else "attribute"
            one = Name(role, text, hook or _class_line(kind, attribute), f"`self.{attribute}` of `{kind.__name__}`", values)
            torch = self._world.torch
            if role == "attribute" and len(values) >= MANY_MODELS and _are_garbage(self._world, kind):
                one.kind, one.text = "garbage", f"{text}, in reference cycles that nothing else refers to"
            are_tensors = all(isinstance(value, torch.Tensor) for value in values)
            one.is_bounded = are_tensors and issubclass(kind, torch.nn.Module)
            one.is_each = len(values) >= MANY_MODELS and not issubclass(kind, torch.nn.Module) and one.kind == "attribute"
            self._add(one)

    def _is_dataset(self, kind: type) -> bool:
        data = sys.modules.get("torch.utils.data")
        return data is not None and any(base in kind.__mro__ for base in (data.Dataset, data.IterableDataset))


def _are_garbage(world: World, kind: type) -> bool:
    """Whether the objects of a class wait for the garbage collector: most of those that are tried are referred to by each other alone."""
    count = len(world.by_type[kind])
    tried = [_is_garbage(world, kind, count * part // 4) for part in range(4)]
    return sum(tried) >= 3


def _is_garbage(world: World, kind: type, index: int) -> bool:
    ours = {id(things) for things in world.by_type.values()}
    things = {id(world.by_type[kind][index]): world.by_type[kind][index]}
    new = list(things.values())
    while new:
        above = gc.get_referrers(*new)
        if len(things) > 64 or world.is_late:
            return False
        ours.update((id(new), id(things), id(above)))
        new = [one for one in above if id(one) not in things and id(one) not in ours]
        if any(isinstance(one, (types.FrameType, types.ModuleType)) for one in new):
            return False
        things.update((id(one), one) for one in new)
    within = Counter(id(one) for thing in things.values() for one in gc.get_referents(thing))
    # Those of the dictionary, of the loop, of the call, and of the list of its class are ours.
    new = above = []
    for key in list(things):
        listed = int(type(things[key]) in world.by_type)
        if sys.getrefcount(things[key]) - 2 - listed > within[key]:
            return False
    return True


#: Attributes of modules and optimizers that have names of their own.
_OWN = ("_parameters", "_buffers", "_modules", "param_groups", "state", "grad", "_grad")


@dataclass
class Hooks:
    """The hooks that modules have."""

    functions: list[types.FunctionType] = field(default_factory=list)
    #: By the id of what a hook can fill, and of the hook: where the hook is.
    fills: dict[int, str] = field(default_factory=dict)


def _hooks(world: World) -> Hooks:
    found = Hooks()
    for module in world.modules:
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            for hook in list((module.__dict__.get(name) or {}).values()):
                _note_hook(hook, found)
    for parameter in (one for root in world.roots for one in own_parameters(root) if one is not None):
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            for hook in list((getattr(parameter, name, None) or {}).values()):
                _note_hook(hook, found)
    return found


def _note_hook(hook: Any, found: Hooks) -> None:
    function = hook
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return
    place = line_of(code)
    if id(function) not in found.fills:
        found.functions.append(function)
    found.fills[id(function)] = place
    reached = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    reached += [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    reached += list(function.__defaults__ or ())
    if owner is not None:
        reached += list(getattr(owner, "__dict__", {}).values())
    # What it names of the objects that it reaches.
    reached += [vars(thing)[name] for thing in reached if hasattr(thing, "__dict__") for name in code.co_names if name in vars(thing)]
    for thing in reached:
        if isinstance(thing, CONTAINERS):
            found.fills[id(thing)] = place


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _parsed(file: str) -> ast.Module | None:
    try:
        if os.path.getsize(file) > 4 << 20:
            return None
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _bound_at(file: str, variable: str, of_class: str | None = None) -> int | None:
    """The line where a module binds a variable first, or a class an attribute of itself."""
    tree = _parsed(file)
    outer = [node for node in ast.walk(tree) if not of_class or isinstance(node, ast.ClassDef) and node.name == of_class] if tree else []
    nodes = (node for one in (outer if of_class else outer[:1]) for node in ast.walk(one) if isinstance(getattr(node, "ctx", None), ast.Store))
    lines = [node.lineno for node in nodes if variable == getattr(node, "id", None) or of_class and variable == getattr(node, "attr", None)]  # type: ignore[attr-defined]
    return min(lines, default=None)


def _is_users_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or is_users(file)


def _class_line(kind: type, attribute: str) -> str | None:
    """The line where a class binds an attribute of itself first."""
    file: str | None = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        code = next((value.__code__ for value in vars(kind).values() if isinstance(value, types.FunctionType)), None)
        file = code.co_filename if code else None
    line = _bound_at(file, attribute, kind.__name__) if file else None
    return f"{short(file or '')}:{line}" if line else None
