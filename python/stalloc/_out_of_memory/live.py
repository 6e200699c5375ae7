"""A running job's memory for `stalloc top`: figures in a small file, written once a second while somebody looks."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from stalloc import _native
from stalloc._out_of_memory.facts import command

#: Somebody looks while the file that says so is younger than this, seconds.
LOOKED_AT = 5.0
#: Points of the series of live bytes that are kept: when there are more, every other one is forgotten.
MOST_POINTS = 512


class Live:
    """This process's figures."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._began = time.monotonic()
        self._folder: Any = None
        #: For each device seconds and live bytes, evenly over the time that the process has run.
        self.series: dict[int, list[tuple[float, int]]] = {}
        self._gap = 1.0

    def begin(self) -> None:
        """Let the job be found."""
        try:
            self._folder = _native.PrivateFolder.of_machine("top")
            self._folder.write(str(os.getpid()), json.dumps({"command": command()[:500]}).encode())
        except OSError:
            self._folder = None

    def end(self) -> None:
        """Leave nothing behind."""
        if self._folder is not None:
            for name in (str(os.getpid()), f"{os.getpid()}.look"):
                try:
                    self._folder.remove(name)
                except OSError:
                    pass

    def tick(self) -> None:
        """A second has passed."""
        now = time.monotonic() - self._began
        stats = [self._torch._C._cuda_memoryStats(device) for device in range(self._torch.cuda.device_count())]
        for device, of in enumerate(stats):
            points = self.series.setdefault(device, [])
            if not points or now - points[-1][0] >= self._gap * 0.9:
                points.append((round(now, 1), int(of["allocated_bytes"]["all"]["current"])))
        if any(len(points) > MOST_POINTS for points in self.series.values()):
            self.series = {device: points[::2] for device, points in self.series.items()}
            self._gap *= 2
        if self._folder is not None and self._is_looked_at():
            told = {"command": command()[:500], "seconds": now, "written": time.time(), "devices": list(map(self._of, range(len(stats)), stats))}
            self._folder.write(str(os.getpid()), json.dumps(told).encode())

    def _is_looked_at(self) -> bool:
        try:
            return time.time() - os.stat(os.path.join(self._folder.path, f"{os.getpid()}.look")).st_mtime < LOOKED_AT
        except OSError:
            return False

    def _of(self, device: int, stats: Any) -> dict[str, Any]:
        points = self.series[device]
        since = next((point for point in points if point[0] >= points[-1][0] - 60), points[0])
        free, total = self._torch.cuda.mem_get_info(device)
        served = _native.serve_report(device) or {}
        live = int(stats["allocated_bytes"]["all"]["current"])
        return {
            "device": device,
            "name": self._torch.cuda.get_device_name(device),
            "live": live,
            "peak": int(stats["allocated_bytes"]["all"]["peak"]),
            "held": int(stats["reserved_bytes"]["all"]["current"]),
            "free": int(free),
            "total": int(total),
            "grew": live - since[1],
            "grew_seconds": points[-1][0] - since[0],
            "remaps": served.get("remaps"),
            "plans": served.get("plans"),
        }
