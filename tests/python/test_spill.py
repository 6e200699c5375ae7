"""Saved tensors wait in host memory by a plan: values are the script's whatever the plan, and the peak is the plan's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from runs import PROGRAMS, own_cache, run

import stalloc

GPU = "sm=8,memory=8GiB,capability=8.0,context=16MiB,name=small"
#: One that computes so fast that copies make it wait.
FAST = "like=h100-80gb,memory=8GiB,context=16MiB,name=fast"

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
    (values, _, _), planned, few, one_place = found["insured"]
    assert all(one[0] == values and one[1] for one in (planned, few, one_place)), "memory that runs out changes no values"
    assert planned[2] == 0 < few[2] and found["skipped copy, insured"][0] != values
    told = found["told"]
    assert all(values == right for values, _lines in told.values())
    assert {what: len(lines) for what, (_values, lines) in told.items()} == dict.fromkeys(told, 1) | {"as it is": 0}, told
    says = [line for line in process.stderr.splitlines() if "spill:" in line]
    assert sum("not those of the plan" in line for line in says) == 5 and sum("go first" in line for line in says) == 1, says


#: Two models that each have a backward pass to come while the other is called, and layers that are called one by one.
PAIR = """\
import torch
from torch import nn

layer = lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()).cuda()
made, judge = [layer() for _ in range(4)], nn.Sequential(*(layer() for _ in range(3))).cuda()
optimizers = [torch.optim.Adam([p for one in made for p in one.parameters()], foreach=False), torch.optim.Adam(judge.parameters(), foreach=False)]
for _step in range(4):
    x = torch.ones(SIZE, WIDTH, device="cuda")
    for one in made:
        x = one(x)
    judge(x.detach()).sum().backward()
    optimizers[1].step()
    judge(x).mean().backward()
    optimizers[0].step()
    for one in optimizers:
        one.zero_grad()
    del x
print("peak", torch.cuda.max_memory_allocated())
"""


def fitted(tmp_path, script, part, *levers, gpu=GPU):
    """A script under `--fit` with some levers, at a part of its peak: what was said, its peak, and MiB that it may have live."""
    file, cache = tmp_path / "script.py", own_cache(tmp_path / "cache")
    file.write_text(script)
    as_it_is = run("run", "--dry-run", gpu, "--", sys.executable, str(file), env=cache)
    goal = int(int(re.match(r"peak (\d+)", as_it_is.stdout)[1]) * part) >> 20
    only = ("--only", ",".join(levers))
    process = run("run", f"--fit={goal}MiB", *only, "--dry-run", gpu, "--", sys.executable, str(file), env=cache)
    assert process.returncode == 0, process.stderr
    says = [line for line in process.stderr.splitlines() if "--fit:" in line]
    reached, predicted = re.search(r"the peak is ([\d.,]+) MiB allocated; ([\d.,]+) MiB were predicted", says[-1]).groups()
    peak = int(re.match(r"peak (\d+)", process.stdout)[1])
    assert reached == predicted == f"{peak / 2**20:,.1f}" and peak >> 20 < goal
    return says


def test_two_models_and_layers_of_a_list_are_spilled_and_checkpointed_at_once(tmp_path):
    says = fitted(tmp_path, PAIR.replace("SIZE", "65536").replace("WIDTH", "512"), 0.33, "checkpoint", "spill", gpu=FAST)
    assert "checkpoint (" in says[0] and "4 of 4 blocks of made[0]" in says[0] and re.search(r"spill \([1-9]\d* of", says[0]), says


def test_states_wait_on_the_host_between_steps(tmp_path):
    says = fitted(tmp_path, PAIR.replace("SIZE", "256").replace("WIDTH", "2048"), 0.7, "states_on_host")
    assert "states_on_host (448.0 MiB of optimizer states wait in host memory between steps)" in says[0], says


def test_a_job_is_spilled_as_its_trial_was(tmp_path):
    says = fitted(tmp_path, SCRIPT, 0.95, "spill")
    assert re.search(r"spill \(\d+ of \d+ saved tensors wait in host memory across the peak, [\d.]+ \w+\)", says[0]), says


def test_a_request_that_would_fail_has_what_is_saved_go_to_the_host(tmp_path):
    file, cache = tmp_path / "script.py", own_cache(tmp_path / "cache")
    loop = "for _step in range(8):\n    more = torch.ones((_step > 3) * MORE << 20, dtype=torch.uint8, device='cuda')"
    file.write_text(SCRIPT.replace("for _step in range(4):", f"MORE = int(__import__('os').environ['MORE'])\n{loop}"))
    gpu = GPU.replace("8GiB", "4700MiB")
    ended = [
        run("run", "--fit=4600MiB", "--only", "spill", "--dry-run", gpu, "--", sys.executable, str(file), env=cache | {"MORE": more})
        for more in ("800", "4000")
    ]
    says = [re.findall("spill: memory ran out: (\\d+) saved tensors leave the device at once; (\\d+) of them", one.stderr) for one in ended]
    assert [one.returncode for one in ended] == [0, 1] and "OutOfMemoryError" in ended[1].stderr
    assert len(says[0]) == 1 and 0 < int(says[0][0][1]) <= int(says[0][0][0]), says
    assert "the report is in" not in ended[0].stderr
