"""What the commands do, called from Python: the same figures, in objects with a short repr."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import stalloc
from stalloc._files import Comparison, Outcome, Planned, Unplanned

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
    assert (plan.as_dict().keys(), plan.static.as_dict().keys()) == (type(plan).__annotations__.keys(), Planned.__annotations__.keys())
    assert plan.dynamic.as_dict().keys() == Unplanned.__annotations__.keys()
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
    for result in comparison.results:
        assert result.as_dict().keys() <= Outcome.__annotations__.keys() and result.oom is False
    assert comparison.as_dict().keys() <= Comparison.__annotations__.keys() | {"results"}
    assert comparison["stalloc"].efficiency > comparison["pytorch"].efficiency
    assert repr(comparison["pytorch"]).startswith("<pytorch: reserved ") and repr(comparison).startswith("<Comparison: ")
    small = stalloc.simulate(DEMO, allocators="pytorch", capacity=1 << 30)
    assert small["pytorch"].oom and "out of memory" in repr(small)
    with pytest.raises(ValueError, match="no allocator is called `best`"):
        stalloc.simulate(DEMO, allocators=["best"])


def test_buffers_are_planned_from_arrays_and_lists_with_all_that_an_instance_may_have():
    numpy = pytest.importorskip("numpy")
    lower, upper, size = (numpy.array(values) for values in ([0, 2, 5], [4, 6, 9], [3, 5, 3]))
    plan = stalloc.plan_buffers(lower, upper, size)
    assert (plan.peak, plan.lower_bound, plan.optimal, plan.fits) == (8, 8, True, None)
    assert isinstance(plan.offsets, numpy.ndarray) and sorted(plan.offsets.tolist())[0] == 0
    lists = stalloc.plan_buffers([0, 2, 5], [4, 6, 9], [3, 5, 3], alignment=4, fixed=[None, 8, None], capacity=13)
    assert (lists.offsets[1], lists.peak, lists.fits) == (8, 13, True) and all(offset % 4 == 0 for offset in lists.offsets)
    assert stalloc.plan_buffers([0, 5], [2, 6], [4, 4], conflicts=[(0, 1)]).peak == 8
    assert stalloc.plan_buffers([0, 3], [9, 6], [8, 8], gaps=[(0, 3, 6)]).peak == 8
    assert stalloc.plan_buffers([0, 3], [9, 6], [8, 8], gaps=[(0, 3, 6, 0, 2)], capacity=9).fits is False
    assert stalloc.plan_buffers([0, 2, 4], [4, 6, 8], [1, 1, 1], period=6).peak == 3
    heard = []
    stalloc.plan_buffers([0, 2, 4], [4, 6, 8], [1, 1, 1], period=6, callback=lambda *told: heard.append(told))
    assert all(lower_bound <= peak for peak, lower_bound in heard)
    with pytest.raises(ValueError, match="upper has 1 numbers, and lower has 2"):
        stalloc.plan_buffers([0, 2], [4], [3, 5])
    with pytest.raises(ValueError, match="size: one number from 0"):
        stalloc.plan_buffers([0], [4], [-3])
    with pytest.raises(TypeError, match="float64"):
        stalloc.plan_buffers(lower, upper, size / 2)
    with pytest.raises(ValueError, match="buffer 0: it ends at 1, before it starts at 3"):
        stalloc.plan_buffers([3], [1], [1])


def test_the_command_reads_minimallocs_columns_and_says_whether_a_capacity_is_enough(tmp_path):
    path, solved = tmp_path / "instance.csv", tmp_path / "solved.csv"
    # Two that meet at the last instant of one; the third needs nothing while the fourth lives, which stays where it is.
    path.write_text("id,start,end,size,gaps,offset\n0,0,4,10,,\n1,4,9,10,,\n2,0,9,6,2-3,\n3,2,3,6,,10\n")
    told = command("plan", path, "-o", solved, "--capacity", "26")
    assert (told["peak"], told["lower_bound"], told["optimal"], told["fits"]) == (26, 26, True, True)
    assert solved.read_text().splitlines()[4] == "3,2,3,6,,10"
    assert command("verify", solved)["ok"]
    tight = [sys.executable, "-m", "stalloc", "plan", path, "--capacity", "25"]
    process = subprocess.run(tight, capture_output=True, text=True)
    assert process.returncode == 1 and "does not fit into 25, and no plan can" in process.stdout


def test_ctrl_c_ends_a_search_and_keeps_the_best_plan_so_far(tmp_path):
    path, solved = tmp_path / "instance.csv", tmp_path / "solved.csv"
    rows = (f"{i},{i * 7919 % 997},{i * 7919 % 997 + 5 + i * 31 % 83},{1000 + i * 7907 % 9973}" for i in range(600))
    path.write_text("\n".join(["id,lower,upper,size", *rows]) + "\n")
    search = [sys.executable, "-m", "stalloc", "plan", path, "-o", solved, "--work-limit", str(10**15), "--json"]
    process = subprocess.Popen(search, stdout=subprocess.PIPE)
    # A flag is raised however early the signal comes once it is listened to; before that, the process dies of it.
    while process.poll() is None and "SigCgt:\t0000000000000000" in Path(f"/proc/{process.pid}/status").read_text():
        pass
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    told = json.loads(process.communicate(timeout=120)[0])
    assert process.returncode == 0 and told["peak"] >= told["lower_bound"]
    assert command("verify", solved)["ok"]
