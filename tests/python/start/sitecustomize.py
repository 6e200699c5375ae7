"""Spares test programs the half of their start that goes into the compiler.

PyTorch imports `torch._dynamo`, 5 of the 9 s of processor time of a program with an optimizer, to mark functions that are not to be compiled.
Until a program compiles anything there is nothing to mark: this stands in for the module, and gives way to it once anything else of it is wanted.
"""

import functools
import importlib
import sys
import types

NAME = "torch._dynamo"


class _Rules:
    def __getattr__(self, name):
        return getattr(importlib.import_module(f"{NAME}.trace_rules"), name)

    def clear_lru_cache(self):
        pass


class _Unloaded(types.ModuleType):
    trace_rules = _Rules()

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(importlib.import_module(NAME), name)

    def graph_break(self, *_, **__):
        pass

    def disable(self, fn=None, *arguments, **options):
        if fn is None:
            return functools.partial(self.disable, **options)

        @functools.wraps(fn)
        def call(*own, **named):
            loaded = sys.modules.get(NAME)
            return (fn if loaded is self else loaded.disable(fn, *arguments, **options))(*own, **named)

        return call


sys.modules[NAME] = _Unloaded(NAME)
