"""`bench/gpu` where there is no GPU: it goes from its first run to its table, and says nothing of times."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "gpu"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_gpu", BENCH / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_gpu"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    sys.path.remove(str(BENCH))
    return module


def measure(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BENCH / "run.py", "--dry-run", "h100-80gb", "--model", "tiny", "--without", "largest"]
    command += ["--work", folder, "--output", folder / "gpu.md"]
    return subprocess.run(["timeout", "--kill-after=5", "590", *command], text=True, capture_output=True, env=dict(os.environ))


def test_on_the_stand_in_it_compares_three_allocators_without_times_and_goes_on_where_it_was(tmp_path):
    process = measure(tmp_path)
    assert process.returncode == 0, process.stderr
    text = (tmp_path / "gpu.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].strip("| *") for row in rows[1:]] == ["PyTorch", "PyTorch, expandable segments", "stalloc"]
    assert float(rows[3].split(" | ")[4].removesuffix(" %")) > 99  # from the plan
    assert "tokens per second" not in text and "no times" in text
    assert " 0 differ." in text
    again = measure(tmp_path)
    assert again.returncode == 0 and again.stderr == "" and again.stdout == process.stdout


@pytest.mark.parametrize("most", [1, 2, 7, 12, 31, 100, 333])
def test_the_largest_micro_batch_is_found_to_one_part_in_sixteen(bench, most):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= most

    found, is_certain = bench.largest(fits, 12)
    assert is_certain and found <= most < found + max(found // 16, 1) + 1
    assert len(tried) == len(set(tried)) < 14


def test_a_search_that_time_ends_says_what_it_knows(bench):
    def fits(size):
        if size > 30:
            raise bench.OutOfTime
        return True

    assert bench.largest(fits, 12) == (24, False)
    assert bench.largest(lambda _size: False, 12) == (0, True)
