"""Without a shim a job runs on PyTorch's own allocator; and PyTorch takes the library by its path, as users of the artifact give it."""

from __future__ import annotations

import json
import re
import sys

import pytest
from runs import PROGRAMS, run

import stalloc

GPU = ("--dry-run", "h100-80gb")


def serve(directory, program, *arguments, before=(), **env):
    command = ("run", "--plan", directory, "--frozen", *GPU, "--", *before, sys.executable, PROGRAMS / program, *arguments)
    process = run(*command, env=env)
    assert process.returncode == 0, process.stderr
    return process


def test_where_no_shim_can_be_had_the_job_runs_on_pytorchs_allocator_with_one_line_that_says_what_to_install(planned, tmp_path):
    process = serve(planned, "gpt.py", "2", CXX="/no/compiler", XDG_CACHE_HOME=str(tmp_path))
    assert process.stdout.count("loss") == 2
    (line,) = (line for line in process.stderr.splitlines() if "runs with PyTorch's allocator" in line)
    assert "no C++ compiler" in line and "install g++" in line, process.stderr


def test_given_to_pytorch_by_its_path_it_serves_what_the_environment_says_and_no_address_twice(planned):
    process = serve(planned, "by_hand.py", stalloc.lib_path(), before=("env", "-u", "PYTHONPATH"))
    figures = json.loads(process.stdout.splitlines()[-1])
    assert figures["requests"] > 2500
    assert figures["overlaps"] == 0
    found = re.search(r"dev0: ([\d.]+) % of [\d,]+ requests at planned offsets", process.stderr)
    assert found and float(found[1]) > 80, process.stderr
    assert process.stderr.count("record_stream, empty_cache and CUDA graphs do not reach it") == 1


@pytest.mark.parametrize("dynamic", ["0", "1"], ids=["by the fallback", "by the arena"])
def test_given_to_pytorch_by_its_path_it_raises_pytorchs_exception_and_warns_of_another_programs_plan_once(planned, dynamic):
    before = ("env", "-u", "PYTHONPATH", f"STALLOC_DYNAMIC={dynamic}")
    process = serve(planned, "by_hand.py", stalloc.lib_path(), "by name", before=before)
    assert process.stdout.strip() == "CUDA out of memory"
    assert process.stderr.count("record and plan it again") == 1
