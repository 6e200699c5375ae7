"""`stalloc report` from Python: why a job ran out of memory, as text, figures and a page that a notebook shows."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Sequence

COMMAND = Path(__file__).parent / "_bin" / "stalloc"
#: Height of the page in a notebook, CSS pixels.
HEIGHT = 900

_last: Path | None = None


class Report:
    """A report: `print` it for the answer, show it in a notebook for the page."""

    def __init__(self, page: str, text: str, figures: dict[str, Any]) -> None:
        self._page = page
        self._text = text
        #: Every figure, as `stalloc report --json` prints them.
        self.figures = figures

    @property
    def device(self) -> dict[str, Any]:
        """The figures of the device that ran out of memory, else of the fullest."""
        devices = [device for recording in self.figures["inputs"][:1] for device in recording["devices"]]
        held = lambda one: max([one["peak_allocated"], *(each["peak_reserved"] for each in one["allocators"][:1])])  # noqa: E731
        failed = [device for device in devices if device["out_of_memory"] is not None]
        return failed[0] if failed else max(devices, key=held)

    @property
    def verdict(self) -> str:
        """`fragmentation`, `growth`, `too_large` or `healthy`."""
        return str(self.device["verdict"])

    @property
    def html(self) -> str:
        """The page."""
        return self._page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page."""
        Path(path).write_text(self._page, encoding="utf-8")

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<stalloc report: {self.verdict}; {self.device['headline']}>"

    def _repr_html_(self) -> str:
        page = html.escape(self._page, quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:{HEIGHT}px;border:0" title="stalloc report"></iframe>'


def report(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    device: int | None = None,
    rank: int | None = None,
) -> Report:
    """Say why a job ran out of memory, or where its memory goes: prints the answer, and shows the page in a notebook.

    ``source``: traces, snapshots or folders of traces; None: what `stalloc.record` recorded last in this process.
    """
    if source is None:
        if _last is None:
            raise ValueError("nothing was recorded in this process: use `with stalloc.record():` or `%%stalloc`, or name a file")
        source = _last
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    chosen = [f"--{name}={value}" for name, value in (("device", device), ("rank", rank)) if value is not None]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        figures = json.loads(command("--json", "-o", str(page), *chosen, *(os.fspath(each) for each in sources)))
        text = str(figures.pop("text"))
        made = Report(page.read_text(encoding="utf-8"), text, figures)
    print(made)
    return made


def _environment() -> dict[str, str]:
    """This process's, without what is for it alone: a stand-in GPU that is preloaded, a recording that is under way."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("STALLOC_TRACE")}


def command(*arguments: str, **options: Any) -> str:
    """What `stalloc report` prints; ValueError with its message if it fails. ``options``: those of `subprocess.run`."""
    done = subprocess.run([str(COMMAND), "report", *arguments], env=_environment(), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip().removeprefix("stalloc: ") or "stalloc report failed")
    return str(done.stdout)


class Recorded:
    """What a block of code asked of the memory."""

    def __init__(self) -> None:
        #: A snapshot of PyTorch's, once the block is over.
        self.path: Path | None = None

    def report(self) -> Report:
        """`stalloc.report` of it."""
        return report(self.path)

    def __repr__(self) -> str:
        return f"<stalloc recording: {self.path or 'under way'}>"


@contextmanager
def record() -> Iterator[Recorded]:
    """Record what a block of code allocates on the GPU, by PyTorch's memory history; `stalloc.report()` tells of it.

    A block that runs out of memory is recorded up to there.
    """
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch has no CUDA device here: in a notebook, `%%stalloc` runs a cell on a stand-in GPU")
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python")
    recorded = Recorded()
    try:
        yield recorded
    finally:
        path = Path(tempfile.mkdtemp(prefix="stalloc-")) / "recorded.pickle"
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(None)
        _keep(recorded, path)


def _keep(recorded: Recorded, path: Path) -> None:
    global _last
    recorded.path = _last = path


def run_on_stand_in(code: str, gpu: str, cell: str) -> Recorded:
    """Run code in a process of its own on a stand-in GPU, and record it."""
    folder = Path(tempfile.mkdtemp(prefix="stalloc-"))
    program = folder / cell
    program.write_text(code, encoding="utf-8")
    trace = [str(COMMAND), "trace", "--dry-run", gpu, "-o", str(folder / "traces"), "--json", "--", sys.executable, str(program)]
    done = subprocess.run(trace, env=_environment(), capture_output=True, text=True)
    # The command's own output comes on standard error with --json.
    sys.stderr.write(done.stderr)
    if not any((folder / "traces").glob("*.trace")):
        raise RuntimeError("nothing was recorded: the cell runs alone in a process of its own, so it has to import what it uses")
    recorded = Recorded()
    _keep(recorded, folder / "traces")
    return recorded
