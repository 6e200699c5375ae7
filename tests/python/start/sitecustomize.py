"""Spares test programs half of their start and end.

PyTorch imports `torch._dynamo`, 5 of the 9 s of processor time of a program with an optimizer, to mark functions that are not to be compiled.
Until a program compiles anything there is nothing to mark: this stands in for the module, and gives way to it once anything else of it is wanted.
Another second goes into searches for cycles among what is imported, 400,000 objects, as PyTorch is imported and at the end: there are none.
"""

import atexit
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
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
        if name == "config":  # checkpoints ask it, and it needs nothing of the rest
            found = importlib.machinery.PathFinder.find_spec("torch", sys.path)
            spec = importlib.util.spec_from_file_location(f"{NAME}.config", f"{found.submodule_search_locations[0]}/_dynamo/config.py")
            sys.modules[spec.name] = self.config = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
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


class _Uncollected(importlib.abc.MetaPathFinder):
    """Finds PyTorch, which is imported without a search for cycles."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(self.run, spec.loader.exec_module)
        return spec

    def run(self, exec_module, module):
        gc.disable()
        try:
            exec_module(module)
        finally:
            gc.freeze()
            gc.unfreeze()  # what was made is old
            gc.enable()


if not hasattr(sys, "warm"):  # what goes on from a copy (warm.py) has it
    sys.modules[NAME] = _Unloaded(NAME)
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), _Uncollected())
    # The first to be registered is the last to be called. Triton complains of its own objects if they are left.
    atexit.register(lambda: None if "triton" in sys.modules else gc.freeze())
