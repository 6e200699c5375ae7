"""`stalloc run` starts the command whatever it finds where the plans should be, and says what it could not use."""

from __future__ import annotations

import os
import resource
import shutil
import sys

import pytest
from runs import PROGRAMS, run

pytestmark = pytest.mark.usefixtures("cold")

GPU = ("--dry-run", "h100-80gb")
PROGRAM = (sys.executable, PROGRAMS / "troubles.py")


def serve(folder, *arguments, options=(), **more):
    return run("run", "--plan", folder, "--frozen", *GPU, *options, "--", *PROGRAM, *(arguments or ("size", "5000")), **more)


@pytest.fixture(scope="session")
def with_plan(planned, tmp_path_factory):
    """A folder with a trace and the plan that was made from it."""
    folder = tmp_path_factory.mktemp("with_plan")
    shutil.copy(planned / "rank0_dev0.trace", folder)
    process = serve(folder)
    assert process.returncode == 0 and (folder / "rank0_dev0.plan").exists(), process.stderr
    return folder


@pytest.fixture
def folder(with_plan, tmp_path):
    shutil.copytree(with_plan, tmp_path / "plans")
    return tmp_path / "plans"


def served(process):
    return "requests at planned offsets" in process.stderr


def about(process, file):
    """Lines of ours that name a file."""
    return [line for line in process.stderr.splitlines() if line.startswith("stalloc: ") and str(file) in line]


@pytest.mark.parametrize("length", [0, 8, 300, 0.5, 0.95])
def test_a_newer_trace_that_is_damaged_or_cut_off_leaves_the_good_plan(folder, length):
    trace, plan = folder / "rank0_dev0.trace", folder / "rank0_dev0.plan"
    content, before = trace.read_bytes(), plan.read_bytes()
    trace.write_bytes(content[: length if isinstance(length, int) else int(len(content) * length)])
    process = serve(folder)
    assert process.returncode == 0, process.stderr
    (line,) = about(process, trace)
    assert "is not used" in line and "rank0_dev0.plan stays as it is" in line
    assert plan.read_bytes() == before and served(process)


def test_a_plan_is_old_when_its_recording_is_another_and_not_when_its_file_is(folder, tmp_path):
    trace, plan = folder / "rank0_dev0.trace", folder / "rank0_dev0.plan"
    before = plan.stat().st_mtime_ns
    os.utime(trace)
    assert serve(folder).returncode == 0
    assert plan.stat().st_mtime_ns == before, "the same recording, written again"
    recorded = run("trace", *GPU, "-o", tmp_path / "other", "--", *PROGRAM, "full")
    assert recorded.returncode == 0, recorded.stderr
    shutil.copy(tmp_path / "other" / "rank0_dev0.trace", trace)
    os.utime(trace, (1, 1))
    assert serve(folder).returncode == 0
    assert plan.stat().st_mtime_ns != before, "another recording, with an older date"


def test_pipes_in_the_place_of_plans_and_traces_are_named_and_not_waited_for(folder):
    (folder / "rank0_dev0.plan").unlink()
    for name in ("rank0_dev0.plan", "rank0_dev1.trace", "rank7_dev0.plan"):
        os.mkfifo(folder / name)
    process = serve(folder, timeout=240)
    assert process.returncode == 0, process.stderr
    for name in ("rank0_dev1.trace", "rank7_dev0.plan"):
        (line,) = about(process, folder / name)
        assert "is not a file" in line


def test_a_plan_for_another_rank_or_gpu_than_this_process_has_is_named(folder):
    plan = folder / "rank0_dev0.plan"
    (folder / "rank0_dev0.trace").unlink()
    plan.rename(folder / "rank0_dev5.plan")
    process = run("run", "--plan", folder, *GPU, "--", *PROGRAM, "size", "5000")
    assert process.returncode == 0, process.stderr
    assert "rank0_dev5.plan is for GPU 5, and this process has 1: it is not used" in process.stderr
    for rank in [1, 3]:
        shutil.copy(folder / "rank0_dev5.plan", folder / f"rank{rank}_dev0.plan")
    (folder / "rank0_dev5.plan").unlink()
    process = run("run", "--plan", folder, *GPU, "--", *PROGRAM, "size", "5000")
    assert process.returncode == 0 and "holds plans of rank 1, 3; this is rank 0" in process.stderr, process.stderr


def test_a_plan_that_cannot_be_written_is_named_and_the_command_runs(folder):
    (folder / "rank0_dev0.plan").unlink()

    def nothing_can_be_written():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

    # The interpreter raises the limit again, so that only planning meets it.
    again = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (resource.RLIM_INFINITY,)); sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    command = (sys.executable, "-c", again, PROGRAMS / "troubles.py", "size", "5000")
    process = run("run", "--plan", folder, "--frozen", *GPU, "--", *command, preexec_fn=nothing_can_be_written, restore_signals=False)
    assert process.returncode == 0, process.stderr
    (line,) = [line for line in process.stderr.splitlines() if "its plan cannot be written" in line]
    assert "File too large" in line


def test_answers_and_ranks_are_those_of_a_recording(folder):
    line = next(n for n, text in enumerate((PROGRAMS / "troubles.py").read_text().splitlines(), 1) if ".item()" in text)
    process = serve(folder, "read", options=("--answer", f"troubles.py:{line}=7.5", "--world-size", "4", "--rank", "2"))
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["rank 2 of 4", "read 7.5"]
    process = serve(folder, options=("--world-size", "4", "--rank", "4"))
    assert process.returncode == 2 and "counted from 0 to 3" in process.stderr
