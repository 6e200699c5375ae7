"""Where the program writes a call, and how it would write it with another option."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stalloc._common.users import is_users


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


def _statement(file: str, line: int) -> tuple[ast.Module, ast.stmt | None]:
    """A file, and its innermost statement at a line."""
    tree = ast.parse(Path(file).read_text())
    inside = [s for s in ast.walk(tree) if isinstance(s, ast.stmt) and s.lineno <= line <= (s.end_lineno or 0)]
    return tree, max(inside, key=lambda s: (s.lineno, s.col_offset), default=None)


def _where(file: str, first: int, last: int) -> str:
    return f"{os.path.relpath(file)}:{first}" + (f"-{last}" if last > first else "")


def place_in(frame: Any, made: dict[Any, int]) -> str | None:
    """Where in a frame, which has names for all, lines can stand: after the statement that ``made`` it, by code; else at its start."""
    code, line = frame.f_code, made.get(frame.f_code)
    tree, statement = _statement(code.co_filename, line or code.co_firstlineno)
    if line is not None:
        if statement is None or statement.lineno <= frame.f_lineno <= (statement.end_lineno or 0):
            return None  # what made it goes on: it trains, too
        return f"after {_where(code.co_filename, statement.lineno, statement.end_lineno or 0)}"
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and code.co_firstlineno in (function.lineno, *(d.lineno for d in function.decorator_list)):
            body = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0]
            return f"before {_where(code.co_filename, body.lineno, 0)}"
    return None


@dataclass
class Call:
    """A call in a simple statement of the program."""

    file: str
    #: The first and the last line of the statement.
    lines: tuple[int, int]
    _statement: str
    _callee: str
    #: The statements that stand next to it, with their first lines.
    _neighbours: list[tuple[int, str]]

    @classmethod
    def of(cls, callee: str) -> Call | None:
        """The call of ``callee``, a name without its module, that the program makes just now."""
        frames = program_frames()
        if not frames:
            return None
        file, line = frames[-1].f_code.co_filename, frames[-1].f_lineno
        tree, statement = _statement(file, line)
        if statement is None or hasattr(statement, "body") or len(_calls(statement, callee)) != 1:
            return None
        bodies = [body for node in ast.walk(tree) for body in [getattr(node, "body", None)] if isinstance(body, list)]
        neighbours = [(s.lineno, ast.unparse(s)) for body in bodies if any(s.lineno == statement.lineno for s in body) for s in body]
        return cls(file, (statement.lineno, statement.end_lineno or line), ast.unparse(statement), callee, neighbours)

    @property
    def where(self) -> str:
        """As ``train.py:31``."""
        return _where(self.file, *self.lines)

    def before_parameters(self, model: str) -> str:
        """The first line, as ``train.py:31``, that asks a model for its parameters, of the call or of the statements before it."""
        asks = (f"{model}.parameters(", f"{model}.named_parameters(")
        lines = [line for line, text in self._neighbours if line < self.lines[0] and any(ask in text for ask in asks)]
        return f"{os.path.relpath(self.file)}:{min(lines)}" if lines else self.where

    def with_option(self, name: str, value: str) -> str:
        """The statement with an option."""
        tree = ast.parse(self._statement)
        (call,) = _calls(tree, self._callee)
        call.keywords = [k for k in call.keywords if k.arg != name] + [ast.keyword(name, ast.parse(value, mode="eval").body)]
        return ast.unparse(tree)


def _calls(tree: ast.AST, callee: str) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if callee in (getattr(call.func, "id", None), getattr(call.func, "attr", None))]
