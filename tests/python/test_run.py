"""A program under `stalloc run` lives where its plan says, and everything that PyTorch can do keeps working."""

from __future__ import annotations

import json
import re
import sys

from runs import PROGRAMS, run
from typed import conforms

from stalloc._serve.settings import without_effect
from stalloc.results import MemoryStats

GPU = ("--dry-run", "h100-80gb")


def serve(directory, program, *arguments, **env):
    """Under plans alone: nothing is learned."""
    command = (sys.executable, PROGRAMS / program, *arguments)
    return run("run", "--plan", directory, "--frozen", *GPU, "--", *command, env=env)


def learn(program, *arguments, options=(), **env):
    """From one arena that learns."""
    return run("run", *options, *GPU, "--", sys.executable, PROGRAMS / program, *arguments, env=env)


def served(process):
    """Share of requests at planned offsets, by the line at exit."""
    found = re.search(r"dev0: ([\d.]+) % of ([\d,]+) requests at planned offsets", process.stderr)
    assert found, process.stderr
    return float(found[1])


def test_more_steps_than_were_recorded_are_served_from_the_plan(planned):
    process = serve(planned, "gpt.py", "12")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("loss") == 12
    assert served(process) > 99.9


def test_statistics_snapshots_graphs_pools_and_errors_are_pytorchs_own(planned):
    process = serve(planned, "served.py")
    assert process.returncode == 0, process.stderr
    figures = json.loads(process.stdout.splitlines()[-1])
    assert figures["planned"] > 0
    assert figures["wrong"] == []


def test_after_whatever_strays_the_program_is_back_on_its_plan_within_one_step(planned):
    process = serve(planned, "straying.py")
    assert process.returncode == 0, process.stderr
    figures = json.loads(process.stdout.splitlines()[-1])
    # What is kept for ever may sit where a few requests of each step were to go.
    assert len(figures["shares"]) == 7 and min(figures["shares"].values()) > 0.99, figures["shares"]
    assert figures["overlaps"] == 0
    source = (PROGRAMS / "gpt_step.py").read_text().splitlines()
    line = next(number for number, line in enumerate(source, 1) if "a program leaves its plan here" in line)
    conforms(figures["stats"], MemoryStats)
    first, caller = (frame.rpartition("/")[2] for frame in figures["stats"]["departure"]["stack"][:2])
    assert first == f"gpt_step.py:{line} in step"
    assert caller.startswith("straying.py:")
    assert "the program first left its plan at request" in process.stderr and first in process.stderr


def test_a_model_that_is_not_the_plans_runs_all_the_same_and_is_told_so_once(planned):
    process = serve(planned, "straying.py", "another model")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["overlaps"] == 0
    assert process.stderr.count("record and plan it again") == 1, process.stderr


def test_full_memory_forks_pools_graphs_streams_and_the_end_go_wrong_for_nobody(planned):
    # What is not served from the arena has segments that grow, here.
    settings = {name: "expandable_segments:True" for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
    process = serve(planned, "demanding.py", "compile", **settings)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["wrong"] == []


def test_with_planned_offsets_alone_the_rest_is_served_by_pytorch(planned):
    process = serve(planned, "straying.py", STALLOC_DYNAMIC="0")
    assert process.returncode == 0, process.stderr
    found = re.search(r", ([\d,]+) where they fitted best, ([\d,]+) by PyTorch's", process.stderr)
    assert found, process.stderr
    assert found[1] == "0" and int(found[2].replace(",", "")) > 0, found[0]
    assert json.loads(process.stdout.splitlines()[-1])["overlaps"] == 0


def test_a_switch_of_the_artifact_that_asks_for_what_cannot_be_had_is_named_with_the_reason_and_a_mistyped_name_too():
    lines = without_effect({"STALLOC_DYNAMIC": "0", "STALLOC_STATIC_FALLBACK": "0", "STALLOC_TRACE_FAST_MODE": "0", "STALLOC_TIHGT": "1"})
    assert [line.partition(":")[0] for line in lines] == [
        "STALLOC_STATIC_FALLBACK=0 has no effect",
        "STALLOC_TRACE_FAST_MODE=0 has no effect",
        "STALLOC_TIHGT is no setting and changes nothing",
    ]


def test_a_job_is_learned_while_it_trains_and_the_next_run_starts_with_what_was_learned(tmp_path):
    plans = tmp_path / "plans"
    first = learn("gpt.py", "60", options=("--plan", plans))
    assert first.returncode == 0, first.stderr
    # How much of these short steps is planned already is a matter of how fast the machine is.
    assert served(first) < 100 and "what was learned is kept" in first.stderr, first.stderr
    second = learn("gpt.py", "12", options=("--plan", plans))
    assert second.returncode == 0, second.stderr
    assert served(second) > 99.9


def test_with_nothing_but_the_command_every_request_is_served_by_the_arena(tmp_path):
    process = learn("gpt.py", "3")
    assert process.returncode == 0, process.stderr
    assert ", 0 by PyTorch's allocator" in process.stderr, process.stderr
    assert "dev0: 3 steps: too few to learn from" in process.stderr, process.stderr
    compared = re.search(
        r"held ([\d.]+) GiB for ([\d.]+) GiB of tensors; .*allocator would have held ([\d.]+) GiB, its .* ([\d.]+) GiB: ", process.stderr
    )
    assert compared is not None, process.stderr
    _, tensors, pytorch, expandable = map(float, compared.groups())
    assert pytorch > tensors and expandable > tensors


def test_a_folder_that_cannot_be_written_costs_a_line_and_what_was_learned(tmp_path):
    (tmp_path / "file").write_text("")
    process = learn("gpt.py", "40", options=("--plan", tmp_path / "file" / "below"))
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("what was learned is not kept") == 1, process.stderr


def test_whatever_a_learning_job_does_no_two_tensors_share_memory(tmp_path):
    process = learn("straying.py", "another model")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["overlaps"] == 0


def test_a_damaged_plan_costs_a_warning_and_not_the_job(planned, tmp_path):
    (tmp_path / "rank0_dev0.plan").write_bytes(b"no plan at all")
    process = serve(tmp_path, "gpt.py", "1")
    assert process.returncode == 0, process.stderr
    assert "runs with PyTorch's allocator" in process.stderr
    process = learn("gpt.py", "1", options=("--plan", tmp_path))
    assert process.returncode == 0, process.stderr
    assert "starts without a plan" in process.stderr


def test_a_directory_without_plans_to_follow_is_an_error_of_one_line(tmp_path):
    process = serve(tmp_path / "nowhere", "gpt.py", "1")
    assert process.returncode == 2
    assert "no such directory" in process.stderr
    process = serve(tmp_path, "gpt.py", "1")
    assert process.returncode == 2
    assert "neither plans nor traces" in process.stderr


def test_limits_resets_and_switches_hold_for_the_arena_too(planned):
    process = serve(planned, "limits.py")
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("roundup_power2_divisions is left to PyTorch's allocator") == 1, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["wrong"] == []


def test_a_snapshot_that_a_served_job_dumps_tells_what_it_held(planned, tmp_path):
    dump = tmp_path / "snapshot.pickle"
    process = serve(planned, "dump.py", dump)
    assert process.returncode == 0, process.stderr
    assert served(process) > 99
    told = run("simulate", dump, "--allocator", "pytorch", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["actual_peak_reserved"] == int(process.stdout.split()[-1])


def test_idle_threads_sleep_in_a_dry_run_unless_the_user_says_otherwise():
    code = "import os; print(os.environ.get('OMP_WAIT_POLICY'))"
    for env, found in (({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")):
        done = run("run", "--dry-run", "rtx4090", "--", sys.executable, "-c", code, env=env)
        assert done.stdout.splitlines()[-1] == found, done.stdout + done.stderr
