"""Whether answers are what their types say."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict


def conforms(value: Any, kind: Any, at: str = "answer") -> None:
    """Fails, naming the place, where `value` is not of a type of `stalloc.results`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        assert isinstance(value, dict), f"{at} is {value!r}"
        hints = get_type_hints(kind)
        assert kind.__required_keys__ <= value.keys() <= hints.keys(), f"{at}: {sorted(kind.__required_keys__ ^ value.keys())}"
        for name, one in value.items():
            conforms(one, hints[name], f"{at}.{name}")
    elif origin in (Union, types.UnionType):
        plain = tuple(each for each in arguments if not is_typeddict(each) and get_origin(each) is None)
        others = [each for each in arguments if each not in plain]
        assert isinstance(value, plain) or others, f"{at} is {value!r}"
        if not isinstance(value, plain):
            conforms(value, others[0], at)
    elif origin in (list, tuple):
        assert isinstance(value, (list, origin)), f"{at} is {value!r}"  # JSON has no tuples
        for number, one in enumerate(value):
            conforms(one, arguments[0 if origin is list else number], f"{at}[{number}]")
    elif origin is dict:
        for name, one in value.items():
            conforms(one, arguments[1], f"{at}.{name}")
    else:
        assert isinstance(value, (int, float) if kind is float else kind), f"{at} is {value!r}"
