"""From what was captured to files: a recording that `stalloc report` reads, the page, and a summary of a few lines."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from stalloc import _report
from stalloc._common import ranks
from stalloc._common.output import say

#: Reports of one rank that a folder keeps.
MOST_KEPT = 4
#: The page and the summary take no longer, seconds; the recording is there by then.
LONGEST = 60


def publish(folder: Path, snapshot: dict[str, Any], facts: dict[str, Any]) -> Path | None:
    """Write a recording with what is known of it, and have it reported; the folder it is in."""
    rank = ranks.of(os.environ) or 0
    name = f"rank{rank}_{time.strftime('%Y%m%d-%H%M%S')}_{os.getpid()}"
    try:
        (place := folder / name).mkdir(parents=True)
    except OSError:
        place = Path(tempfile.gettempdir()) / f"stalloc-out-of-memory-{os.getuid()}" / name
        place.mkdir(parents=True)
    snapshot["stalloc"] = json.dumps(facts)
    recording = place / "memory.pickle"
    with open(recording, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    _forget_oldest(place.parent, f"rank{rank}_")
    summary = _summary(place, recording)
    say(f"out of memory; the report is in {place}" + (f":\n{summary}" if summary else ""))
    return place


def _forget_oldest(folder: Path, prefix: str) -> None:
    own = sorted(each for each in folder.glob(f"{prefix}*_*") if (each / "memory.pickle").is_file())
    for old in own[:-MOST_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _summary(place: Path, recording: Path) -> str:
    try:
        text = _report.command("--summary", "-o", str(place / "report.html"), str(recording), timeout=LONGEST)
        (place / "summary.txt").write_text(text, encoding="utf-8")
        return text.rstrip()
    except Exception as error:
        return f"  there is no page: {error}; `stalloc report {recording}` tries again"
