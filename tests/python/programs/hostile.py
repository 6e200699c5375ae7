"""Runs out of memory once for each object that makes trouble when it is looked at, in a process of its own that is forked.

    hostile.py [NAME...]

Each prints as JSON its name, the error that the program got, the reports, with the bytes that have a holder, and the seconds to its
end, by the clock and by the processor. An object that is asked anything fails, waits for ever, or ends the program.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import sys
import time
import types
import weakref
from typing import Any

import torch
from stalloc._out_of_memory import watch

MIB = 1 << 20


def fails(error: type[BaseException] = RuntimeError) -> Any:
    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise error("asked")

    return fail


def waits(*_arguments: Any, **_options: Any) -> Any:
    time.sleep(3600)


def tensor(size: int = 8) -> torch.Tensor:
    return torch.empty(size * MIB, dtype=torch.uint8, device="cuda")


def like(base: type, how: Any, *names: str, meta: type = type) -> Any:
    """An object whose methods of these names do it."""
    return meta("Hostile", (base,), dict.fromkeys(names, how) | {"__module__": "__main__"})


def holding(kind: Any) -> Any:
    one = kind()
    object.__setattr__(one, "held", [tensor()])
    return one


def of_meta(how: Any, *names: str) -> Any:
    meta = type("Meta", (type,), dict.fromkeys(names, how))
    kind = type.__new__(meta, "Hostile", (), {"__module__": "__main__"})
    one = object.__new__(kind)
    object.__setattr__(one, "held", [tensor()])
    return one


def dead_proxy() -> Any:
    return weakref.proxy(type("Gone", (), {})())


def wrapper_tensor(how: Any) -> Any:
    kind = type("Wrapper", (torch.Tensor,), {"__torch_dispatch__": classmethod(how), "__module__": "__main__"})
    made = torch.Tensor._make_wrapper_subclass(kind, (4,), dtype=torch.float32, device=torch.device("cuda"), dispatch_device=True)
    made.inner = tensor()
    return made


def odd_tensor(how: Any, *names: str) -> Any:
    kind = type("Odd", (torch.Tensor,), dict.fromkeys(names, property(how)) | {"__module__": "__main__"})
    return tensor().as_subclass(kind)


def functions_tensor(how: Any) -> Any:
    with torch._C.DisableTorchFunction():
        return tensor().as_subclass(type("Odd", (torch.Tensor,), {"__torch_function__": classmethod(how), "__module__": "__main__"}))


def odd_module(how: Any, *names: str) -> Any:
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    layer.__class__ = type("OddLayer", (torch.nn.Linear,), dict.fromkeys(names, how) | {"__module__": "__main__"})
    return layer


def odd_parameters() -> Any:
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    vars(layer)["_parameters"] = like(dict, fails(), "items", "values", "keys", "__iter__", "get")(vars(layer)["_parameters"])
    return layer


def odd_optimizer(how: Any) -> Any:
    kept = torch.optim.SGD([torch.nn.Parameter(tensor().float()[: MIB])], lr=0.1)
    kept.__class__ = type("OddOptimizer", (torch.optim.SGD,), {"state": property(how), "param_groups": property(how), "__module__": "__main__"})
    return kept


def odd_error(base: type[BaseException], how: Any, *names: str) -> Any:
    def raised() -> None:
        held = tensor()  # noqa: F841
        raise like(base, how, *names)("kept")

    try:
        raised()
    except BaseException as error:
        return error


def odd_hook(hook: Any) -> Any:
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    layer._forward_hooks[0] = hook
    return layer


def odd_frame() -> Any:
    """The locals of a class's body are the program's own mapping."""

    class Meta(type):
        @classmethod
        def __prepare__(meta, *_arguments: Any) -> Any:  # noqa: N804
            return like(dict, fails(), "items", "keys", "values")()

    try:

        class Body(metaclass=Meta):
            held = tensor()
            raise ValueError("kept")

    except ValueError as error:
        return error


def odd_import(how: Any, *names: str) -> Any:
    sys.modules["odd_module"] = like(types.ModuleType, how, *names)("odd_module")
    return sys.modules["odd_module"]


def file_is_a_pipe() -> Any:
    path = f"/tmp/hostile-{os.getpid()}.py"
    os.mkfifo(path)
    made = sys.modules["piped"] = types.ModuleType("piped")
    made.__file__, made.cache = path, [tensor()]
    return made


def odd_cache() -> Any:
    @functools.lru_cache
    def cached(size: int) -> Any:
        return tensor(size)

    cached(4)
    cached.__wrapped__ = holding(like(object, fails(SystemExit), "__getattribute__"))
    return cached


def odd_keys() -> Any:
    key = like(str, fails(), "__eq__", "startswith", "endswith")
    key.__hash__ = str.__hash__
    one = type("Plain", (), {"__module__": "__main__"})()
    vars(one)[key("held")] = [tensor()]
    return one, {key("_parameters"): tensor()}


def nested() -> Any:
    deep: Any = [tensor()]
    for _ in range(100_000):
        deep = [deep]
    return deep


def circular() -> Any:
    kept: list[Any] = [tensor()]
    kept.append(kept)
    return kept


def odd_user_dict() -> Any:
    one = collections.UserDict(a=tensor())
    one.__class__ = like(collections.UserDict, property(fails(SystemExit)), "data")
    return one


def odd_slot() -> Any:
    kind = type("Slotted", (), {"__slots__": ("held",), "__module__": "__main__", "__getattribute__": waits})
    one = kind()
    object.__setattr__(one, "held", [tensor()])
    return one


def many() -> Any:
    return [[one] for one in range(2_000_000)], [tensor()]


PROPERTIES = {"exits": fails(SystemExit), "fails": fails(), "interrupts": fails(KeyboardInterrupt), "waits": waits}
KINDS: dict[str, Any] = {
    "dead_proxy": dead_proxy,
    **{f"class_{name}": functools.partial(holding, like(object, property(how), "__class__")) for name, how in PROPERTIES.items()},
    **{f"dict_{name}": functools.partial(holding, like(object, property(how), "__dict__")) for name, how in PROPERTIES.items() if name != "interrupts"},
    **{f"getattr_{name}": functools.partial(holding, like(object, how, "__getattribute__", "__getattr__")) for name, how in PROPERTIES.items()},
    "values": lambda: like(dict, fails(), "values")(a=tensor()),
    "items": lambda: like(dict, fails(SystemExit), "items", "keys", "__iter__", "__len__")(a=tensor()),
    "list_iter": lambda: like(list, fails(), "__iter__", "__getitem__")([tensor()]),
    "list_len": lambda: like(list, waits, "__len__", "__bool__")([tensor()]),
    "tuple": lambda: like(tuple, fails(), "__iter__", "__len__")([tensor()]),
    "set": lambda: like(set, fails(SystemExit), "__iter__", "__len__")([tensor()]),
    "deque": lambda: like(collections.deque, waits, "__iter__", "__len__")([tensor()]),
    "user_dict": odd_user_dict,
    "meta_hash": lambda: of_meta(fails(SystemExit), "__hash__"),
    "meta_eq": lambda: of_meta(fails(), "__eq__"),
    "meta_getattribute": lambda: of_meta(fails(SystemExit), "__getattribute__"),
    "meta_name": lambda: of_meta(property(fails()), "__name__", "__module__", "__mro__"),
    "meta_check": lambda: of_meta(waits, "__instancecheck__", "__subclasscheck__"),
    "tensor_property": lambda: odd_tensor(fails(SystemExit), "is_cuda", "device", "grad_fn", "nbytes"),
    "tensor_function": lambda: functions_tensor(fails()),
    "tensor_function_waits": lambda: functions_tensor(waits),
    "tensor_dispatch": lambda: wrapper_tensor(waits),
    "module_getattr": lambda: odd_module(waits, "__getattr__", "named_parameters", "modules"),
    "module_exits": lambda: odd_module(property(fails(SystemExit)), "training", "__class__"),
    "parameters": odd_parameters,
    "optimizer": lambda: odd_optimizer(fails(SystemExit)),
    "error_eq": lambda: odd_error(ValueError, fails(), "__eq__", "__bool__"),
    "error_str": lambda: odd_error(RuntimeError, waits, "__str__", "__repr__"),
    "error_traceback": lambda: odd_error(ValueError, property(fails(SystemExit)), "__traceback__", "__context__", "__class__"),
    "hook": lambda: odd_hook(holding(like(object, fails(SystemExit), "__getattr__", "__call__"))),
    "partial": lambda: odd_hook(like(functools.partial, property(fails()), "func")(print)),
    "frame": odd_frame,
    "import": lambda: odd_import(fails(SystemExit), "__getattr__"),
    "import_waits": lambda: odd_import(waits, "__getattribute__"),
    "pipe": file_is_a_pipe,
    "cache": odd_cache,
    "keys": odd_keys,
    "slot": odd_slot,
    "nested": nested,
    "circular": circular,
    "many": many,
}


def run_out(name: str) -> None:
    """Run out of memory while an object is kept."""
    global kept
    reports: list[dict[str, Any]] = []
    watch.publish = lambda _folder, _snapshot, facts: reports.append(json.loads(json.dumps(facts)))
    kept = KINDS[name]()
    held, got, began, used = [], "", time.monotonic(), time.process_time()
    try:
        while True:
            began, used = time.monotonic(), time.process_time()
            held.append(tensor(64))
    except BaseException as error:
        got = type(error).__name__
        sys.excepthook(type(error), error, error.__traceback__)
    named = [sum(one["bytes"] for one in facts["holders"]) >> 20 for facts in reports]
    left_out = [facts["left_out"] for facts in reports]
    print(json.dumps({"name": name, "error": got, "named": named, "left_out": left_out, "seconds": time.monotonic() - began, "processor": time.process_time() - used}), flush=True)


def main() -> None:
    for name in sys.argv[1:] or KINDS:
        child = os.fork()
        if child == 0:
            run_out(name)
            sys.exit(0)
        print(name, os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
