"""`stalloc trace` says what is wrong in one line, and passes on how the command ended."""

import shutil
import sys
from pathlib import Path

import pytest
from runs import run

import stalloc


def one_line(process):
    lines = process.stderr.strip().splitlines()
    assert process.returncode == 2
    assert len(lines) == 1, process.stderr
    return lines[0]


def test_an_unknown_gpu_is_refused_with_the_list(tmp_path):
    line = one_line(run("trace", "--dry-run", "h1000", "-o", tmp_path, "--", "true"))
    assert "h1000" in line and "h100-80gb" in line


@pytest.mark.parametrize("command", ["no-such-command", "/no/such/command", "/etc/passwd"])
def test_a_command_that_cannot_be_run_is_named(tmp_path, command):
    assert command in one_line(run("trace", "-o", tmp_path, "--", command))


def test_a_directory_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file" in one_line(run("trace", "-o", tmp_path / "file" / "below", "--", "true"))
    assert "/proc/stalloc" in one_line(run("trace", "-o", "/proc/stalloc", "--", "true"))


def test_a_command_that_uses_no_gpu_is_told_of_dry_runs(tmp_path):
    assert "--dry-run h100-80gb" in one_line(run("trace", "-o", tmp_path, "--", "true"))


def test_a_torch_without_cuda_is_named(tmp_path):
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(
        "class version: cuda = hip = None\n__version__ = '2.9.0+cpu'\nprint('the program goes on')"
    )
    command = (sys.executable, "-c", "import torch; print('not reached')")
    process = run("trace", "--json", "-o", tmp_path / "out", "--", *command, cwd=tmp_path)
    assert process.returncode == 2
    assert "stalloc: this PyTorch (2.9.0+cpu) is built without CUDA: there is nothing to record" in process.stderr
    assert "not reached" not in process.stderr


def test_parts_of_different_builds_are_named_before_anything_runs(tmp_path):
    package = Path(stalloc.__file__).parent
    shutil.copytree(package, tmp_path / "stalloc", symlinks=True)
    (tmp_path / "stalloc" / "_native.pyi").unlink()
    (tmp_path / "stalloc" / "_native.pyi").write_text("def something_new() -> None: ...")
    command = (sys.executable, "-c", "print('not reached')")
    process = run("trace", "-o", tmp_path / "out", "--", *command, env={"STALLOC_PYTHON_PACKAGE": str(tmp_path / "stalloc")})
    assert "_native.abi3.so is of another build" in process.stderr and "install stalloc again" in process.stderr
    assert "not reached" not in process.stdout and process.returncode == 2


@pytest.mark.parametrize("options, reason", [
    (("--world-size", "4", "--rank", "4"), "counted from 0 to 3"),
    (("--world-size", "4", "--ranks", "0,9"), "counted from 0 to 3"),
    (("--ranks", "0"), "--world-size"),
    (("--steps", "0"), "--steps"),
    (("--dry-run", "h100-80gb", "--devices", "17"), "1 to 16"),
])
def test_options_that_make_no_sense_are_refused(tmp_path, options, reason):
    process = run("trace", *options, "-o", tmp_path, "--", "true")
    assert process.returncode == 2
    assert reason in process.stderr


@pytest.mark.parametrize("code, status", [("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_commands_status_is_passed_on(tmp_path, code, status):
    assert run("trace", "-o", tmp_path, "--", sys.executable, "-c", code).returncode == status


def test_a_program_of_another_environment_keeps_its_own_sitecustomize(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.customized = True")
    code = "import sys; print(customized, 'stalloc' in sys.modules, any('_bootstrap' in path for path in sys.path))"
    process = run("trace", "--json", "-o", tmp_path, "--", sys.executable, "-c", code, env={"PYTHONPATH": str(tmp_path)})
    assert process.stderr.splitlines()[0] == "True True False"


def test_out_of_memory_is_pytorchs_own_error_and_in_the_trace(record):
    recorded = record("out_of_memory.py")
    assert "caught OutOfMemoryError: CUDA out of memory" in recorded.process.stderr
    (entry,) = [entry for entry in recorded.entries() if entry["action"] == "oom"]
    assert entry["size"] == 200 << 30
    assert 70 << 30 < entry["device_free"] < 80 << 30
