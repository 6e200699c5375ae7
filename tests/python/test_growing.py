"""A job whose memory grows from step to step says so while it trains, once; one whose memory does not says nothing."""

from __future__ import annotations

import re
import sys

import pytest
from runs import PROGRAMS, run

PROGRAM = PROGRAMS / "growing.py"
GPUS = ("--dry-run", "h100-80gb", "--devices", "4")


@pytest.mark.parametrize("way", ["run", "trace"])
def test_only_the_job_that_leaks_is_said_to_grow_and_once(way, tmp_path):
    options = ("-o", tmp_path / "traces") if way == "trace" else ()
    done = run(way, *options, *GPUS, "--", sys.executable, PROGRAM)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "grows by" in line]
    found = re.search(r"memory of device 0 grows by ([\d.]+) MiB a step, for 20 steps now", line)
    # A step keeps its input (512 KiB), two activations of 2 MiB, and what the squares need (512 KiB).
    assert found and 4 < float(found[1]) < 6, line
    if way == "run":
        assert "`stalloc trace --steps 8 -o traces -- COMMAND`, then `stalloc report traces`" in line
        return
    # The innermost line of the program's own that most of it is allocated at.
    number = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "# leaks" in text)
    assert f"most of it allocated at programs/growing.py:{number} " in line
    report = run("report", tmp_path / "traces", "--device", "0")
    assert report.returncode == 0 and f"growing.py:{number} " in report.stdout, report.stdout + report.stderr


def test_a_trial_goes_on_while_what_stays_rises_and_fit_says_by_how_much():
    done = run("fit", *GPUS, "--no-cache", "--", sys.executable, PROGRAM)
    assert re.search(r"^Yes: [\d.]+ MiB of 79.19 GiB, in its first 12 steps, and what stays rises\.$", done.stdout, re.M), done.stdout + done.stderr
    found = re.search(r"What stays rises by ([\d.]+) MiB a step, as far as trials went\. If that goes on, memory is full after about [\d,]+ more", done.stdout)
    assert found and 4 < float(found[1]) < 6, done.stdout


def test_what_a_second_optimizer_makes_late_is_no_rise(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import torch\n"
        "nets = [torch.nn.Linear(2048, 2048, device='cuda') for _ in range(2)]\n"
        "optimizers = [torch.optim.Adam(net.parameters()) for net in nets]\n"
        "for step in range(20):\n"
        "    for net in nets:\n"
        "        net(torch.randn(8, 2048, device='cuda')).square().mean().backward()\n"
        "    optimizers[0].step()\n"
        "    optimizers[0].zero_grad()\n"
        "    if step >= 1:\n"
        "        optimizers[1].step()\n"
        "    optimizers[1].zero_grad()\n"
    )
    done = run("fit", *GPUS[:2], "--no-cache", "--", sys.executable, script)
    assert re.search(r"^Yes: .*, in its first 4 steps\.$", done.stdout, re.M), done.stdout + done.stderr
    assert "rises" not in done.stdout
