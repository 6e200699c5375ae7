"""`stalloc fit` on a tiny GPU: what fits, what does not, and what is no question of memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runs import COMMAND, PROGRAMS, START, own_cache, run
from typed import conforms

import stalloc
from stalloc.results import FitAnswer

#: 496 MiB are left; the program needs 16 MiB of weights, 16 of gradients, and 36 MiB for each batch.
TINY = "sm=8,memory=512MiB,capability=8.0,context=16MiB,name=tiny"
#: One of several that are not linked: 16 MiB for the context, 100 to 570 for NCCL.
UNLINKED = "sm=8,memory=1GiB,capability=8.6,context=16MiB,name=unlinked"
PROGRAM = (sys.executable, str(PROGRAMS / "fit.py"))
ALLOCATORS = ("pytorch", "pytorch-expandable", "stalloc")
#: What SLEEP stands for: a command that no other program on this machine runs.
SLEEP = f"sleep 654.{os.getpid()}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache of this module's own, so that what was tried once is known for the next test."""
    return own_cache(tmp_path_factory.mktemp("cache"))


def fit(*arguments: str, cache: dict[str, str], gpu: str = TINY, ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    process = run("fit", "--dry-run", gpu, "--json", *arguments, env=cache)
    assert process.returncode in ok, process.stderr
    answer = json.loads(process.stdout)
    conforms(answer, FitAnswer)
    return answer | {"stderr": process.stderr}


def trial(answer: dict[str, Any], **values: Any) -> dict[str, Any]:
    (found,) = [candidate for candidate in answer["candidates"] if candidate["values"] == values]
    return found


def test_the_largest_batch_is_found_and_one_more_does_not_fit(cache, monkeypatch):
    question = ("--vary", "MB=10..30", "--", *PROGRAM, "--batch", "{MB}")
    answer = fit(*question, cache=cache)
    largest = {name: answer["largest"][TINY][name]["MB"] for name in ALLOCATORS}
    assert largest == {"pytorch": 13, "pytorch-expandable": 12, "stalloc": 13}
    for name, batch in largest.items():
        at, above = (trial(answer, MB=value)["allocators"][name] for value in (batch, batch + 1))
        assert at["fits"] and at["left"] >= 0 and at["peak_reserved"] <= 496 << 20
        assert not above["fits"] and above["left"] < 0
    assert len(answer["candidates"]) <= 6, "the search does not try all"

    # A program on a stand-in whose memory does run out says the same.
    for batch, status in ((13, 0), (14, 1)):
        process = run("trace", "--dry-run", TINY, "-o", Path(cache["XDG_CACHE_HOME"], "traces"), "--", *PROGRAM, "--batch", str(batch))
        assert process.returncode == status, process.stderr
        assert ("OutOfMemoryError" in process.stderr) == (status == 1)

    again = run("fit", "--dry-run", TINY, *question, env=cache)
    lines = [line for line in again.stderr.splitlines() if "peak allocated" in line]
    # Trials that run ahead may be more than those that the answer needs.
    known = [line for line in lines if "known from before" in line]
    assert len(known) >= len(answer["candidates"]), again.stderr
    outside = "tiny: 512.0 MiB; of it outside PyTorch\n    CUDA context and libraries 16.0 MiB (as described)\n"
    assert again.stdout.startswith(outside), again.stdout
    left = trial(answer, MB=13)["allocators"]["pytorch"]["left"] / (1 << 20)
    assert f"the largest that fits tiny; {left:.1f} MiB to spare)" in again.stdout, again.stdout
    assert "smallest GPU" in again.stdout and "no, -30.0 MiB" in again.stdout

    monkeypatch.setenv("XDG_CACHE_HOME", cache["XDG_CACHE_HOME"])
    monkeypatch.setenv("PYTHONPATH", str(START))
    assert stalloc.fit([*PROGRAM, "--batch", "{MB}"], TINY, vary={"MB": range(10, 31)})["largest"] == answer["largest"]


def test_what_runs_because_it_catches_what_it_is_refused_is_answered_too(cache):
    question = ("--vary", "MB=5..14", "--", *PROGRAM, "--workspace", "300", "--batch", "{MB}")
    answer = fit(*question, cache=cache)
    (row,) = answer["frontier"]
    largest, caught = row["largest"]["pytorch"]["MB"], row["caught"]
    # One for each step of the program: on the card itself three more than of a trial are run.
    assert largest < caught["values"]["MB"] and caught["refused"] == 4, row
    (slower,) = caught["slower"]
    assert re.fullmatch(r"programs/fit.py:\d+ <module>", slower["site"]) and (slower["count"], slower["most"]) == (4, 300 << 20), slower
    for batch, status in ((caught["values"]["MB"], 0), (caught["values"]["MB"] + 1, 1)):
        traces = Path(cache["XDG_CACHE_HOME"], f"caught{batch}")
        process = run("trace", "--dry-run", TINY, "-o", traces, "--", *PROGRAM, "--workspace", "300", "--batch", str(batch))
        assert process.returncode == status, process.stderr
    again = run("fit", "--dry-run", TINY, *question, env=cache)
    assert f"it runs up to MB={caught['values']['MB']} under pytorch all the same: 4 requests are refused and caught" in again.stdout
    assert f"    {slower['site']}: 4 of up to 300.0 MiB" in again.stdout


def test_every_combination_of_lists_is_tried_and_a_range_searched_for_each(cache):
    command = (*PROGRAM, "--batch", "{MB}", "--width", "{WIDTH}")
    answer = fit("--vary", "MB=4..16:12", "--vary", "WIDTH=512,1024", "--", *command, cache=cache)
    rows = [(row["values"], row["largest"]["pytorch"]) for row in answer["frontier"]]
    assert rows == [({"WIDTH": 512}, {"MB": 16, "WIDTH": 512}), ({"WIDTH": 1024}, {"MB": 4, "WIDTH": 1024})]
    assert answer["largest"][TINY]["stalloc"] == {"MB": 16, "WIDTH": 512}, "the searched variable counts first"
    assert [candidate["values"]["MB"] for candidate in answer["candidates"]] == [4, 16, 4, 16]


def test_what_fits_is_a_page_with_charts_and_their_values_as_tables(cache, tmp_path):
    command = (*PROGRAM, "--batch", "{MB}", "--width", "{WIDTH}")
    lists = ("--vary", "MB=4..16:12", "--vary", "WIDTH=512,1024")
    fit(*lists, "-o", str(tmp_path / "fits.html"), "--", *command, cache=cache)
    page = (tmp_path / "fits.html").read_text()
    assert "<h1>The largest MB that fits</h1>" in page and page.count("<section") == 1 and "<h2 id=\"c0\">tiny</h2>" in page
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', page)
    assert [(name, re.findall("<td>(.*?)</td>", cells)) for name, cells in rows] == [("512", 3 * ["16 or more"]), ("1024", 3 * ["4"])]
    assert "Outside PyTorch on tiny: CUDA context and libraries 16.0 MiB (as described)." in page
    assert page.count("<circle") == 6 and not re.search(r"https?:|<script", page)
    # Without a range the memory that each value needs, next to the card's.
    fit("--vary", "MB=4,16", "--vary", "WIDTH=512,1024", "-o", str(tmp_path / "needs.html"), "--", *command, cache=cache)
    page = (tmp_path / "needs.html").read_text()
    assert "<h1>What it needs</h1>" in page and page.count("<section") == 2 and "the card: 512.0 MiB" in page
    assert "tiny, WIDTH=1024" in page and page.count("does not fit</td>") == 3 and page.count(", fits</td>") == 9
    process = run("fit", "--dry-run", TINY, "-o", tmp_path / "none" / "x.html", "--", *PROGRAM, env=cache)
    assert process.returncode == 2 and process.stderr == f"stalloc: --output: there is no folder {tmp_path / 'none'}\n"


def test_what_the_script_refuses_is_said_apart_and_the_rest_is_found(cache):
    answer = fit("--vary", "MB=1..5", "--", *PROGRAM, "--batch", "{MB}", "--most", "4", "--multiple", "2", cache=cache)
    assert answer["largest"][TINY]["stalloc"] == {"MB": 4}, "3 is refused, which says nothing of 4"
    assert answer["frontier"][0]["complete"] and answer["frontier"][0]["open"] is None
    for batch in (1, 3, 5):
        refused = trial(answer, MB=batch)
        assert refused["error"]["kind"] == "refused" and f"a batch of {batch} is refused" in refused["error"]["lines"][-1]
        assert refused["peak_allocated"] is None and not refused["allocators"]["pytorch"]["fits"]


def test_a_second_card_on_which_the_script_does_the_same_costs_one_trial(cache, tmp_path):
    script, ran = tmp_path / "counted.sh", tmp_path / "ran"
    script.write_text(f'echo "$STALLOC_DRYRUN_GPU" >> {ran}\nexec {" ".join(PROGRAM)} --batch $1\n')
    larger = TINY.replace("512MiB", "640MiB").replace("tiny", "less-tiny")
    for asked, values in (("10..11", (10, 11)), ("8,9,12", (8, 9, 12))):
        answer = fit("--dry-run", larger, "--vary", f"MB={asked}", "--", "sh", str(script), "{MB}", cache=cache)
        left = {(one["gpu"], one["values"]["MB"]): one["allocators"]["stalloc"]["left"] for one in answer["candidates"]}
        assert [left[larger, batch] - left[TINY, batch] for batch in values] == [128 << 20] * len(values), "each has its own answer"
        runs = ran.read_text().split()
        assert len(runs) == len(values) + 1 and set(runs) == {TINY, larger}, "and only one had to run for it, whichever card was ready first"
        ran.unlink()


def test_a_variable_that_the_command_does_not_use_is_told(cache):
    answer = fit("--vary", "MOST=100..101", "--", *PROGRAM, "--most", "{MOST}", cache=cache)
    assert answer["frontier"][0]["unused"]


def test_a_command_that_runs_with_nothing_is_no_answer(cache):
    process = run("fit", "--dry-run", TINY, "--", *PROGRAM, "--fail", env=cache)
    assert process.returncode == 2 and process.stdout.strip() == ""
    assert "the command failed with status 1; nothing is known about its memory" in process.stderr
    assert "FileNotFoundError: /data/train.bin" in process.stderr and "does not fit" not in process.stderr
    process = run("fit", "--dry-run", TINY, "--", "true", env=cache)
    assert process.returncode == 2 and "allocated no GPU memory" in process.stderr


def test_a_share_that_the_program_allows_itself_is_its_own_limit(cache):
    answer = fit("--", *PROGRAM, "--batch", "8", "--limit", "0.2", cache=cache, ok=(2,))
    assert answer["candidates"][0]["error"]["kind"] == "out_of_memory"
    assert "out of the memory that the script allows itself" in answer["stderr"]


def test_a_program_sees_the_card_that_is_asked_for_not_the_ample_one(cache, tmp_path):
    script, seen = tmp_path / "sees.sh", tmp_path / "seen"
    script.write_text(
        f"test ! -e {seen} || exit 1\n"  # on the full card, where it is run afterwards
        f"nvidia-smi --query-gpu=name,memory.total --format=csv,noheader > {seen}\n"
        f"{' '.join(PROGRAM)} --batch 40 >> {seen}\n"
    )
    answer = fit("--", "sh", str(script), cache=cache, ok=(1,))
    assert not answer["candidates"][0]["allocators"]["stalloc"]["fits"], "although it ran to its end"
    assert seen.read_text() == "tiny, 512 MiB\n" + 3 * f"free 0 {512 << 20}\n"


def test_a_program_with_convolutions_may_need_a_workspace_of_cudnns(cache):
    with_one = fit("--", *PROGRAM, "--convolution", cache=cache)["candidates"][0]
    # What sleeping takes of the host: 16 MiB of weights, 16 of gradients, and a batch of 4.
    asleep = with_one["asleep"]
    assert 20 << 20 <= asleep["between_steps"] <= 30 << 20 and asleep["at_step_end"] == asleep["between_steps"] + (16 << 20), asleep
    said = run("fit", "--colocated", "--dry-run", TINY, "--", *PROGRAM, "--convolution", env=cache).stdout
    assert f"asleep between steps, as it is: {asleep['between_steps'] >> 20}.0 MiB of page-locked host memory for each rank" in said, said
    _context, cudnn = with_one["outside"]["parts"]
    assert (cudnn["name"], cudnn["low"], cudnn["high"]) == ("cuDNN's workspaces", 0, 130 << 20)
    verdict = with_one["allocators"]["pytorch"]
    assert verdict["needed"] >= with_one["peak_allocated"] + (16 + 130 << 20)
    text = run("fit", "--dry-run", TINY, "--dry-run", TINY, "--", *PROGRAM, "--convolution", env=cache).stdout
    first, second, rest = text.split("\n", 2)
    assert re.fullmatch(r"Yes: [\d.]+ MiB of 512.0 MiB, in its first 3 steps\.", first) and second == "", text
    assert rest.count("tiny: 512.0 MiB; of it outside") == 1, "a GPU that is named twice is asked once"
    assert "Trials ended after 3 steps: what comes then" in text and "Next: " in text and "(fits tiny; " in text, text
    whole = run("fit", "--dry-run", TINY, "--steps", "9", "--", *PROGRAM, "--convolution", env=cache).stdout
    assert "was not seen" not in whole and "first 9 steps" not in whole.splitlines()[0], "the program has four steps"
    assert f"; {verdict['left'] / (1 << 20) + 130:.1f} MiB to spare, of which cuDNN's workspaces may take 130.0 MiB)" in text, text
    assert f"    cuDNN's workspaces 0 to 130.0 MiB ({cudnn['source']})\n" in text


def test_libraries_whose_kernels_take_memory_are_counted_where_they_are_used(cache):
    loaded = fit("--", *PROGRAM, "--loaded", cache=cache)["candidates"][0]["outside"]["parts"][1:]
    parts = {part["name"]: (part["low"], part["high"] >> 20) for part in loaded}
    assert parts == {"cuDNN's partial sums": (0, 180), "cuSOLVER": (0, 96), "cuFFT": (0, 8), "CUDA graphs": (0, 70)}


def test_kernels_that_are_loaded_at_once_take_more(cache):
    eager = fit("--", *PROGRAM, cache=cache | {"CUDA_MODULE_LOADING": "EAGER"}, ok=(1,))["candidates"][0]
    assert eager["outside"]["parts"][1]["name"] == "all kernels loaded at once"


def test_ranks_that_differ_are_found_once_and_the_fullest_decides(cache):
    question = ("--world-size", "3", "--vary", "MB=2,12", "--", *PROGRAM, "--batch", "{MB}")
    answer = fit(*question, cache=cache, gpu=UNLINKED)
    assert answer["same_ranks"] == [[0, 1], [2]]
    small, large = answer["candidates"]
    ranks = sorted(sorted(rank["rank"] for rank in candidate["ranks"]) for candidate in (small, large))
    # Of ranks that are alike one is tried again, unless both values were begun before that was known.
    assert [0, 1, 2] in ranks and all(tried in ([0, 1, 2], [0, 2]) for tried in ranks)
    peaks = {rank["rank"]: rank["peak_allocated"] for rank in large["ranks"]}
    assert peaks[2] - peaks[0] == 32 << 20 and large["peak_allocated"] == peaks[2]
    _context, groups = large["outside"]["parts"]
    assert groups["name"] == "NCCL, one communicator" and (groups["low"], groups["high"]) == (100 << 20, 570 << 20)
    for name in ALLOCATORS:
        assert small["allocators"][name]["fits"]
        at_edge = large["allocators"][name]
        assert at_edge["edge"] and not at_edge["fits"], "fits if NCCL takes its least"
    assert {verdict["rank"] for verdict in large["allocators"].values()} == {2}, "the one that needs most, under each allocator"
    text = run("fit", "--dry-run", UNLINKED, *question, env=cache).stdout
    assert "tried: ranks 0 to 2 of 3" in text and "the same: ranks 0, 1" in text and "edge, -" in text


def test_what_is_reserved_is_a_range_where_it_hangs_on_how_far_the_gpu_is_behind(cache):
    program = (sys.executable, str(PROGRAMS / "late.py"))
    reserved = trial(fit("--", *program, cache=cache, gpu="h100-80gb"))["allocators"]
    for name in ALLOCATORS[:2]:
        assert reserved[name]["peak_reserved_late"] - reserved[name]["peak_reserved"] >= 100 << 20, name
    assert reserved["stalloc"]["peak_reserved_late"] is None
    said = run("fit", "--dry-run", "h100-80gb", "--", *program, env=cache).stdout
    assert re.search(r"pytorch +yes +[0-9.]+ MiB to [0-9.]+ [MG]iB ", said) and "A range: memory that other streams use" in said, said
    tried = run("fit", "--dry-run", "h100-80gb", "--vary", "X=1,2", "--", *program, "{X}", env=cache).stdout
    assert "what was tried" in tried and "A range" not in tried, "where nothing is said of what is reserved"


def test_worlds_are_lists_multiplied_and_every_stage_of_a_pipeline_is_tried(cache):
    stages = ("--world-size", "{STAGES}x2", "--vary", "STAGES=1,8")
    answer = fit(*stages, "--", *PROGRAM, "--pipeline", "{STAGES}", cache=cache, gpu=UNLINKED)
    small, large = answer["frontier"]
    assert (small["world_size"], large["world_size"], answer["world_size"]) == (2, 16, None)
    assert small["same_ranks"] == [[0], [1]] and answer["same_ranks"] == []
    # Of sixteen ranks the first two, those at the quarters, the last, and the stages of the first one's pipeline.
    assert large["same_ranks"] == [[0, 1, 4, 6, 8, 10, 12, 14], [2], [15]]
    fullest = trial(answer, STAGES=8)
    assert {verdict["rank"] for verdict in fullest["allocators"].values()} == {2}
    text = run("fit", "--dry-run", UNLINKED, *stages, "--", *PROGRAM, "--pipeline", "{STAGES}", env=cache).stdout
    assert "tried with STAGES=1: ranks 0, 1 of 2" in text and "tried with STAGES=8: ranks 0 to 2, 4, 6, 8, 10, 12, 14, 15 of 16" in text
    unlikely = fit("--world-size", "4", "--ranks", "1,3", "--", *PROGRAM, "--pipeline", "4", cache=cache, gpu=UNLINKED)
    assert unlikely["same_ranks"] == [[1], [3]], "only those that were asked for"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("SLEEP", "ended because it took too long (--trial-limit)"),
        ("trap '' TERM INT HUP; while :; do SLEEP; done", "ended because it took too long (--trial-limit)"),
        ("yes $(printf '\\377\\r\\033[2J much') | head -c 30000000; exit 3", "the command failed with status 3"),
        ("kill -9 $$", "killed (exit status 137)"),
        ("echo usage: x; echo x: error: no such size >&2; exit 2", "was refused by the script"),
        ("exit 0", "allocated no GPU memory through PyTorch"),
    ],
)
def test_a_command_that_misbehaves_is_told_and_leaves_nothing_running(cache, script, said):
    process = run("fit", "--dry-run", TINY, "--trial-limit", "2", "--", "sh", "-c", script.replace("SLEEP", SLEEP), env=cache)
    assert process.returncode == 2 and process.stdout.strip() == ""
    assert said in process.stderr and "nothing is known about its memory" in process.stderr and "fit" not in process.stderr.replace("stalloc fit", "")
    assert len(process.stderr) < 20_000
    assert subprocess.run(["pgrep", "-f", SLEEP], capture_output=True).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--vary", "MB=1..8", "--", "true"), "{MB} is nowhere in the command"),
        (("--", "true", "{MB}"), "the command has {MB}: say what to try with --vary MB="),
        (("--vary", "MB=8..1", "--", "true", "{MB}"), "1 comes before 8"),
        (("--vary", "MB=1,2", "--vary", "MB=3,4", "--", "true", "{MB}"), "it is given twice"),
        (("--vary", "MB=0..99999999999", "--", "true", "{MB}"), "the range is too long to search"),
        (("--vary", "A=1..8", "--vary", "B=1..8", "--", "true", "{A}", "{B}"), "A and B are both ranges"),
        (("--world-size", "2", "--ranks", "2", "--", "true"), "rank 2 of 2"),
        (("--world-size", "{W}", "--vary", "W=1..8", "--", "true"), "--world-size {W} has W, which is a range"),
        (("--world-size", "{W}x2", "--vary", "W=4,full", "--", "true"), "--world-size {W}x2 is no number of ranks with W=full"),
        (("--world-size", "{W}", "--", "true"), "the command has {W}"),
        (("--", "/no/such/command"), "cannot run /no/such/command"),
    ],
)
def test_an_invalid_question_is_told_in_one_line(cache, arguments, said):
    process = run("fit", "--dry-run", TINY, *arguments, env=cache)
    assert process.returncode == 2 and process.stdout == ""
    (line,) = process.stderr.strip().splitlines()
    assert said in line


def test_ctrl_c_prints_what_was_found_so_far(cache, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(f"import runpy, sys, time\nif '8' in sys.argv: time.sleep(600)\nsys.argv[0] = {PROGRAM[1]!r}\nrunpy.run_path({PROGRAM[1]!r})\n")
    arguments = ("--jobs", "1", "--vary", "MB=1..8", "--", sys.executable, str(slow), "--batch", "{MB}")
    command = [COMMAND, "fit", "--dry-run", TINY, "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | cache)
    assert "MB=1: peak allocated" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130 and "stopped; this is what was found so far" in errors
    answer = json.loads(output)
    assert answer["interrupted"] and [candidate["values"] for candidate in answer["candidates"]] == [{"MB": 1}]
    assert answer["largest"][TINY]["stalloc"] == {"MB": 1} and not answer["frontier"][0]["complete"]
    assert answer["frontier"][0]["open"][0] == "MB=2", "nothing is known of what is larger"
    assert subprocess.run(["pgrep", "-f", str(slow)], capture_output=True).returncode == 1, "nothing is left running"


def test_python_is_told_why_a_question_is_invalid():
    with pytest.raises(ValueError, match="nowhere in the command"):
        stalloc.fit(["true"], TINY, vary={"MB": [1, 2]})
    with pytest.raises(ValueError, match="nothing to search"):
        stalloc.fit("true {MB}", TINY, vary={"MB": range(0)})
