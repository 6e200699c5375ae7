"""Killed at any time, recording or learning: what was kept is whole or absent, and the next job starts.

``STALLOC_KILLS=SEED,COUNT scripts/test-python tests/python/test_kills.py`` kills more often (2 of each kind, seed 1).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from runs import COMMAND, PROGRAMS, run

SEED, COUNT = map(int, os.environ.get("STALLOC_KILLS", "1,2").split(","))
GPU = ("--dry-run", "h100-80gb")
RECORDED, LEARNED = "400", "10"  # steps: more than it is given time for; so many that a plan is kept at the end


def killed(folder: Path, chance: random.Random, *arguments: str | Path) -> float:
    """Starts a command, and kills it and all that it started some time after it first wrote to `folder`, or at any time."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        [COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    began = time.monotonic()
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0, 8))
    else:
        before = listing(folder)
        while process.poll() is None and listing(folder) == before and time.monotonic() - began < 60:
            time.sleep(0.001)
        time.sleep(chance.choice([0, 0, 0.001, 0.003, 0.01, 0.1, 1]) * chance.random())
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return time.monotonic() - began


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
        killed(folder, chance, "trace", *GPU, "-o", folder, "--", sys.executable, PROGRAMS / "gpt.py", RECORDED)
        check(folder)
    starts(folder)


def test_jobs_that_are_killed_while_they_learn_into_one_folder_leave_whole_plans_or_none(tmp_path):
    chance = random.Random(SEED)
    folder = tmp_path / "plans"
    for _ in range(COUNT):
        command = ("run", "--plan", folder, *GPU, "--", sys.executable, PROGRAMS / "gpt.py", LEARNED)
        jobs = [threading.Thread(target=killed, args=(folder, random.Random(chance.random()), *command)) for _ in range(2)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        check(folder)
    starts(folder)
    assert check(folder)[1] == 1, "what a job that ends has learned is kept"
