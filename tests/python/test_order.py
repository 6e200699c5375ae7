"""On a GPU whose events complete late, by chance, memory still passes from stream to stream in order: the stand-in sees every block
and all that orders its use (`STALLOC_DRYRUN_LATE_EVENTS`), and complains of none.

``STALLOC_ORDER=SEED,ACTS scripts/test-python tests/python/test_order.py`` tries one more random program.
"""

from __future__ import annotations

import json
import os
import sys

from runs import PROGRAMS, run

SEED, ACTS = os.environ.get("STALLOC_ORDER", "3,1200").split(",")


def order_of(program, *arguments, before=(), **env):
    command = ("run", *before, "--dry-run", "h100-80gb", "--", sys.executable, PROGRAMS / "ordered.py", PROGRAMS / program)
    process = run(*command, *arguments, env=env | {"STALLOC_DRYRUN_LATE_EVENTS": SEED})
    assert process.returncode == 0, process.stderr[-3000:]
    (line,) = [line for line in process.stdout.splitlines() if line.startswith('{"order"')]
    complaints = [line for line in process.stderr.splitlines() if "order:" in line]
    return json.loads(line)["order"], complaints


def test_a_random_program_on_streams_and_threads_keeps_the_order():
    order, complaints = order_of("differential.py", SEED, ACTS)
    assert order["violations"] == 0 and complaints == []
    assert order["blocks"] > int(ACTS) / 4, "the stand-in hears of blocks"


def test_a_training_job_from_its_plan_keeps_the_order(planned):
    order, complaints = order_of("gpt.py", "8", before=("--plan", planned, "--frozen"), STALLOC_TIGHT="1")
    assert order["violations"] == 0 and complaints == []
    assert order["blocks"] > 1000


def test_graphs_that_share_pages_keep_the_order():
    order, complaints = order_of("graphs.py")
    assert order["violations"] == 0 and complaints == []
    assert order["blocks"] > 5000


def test_pinned_memory_is_not_reused_before_copies_are_done():
    order, complaints = order_of("pinned.py", SEED)
    assert order["violations"] == 0 and complaints == []
    assert order["blocks"] > 500
