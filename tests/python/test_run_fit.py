"""`stalloc run --fit`: a job that does not fit runs with the cheapest levers that make it fit, as they were tried; one that fits runs as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import stalloc
from runs import START, own_cache, run

GPU = "sm=8,memory=1GiB,capability=8.0,context=16MiB,name=small"

PACKAGE = Path(stalloc.__file__).parents[1]

SCRIPT = """\
import sys
import torch
from torch import nn

ENABLE
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
calls = []
for step in range(4):
    sys.setprofile((lambda _frame, what, _of: calls.append(what)) if step == 3 else None)
    model(torch.ones(4096, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
sys.setprofile(None)
print("peak", torch.cuda.max_memory_allocated(), "saved", optimizer.state_dict()["param_groups"][0]["foreach"])
counted = torch.cuda.memory_stats()
print("a step's calls", len(calls), "requests", *(counted[f"{what}.all.allocated"] for what in ("allocation", "requested_bytes")))
"""


def test_the_cheapest_levers_that_fit_are_applied_as_they_were_tried(tmp_path):
    script, cache = tmp_path / "script.py", own_cache(tmp_path / "cache")
    script.write_text(SCRIPT.replace("ENABLE", ""))

    def fit(size: str, *more: str):
        return run("run", f"--fit={size}", "--dry-run", GPU, *more, "--", sys.executable, str(script), env=cache)

    as_it_is = fit("1GiB")
    assert as_it_is.returncode == 0 and as_it_is.stderr.count("--fit") == 0, as_it_is.stderr
    plain = run("run", "--dry-run", GPU, "--", sys.executable, str(script), env=cache)
    assert plain.stdout == as_it_is.stdout and "a step's calls" in plain.stdout, "what fits costs nothing: neither requests nor calls"
    peak = int(re.match(r"peak (\d+) saved None", as_it_is.stdout)[1])
    kept = tmp_path / "cache" / "stalloc" / "plans"
    for number in range(41):
        (kept / f"of another job {number}").mkdir(parents=True)
    smaller = fit(f"{peak // 2**20 - 40}MiB")
    assert len(list(kept.iterdir())) == 22, "plans of old launches go"
    assert smaller.returncode == 0 and "as it is: peak allocated" in smaller.stderr and "known from before" in smaller.stderr, smaller.stderr
    says = [line for line in smaller.stderr.splitlines() if "--fit:" in line]
    assert len(says) == 4 and "checkpoint" in says[0] and "in place of" in says[1] and says[2].endswith("numbers stay the same"), says
    reached, predicted = re.search(r"the peak is ([\d.]+) MiB allocated; ([\d.]+) MiB were predicted", says[3]).groups()
    lower = int(re.match(r"peak (\d+) saved None", smaller.stdout)[1])
    assert reached == predicted == f"{lower / 2**20:,.1f}" and lower < peak
    assert "100.00 % of" in smaller.stderr and "they are the plan's" in smaller.stderr, "it starts with the plan that it was judged by"

    nothing = fit("60MiB")
    assert nothing.returncode == 1 and nothing.stdout == "" and "It was not started" in nothing.stderr and "the nearest, " in nothing.stderr
    wrong = fit("60MiB", "--allow", "checkpoint")
    assert wrong.returncode == 2 and "--allow checkpoint: the levers that change numbers are autocast_bf16" in wrong.stderr

    script.write_text(SCRIPT.replace("ENABLE", f"import stalloc\nstalloc.enable(fit='{peak // 2**20 - 40}MiB')"))
    by_itself = ("env", "-u", "STALLOC_MODE", f"PYTHONPATH={START}:{PACKAGE}")
    enabled = run("run", "--dry-run", GPU, "--", *by_itself, sys.executable, str(script), env=cache)
    assert enabled.returncode == 0 and "MiB were predicted" in enabled.stderr, enabled.stderr
    assert int(re.match(r"peak (\d+) saved None", enabled.stdout)[1]) == lower
    assert "they are the plan's" in enabled.stderr, enabled.stderr
