"""`bench/gpu/kit` where there is no GPU: packed, carried to an empty folder, and rehearsed from its first measurement to its page."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stalloc

KIT = Path(__file__).resolve().parents[2] / "bench" / "gpu" / "kit"
CRASHES = "gain/graphs/native"

#: A few of the measurements: all of them take minutes, and are rehearsed by hand.
WANTED = ("gain/fragmentation/native", "gain/fragmentation/auto", "gain/graphs")


def call(kit: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = ["timeout", "--kill-after=5", "500", sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=kit, text=True, capture_output=True, env=environment)


def run(kit: Path) -> subprocess.CompletedProcess[str]:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))  # shims that other tests compiled
    return call(kit, "run", "gain", "--dry-run", "h200-141gb", "--tiny", "--at-once", "2", "--minutes", "8", "--cache", cache, "--only", *WANTED)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("carried") / "kit"
    done = subprocess.run([sys.executable, KIT / "pack", folder, "--package", Path(stalloc.__file__).parent.parent], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    program = (folder / "graphs.py").read_text()
    begins = "def main() -> None:\n"
    (folder / "graphs.py").write_text(program.replace(begins, f"{begins}    if 'stalloc' not in sys.modules:\n        os.abort()\n"))
    return folder


@pytest.mark.nightly
def test_each_measurement_is_made_once_and_one_that_crashes_stops_no_other(kit):
    said = run(kit)
    assert said.returncode == 0, said.stderr
    results = json.loads((kit / "results" / "results.json").read_text())
    states = {name: entry["state"] for name, entry in results["measurements"].items()}
    made = {"gain/fragmentation/native": "done", "gain/fragmentation/auto": "done", "gain/graphs/auto": "done"}
    assert states == {**made, CRASHES: "failed"}, said.stderr
    assert results["machine"]["torch"] and results["rehearsal"] == "h200-141gb"
    native, ours = (results["measurements"][f"gain/fragmentation/{way}"]["figures"] for way in ("native", "auto"))
    assert native["oom"] and not ours["oom"] and ours["steps"] == ours["wanted_steps"]

    again = run(kit)
    assert len(again.stderr.splitlines()) == 1, again.stderr  # the count of measurements alone
    assert json.loads((kit / "results" / "results.json").read_text()) == results

    page = call(kit, "table", "results/results.json")
    assert page.returncode == 0, page.stderr
    assert "A rehearsal at a tiny size" in "".join(page.stdout.splitlines()[:4])
    assert "| native | failed |" in page.stdout and f"| {CRASHES} | failed |" in page.stdout
    assert "| auto | not computed |" in page.stdout and "(out of memory)" in page.stdout


def module(name: str):
    """A module of the kit."""
    sys.path.insert(0, str(KIT))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(KIT))


@pytest.fixture(scope="module")
def measurements():
    return module("measurements")


def test_what_the_stand_in_said_elsewhere_is_taken_only_where_pytorch_is_the_same(tmp_path):
    packed = tmp_path / "stand-in"
    (packed / "gpt2").mkdir(parents=True)
    (packed / "gpt2" / "rank0_dev0.trace").write_text("a recording")
    said = {"state": "done", "figures": {"peak_allocated": 7}}
    machine = {"torch": "2.11.0", "cuda": "13.0", "cudnn": 9}
    (packed / "results.json").write_text(json.dumps({"machine": machine, "measurements": {"recording/gpt2": said, "fit/peak/gpt2": said}}))
    for torch, taken in (("2.11.0", 2), ("2.12.0", 0)):
        work = tmp_path / torch
        kit = module("harness").Kit(work, Path(), Path(), None, False, 0.0, work)
        kit.results["machine"] = machine | {"torch": torch}
        kit.keep("fit/peak/gpt2", {"state": "measured here"})
        kit.take_along(packed)
        assert len(kit.done) == max(taken, 1) and kit.done["fit/peak/gpt2"]["state"] == "measured here"
        assert (work / "recorded" / "gpt2" / "rank0_dev0.trace").exists() == bool(taken)


def test_the_page_of_the_documentation_is_made_from_the_results_that_are_kept(measurements):
    made = call(KIT, "table", "h200.json")
    assert made.returncode == 0, made.stderr
    assert made.stdout == (KIT.parents[2] / "bench" / "results" / "gpu.md").read_text()
    assert "NVIDIA H200" in made.stdout and "rehearsal" not in made.stdout
    entries = json.loads((KIT / "h200.json").read_text())["measurements"]
    assert {entry["state"] for entry in entries.values()} == {"done"}
    wanted = [f"truth/losses/{way}" for way in measurements.LOSSES] + [f"cost/speed/{way}/1" for way in measurements.SPEEDS]
    wanted += [f"truth/streams/{way}" for way in measurements.STREAMS]
    wanted += [f"{what}/{model}" for what in ("recording", "truth/trace", "fit/peak") for model in measurements.TRACED]
    assert [name for name in wanted if name not in entries] == []


def test_a_turn_that_not_all_allocators_had_is_left_out_of_the_speeds(tmp_path):
    results = json.loads((KIT / "h200.json").read_text())
    for way in ("native", "auto"):
        results["measurements"].pop(f"cost/speed/{way}/2", None)
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps(results))
    without = call(KIT, "table", str(alone)).stdout
    results["measurements"]["cost/speed/native/2"] = json.loads(json.dumps(results["measurements"]["cost/speed/native/1"]))
    results["measurements"]["cost/speed/native/2"]["figures"]["tokens_per_second"] *= 2
    alone.write_text(json.dumps(results))
    assert call(KIT, "table", str(alone)).stdout == without


def test_other_values_than_natively_are_named_where_a_gpu_computed_them(tmp_path):
    results = json.loads((KIT / "h200.json").read_text())
    measurements = results["measurements"]
    measurements["truth/losses/auto"]["figures"]["losses"][-1] = "0x1.0p+0"
    measurements["gain/graphs/auto"]["figures"]["same"] = False
    for rehearsal, wanted in (("h100-80gb", 0), (None, 2)):
        found = tmp_path / "results.json"
        found.write_text(json.dumps(results | {"rehearsal": rehearsal}))
        page = call(KIT, "table", str(found))
        assert page.returncode == 0, page.stderr
        assert page.stdout.count("| NO |") == wanted
        assert ("**Other values than natively**: auto." in page.stdout) == bool(wanted)


@pytest.mark.parametrize("most", [1, 2, 7, 12, 31, 100, 333])
@pytest.mark.parametrize("start", [1, 12, 40])
def test_the_largest_micro_batch_is_found_to_one_part_in_sixteen(measurements, most, start):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= most

    found, is_certain = measurements.largest(fits, start)
    assert is_certain and found <= most < found + max(found // 16, 1) + 1
    assert len(tried) == len(set(tried)) < 16


def test_a_right_prediction_is_confirmed_by_two_tries(measurements):
    tried = []
    assert measurements.largest(lambda size: tried.append(size) or size <= 40, 40) == (40, True)
    assert tried == [40, 42]


def test_a_search_that_time_ends_says_what_it_knows(measurements):
    def fits(size):
        if size > 13:
            raise measurements.OutOfTime
        return True

    assert measurements.largest(fits, 12) == (13, False)
    assert measurements.largest(lambda _size: False, 12) == (0, True)
