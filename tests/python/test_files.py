"""What the commands do, called from Python: the same figures, in objects with a short repr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import stalloc

DEMO = Path(__file__).parents[2] / "crates" / "cli" / "assets" / "demo.trace"


def command(*arguments: object) -> dict:
    process = subprocess.run([sys.executable, "-m", "stalloc", *map(str, arguments), "--json"], capture_output=True, check=True)
    return json.loads(process.stdout)


def test_a_plan_from_python_has_the_figures_of_the_command_and_is_kept_where_asked(tmp_path, capfd):
    plan = stalloc.plan(DEMO, tmp_path / "demo.plan", time_limit=1)
    told = command("plan", DEMO, "--time-limit", "1")
    same = ("requests", "steps", "static", "dynamic", "peak_allocated", "planned_reserved", "efficiency")
    assert {name: plan.as_dict()[name] for name in same} == {name: told[name] for name in same}
    assert command("verify", tmp_path / "demo.plan", DEMO)["ok"]
    assert plan.static.peak == told["static"]["peak"]
    assert repr(plan).startswith("<Plan: ") and f"of {plan.requests:,} requests at planned offsets" in repr(plan)
    with pytest.raises(AttributeError, match="Plan has no figure 'peak'"):
        plan.peak
    with pytest.raises(ValueError, match="has no device 7: it holds 0"):
        stalloc.plan(DEMO, device=7)
    with pytest.raises(ValueError, match="is a plan, not a recording"):
        stalloc.plan(tmp_path / "demo.plan")


def test_a_simulation_from_python_has_the_figures_of_the_command(tmp_path):
    stalloc.plan(DEMO, tmp_path / "demo.plan", time_limit=1)
    names = ("pytorch", "stalloc")
    comparison = stalloc.simulate(DEMO, allocators=names, plan=tmp_path / "demo.plan")
    told = command("simulate", DEMO, "--plan", tmp_path / "demo.plan", "--allocator", "pytorch", "--allocator", "stalloc")
    assert [result.peak_reserved for result in comparison.results] == [result["peak_reserved"] for result in told["results"]]
    assert comparison["stalloc"].efficiency > comparison["pytorch"].efficiency
    assert repr(comparison["pytorch"]).startswith("<pytorch: reserved ") and repr(comparison).startswith("<Comparison: ")
    small = stalloc.simulate(DEMO, allocators="pytorch", capacity=1 << 30)
    assert small["pytorch"].oom and "out of memory" in repr(small)
    with pytest.raises(ValueError, match="no allocator is called `best`"):
        stalloc.simulate(DEMO, allocators=["best"])
