"""PyTorch's own memory_viz takes the snapshot that `stalloc report --snapshot` writes, and finds the plan in it."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import run
from torch.cuda import _memory_viz as viz

DEMO = Path(__file__).parents[2] / "crates" / "cli" / "assets" / "demo.trace"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A snapshot of the plan of the demo's trace, and the figures of its replay."""
    path = tmp_path_factory.mktemp("viz") / "planned.pickle"
    process = run("report", DEMO, "--json", "--snapshot", path)
    assert process.returncode == 0, process.stderr
    (device,) = json.loads(process.stdout)["inputs"][0]["devices"]
    return path, next(one for one in device["allocators"] if one["allocator"] == "stalloc")


def test_its_command_and_its_plots_take_it(planned, tmp_path):
    path, _ = planned
    out = tmp_path / "plot.html"
    command = (sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", path, "-o", out)
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    data = pickle.loads(path.read_bytes())
    for plot in (out.read_text(), viz.trace_plot(data), viz.segment_plot(data)):
        assert len(plot) > 100_000


def test_its_views_hold_what_the_plan_did(planned):
    path, figures = planned
    data = pickle.loads(path.read_bytes())
    held = sum(segment["total_size"] for segment in data["segments"])
    live = sum(segment["allocated_size"] for segment in data["segments"])
    assert f"{viz.Bytes(held)!r}" in viz.segsum(data)
    entries = data["device_traces"][0]
    taken = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    assert sum(taken.get(entry["action"], 0) * entry["size"] for entry in entries) == held <= figures["peak_reserved"]
    assert live <= figures["peak_allocated"]
    placed = re.findall(r"^\w+ = \w+\[", viz.trace(data), re.MULTILINE)
    assert len(placed) == sum(entry["action"] == "alloc" for entry in entries) > 1000
    stacks: list[str] = []
    for view in (viz.memory, viz.segments):
        view(data, format_flamegraph=lambda lines: stacks.append(lines))
    sums = [sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines()) for lines in stacks]
    assert sums == [held, held]
