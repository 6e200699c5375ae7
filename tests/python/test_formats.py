"""Files that earlier versions wrote are read by this one.

`data/version_X_Y.trace` and `.plan` were written by version X.Y and stay as they are: a minor version reads what the ones before it wrote.
Each shows four steps of a linear layer that repeat exactly.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import run

DATA = Path(__file__).parent / "data"
TRACES = sorted(DATA.glob("version_*.trace"))


@pytest.mark.parametrize("trace", TRACES, ids=[trace.stem for trace in TRACES])
def test_a_trace_and_a_plan_of_an_earlier_version_are_read(trace):
    plan = trace.with_suffix(".plan")
    told = run("info", trace, "--json")
    assert told.returncode == 0, told.stderr
    about = json.loads(told.stdout)
    assert (about["events"], about["requests"], about["steps"], about["peak_allocated"]) == (120, 38, 4, 34_211_840)
    checked = run("verify", plan, trace, "--json")
    assert checked.returncode == 0 and json.loads(checked.stdout)["ok"], checked.stdout + checked.stderr
    replayed = run("simulate", trace, "--plan", plan, "--allocator", "stalloc", "--json")
    (result,) = json.loads(replayed.stdout)["results"]
    assert result["planned"] == 38 and not result["oom"]


def test_there_is_a_fixture_of_this_version():
    version = run("--version").stdout.split()[-1].rpartition(".")[0].replace(".", "_")
    assert DATA / f"version_{version}.trace" in TRACES, "record one, as the docstring says, and commit it with its plan"
