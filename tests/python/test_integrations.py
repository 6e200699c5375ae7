"""Memory figures reach the logs of real frameworks; and a quick-start script or two, another every day, runs in every way.

The frameworks are in an environment of their own, which is made where it can be. Where it cannot, these tests say so and are skipped.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from runs import COMMAND, PROGRAMS, run

ROOT = Path(__file__).parents[2]
FIGURES = {"memory/peak_allocated_gib", "memory/peak_reserved_gib", "memory/efficiency"}


@pytest.fixture(scope="module")
def frameworks():
    """The interpreter that has the frameworks."""
    try:
        made = subprocess.run([ROOT / "scripts" / "python-env", "frameworks"], text=True, capture_output=True, timeout=400)
    except subprocess.TimeoutExpired:
        pytest.skip("NOT TRIED: the environment of the frameworks was not made within 400 seconds")
    if made.returncode:
        pytest.skip(f"NOT TRIED: the environment of the frameworks cannot be made: {made.stderr.strip()[-300:]}")
    return made.stdout.strip()


def test_figures_and_marks_reach_the_logs_of_trainer_lightning_and_accelerate(frameworks, tmp_path):
    program = ROOT / "tests" / "python" / "programs" / "callbacks.py"
    env = {"STEPS": "4", "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{COMMAND.parents[2]}:{ROOT / 'bench' / 'frameworks'}"}
    process = run("run", "--dry-run", "h100-80gb", "--", frameworks, program, env=env, cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-3000:]
    logs = json.loads(process.stdout.splitlines()[-1])
    of_training = [line for line in logs["trainer"] if "loss" in line]
    assert len(of_training) == 4 and all(line.keys() >= FIGURES for line in logs["trainer"])
    served = of_training[-1]
    assert 0 < served["memory/efficiency"] <= 1 and served["memory/peak_allocated_gib"] > 0.1
    assert "memory/remaps" in served, "stalloc serves it, and says so"
    events = b"".join(file.read_bytes() for file in (tmp_path / "trainer").rglob("events.out.tfevents*"))
    assert b"memory/efficiency" in events, "TensorBoard has the figures"
    lines = list(csv.DictReader(io.StringIO(logs["lightning"])))
    assert len(lines) == 4 and all(float(line["memory/efficiency"]) > 0 for line in lines)
    assert [line["step"] for line in logs["accelerate"]] == [0, 1] and logs["accelerate"][1]["loss"] == 1.0
    assert logs["accelerate"][1].keys() >= FIGURES
    assert process.stderr.count("GiB reserved for") == 3, "each says the verdict at its end"


def test_no_report_is_made_while_accelerate_looks_for_a_batch_that_fits(frameworks, tmp_path):
    env = {"STALLOC_OUT_OF_MEMORY": str(tmp_path / "dumps"), "STALLOC_DRYRUN_TOTAL_MIB": "1024", "STALLOC_DRYRUN_CONTEXT_MIB": "200"}
    program = [frameworks, ROOT / "tests" / "python" / "programs" / "find_batch_size.py"]
    done = run("run", "--dry-run", "rtx4090", "--", *program, env=env, cwd=tmp_path)
    assert done.returncode == 0 and "trained with" in done.stdout, done.stderr
    told = [line for line in done.stderr.splitlines() if "memory ran out" in line]
    assert len(told) == 1 and "times and the program went on" in told[0], done.stderr
    assert not (tmp_path / "dumps").exists()
    done = run("run", "--dry-run", "rtx4090", "--", *program, "none", env=env, cwd=tmp_path)
    assert "No executable batch size found" in done.stderr and done.stderr.count("the report is in") == 1, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("way, ranks", [("notebook_launcher", 2), ("ddp_fork", 4)])
def test_ranks_that_a_framework_forks_learn_and_start_from_what_they_kept(frameworks, tmp_path, way, ranks):
    for steps in (8, 3):
        gpus = ("--dry-run", "h100-80gb", "--devices", str(ranks))
        program = (PROGRAMS / "framework_forks.py", way, str(ranks), str(steps))
        env = {"PYTHONPATH": str(COMMAND.parents[2])}
        process = run("run", "--plan", tmp_path, *gpus, "--", frameworks, *program, env=env)
        assert process.returncode == 0, process.stderr
        assert sorted(path.name for path in tmp_path.glob("*.plan")) == [f"rank{rank}_dev{rank}.plan" for rank in range(ranks)]
    shares = re.findall(r"rank(\d) dev\1: ([\d.]+) % of [\d,]+ requests at planned offsets", process.stderr)
    assert sorted(rank for rank, _ in shares) == [str(rank) for rank in range(ranks)], process.stderr
    assert min(float(share) for _, share in shares) > 99, process.stderr


@pytest.mark.nightly
def test_the_framework_whose_turn_it_is_works_in_every_way(frameworks):
    command = [frameworks, ROOT / "bench" / "frameworks.py", "--rotate", "1"]
    process = subprocess.run(command, text=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(COMMAND.parents[2])})
    assert process.returncode == 0, process.stdout + process.stderr
    assert "failed" not in process.stdout and process.stdout.count("\n") == 3
