"""Where the program writes a call, and how it would write it with another option."""

from __future__ import annotations

import ast
import functools
import os
import sys
import tokenize
from dataclasses import dataclass
from typing import Any

from stalloc._common.users import is_users


@functools.lru_cache(maxsize=4096)
def is_of_the_program(file: str) -> bool:
    """Whether a file is the program's own, and not text that was compiled."""
    return os.path.isfile(file) and is_users(file)


def program_frames() -> list[Any]:
    """The program's own frames, the outermost first."""
    frames: list[Any] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_of_the_program(frame.f_code.co_filename):
            frames.insert(0, frame)
        frame = frame.f_back
    return frames


def _text(file: str) -> str:
    """A source file; nothing of one that cannot be read."""
    try:
        with tokenize.open(file) as source:
            return source.read()
    except (OSError, SyntaxError, UnicodeError):
        return ""


def _tree(file: str) -> ast.Module:
    """What a source file says; nothing of one that is no longer what runs."""
    try:
        return ast.parse(_text(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _statement(file: str, line: int) -> ast.stmt | None:
    """The innermost statement of a file at a line."""
    inside = [s for s in ast.walk(_tree(file)) if isinstance(s, ast.stmt) and s.lineno <= line <= (s.end_lineno or 0)]
    return max(inside, key=lambda s: (s.lineno, s.col_offset), default=None)


def _where(file: str, first: int, last: int) -> str:
    return f"{os.path.relpath(file)}:{first}" + (f"-{last}" if last > first else "")


def place_in(code: Any, line: int, names: list[str], making: set[int], is_before_parameters: bool = False) -> str | None:
    """Where lines can stand in code that has these names: before what it does at ``line``, outside of all that gives a name another value.

    What they name was made at the lines ``making``. With ``is_before_parameters`` before what asks a model for its parameters, too.
    """
    text = _text(code.co_filename)
    lines = text.split("\n")
    named = {*names, *(name.partition("[")[0] for name in names)}
    inside: Any = _tree(code.co_filename)
    if code.co_name != "<module>":
        inside = next((node for node in ast.walk(inside) if _is_function(node, code)), None)
    while inside is not None:
        bodies = [getattr(inside, field, []) for field in ("body", "orelse", "finalbody")]
        bodies += [handler.body for handler in getattr(inside, "handlers", [])]
        body = next((body for body in bodies if any(_spans(part, line) for part in body)), [])
        index = next((index for index, part in enumerate(body) if _spans(part, line)), None)
        inside = None if index is None else body[index]
        if inside is None or _assigned(inside) & named or not _begins_line(inside, lines) or any(_spans(inside, at) for at in making):
            continue
        while is_before_parameters and index and not _assigned(body[index - 1]) & named:
            index -= 1
            inside = body[index] if "parameters(" in ast.unparse(body[index]) else inside
        return f"before {_where(code.co_filename, inside.lineno, 0)}"
    return None


@functools.lru_cache(maxsize=64)
def loop_names(file: str) -> frozenset[str]:
    """What loops and comprehensions of a file give values to."""
    loops = (node.target for node in ast.walk(_tree(file)) if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)))
    return frozenset(name.id for target in loops for name in ast.walk(target) if isinstance(name, ast.Name))


def _is_function(node: ast.AST, code: Any) -> bool:
    starts = {node.lineno, *(d.lineno for d in node.decorator_list)} if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else set()
    return code.co_firstlineno in starts and node.name == code.co_name  # type: ignore[attr-defined]


def _spans(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)


def _begins_line(statement: ast.stmt, lines: list[str]) -> bool:
    first = lines[statement.lineno - 1].encode()
    return not first[: statement.col_offset].strip() and not first.lstrip().startswith(b"elif ")


def _assigned(statement: ast.stmt) -> set[str]:
    nodes = (node for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store))
    return {ast.unparse(node) for node in nodes}


@dataclass
class Call:
    """A call in a simple statement of the program."""

    file: str
    #: The first and the last line of the statement.
    lines: tuple[int, int]
    _statement: str
    _callee: str
    #: What else stands on these lines, in front of the statement and behind it.
    _around: tuple[str, str]

    @classmethod
    def of(cls, callee: str) -> Call | None:
        """The call of ``callee``, a name without its module, that the program makes just now."""
        frames = program_frames()
        if not frames:
            return None
        file, line = frames[-1].f_code.co_filename, frames[-1].f_lineno
        statement = _statement(file, line)
        if statement is None or hasattr(statement, "body") or len(_calls(statement, callee)) != 1:
            return None
        last = statement.end_lineno or line
        lines = _text(file).split("\n")
        before = lines[statement.lineno - 1].encode()[: statement.col_offset].decode()
        after = lines[last - 1].encode()[statement.end_col_offset :].decode()
        return cls(file, (statement.lineno, last), ast.unparse(statement), callee, (before.lstrip(), after.rstrip()))

    @property
    def where(self) -> str:
        """As ``train.py:31``."""
        return _where(self.file, *self.lines)

    @property
    def has_options_elsewhere(self) -> bool:
        """Whether options are handed on that stand elsewhere: ``AdamW(**options)``."""
        return any(keyword.arg is None for call in _calls(ast.parse(self._statement), self._callee) for keyword in call.keywords)

    def with_option(self, name: str, value: str) -> str:
        """The lines with an option in the call."""
        tree = ast.parse(self._statement)
        (call,) = _calls(tree, self._callee)
        call.keywords = [k for k in call.keywords if k.arg != name] + [ast.keyword(name, ast.parse(value, mode="eval").body)]
        return self._around[0] + ast.unparse(tree) + self._around[1]


def _calls(tree: ast.AST, callee: str) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if callee in (getattr(call.func, "id", None), getattr(call.func, "attr", None))]
