"""No other user of the machine gets in: what lies in folders that everybody may write to is taken only if it is ours."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from runs import COMMAND

from stalloc import _native
from stalloc._levers import shared_start
from stalloc._out_of_memory.publish import publish
from stalloc._serve.job_summary import Meeting
from stalloc._serve.settings import Settings

pytestmark = pytest.mark.usefixtures("cold")

STRANGER = 54_321
FIGURES = {0: {"peak_reserved": 1 << 30, "efficiency": 0.9, "remaps": 0}}
RANKS = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder as /tmp is."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def meetings(**settings: str):
    """The ranks of a job of two on one machine."""
    return [Meeting(Settings.read("auto", settings.get("path"), RANKS | {"RANK": str(rank)}), RANKS) for rank in range(2)]


def summary_of(ranks) -> str | None:
    """What the job says at its end; hangs no longer than some minutes."""
    signal.alarm(300)
    try:
        for meeting in ranks:
            meeting.begin()
        for meeting in ranks:
            meeting.leave(FIGURES)
        return ranks[0].sum_up(patience=1)
    finally:
        signal.alarm(0)


def everything(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_the_summary_of_a_job_is_made_in_a_private_folder_and_nothing_stays(temporary):
    assert summary_of(meetings()).startswith("job of 2 ranks: most is held by rank 0, 1.00 GiB")
    own = temporary / f"stalloc-{os.geteuid()}"
    assert everything(temporary) == [own, own / "jobs"] and own.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root")
@pytest.mark.parametrize("where", ["temporary files", "plans"])
def test_a_folder_that_another_user_put_there_neither_takes_nor_gives_nor_stops_a_summary(temporary, tmp_path, where):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    shared = tmp_path / "plans"
    shared.mkdir()
    ranks = meetings(**({"path": str(shared)} if where == "plans" else {}))
    name = next(name for name in vars(ranks[0]).values() if isinstance(name, str) and ".served" in name)
    user = os.geteuid()
    if where == "plans":
        theirs = [shared / name]
    else:  # as it is called, and as it was once called
        theirs = [temporary / f"stalloc-{user}" / "jobs" / name, temporary / f"stalloc-{user}-{name}"]
    for folder in theirs:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        for file in (".rank0", ".rank1", f".rank0.{os.getpid()}", f".rank1.{os.getpid()}", "rank0.json"):
            (folder / file).symlink_to(victim)
        os.mkfifo(folder / "rank1.json")
        for made in [*everything(folder), folder, folder.parent]:
            if made not in (temporary, shared):
                os.chown(made, STRANGER, STRANGER, follow_symlinks=False)
    if where == "plans":
        with pytest.raises(OSError, match="belongs to another user"):
            summary_of(ranks)
    else:
        assert summary_of(ranks).startswith("job of 2 ranks: most"), "in the cache then"
        assert (tmp_path / "cache" / "stalloc" / "jobs").is_dir()
    assert victim.read_text() == "precious"
    assert all((folder / "rank1.json").is_fifo() for folder in theirs), "what is theirs stays theirs"


@pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root")
def test_a_dry_run_takes_no_library_from_a_cache_that_others_share(temporary, tmp_path):
    found = [sys.executable, "-c", "import os; print(os.environ['LD_PRELOAD'], os.environ['PATH'], sep='\\n')"]
    command = [COMMAND, "run", "--dry-run", "h100-80gb", "--", *found]

    def start() -> tuple[Path, list[str]]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        library, path = done.stdout.split()
        return Path(library).parent, path.split(":")

    folder, path = start()
    assert folder.parent == tmp_path / "cache" / "stalloc" and path[-1] == str(folder / "bin"), "the machine's programs come first"
    os.chown(folder, STRANGER, STRANGER)
    folder.chmod(0o777)
    elsewhere, _ = start()
    assert elsewhere.parent == temporary / f"stalloc-{os.geteuid()}"
    folder.chmod(0o755)
    os.chown(folder, 0, 0)
    folder.parent.chmod(0o777)  # others could put another folder in its place
    assert start()[0] == elsewhere


def test_a_private_folder_is_for_names_alone(temporary):
    folder = _native.PrivateFolder.kept("any")
    folder.write("x", b"content")
    assert folder.read("x", 7) == b"content" and (folder.path / "x").stat().st_mode & 0o777 == 0o600
    for name in ("../x", "/x", "", ".."):
        with pytest.raises(OSError, match="no name of a file"):
            folder.write(name, b"")
    with pytest.raises(OSError, match="too long"):
        folder.read("x", 6)


def as_a_stranger(act) -> int:
    """The exit status of a child process of another user that does something."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            os._exit(int(act() or 0))
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root")
def test_trials_meet_at_a_socket_of_their_own_user_alone(tmp_path, monkeypatch):
    meeting = Path(tempfile.mkdtemp(dir="/tmp"))  # where a stranger gets to
    meeting.chmod(0o711)
    monkeypatch.setenv(shared_start.VARIABLE, f"{os.getpid()}:{meeting}")
    folder, path = shared_start._meeting()
    # A stranger who took the name gets no environment.
    theirs = socket.socket(socket.AF_UNIX)
    theirs.bind(str(path))
    heard, told = os.pipe()

    def listen() -> None:
        theirs.listen(1)
        theirs.settimeout(20)
        os.write(told, b"listening")
        waiting, _ = theirs.accept()
        os._exit(bool(waiting.recv(1)))

    child = os.fork()
    if child == 0:
        os.setresuid(STRANGER, STRANGER, STRANGER)
        listen()
    os.read(heard, 9)
    shared_start.follow()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "nothing was sent"
    # A stranger who asks gets no fork.
    path.unlink()
    ours = os.fork()
    if ours == 0:
        shared_start.leave_copy(lambda: os._exit(7))
        os._exit(0)
    os.waitpid(ours, 0)
    assert (meeting / path.name).stat().st_mode & 0o777 == 0o600
    (meeting / path.name).chmod(0o777)

    def ask() -> int:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(meeting / path.name))
            asking.settimeout(20)
            return len(asking.recv(1))

    assert as_a_stranger(ask) == 0, "the connection is closed"
    shutil.rmtree(meeting)  # the copy ends then


def test_a_meeting_that_others_can_write_to_is_none(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv(shared_start.VARIABLE, f"{os.getpid()}:{tmp_path}")
    shared_start.follow()
    shared_start.leave_copy(lambda: None)
    assert list(tmp_path.iterdir()) == []


FAILED = {"action": "oom", "size": 1 << 30, "device_free": 1 << 20, "addr": 1 << 20, "stream": 0, "frames": [], "time_us": 0}
FACTS = {"device": 0, "size": 1 << 30, "total": 1 << 30, "free": 1 << 20, "reserved": 0, "allowed": 1 << 30, "left_out": 0, "holders": [], "command": "train.py"}


def snapshot() -> dict:
    return {"segments": [], "device_traces": [[FAILED]], "allocator_settings": {}}


@pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root")
def test_a_report_goes_through_nothing_that_another_user_put_there(temporary, tmp_path, monkeypatch, capfd):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-000000")
    name = f"rank0_20260101-000000_{os.getpid()}"
    shared = tmp_path / "shared"
    for folder in (shared / "stalloc-out-of-memory" / name, temporary / f"stalloc-out-of-memory-{os.getuid()}" / name):
        folder.mkdir(parents=True)
        for file in ("memory.pickle", "report.html", "summary.txt"):
            (folder / file).symlink_to(victim)
        for made in (folder, folder.parent):
            made.chmod(0o777)
            os.chown(made, STRANGER, STRANGER)
    publish(shared / "stalloc-out-of-memory", snapshot(), dict(FACTS))
    kept = tmp_path / "cache" / "stalloc" / "out-of-memory" / name
    assert victim.read_text() == "precious" and str(kept) in capfd.readouterr().err
    modes = {file.name: file.stat().st_mode & 0o777 for file in kept.iterdir()}
    assert modes == {"memory.pickle": 0o600, "report.html": 0o600, "summary.txt": 0o600} and kept.stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_the_answer_is_printed(tmp_path, monkeypatch, capfd):
    file = tmp_path / "file"
    file.write_text("")
    for name in ("XDG_CACHE_HOME", "HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(file))
    publish(file / "dumps", snapshot(), dict(FACTS))
    told = capfd.readouterr().err
    assert "there is no page" in told and "1.00 GiB" in told, told
