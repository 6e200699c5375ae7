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
import types
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator

from stalloc._common.users import is_users
from stalloc._out_of_memory.limits import Apart, Deadline
from stalloc._out_of_memory.objects import (
    CONTAINERS, Tensors, attributes, cause_of, context_of, ended_frames, is_a, items, keys, length, locals_of, module_of, mro_of, name_of, named, scope_of,
    text, traceback_of, unwrapped, variables,
)

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

#: What may wait with variables of its own.
SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
#: What `functools.lru_cache` makes of a function.
_CACHED = type(functools.lru_cache(lambda: None))
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

    def __init__(self, torch: Any, device: int, deadline: Deadline) -> None:
        self.torch = torch
        self.device = device
        self.deadline = deadline
        self.is_tensor = Tensors(torch)
        self.apart = Apart()
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        #: Tensors by the address of their storage.
        self.tensors: dict[int, list[Any]] = {}
        #: By the id of each of these tensors, where its storage begins.
        self._places: dict[int, int] = {}
        #: Objects by the id of their class: to hash a class is to ask its metaclass.
        self.by_type: dict[int, list[Any]] = {}
        #: Generators and coroutines that wait, and functions with a closure, by the id of their code.
        self.by_code: dict[int, tuple[types.CodeType, list[Any]]] = {}
        #: Exceptions with a traceback.
        self.exceptions: list[BaseException] = []

    def look(self) -> World:
        """Look at all that the garbage collector knows."""
        roles: dict[int, str] = {}
        for count, thing in enumerate(gc.get_objects()):
            if count % 65536 == 65535 and self.is_late:
                break
            kind = type(thing)
            if id(kind) not in roles:
                roles[id(kind)] = "other"
                with self.apart:
                    roles[id(kind)] = self._role(kind)
            if (role := roles[id(kind)]) != "other":
                with self.apart:
                    self._sort(thing, role)
        return self

    def _sort(self, thing: Any, role: str) -> None:
        if role == "tensor":
            self._add(thing)
        elif role == "module":
            self.modules.append(thing)
        elif role == "optimizer":
            self.optimizers.append(thing)
        elif role == "exception" and traceback_of(thing) is not None:
            self.exceptions.append(thing)
        elif role == "code":
            self._add_code(thing)
        if role == "module" or role == "instance":
            self.by_type.setdefault(id(type(thing)), []).append(thing)

    @functools.cached_property
    def roots(self) -> list[Any]:
        """Modules that are no part of another, and have parameters."""
        parts = {id(part) for module in self.modules for part in items(attributes(module).get("_modules"))}
        outermost = (module for module in self.modules if id(module) not in parts)
        return [root for root in outermost if any(one is not None for one in own_parameters(root))]

    def _add_code(self, thing: Any) -> None:
        if type(thing) is not types.FunctionType:
            code = next(getattr(thing, f"{kind}_code") for kind in ("gi", "cr", "ag") if hasattr(thing, f"{kind}_code"))
        elif thing.__closure__ or thing.__defaults__:
            code = thing.__code__
        else:
            return
        if is_users(code.co_filename):
            self.by_code.setdefault(id(code), (code, []))[1].append(thing)

    def _role(self, kind: type) -> str:
        torch = self.torch
        if any(kind is one for one in (*SUSPENDED, types.FunctionType)):
            return "code"
        known = ((torch.Tensor, "tensor"), (torch.nn.Module, "module"), (torch.optim.Optimizer, "optimizer"), (BaseException, "exception"))
        for base, role in known:
            if type.__subclasscheck__(base, kind):
                return role
        module = module_of(kind)
        foreign = ("", "builtins", "types", "typing", "abc", "functools", "weakref", "collections", "enum", "_io")
        is_own = module.startswith("torch.utils.data") or (module not in foreign and module.split(".")[0] not in ("torch", "stalloc"))
        return "instance" if is_own else "other"

    def address(self, tensor: Any) -> int | None:
        """Where the storage of a tensor of this device begins; None for any other."""
        if (known := self._places.get(id(tensor))) is not None:
            return known
        try:
            read = self.is_tensor.read
            if read(tensor, "is_cuda") and read(tensor, "device").index == self.device:
                return int(read(tensor, "untyped_storage")().data_ptr()) or None
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
        return self.deadline.is_over


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
    return (parameter for module in submodules(root) for parameter in items(attributes(module).get("_parameters")))


def submodules(root: Any) -> Iterator[Any]:
    """A module and its parts, each once."""
    seen, waiting = set(), [root]
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        waiting.extend(items(attributes(module).get("_modules")))


def tensors_in(value: Any, world: World, depth: int = MOST_DEPTH, objects: bool = True, most: int = MOST_ITEMS) -> Iterator[Any]:
    """The tensors of nested containers and, where asked for, of whatever the garbage collector reaches from them: objects, closures,
    generators that wait. Never of a whole module, or of a frame that runs."""
    waiting = [(value, depth)]
    seen: set[int] = set()
    for count in range(most):
        if not waiting or count % 4096 == 4095 and world.deadline.is_far_over:
            return
        item, left = waiting.pop()
        if world.is_tensor(item):
            yield item
        elif left > 0 and id(item) not in seen:
            seen.add(id(item))
            if is_a(item, *CONTAINERS):
                waiting.extend((each, left - 1) for each in [*items(item), *filter(world.is_tensor, keys(item))])
            elif objects and not is_a(item, *_OPAQUE):
                waiting.extend((each, left - 1) for each in parts_of(item))


def content_of(value: Any, is_tensor: Tensors) -> str:
    """The class of what a container has, where these are no tensors or containers of tensors."""
    return "".join(name_of(type(one)) for one in items(value)[-1:] if not is_tensor(one) and not is_a(one, *CONTAINERS))


def parts_of(item: Any) -> list[Any]:
    """What an object refers to; of a function only its closure, its defaults and its attributes."""
    if type(item) is types.FunctionType:
        return [item.__defaults__, item.__kwdefaults__, item.__dict__, *(cell.cell_contents for cell in item.__closure__ or () if _is_full(cell))]
    return gc.get_referents(item)


def find(world: World, sizes: dict[int, int], frames: list[types.FrameType]) -> Claims:
    """The holders of blocks. ``sizes``: bytes of each live block by address; ``frames``: what runs, innermost first."""
    claims = Claims(sizes)
    with world.apart:
        _by_roles(world, claims)
    with world.apart:
        _by_exceptions(world, claims, frames)
    graphs: list[Graph] = []
    with world.apart:
        _graphs(world, graphs)
    with world.apart:
        _by_names(world, claims, frames, graphs)
    with world.apart:
        left = [address for address in world.tensors if address in claims.sizes and address not in claims.of]
        claims.claim("local", "a local variable, or an operation that runs", left)
    return claims


def _by_roles(world: World, claims: Claims, many: bool = False) -> None:
    """Parameters, buffers, gradients and optimizer states; ``many``: of models of which there are too many to be trained together."""
    often = Counter(id(type(root)) for root in world.roots)
    for root in world.roots:
        if (often[id(type(root))] >= MANY_MODELS) == many:
            with world.apart:
                _by_module(world, claims, root, often[id(type(root))] if many else 0)
    for optimizer in world.optimizers if (len(world.optimizers) >= MANY_MODELS) == many else ():
        with world.apart:
            _by_optimizer(world, claims, optimizer, many)


def _by_module(world: World, claims: Claims, root: Any, many: int) -> None:
    each = f" ({many} models)" if many else ""
    addresses: list[int | None] = []
    buffers: dict[str, list[int | None]] = {}
    tensors: list[Any] = []
    for module in submodules(root):
        own = attributes(module)
        for name in ("_parameters", "_buffers"):
            for variable, tensor in named(own.get(name)).items():
                if world.is_tensor(tensor):
                    of = addresses if name == "_parameters" else buffers.setdefault(f"buffer `{variable}` of `{name_of(type(module))}`", [])
                    of.append(world.address(tensor))
                    tensors.append(tensor)
    kind = name_of(type(root))
    claims.claim("models" if many else "parameters", f"parameters of `{kind}`{each}", filter(None, addresses))
    for label, places in buffers.items():
        claims.claim("models" if many else "buffer", label, filter(None, places))
    claims.claim("models" if many else "gradients", f"gradients of `{kind}`{each}", gradients(world, tensors))


def _by_optimizer(world: World, claims: Claims, optimizer: Any, many: bool) -> None:
    name = name_of(type(optimizer))
    kinds = ("models", "models", "models") if many else ("optimizer_states", "parameters", "gradients")
    states = (world.address(tensor) for state in items(attributes(optimizer).get("state")) for tensor in tensors_in(state, world))
    claims.claim(kinds[0], f"optimizer states of {name}", filter(None, states))
    held = optimized(world, optimizer)
    claims.claim(kinds[1], f"parameters of {name}", filter(None, map(world.address, held)))
    claims.claim(kinds[2], f"gradients of {name}'s parameters", gradients(world, held))


def optimized(world: World, optimizer: Any) -> list[Any]:
    """The parameters that an optimizer has."""
    groups = items(attributes(optimizer).get("param_groups"))
    return [tensor for group in groups for tensor in items(named(group).get("params")) if world.is_tensor(tensor)]


def gradients(world: World, tensors: list[Any]) -> list[int]:
    """Where the gradients of some tensors lie."""
    read = world.is_tensor.read
    found = (world.address(grad) for one in tensors if read(one, "is_leaf") and (grad := read(one, "grad")) is not None)
    return [address for address in found if address]


def handled() -> list[BaseException]:
    """The exceptions that are being handled: each holds the frames it came through."""
    found: list[BaseException] = []
    error = sys.exc_info()[1]
    while error is not None and not is_one_of(error, found) and len(found) < 8:
        found.append(error)
        context = context_of(error)
        error = cause_of(error) if context is None else context
    return found


def is_one_of(thing: Any, things: list[Any]) -> bool:
    """Whether a list has the very object."""
    return any(thing is one for one in things)


def _by_exceptions(world: World, claims: Claims, frames: list[types.FrameType]) -> None:
    """What the frames of an exception that is handled hold."""
    running = {id(frame) for frame in frames}
    now = handled()
    kept = [error for error in world.exceptions if not is_one_of(error, now)]
    alike = Counter(id(type(error)) for error in kept)
    for error in [*now, *kept]:
        kind, count = name_of(type(error)), 0 if is_one_of(error, now) else alike[id(type(error))]
        which = f"{'`sys.last_value`, an exception' if error is getattr(sys, 'last_value', None) else f'a `{kind}`'} that is kept"
        for frame, line in ended_frames(error):
            if id(frame) not in running and not world.is_late:
                with world.apart:
                    place = line_of(frame.f_code, line)
                    name = f"{which if count else 'the exception being handled'} (traceback frame {place})"
                    claims.claim("exception", name + (f", one of {count}" if count >= MANY_MODELS else ""), _of_frame(world, frame), place)


def _of_frame(world: World, frame: types.FrameType) -> list[int]:
    """What a frame that has ended holds: what a look at its locals copies goes when it goes."""
    tensors = list(tensors_in(locals_of(frame), world, depth=4))
    addresses = [world.address(tensor) for tensor in tensors]
    nodes = [node for tensor in tensors if (node := world.is_tensor.read(tensor, "grad_fn")) is not None]
    _visit(world, nodes, set(), addresses.append)
    return [address for address in addresses if address]


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
                for one in saved if type(saved) in (tuple, list) else (saved,):
                    data = getattr(one, "data", None)
                    if world.is_tensor(data):
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


def _graphs(world: World, graphs: list[Graph]) -> None:
    """The autograd graphs, each with what only it saves; of two that share nodes the later one has them."""
    ends = [(tensor, node) for tensors in world.tensors.values() for tensor in tensors if (node := world.is_tensor.read(tensor, "grad_fn")) is not None]
    ends.sort(key=lambda one: -one[1]._sequence_nr() if hasattr(one[1], "_sequence_nr") else 0)
    seen: set[Any] = set()
    trained = {id(one) for optimizer in world.optimizers for one in optimized(world, optimizer)}
    for tensor, node in ends:
        if node in seen or world.is_late:
            continue
        with world.apart:
            blocks: list[int | None] = []
            leaves = _visit(world, [node], seen, blocks.append)
            is_untrained = bool(trained and leaves) and all(id(leaf.variable) not in trained for leaf in leaves)
            found = list({address for address in blocks if address})
            graphs.append(Graph(tensor, found, max(leaves.values(), default=0), is_untrained))


def _by_names(world: World, claims: Claims, frames: list[types.FrameType], graphs: list[Graph]) -> None:
    """What variables, attributes and closures hold, and graphs by the name of the tensor that ends them."""
    names = Names(world, frames)
    names.look()
    containers = [name for name in names.containers if is_a(name.values[0], *CONTAINERS)]
    for name in (one for one in containers if not one.is_each):
        _claim_name(world, claims, name, inside=False)
    # What is in objects inside of containers is of those that have most.
    whole: set[int] = set()
    for name in sorted(containers, key=lambda one: -sum(map(length, one.values))):
        if not world.is_late and not name.is_each and sum(map(length, name.values)) >= MANY_MODELS:
            _claim_name(world, claims, name)
            whole.add(id(name))
    _claim_graphs(world, claims, graphs, names)
    for name in sorted((one for one in [*names.containers, *names.tensors] if id(one) not in whole), key=lambda one: one.is_each):
        _claim_name(world, claims, name)
    _by_roles(world, claims, many=True)


def _claim_name(world: World, claims: Claims, name: Name, inside: bool = True) -> None:
    holder = claims.claim(name.kind, name.text, _addresses(world, name.values, inside), name.line)
    if holder is not None:
        holder.is_bounded, holder.is_each, holder.content = name.is_bounded, name.is_each, content_of(name.values[0], world.is_tensor)


def _claim_graphs(world: World, claims: Claims, graphs: list[Graph], names: Names) -> None:
    """Graphs whose ends one container holds are one holder."""
    by_end: dict[int, Name] = {}
    for name in [*names.tensors, *names.containers]:
        for tensor in tensors_in(name.values, world):
            if world.is_tensor.read(tensor, "grad_fn") is not None:
                by_end[id(tensor)] = name
    for graph in sorted(graphs, key=lambda graph: -sum(claims.sizes.get(address, 0) for address in graph.blocks)):
        found = by_end.get(id(graph.tensor))
        kind = "graph_of_many" if graph.passes >= 3 else "graph"
        if found is not None and not found.is_tensor:
            holder = claims.claim("graph_of_many", f"autograd graphs of {found.text}", graph.blocks, found.line)
        elif found is not None:
            holder = claims.claim(kind, f"autograd graph of {found.variable}, {found.line}", graph.blocks, found.line)
        else:
            made_by = _operation(world.is_tensor.read(graph.tensor, "grad_fn"))
            holder = claims.claim(kind, f"autograd graph of a result of `{made_by}`", graph.blocks)
            end = world.address(graph.tensor)
            if holder is not None and end is not None and len(holder.ends) < MOST_ADDRESSES:
                holder.ends.append(end)
        if holder is not None:
            holder.is_untrained = graph.is_untrained


def _addresses(world: World, values: list[Any], inside: bool = True) -> dict[int, int]:
    """Where tensors lie, with the bytes that they use there; ``inside``: also those in objects."""
    return used_by(world, (tensor for value in values for tensor in tensors_in(value, world, objects=inside)))


def used_by(world: World, tensors: Iterable[Any]) -> dict[int, int]:
    """Where some tensors lie, and the bytes that they use of what is kept there."""
    found: dict[int, int] = {}
    for tensor in tensors:
        address = world.address(tensor)
        if address is not None:
            found[address] = found.get(address, 0) + world.is_tensor.bytes_of(tensor)
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
        kinds = ((type(things[0]), things) for things in self._world.by_type.values())
        for kind, things in sorted(kinds, key=lambda one: not _is_users_class(one[0])):
            if self._world.is_late:
                return
            with apart:
                if _is_users_class(kind):
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
            line = _bound_at(file, variable)
            place = f"{short(file)}:{line}" if line else short(file)
            # A result of the step that runs has a name in a script, and is not kept for all that.
            is_result = self._world.is_tensor(value) and self._world.is_tensor.read(value, "grad_fn") is not None
            kind = "variable" if is_result else "container"
            self._add(self._named(value, variable, place, f" in {place}", kind))

    def _of_code(self, code: types.CodeType, things: list[Any]) -> None:
        kind = "closure" if type(things[0]) is types.FunctionType else name_of(type(things[0]))
        name = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
        what = "closure of" if kind == "closure" else kind.replace("_", " ")
        many = f" ({len(things)} of them)" if len(things) > 1 else ""
        self._add(Name(kind, f"{what} `{name}` at {line_of(code)}{many}", line_of(code), f"`{name}`", things, is_each=True))

    def _named(self, value: Any, variable: str, place: str, where: str, kind: str) -> Name:
        is_tensor = self._world.is_tensor(value)
        hook = None if is_tensor or kind in ("hook", "closure") else self.hooks.fills.get(id(value))
        filled = f", filled by hook at {hook}" if hook else ""
        what = "tensor" if is_tensor else name_of(type(value))
        values = [unwrapped(value)]
        return Name("hook" if hook else kind, f"{what} `{variable}`{where}{filled}", hook or place, f"`{variable}`", values, is_tensor and kind != "hook")

    def _of_cache(self, wrapper: Any) -> None:
        function: Any = attributes(wrapper).get("__wrapped__")
        place, at = None, "`a function`"
        if type(function) is types.FunctionType:
            place, at = line_of(function.__code__), f"`{function.__qualname__}` at {line_of(function.__code__)}"
        values = [thing for thing in gc.get_referents(wrapper) if is_a(thing, dict)]
        if self._holds(values):
            self._add(Name("cache", f"lru_cache of {at}", place, "lru_cache", values))

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
        for variable, value in variables(kind).items():
            if type(value) is _CACHED:
                self._of_cache(value)
            elif is_a(value, self._world.torch.Tensor, *CONTAINERS) and self._holds(value):
                place, name = _class_line(kind, variable), f"`{name_of(kind)}.{variable}`"
                self._add(Name("container", f"{name_of(type(value))} {name}" + (f" in {place}" if place else ""), place, name, [value]))

    def _of_objects(self, kind: type, things: list[Any]) -> None:
        """Attributes of all objects of a class, by attribute."""
        held: dict[str, list[Any]] = {}
        inside = _is_users_class(kind)
        slots = [(name, slot) for one in mro_of(kind) for name, slot in variables(one).items() if type(slot) is types.MemberDescriptorType]
        for thing in things:
            if self._world.is_late:
                break
            with self._world.apart:
                for attribute, value in [*attributes(thing).items(), *((name, _slot(slot, thing)) for name, slot in slots)]:
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
            role = "hook" if hook else "dataset" if self._is_dataset(kind) else "queue" if own.endswith("Queue") else "attribute"
            one = Name(role, label, hook or _class_line(kind, attribute), f"`self.{attribute}` of `{own}`", values)
            is_module = type.__subclasscheck__(self._world.torch.nn.Module, kind)
            if role == "attribute" and len(values) >= MANY_MODELS and _are_garbage(self._world, kind):
                one.kind, one.text = "garbage", f"{label}, in reference cycles that nothing else refers to"
            one.is_bounded = is_module and all(map(is_tensor, values))
            one.is_each = len(values) >= MANY_MODELS and not is_module and one.kind == "attribute"
            self._add(one)

    def _is_dataset(self, kind: type) -> bool:
        data = sys.modules.get("torch.utils.data")
        return data is not None and any(type.__subclasscheck__(base, kind) for base in (data.Dataset, data.IterableDataset))


def _are_garbage(world: World, kind: type) -> bool:
    """Whether the objects of a class wait for the garbage collector: most of those that are tried are referred to by each other alone."""
    count = len(world.by_type[id(kind)])
    tried = [_is_garbage(world, kind, count * part // 4) for part in range(4)]
    return sum(tried) >= 3


def _is_garbage(world: World, kind: type, index: int) -> bool:
    ours = {id(things) for things in world.by_type.values()}
    things = {id(world.by_type[id(kind)][index]): world.by_type[id(kind)][index]}
    new = list(things.values())
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
    # Those of the dictionary, of the loop, of the call, and of the list of its class are ours.
    new = above = []
    for key in list(things):
        listed = int(id(type(things[key])) in world.by_type)
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
    reached = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    reached += [dict.get(function.__globals__, name) for name in code.co_names]
    reached += items(function.__defaults__)
    reached += attributes(owner).values()
    # What it names of the objects that it reaches.
    reached += [own[name] for own in map(attributes, list(reached)) for name in code.co_names if name in own]
    for thing in reached:
        if is_a(thing, *CONTAINERS):
            found.fills[id(thing)] = place


def _slot(slot: Any, thing: Any) -> Any:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return None


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _parsed(file: str) -> ast.Module | None:
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > 1 << 20:
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
    file = _file_of(kind)
    return file is None or is_users(file)


def _file_of(kind: type) -> str | None:
    """The file of the module of a class."""
    return text(scope_of(sys.modules.get(module_of(kind))).get("__file__")) or None


def _class_line(kind: type, attribute: str) -> str | None:
    """The line where a class binds an attribute of itself first."""
    file = _file_of(kind)
    if file is None:
        code = next((value.__code__ for value in variables(kind).values() if type(value) is types.FunctionType), None)
        file = code.co_filename if code else None
    line = _bound_at(file, attribute, name_of(kind)) if file else None
    return f"{short(file or '')}:{line}" if line else None
