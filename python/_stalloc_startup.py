"""Serving by the environment alone: ``STALLOC_MODE=Alloc STALLOC_MODEL_INFO_PATH=plans python train.py``.

``stalloc.pth`` lies next to this file in site-packages and imports it at the start of every interpreter whose environment
has ``STALLOC_MODE``, or ``STALLOC_TRACE_DIR``, which `stalloc trace` sets; in others nothing happens. Even then stalloc itself is imported only once the program imports
PyTorch, so that its other processes (compilers, package managers, launchers) pay for one finder.
"""

import os
import sys


class _Finder:
    """Sets stalloc up when PyTorch is about to be imported, and is gone then."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(_Finder)
        _install()
        # Who asked goes through the list of finders, which is another one now: the rest of the search is ours.
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
        return None


def _install():
    try:
        if os.environ.get("STALLOC_MODE"):
            from stalloc import _enable as part
        else:
            from stalloc import _record as part

        part.install()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever is wrong with us, the program runs
        try:
            os.write(sys.stderr.fileno(), f"stalloc: not in this process: {error}\n".encode(errors="backslashreplace"))
        except Exception:  # standard error is closed, or the program's own
            pass


if "torch" in sys.modules:  # another .pth file imported it
    _install()
else:
    sys.meta_path.insert(0, _Finder)
