"""Call stacks of what lives, always on: PyTorch's memory history, within a budget.

A stack costs about two microseconds, so a program that allocates seldom (large tensors, long steps) has one for each block. One that
allocates more often than the budget allows has them in windows: the blocks that are made then have stacks for as long as they live.
"""

from __future__ import annotations

import inspect
import threading
import time
from typing import Any

#: For so long every block has a stack, seconds: models are built and caches filled then.
FIRST_SECONDS = 10.0
#: Stacks that are taken each second at most after that: at 2.5 microseconds each, a hundredth of the time.
STACKS_PER_SECOND = 4_000
#: Events that are kept, for the order in which blocks came: 12 MB of the host at most.
MOST_EVENTS = 60_000


class Stacks:
    """PyTorch's memory history, as far as nobody else uses it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._set: Any = torch.cuda.memory._record_memory_history
        options = inspect.signature(self._set).parameters
        self._options: dict[str, Any] = {"context": "alloc", "stacks": "python"}
        if "max_entries" in options:
            self._options["max_entries"] = MOST_EVENTS
        self._lock = threading.Lock()
        self._is_on = False
        # Whether the program uses the history itself.
        self._is_theirs = False
        self._stopped = threading.Event()
        self._began = 0.0
        self._before = (0, 0.0)

    def start(self) -> None:
        """CUDA has been initialised: record until further notice."""
        if getattr(self._torch._C, "_cuda_isHistoryEnabled", bool)():
            self._is_theirs = True
        self._make_way()
        self._switch(True)
        self._began = time.monotonic()
        self._before = (self._count(), self._began)

    def stop(self) -> None:
        """Leave the history as it is."""
        self._stopped.set()

    def _switch(self, on: bool) -> None:
        with self._lock:
            if self._is_theirs or self._is_on == on or self._stopped.is_set():
                return
            self._is_on = on
            if on:
                self._set("all", **self._options)
            else:
                self._set(None)

    def _make_way(self) -> None:
        """Leave the history to a program that wants it for itself, and have it back afterwards."""

        def record_memory_history(enabled: Any = "all", *arguments: Any, **named: Any) -> None:
            with self._lock:
                self._is_theirs = enabled is not None and enabled is not False
                self._is_on = False
                self._set(enabled, *arguments, **named)
            self._switch(True)

        record_memory_history.__signature__ = inspect.signature(self._set)  # type: ignore[attr-defined]
        self._torch.cuda.memory._record_memory_history = record_memory_history

    def _count(self) -> int:
        stats = self._torch._C._cuda_memoryStats
        devices = range(self._torch.cuda.device_count())
        return sum(int(stats(device)["allocation"]["all"]["allocated"]) for device in devices)

    def tick(self) -> None:
        """A second has passed: on from now on, or for a part of the next second where the program allocates often."""
        if self._is_theirs:
            return
        count, now = self._count(), time.monotonic()
        rate = (count - self._before[0]) / max(now - self._before[1], 1e-6)
        self._before = (count, now)
        self._switch(True)
        share = STACKS_PER_SECOND / max(rate, 1.0)
        if now - self._began > FIRST_SECONDS and share < 1.0 and not self._stopped.wait(share):
            self._switch(False)
