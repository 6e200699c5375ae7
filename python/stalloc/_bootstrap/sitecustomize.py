"""Starts recording in a Python program that knows nothing of stalloc.

`stalloc trace` puts this folder first on PYTHONPATH, so that every Python process of the command runs this file before
its own code. It must not be in the way: the package is loaded from where it lies, without a change to ``sys.path``,
and the environment's own ``sitecustomize``, which this one hides, runs afterwards.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _load_stalloc():
    package = os.path.dirname(_here)
    spec = importlib.util.spec_from_file_location(
        "stalloc", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["stalloc"] = module
    spec.loader.exec_module(module)


def _run_hidden_sitecustomize():
    elsewhere = [path for path in sys.path if os.path.abspath(path) != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _here]
if os.environ.get("STALLOC_TRACE_DIR") or os.environ.get("STALLOC_MODE"):
    try:
        _load_stalloc()
        if os.environ.get("STALLOC_TRACE_DIR"):
            from stalloc import _record as _part
        else:
            from stalloc import _enable as _part

        _part.install()
        if os.environ.get("STALLOC_LEVERS") is not None:
            from stalloc import _levers

            _levers.install()
        elif os.environ.get("STALLOC_FIT"):
            from stalloc import _levers

            _levers.install_fit()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever is wrong with us, the program runs
        sys.modules.pop("stalloc", None)
        try:
            os.write(sys.stderr.fileno(), f"stalloc: not in this process: {error}\n".encode(errors="backslashreplace"))
        except Exception:  # standard error is closed, or the program's own
            pass
        # Nothing can be recorded by any process then, however long it runs. An exit from here would be a fatal error.
        if type(error).__name__ == "Mismatch" and os.environ.get("STALLOC_TRACE_DIR"):
            os._exit(2)
_run_hidden_sitecustomize()
