"""From what was captured to files: a recording that `stalloc report` reads, the page, and a summary of a few lines."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

from stalloc import _native, _report
from stalloc._common import ranks
from stalloc._common.output import say

#: What a recording is called.
RECORDING = "memory.pickle"
#: Reports of one rank that a folder keeps.
MOST_KEPT = 4
#: The page and the summary take no longer, seconds; the recording is there by then.
LONGEST = 60


def publish(folder: Path, snapshot: dict[str, Any], facts: dict[str, Any]) -> None:
    """Write a recording with what is known of it, and have it reported; where nothing can be written, say what the report says."""
    rank = ranks.of(os.environ) or 0
    name = f"rank{rank}_{time.strftime('%Y%m%d-%H%M%S')}_{os.getpid()}"
    snapshot["stalloc"] = json.dumps(facts)
    recording = pickle.dumps(snapshot, protocol=4)
    place = _kept(folder, name, recording)
    if place is not None:
        _forget_oldest(place.path.parent, f"rank{rank}_")
        where, summary = f"the report is in {place.path}", _summary(place)
    else:
        where = f"neither {folder} nor the cache can be written to, so there is no page"
        with open(os.memfd_create("stalloc-recording", 0), "wb") as file:  # inherited: the command reads it there
            file.write(recording)
            file.flush()
            summary = _text(f"/proc/self/fd/{file.fileno()}", pass_fds=[file.fileno()])
    if facts["left_out"]:
        summary += f"\n  objects that could not be looked at: {facts['left_out']}"
    say(f"out of memory; {where}:\n{summary}")


def _kept(folder: Path, name: str, recording: bytes) -> _native.PrivateFolder | None:
    """The folder where a recording was written: the one that is wanted, else one in the user's cache."""
    for is_wanted in (True, False):
        try:
            place = _native.PrivateFolder.open(folder.absolute() / name) if is_wanted else _native.PrivateFolder.kept("out-of-memory").below(name)
            try:
                place.write(RECORDING, recording)
                return place
            except OSError:
                place.path.rmdir()
        except OSError:
            pass
    return None


def _forget_oldest(folder: Path, prefix: str) -> None:
    """Others may have put folders there too: only ours go."""
    own = sorted(each for each in folder.glob(f"{prefix}*_*") if (each / RECORDING).is_file() and each.lstat().st_uid == os.geteuid())
    for old in own[:-MOST_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _summary(place: _native.PrivateFolder) -> str:
    """Writes the page and the summary, by the folder itself: its path may be another's by now."""
    options: dict[str, Any] = {"cwd": f"/proc/self/fd/{place.fileno()}", "umask": 0o077}
    try:
        text = _report.command("--summary", "-o", "report.html", RECORDING, timeout=LONGEST, **options)
    except Exception as error:  # no room for the page
        return f"{_text(RECORDING, **options)}\n  there is no page: {error}; `stalloc report {place.path / RECORDING}` tries again"
    try:
        place.write("summary.txt", text.encode())
    except OSError:
        pass
    return text.rstrip()


def _text(recording: str, **options: Any) -> str:
    try:
        return _report.command("--summary", recording, timeout=LONGEST, **options).rstrip()
    except Exception as error:
        return f"  there is no answer: {error}"
