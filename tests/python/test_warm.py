"""A test's program that goes on from a process that has imported PyTorch is one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from runs import PROGRAMS, START

WAYS = ("nothing", "reads", "raises", "exits", "prints", "says", "killed", "interrupted", "imports")


def program(how: str, warm: bool) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(START)}
    if not warm:
        environment.pop("WARM_START")
    return {"args": [sys.executable, str(PROGRAMS / "as_started.py"), how, "--more"], "env": environment, "text": True}


def ends(how: str, warm: bool) -> tuple[int, str, str]:
    done = subprocess.run(**program(how, warm), capture_output=True, input="from outside")
    return done.returncode, done.stdout.replace("'WARM_START', ", ""), done.stderr


def test_it_goes_on_from_a_copy_unless_it_is_asked_not_to():
    for warm in (True, False):
        assert f"goes on from a copy: {warm}" in ends("tells", warm)[1]


@pytest.mark.parametrize("how", WAYS)
def test_it_says_and_ends_what_it_would_have(how):
    assert ends(how, True) == ends(how, False)


def test_a_signal_reaches_it_and_it_does_not_outlive_who_waits_for_it():
    for number, status in ((signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen(**program("waits", True), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waits:
            assert "ready\n" in iter(waits.stdout.readline, "")
            waits.send_signal(number)
            # Whoever held the other end of its output would keep this from ending.
            waits.communicate(timeout=60)
            assert waits.returncode == status


@pytest.mark.usefixtures("cold")
def test_what_asks_for_a_start_has_one():
    assert "WARM_START" not in os.environ
