"""Ranks of a distributed job, each without the others."""

import json
import re
import shutil
import sys

import pytest
from runs import PROGRAMS, run


def test_ranks_are_recorded_side_by_side_and_alike_ones_are_named(record):
    recorded = record("ranks.py", options=("--world-size", "1024", "--ranks", "0,7,1023"))
    traces = {trace["rank"]: trace for trace in recorded.summary["traces"]}
    assert sorted(traces) == [0, 7, 1023]
    assert traces[7]["same_as"] is None and traces[0]["same_as"] is None, "the first rank has more layers"
    assert traces[1023]["same_as"] == "rank7_dev0.trace"
    logs = {rank: (recorded.directory / f"rank{rank}.log").read_text() for rank in traces}
    assert all(re.search(rf"rank {rank} of 1024, group 2", log) for rank, log in logs.items())
    assert recorded.trace(7)["metadata"]["rank"] == "7"
    assert recorded.trace(7)["metadata"]["world_size"] == "1024"


def test_all_ranks_are_recorded_and_alike_ones_stored_and_shown_once(tmp_path):
    command = ("trace", "--dry-run", "h100-80gb", "-o", tmp_path, "--world-size", "4", "--ranks", "all", "--")
    process = run(*command, sys.executable, PROGRAMS / "ranks.py")
    assert process.returncode == 0, process.stderr
    files = {path.name: path.stat().st_ino for path in tmp_path.glob("*.trace")}
    assert sorted(files) == [f"rank{rank}_dev0.trace" for rank in range(4)]
    assert len({files[f"rank{rank}_dev0.trace"] for rank in (1, 2, 3)}) == 1 and len(set(files.values())) == 2
    assert "the same on ranks 2, 3" in process.stdout and "rank3_dev0.trace" not in process.stdout
    assert "most is needed by rank0_dev0.trace" in process.stdout


def test_the_usual_variables_make_a_rank_too_and_it_ends_with_a_backward_pass(record):
    # How long PyTorch waits for a thread of its own that waits for the interpreter, which has ended.
    recorded = record("ranks.py", RANK="3", WORLD_SIZE="8", TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT="1000")
    assert [trace["file"] for trace in recorded.summary["traces"]] == ["rank3_dev0.trace"]
    flat = [e for e in recorded.entries(3) if e["action"] == "alloc" and e["size"] == 2 * 28_000]
    assert len(flat) == 2 * 3, "NCCL's flat copies of an all-gather's and a reduce-scatter's lists, in three steps"


def test_a_rank_that_fails_is_named_with_its_log(record):
    recorded = record("ranks.py", "fail", options=("--world-size", "4", "--ranks", "1,2"), ok=False)
    assert recorded.process.returncode == 5
    assert "the command of rank 2 ended with status 5" in recorded.process.stderr
    assert "rank2.log" in recorded.process.stderr


def test_each_rank_that_a_launcher_starts_follows_its_own_plan_on_its_own_gpu(record, tmp_path):
    alone = record("served_ranks.py", "unused", options=("--world-size", "2", "--ranks", "0,1"))
    program = f"{sys.executable} {PROGRAMS}/served_ranks.py {tmp_path}/meeting"
    both = f"for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 {program} & done; wait"
    process = run("run", "--plan", alone.directory, "--frozen", "--dry-run", "h100-80gb", "--devices", "2", "--", "sh", "-c", both)
    served = re.findall(r"rank(\d) dev(\d): ([\d.]+) % of ([\d,]+) requests at planned offsets", process.stderr)
    requests = {str(trace["rank"]): f"{trace['requests']:,}" for trace in alone.summary["traces"]}
    assert requests["0"] != requests["1"]
    assert sorted(served) == [(rank, rank, "100.00", requests[rank]) for rank in "01"], process.stderr
    assert re.search(r"job of 2 ranks: most is held by rank [01], .* MiB; efficiency .* 0 remaps; 2 plans for all", process.stderr)
    assert process.stderr.count("job of 2 ranks") == 1, "rank 0 alone says it"
    # The report sums all ranks up, and shows one of each kind.
    report = json.loads(run("report", alone.directory, "--json").stdout)["ranks"]
    assert report["kinds"] == [[0], [1]] and report["largest"]["rank"] == 1


@pytest.mark.nightly
def test_eight_processes_of_torchrun_are_recorded_planned_once_and_served_from_that_plan(tmp_path):
    launch = ("--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "8", PROGRAMS / "alike_ranks.py")
    gpus = ("--dry-run", "h100-80gb", "--devices", "8")
    recorded = run("trace", *gpus, "-o", tmp_path, *launch)
    assert recorded.returncode == 0, recorded.stderr
    assert "the same on ranks 1 to 7" in recorded.stdout and "rank1_dev1" not in recorded.stdout, recorded.stdout
    assert len({path.stat().st_ino for path in tmp_path.glob("*.trace")}) == 8, "each says which GPU it is of"
    planned = json.loads(run("plan", tmp_path, "--json").stdout)["plans"]
    assert [one["same_as"] is None for one in planned] == [True] + 7 * [False]
    assert planned[0]["summary"]["static"]["requests"] > 0
    assert len({path.stat().st_ino for path in tmp_path.glob("*.plan")}) == 1
    assert run("verify", tmp_path / "rank7_dev7.plan", tmp_path / "rank7_dev7.trace").returncode == 0
    served = run("run", *gpus, "--plan", tmp_path, "--frozen", *launch)
    assert served.returncode == 0, served.stderr
    found = re.findall(r"rank(\d) dev(\d): ([\d.]+) % of [\d,]+ requests at planned offsets", served.stderr)
    assert sorted(found) == [(rank, rank, "100.00") for rank in "01234567"], served.stderr
    (summary,) = re.findall(r"job of 8 ranks: .*", served.stderr)
    assert summary.endswith("0 remaps; 1 plan for all"), summary


def test_alike_ranks_share_one_plan_and_are_told_of_once(tmp_path):
    command = ("trace", "--dry-run", "h100-80gb", "-o", tmp_path, "--world-size", "8", "--ranks", "0,1,7", "--")
    assert run(*command, sys.executable, PROGRAMS / "ranks.py").returncode == 0
    for copy in range(8, 64):  # more ranks that do what rank 7 does, each in a file of its own
        shutil.copy(tmp_path / "rank7_dev0.trace", tmp_path / f"rank{copy}_dev0.trace")
    planned = json.loads(run("plan", tmp_path, "--json").stdout)["plans"]
    assert len(planned) == 59 and sum(one["same_as"] is None for one in planned) == 2
    elsewhere = tmp_path / "output" / "plan"
    told = run("plan", tmp_path, "-o", elsewhere)
    assert told.returncode == 0 and len(list(elsewhere.iterdir())) == 59, "it is made"
    assert told.stdout.count(" planned into ") == 2 and told.stdout.count(" steps were found by ") == 2, told.stdout
    assert len({path.stat().st_ino for path in tmp_path.glob("*.plan")}) == 2
    shown = run("report", tmp_path).stdout
    assert "59 ranks, 2 of them different; most is needed by rank 0" in shown
    assert "rank 1 stands for 57 more: 7 to 63" in shown
    ranks = json.loads(run("report", tmp_path, "--json").stdout)["ranks"]
    (expandable,) = (one for one in ranks["efficiency"] if one["allocator"] == "pytorch-expandable")
    assert 0 < expandable["min"] <= expandable["median"] <= expandable["max"] <= 1


def test_asynchronous_collectives_hold_their_tensors_as_long_as_a_gpu_is_busy_with_them(record):
    recorded = record("async_collectives.py", options=("--world-size", "4", "--ranks", "0"))
    seen = dict(re.findall(r"^(\w+) (\d+)$", recorded.process.stderr, re.M))
    assert {name: int(mib) for name, mib in seen.items()} == {
        "started": 5, "waited": 0, "future": 5, "done": 5, "found": 0, "behind": 5, "caught_up": 0,
    }
