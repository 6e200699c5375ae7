"""What can be asked of the program's objects without running the program's code.

`isinstance` asks an object for its `__class__`, `len` and `list` call its methods, and an attribute may be a property, or a lazy
object's import. All of these may fail, wait or end the program. Here only its type in memory is read and only the methods of the
built-in types are called.
"""

from __future__ import annotations

import traceback
import types
import weakref
from collections import UserDict, UserList, deque
from typing import Any, Callable

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
#: What keeps a container in its `data`.
WRAPPERS: tuple[Any, ...] = (weakref.WeakKeyDictionary, UserDict, UserList)

_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_namespace: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_scope: Callable[[Any], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__
#: Attributes of an exception.
traceback_of: Callable[[Any], Any] = BaseException.__dict__["__traceback__"].__get__
cause_of: Callable[[Any], Any] = BaseException.__dict__["__cause__"].__get__
context_of: Callable[[Any], Any] = BaseException.__dict__["__context__"].__get__
_arguments: Callable[[Any], Any] = BaseException.__dict__["args"].__get__


def mro_of(kind: type) -> tuple[type, ...]:
    """A class and those that it is made from, whatever its metaclass says."""
    return _mro(kind)


def name_of(kind: type) -> str:
    """What a class is called."""
    return _name(kind)


def module_of(kind: type) -> str:
    """The name of the module of a class; empty where that is no text."""
    return text(_module(kind))


def text(value: Any) -> str:
    """A text, if it is one and of no class of the program's."""
    return value if type(value) is str else ""


def is_a(thing: Any, *kinds: Any) -> bool:
    """Whether something is an object of one of these classes, which must be no abstract ones: those ask the object's class."""
    return issubclass(type(thing), kinds)


def variables(kind: type) -> dict[str, Any]:
    """The variables of a class itself."""
    return {name: value for name, value in _namespace(kind).items() if type(name) is str}


def attributes(thing: Any) -> dict[str, Any]:
    """The attributes that an object keeps for itself, without those of its class; of a class its variables."""
    if is_a(thing, type):
        return variables(thing)
    for one in _mro(type(thing)):
        slot = _namespace(one).get("__dict__")
        if type(slot) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return named(slot.__get__(thing))
    return {}


def named(thing: Any) -> dict[str, Any]:
    """What a dictionary has under names; empty for anything else."""
    return {key: value for key, value in dict.items(thing) if type(key) is str} if is_a(thing, dict) else {}


def items(thing: Any) -> list[Any]:
    """What is in a container; of a dictionary its values. Empty for anything else."""
    if is_a(thing, dict):
        return list(dict.values(thing))
    base: Any = next((one for one in CONTAINERS if is_a(thing, one)), None)
    return list(base.__iter__(thing)) if base is not None else []


def keys(thing: Any) -> list[Any]:
    """The keys of a dictionary; empty for anything else."""
    return list(dict.__iter__(thing)) if is_a(thing, dict) else []


def length(thing: Any) -> int:
    """How much is in a container; 0 for anything else."""
    base: Any = next((one for one in CONTAINERS if is_a(thing, one)), None)
    return int(base.__len__(thing)) if base is not None else 0


def unwrapped(thing: Any) -> Any:
    """The container that something wraps, or itself."""
    return attributes(thing).get("data") if any(type.__subclasscheck__(one, type(thing)) for one in WRAPPERS) else thing


def scope_of(module: Any) -> dict[str, Any]:
    """The dictionary itself that has a module's variables; empty for anything else."""
    return _scope(module) if is_a(module, types.ModuleType) else {}


def ended_frames(error: BaseException | None) -> list[tuple[types.FrameType, int]]:
    """The frames that an exception came through, outermost first, each with its line."""
    return list(traceback.walk_tb(None if error is None else traceback_of(error)))


def said_by(error: BaseException) -> str:
    """The message of an exception, if it has one that is plain text."""
    return text(next(iter(items(_arguments(error))), None))


def locals_of(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a frame that has ended; a class's body or `exec` may have put an object of its own in their place."""
    return dict(frame.f_locals) if frame.f_code.co_flags & 1 else named(frame.f_locals)


class Tensors:
    """Reads tensors past what a subclass of theirs has in place of PyTorch's attributes and methods."""

    def __init__(self, torch: Any) -> None:
        self._kind = torch.Tensor
        self._base = _namespace(getattr(torch._C, "TensorBase", None) or torch._C._TensorBase)
        #: While one of these is entered, no `__torch_function__` of the program's is called.
        self.undisturbed: Any = torch._C.DisableTorchFunction
        #: By the id of a class, which is kept for that: whether it may run code where PyTorch's attributes are read.
        self._runs: dict[int, tuple[type, bool]] = {}

    def __call__(self, thing: Any) -> bool:
        """Whether something is a tensor."""
        return is_a(thing, self._kind)

    def read(self, tensor: Any, name: str) -> Any:
        """An attribute of PyTorch's; None where that could run the program's code."""
        kind = type(tensor)
        runs = self._runs.get(id(kind))
        if runs is None:
            owner = next(one for one in _mro(kind) if "__torch_dispatch__" in _namespace(one))
            runs = self._runs[id(kind)] = kind, not f"{module_of(owner)}.".startswith("torch.")
        return None if runs[1] else self._base[name].__get__(tensor)

    def bytes_of(self, tensor: Any) -> int:
        """Bytes of a tensor's elements."""
        return int(self.read(tensor, "numel")() * self.read(tensor, "element_size")())
