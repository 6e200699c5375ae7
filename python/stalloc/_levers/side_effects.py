"""What a block does besides computing its outputs from its inputs: to compute it again would do that once more."""

from __future__ import annotations

import random
import sys
from typing import Any, Iterator

from stalloc._common.users import is_users
from stalloc._levers.applied import CONTAINERS


def of(block: Any, *handed: Any) -> dict[str, Any]:
    """What computing a block again would change for a second time, as it is now, by what it is called."""
    return dict(_found(block)) | {"what it is handed": [shown(one) for one in handed if type(one) not in CONTAINERS]}


def _found(block: Any) -> Iterator[tuple[str, Any]]:
    yield "Python's random", random.getstate()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        state = numpy.get_state()
        yield "NumPy's random", (bytes(state[1]), state[2:])
    for path, module in block.named_modules():
        for name, value in module.__dict__.items():
            if name not in ("_parameters", "_buffers", "_modules", "training", "forward"):
                yield f"{path or type(module).__name__}.{name}", shown(value)
        function = getattr(type(module), "forward", None)
        code = getattr(function, "__code__", None)
        if code is None or not is_users(code.co_filename):
            continue
        variables = {**function.__globals__, **dict(zip(code.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))}  # type: ignore[union-attr]
        for name in {*code.co_names, *code.co_freevars} & variables.keys():
            value = variables[name]
            if isinstance(value, (int, float, *CONTAINERS)) or type(value).__name__ == "Generator":
                yield f"the variable {name}", shown(value)


def shown(value: Any) -> Any:
    """What tells whether a value was changed or another took its place."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, CONTAINERS):
        return id(value), len(value), [id(one) for one in (value.values() if isinstance(value, dict) else value)]
    if hasattr(type(value), "_version"):
        return id(value), value.is_inference() or value._version
    if type(value).__name__ == "Generator" and hasattr(value, "get_state"):
        return bytes(value.get_state().numpy())
    if hasattr(value, "bit_generator"):  # NumPy's
        return str(value.bit_generator.state)
    return id(value)


def hooked(block: Any) -> str | None:
    """A part of a block with a hook of the program's, which would be called once more."""
    for path, module in block.named_modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()] if path else []
        if any(is_users(getattr(getattr(hook, "__code__", None), "co_filename", "<frozen")) for hook in hooks):
            return str(path)
    return None
