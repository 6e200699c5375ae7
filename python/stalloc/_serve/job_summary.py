"""One summary for a job of several ranks, said by rank 0 at its end.

Each process leaves its figures in a private folder that all of them see: in the one of the plans, or, on one machine, in one of
this launch. Rank 0 waits for the others, which end at about the same time, and no longer than a job may be kept from ending.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import time
from typing import Any, Mapping

from stalloc import _native
from stalloc._common import ranks as launched
from stalloc._common.output import say
from stalloc._serve.settings import Settings

#: Seconds that rank 0 waits for the figures of the others. A rank that was killed leaves none.
PATIENCE = 10.0

#: The longest file of figures that is read, bytes.
MOST_BYTES = 1 << 20

#: Jobs up to this many ranks have a line of figures from each of them; larger ones from rank 0 alone, and the summary.
MOST_LINES = 8


def is_told(settings: Settings) -> bool:
    """Whether this process prints lines of its own at its end."""
    return settings.rank == 0 or launched.count(os.environ) <= MOST_LINES


class Meeting:
    """Where the ranks of this launch leave their figures."""

    def __init__(self, settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
        self.rank, self.size = settings.rank, launched.count(environment)
        # A rank of a dry run that runs alone waits for nobody.
        has_others = settings.is_one_of_several and self.size > 1 and "STALLOC_TRACE_ALONE" not in environment
        self._shared = settings.path
        self._name_of_job = _name_of_job(settings, environment) if has_others else None

    def begin(self) -> None:
        """Forget what an earlier job of this folder left."""
        if self._name_of_job is None:
            return
        above = self._shared if self._shared is not None else _native.PrivateFolder.of_machine("jobs").path
        if (above / self._name_of_job).is_dir():
            self._open().remove(_file(self.rank))

    def leave(self, figures: dict[int, dict[str, Any]]) -> None:
        """Leave this rank's figures, by device."""
        if self._name_of_job is not None:
            self._open().write(_file(self.rank), json.dumps(figures).encode())

    def sum_up(self, patience: float = PATIENCE) -> str | None:
        """The summary, once all are there or the patience is over; None in any rank but the first."""
        if self._name_of_job is None or self.rank != 0:
            return None
        folder = self._open()
        until = time.monotonic() + patience
        missing, ranks = set(range(self.size)), {}
        while True:
            for rank in sorted(missing):
                try:
                    ranks[rank] = json.loads(folder.read(_file(rank), MOST_BYTES))
                    missing.discard(rank)
                except (OSError, ValueError):
                    continue
            if not missing or time.monotonic() >= until:
                break
            time.sleep(0.05)
        for rank in ranks:
            folder.remove(_file(rank))
        try:
            folder.path.rmdir()
        except OSError:  # a rank is late
            pass
        return summary(ranks, self.size)

    def _open(self) -> _native.PrivateFolder:
        assert self._name_of_job is not None
        if self._shared is None:
            return _native.PrivateFolder.of_machine("jobs").below(self._name_of_job)
        self._shared.mkdir(parents=True, exist_ok=True)
        return _native.PrivateFolder.open(self._shared / self._name_of_job)
def _file(rank: int) -> str:
    return f"rank{rank}.json"


def _name_of_job(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """What the ranks' folder is called; None if there is no place that all ranks see."""
    is_of_one_host = environment.get("LOCAL_WORLD_SIZE", "") == environment.get("WORLD_SIZE")
    # Several jobs may share the plans, those of other hosts too, and what launchers call them is often the same.
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    job = "-".join(environment.get(name, "") for name in names) + ("-" + platform.node() if is_of_one_host else "")
    name = ".served-" + re.sub(r"[^\w.-]", "_", job)
    if settings.path is not None:
        return name
    # What one launcher started has one parent.
    return f"{os.getppid()}{name}" if is_of_one_host else None


def summary(ranks: dict[int, dict[str, dict[str, Any]]], size: int) -> str | None:
    """A line on all ranks, from their figures by device; None if nobody left any."""
    served = [(rank, figures) for rank, devices in sorted(ranks.items()) for figures in devices.values()]
    if not served:
        return None
    rank, largest = max(served, key=lambda one: one[1]["peak_reserved"])
    shares = [100 * figures["efficiency"] for _, figures in served]
    plans = {figures["plan"] for _, figures in served if figures.get("plan")}
    followed = f"; {len(plans)} plan{'s' if len(plans) > 1 else ''} for all" if plans else ""
    absent = f" ({size - len(ranks)} of {size} told nothing)" if len(ranks) < size else ""
    return (
        f"job of {size} ranks{absent}: most is held by rank {rank}, {_native.format_bytes(largest['peak_reserved'])}; "
        f"efficiency {min(shares):.1f} % at least, {statistics.median(shares):.1f} % in the median, {max(shares):.1f} % at most; "
        f"{sum(figures['remaps'] for _, figures in served):,} remaps{followed}"
    )


def at_exit(meeting: Meeting, figures: dict[int, dict[str, Any]], quiet: bool) -> None:
    """Leave this rank's figures and, in rank 0, say what all came to."""
    try:
        meeting.leave(figures)
        line = None if quiet else meeting.sum_up()
    except OSError as error:
        line = f"no summary of the job's ranks: {error}"
        if meeting.rank != 0 or quiet:
            return
    if line is not None:
        say(line)
