"""A program gives the GPU away between steps and has it back: every address, every byte, and nothing is held meanwhile."""

import json
import subprocess
import sys

import pytest
from runs import PROGRAMS, run


def sleeps(*arguments, options=()):
    process = run("run", *options, "--dry-run", "h100-80gb", "--", sys.executable, PROGRAMS / "gives_card_away.py", *arguments)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])["wrong"]


def test_all_memory_is_given_back_and_every_address_and_value_comes_back():
    assert sleeps() == []


def test_an_arena_in_one_allocation_says_that_it_cannot():
    assert sleeps("solid", options=("--solid",)) == []


@pytest.mark.nightly
def test_a_hundred_that_are_killed_or_find_no_host_memory_end_cleanly_or_go_on():
    process = subprocess.run([sys.executable, PROGRAMS / "sleep_ends.py"], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])
    assert found["wrong"] == [] and found["killed"] == 50, found
    assert found["refused"] > 20 and int(found["sleeps"]) > 900, found
