"""Calls back once a module has been imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Callable, Sequence

_callbacks: dict[str, list[Callable[[ModuleType], None]]] = {}


def after(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call ``callback`` with the module ``name``: now if it is imported, else right after its code has run."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        callback(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _callbacks.setdefault(name, []).append(callback)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find, with a loader that calls back."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _callbacks:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, name)
                return spec
        return None


_finder = _Finder()


class _Loader(importlib.abc.Loader):
    """Loads with another loader, then calls back."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What the program may look at (pickling, resources) is the real loader.
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        for callback in _callbacks.pop(self._name, ()):
            callback(module)
