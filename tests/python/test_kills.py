"""Killed at any time, recording or learning: what was kept is whole or absent, and the next job starts.

``STALLOC_KILLS=SEED,COUNT scripts/test-python tests/python/test_kills.py`` kills more often (2 of each kind, seed 1).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runs import COMMAND, PROGRAMS, START, run

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("cold")]

SEED, COUNT = map(int, os.environ.get("STALLOC_KILLS", "1,2").split(","))
GPU = ("--dry-run", "h100-80gb")
STEPS = "400"  # more than a job is given time for
MOMENTS = ("start", "step", "write")


def killed(folder: Path, moments: tuple[str, ...], chance: random.Random, *arguments: str | Path) -> bool:
    """Starts a command, and kills it and all that it started: while it starts, after a step, or when it has written to `folder`.

    False if it had ended before.
    """
    environment = os.environ | {"PYTHONPATH": str(START)}
    command = (COMMAND, *arguments, sys.executable, "-u", PROGRAMS / "gpt.py", STEPS)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    before, moment = listing(folder), chance.choice(moments)
    if moment == "start":
        time.sleep(chance.uniform(0, 8))
    elif moment == "step":
        for _ in range(chance.randrange(60)):
            process.stdout.readline()
    else:
        while process.poll() is None and listing(folder) == before:
            time.sleep(0.001)
        time.sleep(chance.choice([0, 0, 0.001, 0.003, 0.01, 0.1, 1]) * chance.random())
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def listing(folder: Path) -> list[tuple[str, int]]:
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            found.append((path.name, path.stat().st_size))
        except FileNotFoundError:
            pass  # renamed meanwhile
    return found


def check(folder: Path) -> tuple[int, int]:
    """Traces can be read and plans are whole; how many there are."""
    traces, plans = sorted(folder.glob("*.trace")), sorted(folder.glob("*.plan"))
    for trace in traces:
        if trace.stat().st_size:
            described = run("info", trace)
            assert described.returncode == 0, described.stderr
    for plan in plans:
        verified = run("verify", plan)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    return len(traces), len(plans)


def starts(folder: Path) -> None:
    process = run("run", "--plan", folder, *GPU, "--", sys.executable, PROGRAMS / "gpt.py", "8")
    assert process.returncode == 0, process.stderr


def test_a_recording_that_is_killed_is_read_up_to_what_was_written(tmp_path):
    chance = random.Random(SEED)
    for number in range(COUNT):
        folder = tmp_path / f"traces{number}"
        killed(folder, MOMENTS, chance, "trace", *GPU, "-o", folder, "--")
        check(folder)
    starts(folder)


def test_jobs_that_are_killed_while_they_learn_into_one_folder_leave_whole_plans_or_none(tmp_path):
    chance = random.Random(SEED)
    folder = tmp_path / "plans"
    for number in range(COUNT):
        moments = MOMENTS
        if number % 2 == 0:
            shutil.rmtree(folder, ignore_errors=True)
        elif listing(folder):
            moments = MOMENTS[:2]  # they start from a plan, and write none
        with ThreadPoolExecutor() as jobs:
            chances = [random.Random(chance.random()) for _ in range(2)]
            found = [jobs.submit(killed, folder, moments, chance, "run", "--plan", folder, *GPU, "--") for chance in chances]
        print("killed:", sum(job.result() for job in found), "plans:", check(folder)[1])
    starts(folder)
    assert check(folder)[1] == 1, "what a job that ends has learned is kept"
