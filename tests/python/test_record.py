"""What `stalloc trace` records of a program is what PyTorch says the program did."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys

import pytest
from runs import COMMAND, PROGRAMS, actions, run

import stalloc

#: Two runs are compared to the last frame, and what goes on from a copy has two more.
pytestmark = pytest.mark.usefixtures("cold")

MARKS = {"step_begin", "step_end", "phase", "module_enter", "module_exit", "host_read", "snapshot"}
SETTINGS = ["", "expandable_segments:True", "roundup_power2_divisions:4,max_split_size_mb:64"]


def events(entries):
    """What the allocator did, as tuples."""
    keep = [entry for entry in entries if entry["action"] not in MARKS]
    return [(entry["action"], entry["addr"], entry["size"], entry["stream"]) for entry in keep]


def without_addresses(entries):
    """What the program did: addresses and times aside, requests numbered in the order of allocation."""
    live, result = {}, []
    for entry in entries:
        line = {key: value for key, value in entry.items() if key not in ("addr", "time_us")}
        if entry["action"] == "alloc":
            live[entry["addr"]] = len(live) + len(result)
        if "addr" in entry and not entry["action"].startswith("segment"):
            line["request"] = live.get(entry["addr"])
        result.append(line)
    return result


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_trace_is_pytorchs_own_history_event_for_event(record, tmp_path, settings):
    own = tmp_path / "own.pickle"
    recorded = record("gpt.py", "3", str(own), PYTORCH_CUDA_ALLOC_CONF=settings)
    (history,) = pickle.loads(own.read_bytes())
    assert events(recorded.entries()) == events(history)
    assert len(history) > 1000
    assert "free_completed" in actions(history)


@pytest.fixture(scope="module")
def gpt(record_once):
    """Four steps of a small transformer, stacks recorded for two."""
    return record_once("gpt.py", "4")


def test_two_runs_give_the_same_trace(gpt, record):
    again = record("gpt.py", "4")
    assert without_addresses(gpt.entries()) == without_addresses(again.entries())
    assert compare(gpt, again)["same"]


def compare(one, other):
    """What `stalloc info --compare` says of two recordings."""
    files = [recorded.directory / "rank0_dev0.trace" for recorded in (one, other)]
    return json.loads(run("info", "--json", "--compare", *files).stdout)


def test_a_request_that_one_of_two_runs_makes_is_named_with_its_place(gpt, record):
    found = compare(gpt, record("gpt.py", "4", EXTRA_IN_STEP="1"))
    (device,) = found["devices"]
    assert not found["same"] and device["differences"] == 1
    (difference,) = device["first"]
    assert difference["kind"] == "only in B" and difference["b"]["size"] == 777_777
    line = next(n for n, text in enumerate((PROGRAMS / "gpt.py").read_text().splitlines(), 1) if "# not in the plan" in text)
    assert difference["b"]["stack"][0].endswith(f"programs/gpt.py:{line} <module>")


def test_recording_call_stacks_does_not_change_the_events(gpt, record):
    without = record("gpt.py", "4", options=("--stacks", "0"))
    strip = lambda entries: [{**entry, "frames": None} for entry in without_addresses(entries)]  # noqa: E731
    assert strip(gpt.entries()) == strip(without.entries())


def test_allocations_of_the_first_steps_have_the_line_of_the_program(gpt):
    entries = gpt.entries()
    files = [{frame["filename"].rsplit("/")[-1] for frame in entry.get("frames", ())} for entry in entries]
    ends = [index for index, entry in enumerate(entries) if entry["action"] == "step_end"]
    allocations = [index for index, entry in enumerate(entries) if entry["action"] == "alloc"]
    early = [index for index in allocations if index < ends[1]]
    # Those of the backward pass happen on a thread that runs no Python.
    backward = sum(entries[index]["frames"][0]["name"] == "backward pass" for index in early)
    assert backward > len(early) / 3 and sum("gpt.py" in files[index] for index in early) == len(early) - backward
    # Later ones have theirs only where they lived at a new peak or at the end.
    late = [bool(files[index]) for index in allocations if index > ends[1]]
    assert sum(late) < len(late) / 4


def test_the_optimizer_makes_the_steps_of_a_script_that_marks_none(gpt):
    entries = gpt.entries()
    marks = [action for action in actions(entries) if action in ("step_begin", "step_end")]
    assert marks == ["step_begin", "step_end"] * 4 + ["step_begin"]
    model = actions(entries).index("step_begin")
    assert actions(entries)[:model].count("alloc") > 50, "the model is built before the first step"


def test_the_trace_says_what_was_run_on_what(gpt):
    metadata = gpt.trace()["metadata"]
    assert metadata["torch"].startswith("2.")
    assert "H100" in metadata["device_name"]
    assert int(metadata["total_memory"]) > 79 << 30
    assert metadata["command"].endswith("gpt.py 4")
    assert metadata["rank"] == "0"


def test_a_killed_program_leaves_what_it_did_until_a_second_before(record, tmp_path):
    process = subprocess.Popen(
        [COMMAND, "trace", "--dry-run", "h100-80gb", "--progress", "-o", tmp_path, "--", sys.executable, PROGRAMS / "kill.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, told = process.communicate(timeout=120)
    steps = out.count("step")
    assert process.returncode == 128 + signal.SIGKILL
    recording = stalloc.read_trace(tmp_path / "rank0_dev0.trace")
    done = actions(recording["traces"][0]["entries"]).count("step_end")
    assert recording["warnings"], "the reader says that the end is missing"
    assert steps - 14 <= done <= steps, "steps of a tenth of a second"
    assert re.search(r"^stalloc: step \d+ recorded, \d+ requests, [\d.]+ [KMG]iB at most$", told, re.MULTILINE)


def test_call_stacks_are_taken_while_steps_differ_and_not_once_they_are_alike(record):
    recorded = record("settles.py")
    assert re.findall(r"step \d+: history \w+", recorded.process.stderr) == ["step 5: history on", "step 14: history off", "step 20: history on"]
    line = next(n for n, text in enumerate((PROGRAMS / "settles.py").read_text().splitlines(), 1) if "# kept" in text)
    live = {}
    for entry in recorded.entries():
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry
        elif entry["action"] == "free_requested":
            live.pop(entry["addr"], None)
    kept = [entry for entry in live.values() if entry["size"] == 512 * 256 * 4]
    named = [any(frame["filename"].endswith("settles.py") and frame["line"] == line for frame in entry["frames"]) for entry in kept]
    # The first step that differs is over before the history is on.
    assert len(kept) >= 9 and sum(named) >= 8, named


def test_reading_call_stacks_imports_no_compiler_into_the_program(record):
    recorded = record("no_compiler.py")
    assert "imported a compiler: False" in recorded.process.stderr
    (allocation,) = [entry for entry in recorded.entries() if entry["action"] == "alloc"]
    assert allocation["frames"][0]["filename"].endswith("no_compiler.py")


def test_a_step_and_a_phase_that_began_before_cuda_did_are_there(record):
    found = record("no_compiler.py").entries()
    assert actions(found)[:2] == ["step_begin", "phase"] and found[1]["micro_batch"] == 3
    assert actions(found).index("alloc") < actions(found).index("step_end")


def test_the_last_step_that_was_asked_for_ends_the_program(record):
    recorded = record("gpt.py", "1000000", options=("--steps", "3"))
    assert actions(recorded.entries()).count("step_end") == 3
    assert recorded.summary["traces"][0]["steps"] == 3


def test_steps_phases_and_modules_that_a_script_marks(record):
    entries = record("marks.py").entries()
    marks = [(e["action"], e.get("name"), e.get("micro_batch")) for e in entries if e["action"] in MARKS]
    step = [
        ("step_begin", None, None),
        ("phase", "forward", 0),
        ("module_enter", "0", None),
        ("module_exit", "0", None),
        ("module_enter", "1", None),
        ("module_exit", "1", None),
        ("phase", "backward", 0),
        ("module_enter", "1:backward", None),
        ("module_exit", "1:backward", None),
        ("module_enter", "0:backward", None),
        ("module_exit", "0:backward", None),
        ("step_end", None, None),
    ]
    assert marks == step * 3
    # Marks are exactly where they were made: the 12,345 bytes are the first thing of each step.
    for index, entry in enumerate(entries):
        if entry["action"] == "step_begin":
            assert entries[index + 1]["size"] == 12345


def test_a_script_whose_name_is_not_utf_8_is_recorded_without_call_stacks(record, tmp_path):
    """PyTorch cannot read its own memory history then."""
    script = tmp_path / os.fsdecode(b"\xff.py")
    script.write_text("import torch\nkept = torch.zeros(1 << 20, device='cuda')\n")
    recorded = record(script)
    assert recorded.summary["traces"][0]["requests"] == 1
    assert recorded.process.stderr.count("call stacks end here: PyTorch cannot read") == 1, recorded.process.stderr
    assert "Traceback" not in recorded.process.stderr


#: Where a program with memory problems turns PyTorch's own history on.
OWN_HISTORY = """
import sys, torch, stalloc
from torch import nn

def start(when):
    if when == sys.argv[1]:
        torch.cuda.memory._record_memory_history(max_entries=100_000, context=sys.argv[3] if len(sys.argv) > 3 else None)

start("first")
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
start("later")
kept = []
for step in range(6):
    with stalloc.step():
        model(torch.randn(64, 256, device="cuda")).sum().backward()
        kept.append(torch.ones(1 << 20, device="cuda"))  # grows
torch.cuda.memory._dump_snapshot(sys.argv[2])
"""


@pytest.mark.parametrize("when, context", [("first", "all"), ("later", "all"), ("later", None)])
def test_a_program_that_records_pytorchs_history_itself_is_recorded_with_call_stacks_and_gets_its_own(record, tmp_path, when, context):
    program = tmp_path / "program.py"
    program.write_text(OWN_HISTORY)
    recorded = record(program, when, str(tmp_path / "own.pickle"), *filter(None, [context]))
    assert recorded.process.stderr == ""
    figures = json.loads(run("report", recorded.directory, "--json").stdout)
    sites = {site["site"]: site["blocks"] for site in figures["inputs"][0]["devices"][0]["peak_by_site"]}
    (grows,) = (name for name in sites if f"program.py:{1 + OWN_HISTORY[:OWN_HISTORY.index('kept.append')].count(chr(10))} " in name)
    assert sites[grows] >= 4 and not any("unknown" in name for name in list(sites)[:3]), sites
    own = json.loads(run("info", tmp_path / "own.pickle", "--json").stdout)
    assert own["devices"][0]["requests"] > 100
    stacks = own["devices"][0]["call_stacks"]
    assert stacks > 5 if context else stacks == 0


def test_a_program_sees_its_own_history_and_profile_while_it_is_recorded(record):
    assert "passed" in record("unseen.py").process.stderr.split()


def test_a_step_that_is_made_and_not_entered_says_once_that_it_marks_nothing(capfd, monkeypatch):
    monkeypatch.setattr(stalloc.step, "_was_said", False)
    with stalloc.step():
        pass
    stalloc.step()(lambda: None)
    assert "marks nothing" not in capfd.readouterr().err
    stalloc.step()
    stalloc.step()
    assert capfd.readouterr().err.count("marks nothing") == 1


def test_a_recording_says_which_exception_ended_the_program_and_none_of_its_words(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("import torch\nx = torch.ones(1 << 20, device='cuda')\nraise ValueError('planted secret')\n")
    done = run("trace", "--dry-run", "rtx4090", "-o", tmp_path, "--", sys.executable, script)
    assert done.returncode == 1 and "planted secret" in done.stderr
    said = subprocess.run([COMMAND, "report", tmp_path], capture_output=True, text=True, check=True).stdout
    assert f"ended by ValueError at {tmp_path.name}/fails.py:3 <module> before its first step" in " ".join(said.split()), said
    assert not [one for one in tmp_path.glob("*.trace") if b"planted" in one.read_bytes()]
