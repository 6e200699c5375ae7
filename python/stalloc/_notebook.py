"""`%%stalloc`: records a notebook's cell and shows why it ran out of memory, or where its memory goes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from stalloc import _report


def _options(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="%%stalloc", description="Record this cell and show its report.")
    parser.add_argument("--dry-run", metavar="GPU", help="run the cell alone, in a process of its own, on a stand-in for this GPU")
    return parser.parse_args(line.split())


def magic(line: str, cell: str) -> Any:
    """Run a cell on this machine's GPU; without one, or with --dry-run GPU, alone on a stand-in."""
    import torch
    from IPython import get_ipython

    options = _options(line)
    gpu = options.dry_run or (None if torch.cuda.is_available() else "h100-80gb")
    if gpu is not None:
        if options.dry_run is None:
            print(f"No GPU here: the cell runs alone, on a stand-in for one ({gpu}); values are not computed.")
        return _report.run_on_stand_in(cell, gpu, "cell.py").report()
    shell = get_ipython()
    with _report.record() as recorded:
        # An error of the cell is shown by the shell, and does not keep it from being recorded.
        shell.run_cell(cell)
    return recorded.report()


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext stalloc`."""
    shell.register_magic_function(magic, magic_kind="cell", magic_name="stalloc")


def register() -> None:
    """Make `%%stalloc` known where stalloc is imported in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is not None:
        load_ipython_extension(shell)
