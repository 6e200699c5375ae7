"""All tensors of a device that Python knows, and what is reached from an object.

Nothing of the program is changed or kept alive: the locals of frames that still run are not read (before Python 3.13 that copies them
into the frame), and no saved tensor is unpacked (that runs the program's hooks).
"""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import types
from typing import Any, Iterable, Iterator

from stalloc._common.users import is_users
from stalloc._out_of_memory.limits import Apart, Deadline
from stalloc._out_of_memory.objects import CONTAINERS, Tensors, attributes, is_a, items, keys, module_of, name_of, named, traceback_of

#: Items of containers that are looked at.
MOST_ITEMS = 500_000
#: Containers and objects inside of each other that are looked into.
MOST_DEPTH = 12
#: What may wait with variables of its own.
SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
#: What leads to everything, or nowhere.
_OPAQUE = (type, types.ModuleType, types.FrameType, types.CodeType, types.TracebackType, str, bytes, int, float, logging.Logger)


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
        #: Parameters that an optimizer that was looked at has states for, by id.
        self.has_state: set[int] = set()
        #: Tensors by the address of their storage.
        self.tensors: dict[int, list[Any]] = {}
        #: By the id of each of these tensors, where its storage begins.
        self._places: dict[int, int] = {}
        #: Objects by the id of their class: to hash a class is to ask its metaclass.
        self.by_type: dict[int, list[Any]] = {}
        #: Generators and coroutines that wait, and functions with a closure, by the id of their code.
        self.by_code: dict[int, tuple[types.CodeType, list[Any]]] = {}
        #: Where tensors lie that are as wide as a vocabulary has words: logits, or made of them.
        self.wide: set[int] = set()
        #: Where what autograd keeps lies that is made of parameters alone.
        self.remade: set[int] = set()
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
    def lists(self) -> list[list[Any]]:
        """All that refers to objects here."""
        return [self.modules, self.optimizers, self.exceptions, self.roots, *self.by_type.values(), *(things for _, things in self.by_code.values())]

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

    @functools.cached_property
    def _vocabularies(self) -> set[int]:
        """How many rows the embeddings have: of those of positions, which may be as many as a layer is wide, no word."""
        kinds = (one for one in self.modules if type.__subclasscheck__(self.torch.nn.Embedding, type(one)))
        weights = (named(attributes(one).get("_parameters")).get("weight") for one in kinds)
        shapes = (self.is_tensor.read(weight, "shape") for weight in weights if self.is_tensor(weight))
        return {int(shape[0]) for shape in shapes if shape and shape[0] > 4 * shape[-1]}

    def see_width(self, tensor: Any, address: int) -> None:
        """Remember a tensor that is as wide as a vocabulary. A square one is of positions by positions."""
        shape = self.is_tensor.read(tensor, "shape") if self._vocabularies else ()
        if shape and shape[-1] in self._vocabularies and shape[-2:-1] != shape[-1:]:
            self.wide.add(address)

    def _add(self, tensor: Any) -> None:
        address = self.address(tensor)
        if address is not None:
            self.tensors.setdefault(address, []).append(tensor)
            self._places[id(tensor)] = address

    @property
    def is_late(self) -> bool:
        """Whether the time for all this is over."""
        return self.deadline.is_over


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


def optimized(world: World, optimizer: Any) -> list[Any]:
    """The parameters that an optimizer has."""
    groups = items(attributes(optimizer).get("param_groups"))
    return [tensor for group in groups for tensor in items(named(group).get("params")) if world.is_tensor(tensor)]


def gradients(world: World, tensors: list[Any]) -> list[int]:
    """Where the gradients of some tensors lie."""
    read = world.is_tensor.read
    found = (world.address(grad) for one in tensors if read(one, "is_leaf") and (grad := read(one, "grad")) is not None)
    return [address for address in found if address]


def tensors_in(value: Any, world: World, depth: int = MOST_DEPTH, objects: bool = True, most: int = MOST_ITEMS) -> Iterator[Any]:
    """The tensors of nested containers and, where asked for, of whatever the garbage collector reaches from them: objects, closures,
    generators that wait. Never of a whole module, or of a frame that runs."""
    # What is in a large container is looked at one by one, the newest first: there may be no time for all of it.
    waiting: list[tuple[Iterator[Any], int]] = [(iter([value]), depth)]
    seen: set[int] = set()
    for count in range(most):
        while (item := next(waiting[-1][0], waiting)) is waiting:
            waiting.pop()
            if not waiting:
                return
        if count % 4096 == 4095 and world.deadline.is_far_over:
            return
        left = waiting[-1][1]
        if world.is_tensor(item):
            yield item
        elif left > 0 and id(item) not in seen:
            seen.add(id(item))
            if is_a(item, *CONTAINERS):
                waiting.append((itertools.chain(filter(world.is_tensor, keys(item)), reversed(items(item))), left - 1))
            elif objects and not is_a(item, *_OPAQUE):
                waiting.append((reversed(parts_of(item)), left - 1))


def content_of(value: Any, is_tensor: Tensors) -> str:
    """The class of what a container has, where these are no tensors or containers of tensors."""
    return "".join(name_of(type(one)) for one in items(value)[-1:] if not is_tensor(one) and not is_a(one, *CONTAINERS))


def parts_of(item: Any) -> list[Any]:
    """What an object refers to; of a function only its closure, its defaults and its attributes."""
    if type(item) is types.FunctionType:
        return [item.__defaults__, item.__kwdefaults__, item.__dict__, *(cell.cell_contents for cell in item.__closure__ or () if is_full(cell))]
    return gc.get_referents(item)


def is_full(cell: Any) -> bool:
    """Whether a variable of a closure has a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def used_by(world: World, tensors: Iterable[Any]) -> dict[int, int]:
    """Where some tensors and their gradients lie, and the bytes that they use of what is kept there."""
    found: dict[int, int] = {}
    read = world.is_tensor.read
    for tensor in tensors:
        grad = read(tensor, "grad") if read(tensor, "is_leaf") and read(tensor, "requires_grad") else None
        if grad is not None and (address := world.address(grad)) is not None:
            found[address] = found.get(address, 0) + world.is_tensor.bytes_of(grad)
        address = world.address(tensor)
        if address is not None:
            found[address] = found.get(address, 0) + world.is_tensor.bytes_of(tensor)
    return found
