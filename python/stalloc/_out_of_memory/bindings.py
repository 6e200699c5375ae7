"""Where a program's text binds a name."""

from __future__ import annotations

import ast
import functools
import os
import sys
import types

from stalloc._common.users import is_users
from stalloc._out_of_memory.objects import module_of, name_of, scope_of, text, variables
from stalloc._out_of_memory.world import short


@functools.lru_cache(maxsize=64)
def _parsed(file: str) -> ast.Module | None:
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > 1 << 20:
            return None
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def bound_at(file: str, variable: str, of_class: str | None = None) -> int | None:
    """The line where a module binds a variable first, or a class an attribute of itself."""
    tree = _parsed(file)
    outer = [node for node in ast.walk(tree) if not of_class or isinstance(node, ast.ClassDef) and node.name == of_class] if tree else []
    nodes = (node for one in (outer if of_class else outer[:1]) for node in ast.walk(one) if isinstance(getattr(node, "ctx", None), ast.Store))
    lines = [node.lineno for node in nodes if variable == getattr(node, "id", None) or of_class and variable == getattr(node, "attr", None)]  # type: ignore[attr-defined]
    return min(lines, default=None)


def is_users_class(kind: type) -> bool:
    """Whether a class is the program's own, not a library's."""
    file = _file_of(kind)
    return file is None or is_users(file)


def _file_of(kind: type) -> str | None:
    """The file of the module of a class."""
    return text(scope_of(sys.modules.get(module_of(kind))).get("__file__")) or None


def class_line(kind: type, attribute: str) -> str | None:
    """The line where a class binds an attribute of itself first."""
    file = _file_of(kind)
    if file is None:
        code = next((value.__code__ for value in variables(kind).values() if type(value) is types.FunctionType), None)
        file = code.co_filename if code else None
    line = bound_at(file, attribute, name_of(kind)) if file else None
    return f"{short(file or '')}:{line}" if line else None
