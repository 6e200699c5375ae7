"""Objects that make trouble when they are looked at: memory runs out all the same with PyTorch's own error, and with a report."""

from __future__ import annotations

import json
import sys

from runs import PROGRAMS, run

# 824 MiB are left to PyTorch.
GPU = {"STALLOC_DRYRUN_TOTAL_MIB": "1024", "STALLOC_DRYRUN_CONTEXT_MIB": "200"}


def test_no_object_of_the_program_takes_its_error_or_the_report_away(tmp_path):
    own = ("env", "-u", "STALLOC_TRACE_DIR", "STALLOC_MODE=Torch", f"STALLOC_OUT_OF_MEMORY={tmp_path / 'dumps'}")
    done = run("trace", "--dry-run", "rtx4090", "-o", tmp_path, "--", *own, sys.executable, PROGRAMS / "hostile.py", env=GPU)
    found = {one["name"]: one for one in map(json.loads, (line for line in done.stdout.splitlines() if line.startswith("{")))}
    ended = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert len(found) >= 40 and ended == [f"{name} 0" for name in found], done.stdout + done.stderr[-2000:]
    assert {one["error"] for one in found.values()} == {"OutOfMemoryError"}, found
    assert [name for name, one in found.items() if len(one["named"]) != 1] == [], done.stderr[-2000:]
    # What the object holds is left out of a report, or has a holder; the rest, 12 tensors of 64 MiB, is there always.
    assert all(768 <= named <= 824 for one in found.values() for named in one["named"]), found
    assert "went on" not in done.stderr and "no report" not in done.stderr
