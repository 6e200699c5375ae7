"""`bench/jobs.py`: its table says what was measured, the worst as well, and every job that it names is there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_jobs", BENCH / "jobs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(BENCH))
    return module


def cell(efficiency: float, smallest: int | None, remaps: int, oom: bool = False) -> dict:
    """What the commands say of a job of 1,000 bytes."""
    result = {"allocator": "stalloc-open", "efficiency": efficiency, "smallest_capacity": smallest, "oom": oom}
    # As the optimizer's states are made there is more to remap than later, which is not counted.
    result["remaps_by_step"] = [50] * 5 + [remaps, 0]
    others = {"allocator": "pytorch", "efficiency": efficiency / 2, "oom": oom}
    limited = {"stalloc-open": result, "pytorch": others}
    return {"peak_allocated": 1000, "results": [result, others], "limited": {1.05: limited, 1.01: limited}}


def columns(table: str, start: str) -> list[str]:
    """The cells of the line that starts so."""
    return next(line for line in table.splitlines() if line.startswith(f"| {start}")).strip("| ").split(" | ")


def test_a_row_has_efficiency_capacity_and_remaps_a_step_and_dashes_for_what_is_not_known(bench):
    table = bench.table({"gan": cell(0.98, 1003, 4)})
    heads, found = columns(table, "job"), columns(table, "gan")
    row = dict(zip(heads, found))
    assert row["stalloc, open: E · capacity"] == "0.980 · 1003.0"
    assert row["PyTorch: E · capacity"] == "0.490 · -"
    assert row["stalloc, auto: E · capacity"] == "- · -"
    assert row["stalloc, open: remaps"] == "2.00 · 2.00"


def test_the_summary_has_the_median_and_the_worst_of_a_kind(bench):
    jobs = {"gan": cell(0.9, 1003, 0), "diffusion": cell(0.99, 1021, 2), "giant": cell(0.95, 1005, 20, oom=True), "vit": cell(0.1, 1900, 9999)}
    table = bench.table(jobs)
    heads = columns(table, "job")
    middle, worst = (dict(zip(heads, columns(table, start))) for start in ("**median of 3** | varying", "**worst** | varying"))
    assert middle["stalloc, open: E · capacity"] == "0.950 · 1005.0"
    assert worst["stalloc, open: E · capacity"] == "0.900 · 1021.0"
    assert middle["stalloc, open: remaps"] == "1.00 · 1.00"
    summary = columns(bench.summary(jobs), "varying (3)")
    assert summary[4] == "1005.0 · 1021.0"
    assert worst["stalloc, open: remaps"] == "out of memory · out of memory"


def test_every_job_has_a_script_that_says_what_varies_and_is_of_a_known_kind(bench):
    root = BENCH.parent
    for name, job in bench.JOBS.items():
        assert (root / job.script).read_text().startswith('"""'), name
        assert job.kind in bench.KINDS, name
    used = {(root / job.script).name for job in bench.JOBS.values()}
    assert {script.name for script in (BENCH / "jobs").glob("*.py")} - used == {"__init__.py", "nets.py", "training.py", "two_way_offload.py", "unseen.py"}
    assert sum(job.held_out for job in bench.JOBS.values()) == 15
