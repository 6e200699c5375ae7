"""Nothing that goes wrong inside of stalloc, and no line that it cannot print, fails the job.

``STALLOC_FAULTS=each scripts/test-python tests/python/test_faults.py`` has each function fail alone too, from its first and from a later call on.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from runs import PROGRAMS, run

GPU = ("--dry-run", "h100-80gb")
#: Standard error on a full disk, closed, and on a pipe that nobody reads.
NOWHERE = {
    "full disk": 'exec "$@" 2>/dev/full',
    "closed": 'exec "$@" 2>&-',
    "unread pipe": '"$@" 2> >(exec 0<&-; sleep 0.1)',
}


def serve(directory, *command, **env):
    return run("run", "--plan", directory, "--frozen", *GPU, "--", *command, env=env)


def test_a_panic_in_every_function_that_pytorch_calls_leaves_the_job_alive(planned):
    # From the second call of each on.
    faults = {"STALLOC_FAULT": "*:2", "RUST_BACKTRACE": "0"}
    process = serve(planned, sys.executable, PROGRAMS / "faults.py", **faults)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1]) == {"losses": 8}
    assert process.stderr.count("a fault on purpose in") > 3, process.stderr
    assert process.stderr.count("the job goes on without its plan") == 1


#: The functions that C calls, as `fault.rs` has them.
CALLED = re.findall(r'contained\(\s*"(\w+)"', (Path(__file__).parents[2] / "crates/runtime/src/table.rs").read_text())


if os.environ.get("STALLOC_FAULTS") == "each":  # takes minutes

    @pytest.mark.parametrize("call", [1, 40])
    @pytest.mark.parametrize("name", CALLED)
    def test_a_panic_in_one_function_leaves_the_job_alive(planned, name, call):
        faults = {"STALLOC_FAULT": f"{name}:{call}", "RUST_BACKTRACE": "0"}
        process = serve(planned, sys.executable, PROGRAMS / "faults.py", **faults)
        assert process.returncode == 0, process.stderr
        assert json.loads(process.stdout.splitlines()[-1]) == {"losses": 8}
        if not process.stderr.count(f"a fault on purpose in {name}"):
            pytest.skip(f"{name} is not called {call} times")


@pytest.mark.parametrize("nowhere", NOWHERE.values(), ids=NOWHERE.keys())
def test_a_line_that_cannot_be_printed_is_lost_and_nothing_else(planned, tmp_path, nowhere):
    (tmp_path / "rank0_dev0.plan").write_bytes(b"no plan at all")
    tries = [
        # Lines of Rust's and at the end, and lines of Python's while PyTorch is imported.
        ("a fault", planned, {"STALLOC_FAULT": "*:5", "RUST_BACKTRACE": "0"}),
        ("a damaged plan", tmp_path, {}),
    ]
    for what, directory, env in tries:
        command = ("bash", "-c", nowhere, "bash", sys.executable, PROGRAMS / "gpt.py", "1")
        process = serve(directory, *command, **env)
        assert process.returncode == 0, (what, process.stderr)
        assert process.stdout.count("loss") == 1, what
