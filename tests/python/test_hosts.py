"""Launchers on several hosts with one shared folder. Hosts are namespaces here: each has its own name, and the same process numbers."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys

import pytest
from runs import COMMAND, PROGRAMS, run
from test_launchers import sizes

GPU = ("--dry-run", "h100-80gb")
PROGRAM = (sys.executable, str(PROGRAMS / "troubles.py"), "size")


@functools.cache
def host() -> tuple[str, ...]:
    """The start of a command that makes a host of the name that follows, and runs what comes then as its first process."""
    for user in ((), ("--user", "--map-root-user")):
        start = ("unshare", *user, "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", 'hostname "$1" && shift && exec "$@"', "host")
        try:
            made = subprocess.run([*start, "node7", "sh", "-c", "echo $(hostname) $$"], capture_output=True, text=True)
        except OSError:
            continue
        if made.stdout.split() == ["node7", "1"]:
            return start
    pytest.skip("no host can be simulated: this machine allows no namespaces (unshare)")


def start(node: int, *command, **env):
    variables = [f"{name}={value}" for name, value in env.items()]
    begin = [*host(), f"node{node}", "env", "-u", "PYTHONPATH", *variables, COMMAND]
    return subprocess.Popen([*map(str, (*begin, *command))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out, err


def listed(process):
    return [row["file"] for row in json.loads(ended(process)[0])["traces"]]


def test_processes_of_one_number_on_several_hosts_lose_nothing_that_another_recorded(tmp_path):
    command = ("trace", *GPU, "--json", "-o", tmp_path, "--", *PROGRAM)
    started = [start(node, *command, 7000 + node) for node in range(3)]
    files = [file for process in started for file in listed(process)]
    assert len(set(files)) == 3, files
    assert sorted(sizes(tmp_path).values()) == [7000, 7001, 7002]
    number = r"rank0_dev0\.\d+"
    assert any(re.fullmatch(rf"{number}-2\.trace", file) for file in files), f"{files}: their processes had the same number"
    # Another host's recording that was cut off may go on there: where its lock is not seen, nothing else tells.
    whole = tmp_path / "rank0_dev0.trace"
    whole.write_bytes(whole.read_bytes()[:-200])
    before = whole.read_bytes()
    owner = next(node for node in range(3) if files[node] == whole.name)
    listed(start(owner + 1, *command, 8000))
    assert whole.read_bytes() == before
    assert listed(start(owner, *command, 9000)) == [whole.name], "its own host knows that nobody writes it any more"


def test_ranks_of_a_job_on_two_hosts_record_plan_and_are_served_in_one_folder_each_by_its_own_plan(tmp_path):
    def ranks(*command):
        """Two tasks on each of two hosts, as Slurm starts them."""
        return [
            start(
                rank // 2, *command, *GPU, "--plan" if command == ("run",) else "-o", tmp_path, "--", *PROGRAM, 5000 + 1024 * min(rank, 2),
                SLURM_JOB_ID=77, SLURM_STEP_ID=0, SLURM_NTASKS=4, SLURM_PROCID=rank, SLURM_NODEID=rank // 2, SLURM_LOCALID=0,
            )
            for rank in range(4)
        ]  # fmt: skip

    files = [listed(process) for process in ranks("trace", "--json")]
    assert files == [[f"rank{rank}_dev0.trace"] for rank in range(4)]
    served = [ended(process)[1] for process in ranks("run")]
    for rank, said in enumerate(served):
        assert "not used" not in said and f"rank{rank} dev0: " in said, said
    plans = {path.name: path for path in tmp_path.glob("rank*.plan")}
    assert sorted(plans) == [f"rank{rank}_dev0.plan" for rank in range(4)]
    assert len({path.read_bytes() for path in plans.values()}) == 3, "ranks 2 and 3, one on each host, do the same"
    assert re.search("job of 4 ranks: .*; 3 plans for all", served[0]), served[0]
    assert sum("job of 4 ranks" in said for said in served) == 1
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith(("rank", ".shared-"))]
    assert not left, "nothing unfinished is left"
    for path in plans.values():
        assert run("verify", path).returncode == 0
