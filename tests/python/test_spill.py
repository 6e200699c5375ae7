"""Saved tensors wait in host memory by a plan: values are the script's whatever the plan, and the peak is the plan's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from runs import PROGRAMS, run

import stalloc

GPU = "sm=8,memory=8GiB,capability=8.0,context=16MiB,name=small"

SCRIPT = """\
import torch
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(16))).cuda()
optimizer = torch.optim.SGD(model.parameters(), foreach=False)
for _step in range(4):
    model(torch.ones(8192, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("peak", torch.cuda.max_memory_allocated())
"""


def test_a_wrong_plan_costs_memory_and_never_values():
    folder = str(Path(stalloc.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, PROGRAMS / "spilled_values.py"], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": folder}
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    right = found["as it is"]
    assert found["rehearsed"] == found["planned"] == right
    assert found["spilled"] >= 12 and found["what"].startswith(str(found["spilled"])), found["what"]
    for what in ("twice", "another batch", "another model"):
        assert found[what][0] == found[what][1], what
    assert "outside its host memory" in found["outside"]
    assert all(damaged == right for damaged in found["damaged"])
    assert found["own hooks"] == right and found["hooked"] > 12
    assert found["skipped copy"] != right, "a copy that is skipped shows"
    says = [line for line in process.stderr.splitlines() if "spill:" in line]
    assert sum("not those of the plan" in line for line in says) == 4 and sum("go first" in line for line in says) == 1, says


def test_a_job_is_spilled_as_its_trial_was(tmp_path):
    script, cache = tmp_path / "script.py", {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    script.write_text(SCRIPT)
    as_it_is = run("run", "--dry-run", GPU, "--", sys.executable, str(script), env=cache)
    peak = int(re.match(r"peak (\d+)", as_it_is.stdout)[1])
    goal = int(peak * 0.95) >> 20
    process = run("run", f"--fit={goal}MiB", "--dry-run", GPU, "--", sys.executable, str(script), env=cache)
    assert process.returncode == 0, process.stderr
    says = [line for line in process.stderr.splitlines() if "--fit:" in line]
    assert re.search(r"spill \(\d+ of \d+ saved tensors wait in host memory across the peak, [\d.]+ \w+\)", says[0]), says
    reached, predicted = re.search(r"the peak is ([\d.,]+) MiB allocated; ([\d.,]+) MiB were predicted", says[-1]).groups()
    lower = int(re.match(r"peak (\d+)", process.stdout)[1])
    assert reached == predicted == f"{lower / 2**20:,.1f}" and lower >> 20 < goal
