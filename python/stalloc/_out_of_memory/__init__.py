"""When memory runs out, what lives then is written down, with who holds it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stalloc._common import imports

#: Says where reports go; "0": there are none.
VARIABLE = "STALLOC_OUT_OF_MEMORY"
DEFAULT = "stalloc-out-of-memory"

_is_installed = False


def on_out_of_memory(folder: str | os.PathLike[str] = DEFAULT) -> None:
    """Have a report written to ``folder`` when the program ends because GPU memory ran out.

    Works with PyTorch's own allocator; `stalloc run` and ``STALLOC_MODE`` do the same by themselves. Call it before the model is
    built, so that blocks have call stacks. A program that catches the error and goes on gets one line at its end.
    """
    install(Path(folder))


def install(folder: Path | None = None, *, quiet: bool = False, with_stacks: bool = True) -> None:
    """Watch this process once it imports PyTorch; where nothing else is said, as the environment says.

    Call stacks need PyTorch's memory history, which costs time, and which the program's own snapshots show: they are kept where a
    folder was named.
    """
    global _is_installed
    wanted = os.environ.get(VARIABLE, "")
    if _is_installed or (folder is None and wanted == "0"):
        return
    _is_installed = True
    place = folder if folder is not None else Path(wanted or DEFAULT)

    def torch_imported(torch: Any) -> None:
        from stalloc._out_of_memory.watch import Watch

        Watch(torch, place.absolute(), quiet, with_stacks and (folder is not None or bool(wanted))).install()

    imports.after("torch", torch_imported)
