"""An installed package serves by the environment alone, and is in no interpreter's way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
from runs import COMMAND, PROGRAMS, run

pytestmark = pytest.mark.usefixtures("cold")

SOURCES = Path(__file__).parents[2] / "python"
HOOK = ("stalloc.pth", "_stalloc_startup.py")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter whose site-packages is as the installed package leaves it."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in HOOK:
        shutil.copy(SOURCES / name, site)
    (site / "packages.pth").write_text(f"{COMMAND.parents[2]}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


def start(python, code, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("STALLOC", "PYTHONPATH"))}
    return subprocess.run([python, "-c", code], env=clean | env, text=True, capture_output=True)


def served(process):
    found = re.search(r"dev0: ([\d.]+) % of ([\d,]+) requests at planned offsets", process.stderr)
    assert found, process.stderr
    return float(found[1])


#: A train script as the artifact's README has its users write it, around the pretraining script.
TRAIN_SCRIPT = """
set -e
export STALLOC_TRACE_FAST_MODE=1 STALLOC_LIB_PATH=/opt/artifact/Allocator
export STALLOC_MODEL_INFO_PATH=$SAVED/gpt-node0
if [ "$STALLOC_MODE" = Trace ]; then
    rm -rf $STALLOC_MODEL_INFO_PATH/trace
    mkdir -p $STALLOC_MODEL_INFO_PATH/trace $STALLOC_MODEL_INFO_PATH/output
elif [ "$STALLOC_MODE" = Alloc ]; then
    export STALLOC_LOG_LEVEL=1
    [ -e $STALLOC_MODEL_INFO_PATH/output/plan ] || exit 1
fi
"$@" --steps 3
"""


def test_an_interpreter_that_is_told_nothing_imports_nothing(python):
    code = "import sys; print([name for name in sys.modules if 'stalloc' in name], [f for f in sys.meta_path if 'stalloc' in str(f)])"
    process = start(python, code)
    assert (process.stdout, process.stderr) == ("[] []\n", "")
    assert start(python, "import sys; print('stalloc' in sys.modules)", STALLOC_MODE="Alloc").stdout == "False\n"


def test_whatever_is_wrong_costs_one_line_and_the_program_runs(python, tmp_path):
    (tmp_path / "torch.py").write_text("name = 'a torch'")
    code = "import torch; print(torch.name)"
    for mode, reason in [("Clever", "none of auto, torch, trace, alloc"), ("Alloc", "needs a folder")]:
        process = start(python, code, STALLOC_MODE=mode, PYTHONPATH=str(tmp_path))
        assert process.stdout == "a torch\n"
        assert process.stderr.count("\n") == process.stderr.count("stalloc: not in this process") == 1
        assert reason in process.stderr
    (tmp_path / "_stalloc_startup.py").write_text("raise OSError('a disk that is gone')")
    process = start(python, code, STALLOC_MODE="Alloc", PYTHONPATH=str(tmp_path))
    assert (process.stdout, process.stderr) == ("a torch\n", "stalloc: not in this process: a disk that is gone\n")
    assert "No module named 'missing'" in start(python, "import missing", STALLOC_MODE="Torch").stderr


def test_the_hook_of_the_artifacts_scripts_marks_modules_while_a_trace_is_taken_and_else_does_nothing(monkeypatch):
    from torch import nn

    from stalloc.utils.hook_model import hook_memory_model

    for mode, hooks in (("Torch", 0), ("Alloc", 0), ("Trace", 1)):
        monkeypatch.setenv("STALLOC_MODE", mode)
        model = nn.Sequential(nn.Linear(2, 2))
        assert hook_memory_model(model, None) is model
        assert len(model[0]._forward_pre_hooks) == hooks, mode


def test_the_environment_alone_traces_and_serves_as_the_artifact_lays_out_its_folder(python, planned, tmp_path):
    def alone(*program, mode, **env):
        said = ("env", "-u", "PYTHONPATH", f"STALLOC_MODE={mode}", f"STALLOC_MODEL_INFO_PATH={tmp_path}")
        # `stalloc run` is here only for its stand-in GPU: its own ways of saying things are taken away again.
        process = run("run", "--plan", planned, "--frozen", "--dry-run", "h100-80gb", "--", *said, python, *program, env=env)
        assert process.returncode == 0, process.stderr
        return process

    nothing = alone(PROGRAMS / "gpt.py", "1", mode="Alloc")
    assert "neither a plan nor a trace for rank 0" in nothing.stderr
    process = alone(PROGRAMS / "gpt.py", "4", mode="Trace")
    assert f"recording is kept in {tmp_path}/trace/rank0_dev0.trace: the same folder with STALLOC_MODE=Alloc" in process.stderr
    process = alone(PROGRAMS / "gpt.py", "6", mode="Alloc")
    assert served(process) > 99.9
    assert f"{tmp_path}/output/plan/rank0_dev0.plan: planned from the recording" in process.stderr
    # A script that enables stalloc as well is served once, and told so if it wants something else.
    code = "import stalloc; stalloc.enable(); stalloc.enable('torch'); import torch; torch.ones(1, device='cuda'); print(stalloc.memory_stats()['requests'])"
    process = alone("-c", code, mode="Alloc")
    assert process.stdout == "1\n"
    assert process.stderr.count("set up already, for mode alloc") == 1
    assert "PyTorch's allocator:" not in process.stderr


@pytest.mark.nightly
def test_the_runs_of_the_artifacts_readme_go_through_on_a_megatron_script_with_its_hook(python, planned, tmp_path):
    script = (SOURCES.parent / "examples" / "megatron_gpt.py").read_text()
    hooked = script.replace("import argparse\n", "from stalloc.utils.hook_model import hook_memory_model\n\nimport argparse\n", 1)
    hooked = hooked.replace("model = model.cuda().bfloat16()", "model = hook_memory_model(model.cuda().bfloat16(), options)")
    assert hooked.count("hook_memory_model") == 2
    (tmp_path / "pretrain_gpt.py").write_text(hooked)
    (tmp_path / "train.sh").write_text(TRAIN_SCRIPT)
    sizes = "--layers 4 --hidden 64 --heads 4 --key-value-heads 4 --feed-forward 128 --length 32 --vocabulary 128".split()

    def train(mode):
        said = ("env", "-u", "PYTHONPATH", f"STALLOC_MODE={mode}", f"SAVED={tmp_path}", "bash", tmp_path / "train.sh")
        # `stalloc run` is here only for its stand-in GPU: what it says to the program is taken away again.
        begin = ("run", "--plan", planned, "--frozen", "--dry-run", "h100-80gb", "--", *said)
        return run(*begin, python, tmp_path / "pretrain_gpt.py", *sizes, env={"STALLOC_LOG_LEVEL": "0"})

    assert train("Alloc").returncode == 1, "the script asks for a plan"
    torch = train("Torch")
    assert torch.returncode == 0, torch.stderr
    assert len(re.findall(r"dev0 : max_reserved:[\d.]+, max_allocated:[\d.]+, \w+:[\d.]+%$", torch.stdout + torch.stderr, re.M)) == 3
    trace = train("Trace")
    saved = tmp_path / "gpt-node0"
    assert trace.returncode == 0 and (saved / "trace" / "rank0_dev0.trace").is_file(), trace.stderr
    planned_now = run("plan", saved / "trace", "-o", saved / "output" / "plan")
    assert planned_now.returncode == 0, planned_now.stderr
    alloc = train("Alloc")
    assert alloc.returncode == 0, alloc.stderr
    assert served(alloc) > 99.9
    for process in (torch, trace, alloc):
        assert process.stdout.count("peak allocated") == 3, process.stdout
        assert "Traceback" not in process.stderr


def test_no_ending_of_the_start_up_reaches_the_program(python, tmp_path):
    (tmp_path / "_stalloc_startup.py").write_text("raise SystemExit('an end of ours')")
    for closed in ("", "2>&-", "2>/dev/full"):
        said = f'exec {python} -c "print(1)" {closed}'
        process = subprocess.run(
            ["sh", "-c", said], text=True, capture_output=True, env=os.environ | {"STALLOC_MODE": "Auto", "PYTHONPATH": str(tmp_path)}
        )
        assert (process.returncode, process.stdout) == (0, "1\n"), closed
        assert process.stderr == ("" if closed else "stalloc: not in this process: an end of ours\n")


def test_an_isolated_interpreter_is_recorded_where_stalloc_is_installed_and_a_line_says_that_it_has_to_be(python, tmp_path):
    code = "import torch; x = torch.ones(1000, device='cuda')"
    process = run("trace", "--dry-run", "h100-80gb", "-o", tmp_path, "--", python, "-I", "-c", code)
    assert process.returncode == 0 and "recorded in" in process.stdout, process.stderr
    assert "python -I ignores PYTHONPATH" in process.stderr and "or install stalloc for that Python" in process.stderr
    nothing = run("trace", "-o", tmp_path, "--", python, "-S", "-c", "pass")
    assert "python -S starts without the site module" in nothing.stderr
