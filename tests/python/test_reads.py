"""Values that a dry run does not compute: noted, answered, never in the way."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import PROGRAMS

from stalloc._common.numbers import encode


def line_of(program, text):
    lines = (PROGRAMS / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_each_read_is_listed_with_its_place_and_sees_zero_or_the_answer(record, tmp_path):
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({f"reads.py:{line_of('reads.py', '# list')}": [1, 2, 3]}))
    loss, nonzero = line_of("reads.py", "# loss"), line_of("reads.py", "# nonzero")
    options = ("--answer", f"reads.py:{loss}=2.5", "--answer", f"programs/reads.py:{nonzero}=7")
    recorded = record("reads.py", options=(*options, "--answers-file", str(answers)))
    assert recorded.process.stderr.split() == "loss 2.5 list [1, 2, 3] half 0.0146484375 nonzero 7 back [1.0, 2.0]".split()
    (trace,) = recorded.summary["traces"]
    reads = [(read["count"], read["answer"]) for read in trace["host_reads"]]
    assert [read[0] for read in reads[:2]] == [1, 1] and all(answer.startswith("every element of ") for _, answer in reads[:2])
    assert reads[2] == (1, None), "zeros come next"
    changing = [read["may_change_memory"] for read in trace["host_reads"]]
    assert changing == [True] * 3 + [False] * 5, "guesses and a length may; one floating-point number and what is answered do not"
    assert f"reads.py:{line_of('reads.py', '# length')} " in trace["host_reads"][2]["stack"][0]
    given = [(1, "a check that holds"), (1, "by the user"), (1, "by the user"), (1, "small fractions"), (3, "by the user")]
    assert sorted(reads[3:]) == given
    assert [entry["answer"] for entry in recorded.entries() if entry["action"] == "host_read"].count(None) == 1
    stacks = [read["stack"] for read in trace["host_reads"]]
    assert stacks.count([]) == 1, "autograd's thread has no Python stack"
    places = {stack[0].rsplit("/")[-1] for stack in stacks if stack}
    expected = {f"reads.py:{line_of('reads.py', '# ' + name)} in <module>" for name in ("loss", "list", "half", "length", "nonzero", "mask", "check")}
    assert places == expected, "what the program itself put there is known, and no decision"


@pytest.mark.parametrize("numbers, size, data", [
    ([3], 4, b"\3\0\0\0"),
    ([3], 8, b"\3\0\0\0\0\0\0\0"),
    ([True], 1, b"\1"),
    ([1.0], 4, b"\0\0\x80\x3f"),
    ([1.0], 2, b"\x80\x3f"),
    ([1, 2], 4, b"\1\0\2\0"),
])
def test_numbers_are_written_in_the_size_that_is_read(numbers, size, data):
    assert encode(numbers, size) == data


@pytest.mark.parametrize("numbers, size", [([1], 3), ([1, 2, 3], 4), ([1.0], 1), ([1], 16)])
def test_numbers_that_do_not_fill_a_read_are_refused(numbers, size):
    with pytest.raises(ValueError, match="do not fill"):
        encode(numbers, size)


def test_an_answer_that_is_none_ends_with_one_line_that_names_it(record):
    for answer, problem in (("reads.py=1", "'reads.py' is not FILE:LINE"), ("reads.py:3=x", "'x' is not a number")):
        recorded = record("reads.py", options=("--answer", answer), ok=False)
        assert recorded.process.returncode == 2
        assert f"stalloc: --answer {answer}: {problem}" in recorded.process.stderr
        assert len(recorded.process.stderr.splitlines()) <= 2


def test_small_integers_are_computed_as_on_the_host(record):
    recorded = record("known_values.py")
    lines = dict(line.split(" ", 1) for line in recorded.process.stderr.splitlines())
    unknown = lines.pop("unknown")
    assert lines.pop("own") == "True", "what was there before is not what an operation reads for itself"
    assert lines == dict.fromkeys(("lengths", "counts", "orders", "in_place", "slices", "packed", "lists", "scaled", "router"), "same")
    assert unknown == "0.0146484375 True 5"
    (trace,) = recorded.summary["traces"]
    answers = {read["answer"]: read["count"] for read in trace["host_reads"]}
    assert answers.keys() == {"small fractions", "drawn at random", "a check that holds", "every element of 5"}, "what is computed is no decision"


#: Versions of PyTorch that are tried where STALLOC_PYTORCHS is a folder of environments with one each: torch-2.6, torch-2.8, torch-2.11.
@pytest.fixture(params=[None, "2.6", "2.8", "2.11"], ids=lambda version: f"torch-{version or 'ours'}")
def python(request):
    if request.param is None:
        return sys.executable
    environment = Path(os.environ.get("STALLOC_PYTORCHS", "STALLOC_PYTORCHS")) / f"torch-{request.param}" / "bin" / "python"
    if not environment.exists():
        pytest.skip(f"no PyTorch {request.param}: {environment} does not exist")
    return environment


def test_a_dry_run_ends_at_nothing_that_it_looks_at(record, python, tmp_path):
    recorded = record("unreadable.py", python=python, XDG_CACHE_HOME=str(tmp_path / "no answers of cuDNN are kept here"))
    passed = [line.split()[0] for line in recorded.process.stderr.splitlines() if line.endswith(" passed")]
    assert passed == "fake kinds released cut_off protected stale draws children".split(), recorded.process.stderr


def test_programs_of_any_kind_read_what_they_would_on_a_gpu_or_what_is_not_known(record, python):
    recorded = record("any_kind.py", python=python)
    assert recorded.process.stderr.splitlines()[-1] == "35 programs, 0 failed", recorded.process.stderr


def test_what_a_dry_run_looks_at_is_freed_when_the_program_lets_go_of_it(record):
    recorded = record("let_go.py")
    names = "number numbers guess refused_by_the_host counted large backward".split()
    assert recorded.process.stderr.splitlines() == [f"{name} 0" for name in names]


def test_what_handlers_of_signals_raise_reaches_the_program(record):
    recorded = record("interrupted.py")
    assert recorded.process.stderr.splitlines() == ["RuntimeError lost 0", "KeyboardInterrupt lost 0"]


def test_a_size_that_is_guessed_comes_first_with_a_range(record):
    recorded = record("masks.py", "400")
    known, guessed = recorded.process.stderr.splitlines()[:2]
    assert known.startswith("known same ") and 1000 < int(known.split()[-1]) < 20_000, "of 1.7 million"
    assert guessed == "guessed 1000"
    (trace,) = recorded.summary["traces"]
    first = trace["host_reads"][0]
    assert (first["guessed"], first["may_change_memory"], first["answer"]) == (1000, True, "every element of 1000")
    assert f"masks.py:{line_of('masks.py', '# guessed')} " in first["stack"][0]
    assert not any(read["guessed"] for read in trace["host_reads"][1:])
    assert trace["peak_allocated"] - trace["peak_if_none"] >= 1000 * 16384 * 4


def test_each_size_that_hangs_on_values_is_exact_or_marked(record):
    recorded = record("value_sizes.py")
    kinds = [json.loads(line) for line in recorded.process.stderr.splitlines() if line.startswith("[")]
    assert len(kinds) > 40
    (trace,) = recorded.summary["traces"]
    marked = {(call, name) for read in trace["host_reads"] for call, name in itertools.pairwise(_functions(read["stack"]))}
    for name, host, given, drawn in kinds:
        assert given == host or (name, "from_host") in marked, f"{name}: {given}, on a GPU {host}"
        assert (name, "from_device") in marked, f"{name}: {drawn}, of numbers that nobody knows"
    deciding = {frame.rpartition(" ")[2] for read in trace["host_reads"] if read["may_change_memory"] for frame in read["stack"]}
    assert "sim_ota" in deciding, "how many are chosen is an int32"


def _functions(stack):
    return [frame.rpartition(" ")[2] for frame in stack if "value_sizes.py:" in frame]


def test_fractions_that_are_not_known_are_small_and_lead_no_program_astray(record):
    recorded = record("unknown_fractions.py")
    lines = recorded.process.stderr.splitlines()
    assert lines[0] == "loss True True False"
    numbers = [float(line.removeprefix("types ")) for line in lines[1:4]]
    assert 0.015 > numbers[0] > numbers[1] > 0.01, "they fall"
    assert 0.01 < numbers[2] < 0.015
    assert lines[4:8] == ["scores 300 True", "again True True", "norm True False False False True", "check True False True"]
    assert lines[8:] == ["steps 10000"], "a loop that waits for one to vanish ends"
    (trace,) = recorded.summary["traces"]
    place = f"unknown_fractions.py:{line_of('unknown_fractions.py', '# waits')} "
    waits = [(read["count"], read["answer"]) for read in trace["host_reads"] if place in read["stack"][0]]
    assert waits == [(1, None), (10_000, "small fractions")]


def test_modules_are_given_what_a_host_that_computes_gives_them(record, tmp_path):
    """Masks of padded and of whole rows, packed rows, generation, and routes: decided by values of transformers' models."""
    program, settings = PROGRAMS / "decided_by_values.py", {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, PROGRAMS / "shapes.py", tmp_path / "host", program], check=True, env=os.environ | settings)
    record("shapes.py", str(tmp_path / "dry"), str(program))
    record("shapes.py", str(tmp_path / "zeros"), str(program), ok=False, STALLOC_DRYRUN_VALUES="0")
    host, dry, zeros = ((tmp_path / name).read_text().splitlines() for name in ("host", "dry", "zeros"))
    assert len(host) == 350 and any("3x1x12x12" in line for line in host) and dry == host
    assert zeros != host, "the values decide"


def test_small_integers_are_zeros_where_that_is_asked_for(record):
    recorded = record("known_values.py", STALLOC_DRYRUN_VALUES="0")
    lines = dict(line.split(" ", 1) for line in recorded.process.stderr.splitlines())
    assert lines["orders"].endswith("but [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0], [0, 0], 0, [0, 0]]")
    assert lines["unknown"] == "0.0 False 0"


def test_a_kernel_of_the_programs_own_ends_what_is_known_of_its_arguments_alone(record):
    recorded = record("own_kernels.py")
    lines = recorded.process.stderr.splitlines()
    assert "after a kernel 5 [5] [2, 4, 16] [3, 4]" in lines, recorded.process.stderr
    assert "of a kernel [0, 0]" in lines, "the kernel wrote there, and nobody knows what"
