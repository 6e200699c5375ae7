"""Several launchers, signals and full disks: no recording is lost, no job is orphaned, no fault reads as success."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest
from runs import COMMAND, PROGRAMS, run

import stalloc

pytestmark = pytest.mark.usefixtures("cold")

GPU = ("--dry-run", "h100-80gb")
PROGRAM = (sys.executable, str(PROGRAMS / "troubles.py"))


def trace(folder, *arguments, options=(), **env):
    return run("trace", *GPU, "--json", "-o", folder, *options, "--", *PROGRAM, *arguments, env=env)


def rows(process):
    assert process.returncode == 0, process.stderr
    return [row["file"] for row in json.loads(process.stdout)["traces"]]


def sizes(folder):
    """The largest request of each trace."""
    found = {}
    for file in folder.glob("*.trace"):
        (recorded,) = stalloc.read_trace(file)["traces"]
        found[file.name] = max(entry["size"] for entry in recorded["entries"] if entry["action"] == "alloc")
    return found


def test_ranks_that_are_started_one_by_one_keep_each_others_traces_and_list_their_own(tmp_path):
    for rank in range(2):
        process = trace(tmp_path, "size", str(7000 + rank), RANK=str(rank), WORLD_SIZE="2")
        assert rows(process) == [f"rank{rank}_dev0.trace"]
    assert sizes(tmp_path) == {"rank0_dev0.trace": 7000, "rank1_dev0.trace": 7001}


def test_launchers_at_once_that_know_no_rank_lose_nothing(tmp_path):
    command = [COMMAND, "trace", *GPU, "--json", "-o", tmp_path, "--", *PROGRAM, "size"]
    started = [subprocess.Popen([*command, str(9000 + n)], stdout=subprocess.PIPE, text=True) for n in range(3)]
    listed = []
    for process in started:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        listed += [row["file"] for row in json.loads(out)["traces"]]
    assert len(set(listed)) == 3, listed
    assert sorted(sizes(tmp_path).values()) == [9000, 9001, 9002]


def test_a_second_recording_of_the_same_rank_replaces_the_first(tmp_path):
    trace(tmp_path, "size", "5000")
    assert rows(trace(tmp_path, "size", "6000")) == ["rank0_dev0.trace"]
    assert sizes(tmp_path) == {"rank0_dev0.trace": 6000}


def test_a_full_disk_ends_a_recording_with_the_number_of_lost_events_and_another_exit_status(tmp_path):
    whole = json.loads(trace(tmp_path / "whole", "full").stdout)["traces"][0]
    process = trace(tmp_path / "cut", "full", "20000", tmp_path / "cut")
    assert process.returncode == 1, process.stderr
    (row,) = json.loads(process.stdout)["traces"]
    assert row["events"] > 1000 and row["lost_events"] > 10_000
    assert abs(row["events"] + row["lost_events"] - whole["events"]) <= 2, "snapshots aside, each is counted"
    assert f"{row['lost_events']:,} events could not be written" in process.stderr
    assert "rank0_dev0.trace" in process.stderr and "File too large" in process.stderr
    assert not stalloc.read_trace(tmp_path / "cut" / "rank0_dev0.trace")["warnings"], "what is there is whole"


@pytest.mark.parametrize("command", ["trace", "run"])
def test_signals_reach_the_job_and_its_status_is_the_launchers(planned, tmp_path, command):
    options = ("-o", tmp_path) if command == "trace" else ("--plan", planned)
    started = [COMMAND, command, *GPU, *options, "--", *PROGRAM, "signals"]
    # The program `kill` is not needed: there is nothing on the path.
    process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PATH": ""})
    ready, job = process.stdout.readline().split()
    assert ready == "ready"
    assert (int(job) == process.pid) == (command == "run"), "with nothing left to do, the launcher becomes the job"
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        assert process.stdout.readline().strip() == number.name
    _, err = process.communicate(timeout=300)
    assert process.returncode == 7, err


def test_an_interrupt_of_the_terminal_reaches_the_job_once(tmp_path):
    launcher, terminal = pty.fork()
    if launcher == 0:
        os.execv(COMMAND, [str(word) for word in (COMMAND, "trace", *GPU, "-o", tmp_path, "--", *PROGRAM, "signals")])
    said = b""
    while not re.search(rb"ready \d+\s", said):  # the whole line: what interrupts a print stands in its midst
        said += os.read(terminal, 4096)
    os.write(terminal, b"\x03")  # the terminal's driver sends SIGINT to all that are in the foreground
    while b"SIGINT" not in said:
        said += os.read(terminal, 4096)
    os.kill(launcher, signal.SIGTERM)
    try:
        while more := os.read(terminal, 4096):
            said += more
    except OSError:  # how a terminal ends
        pass
    _, status = os.waitpid(launcher, 0)
    assert re.search(rb"^(\^C)?SIGINT\s+SIGTERM\s", said, re.M), said
    assert os.waitstatus_to_exitcode(status) == 7


def test_without_call_stacks_the_tracker_is_compared_with_pytorchs_history_all_the_same(tmp_path):
    for stacks in ("0", "2"):
        process = trace(tmp_path / stacks, "distrust", options=("--stacks", stacks))
        assert "tracker and PyTorch's memory history differ" in process.stderr, f"--stacks {stacks}: {process.stderr}"
        assert json.loads(process.stdout)["traces"][0]["requests"] == 100


def test_object_collectives_between_ranks_of_a_dry_run_tell_what_was_said(tmp_path):
    program = f"{sys.executable} {PROGRAMS}/objects.py {tmp_path}/meeting"
    both = f"(RANK=0 WORLD_SIZE=2 {program}) & (RANK=1 WORLD_SIZE=2 {program}); code=$?; wait $!; exit $((code + $?))"
    process = run("trace", *GPU, "--devices", "2", "-o", tmp_path / "out", "--", "sh", "-c", both)
    assert process.returncode == 0, process.stderr
    assert "rank 0 heard all" in process.stdout and "rank 1 heard all" in process.stdout
