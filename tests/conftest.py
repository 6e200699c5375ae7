"""Programs of tests go on from a process that has imported PyTorch (``python/start/warm.py``)."""

from __future__ import annotations

import importlib.util
import marshal
import os
import signal
import tempfile
from pathlib import Path

import pytest

WARM = Path(__file__).parent / "python" / "start" / "warm.py"
#: The files that take longest. They begin first: one that began last would leave the other cores idle.
LONGEST = "out_of_memory lever_harness run_fit fit endings levers spill docs numerics workloads integrations why examples hostile".split()


def pytest_configure():
    """A shell has what it starts with `&` ignore Ctrl-C, and so would the tests' programs."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    """The longest files first, the others as they are."""
    items.sort(key=lambda item: [*LONGEST, name := item.path.stem.removeprefix("test_")].index(name))


@pytest.fixture(scope="session", autouse=True)
def warm_starts():
    """Says to all programs where the copies are that they may go on from."""
    with tempfile.TemporaryDirectory(prefix="warm") as folder:
        code = compile(WARM.read_text(), "<frozen runpy>", "exec", dont_inherit=True)
        Path(folder, "warm_copy.pyc").write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
        os.environ |= {"WARM_START": str(WARM), "WARM_FOLDER": folder}
        yield
        os.environ.pop("WARM_START", None)


@pytest.fixture(scope="module")
def cold(warm_starts):
    """For tests of a program's start: each program runs from it."""
    started = os.environ.pop("WARM_START")
    yield
    os.environ["WARM_START"] = started
