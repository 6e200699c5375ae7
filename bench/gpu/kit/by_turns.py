"""Times a program under several allocators by turns within one run: a process each, all begun at once, of which one at a time makes steps.

Each makes its first steps while the others do, and some more to warm up. Then they take turns: the same steps, a segment each, in another
order each round. So whatever the GPU's clocks and the machine do, they do to all, and a dozen rounds cost the start of one process.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: The first steps, which fill caches and arenas.
FIRST = 5


class Ended(Exception):
    """A process ended before it was told to."""


class Led:
    """One of the processes, and the lines between."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = connection.makefile("rw")
        self.way: str = self.said()["way"]

    def tell(self, steps: int) -> None:
        """Asks for steps; none ends it."""
        print(steps, file=self._lines, flush=True)

    def said(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise Ended
        return json.loads(line)


def together(led: list[Led], steps: int) -> dict[str, dict[str, Any]]:
    """A segment of all at once."""
    for each in led:
        each.tell(steps)
    return {each.way: each.said() for each in led}


def begin(processes: list[subprocess.Popen], listening: socket.socket) -> list[Led]:
    """The processes as they report, in the order of their ways; Ended if one dies before."""
    led = []
    listening.settimeout(0.5)
    while len(led) < len(processes):
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            if any(process.poll() is not None for process in processes):
                raise Ended from None
            continue
        connection.setblocking(True)
        led.append(Led(connection))
    return sorted(led, key=lambda each: each.way)


def measure(led: list[Led], warm_up: int, rounds: int, seconds: float) -> dict[str, Any]:
    """The figures of each way. A segment has as many steps as take `seconds` in the slowest, at least two."""
    first = together(led, FIRST)
    warm = together(led, warm_up)
    slowest = max(sorted(each["steps"])[warm_up // 2] for each in warm.values())
    steps = max(2, round(seconds / slowest))
    found: dict[str, Any] = {each.way: {"first_five": first[each.way], "warm": warm[each.way], "segments": []} for each in led}
    for at in range(rounds):
        turn = at % len(led)
        order = led[turn:] + led[:turn]
        for each in order if at % 2 == 0 else reversed(order):
            each.tell(steps)
            found[each.way]["segments"].append(each.said())
    for each in led:
        each.tell(0)
        found[each.way] |= each.said()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--turn", type=Path, required=True, help="a file that only one of those on the GPU locks at a time")
    parser.add_argument("--warm-up", type=int, default=20, help="steps after the first five, before turns are taken")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.8, help="how long a segment is")
    parser.add_argument("commands", type=Path, help="JSON: by way, `command` and `environment`")
    options = parser.parse_args()
    commands = json.loads(options.commands.read_text())
    with tempfile.TemporaryDirectory() as scratch, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{scratch}/leader")
        listening.listen()
        processes = []
        for way, each in commands.items():
            command = [{"LEADER": f"{scratch}/leader", "WAY": way}.get(word, word) for word in each["command"]]
            processes.append(subprocess.Popen(command, env={**os.environ, **each["environment"]}, stdin=subprocess.DEVNULL))
        try:
            led = begin(processes, listening)
            with options.turn.open("w") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                began = time.perf_counter()
                figures = measure(led, options.warm_up, options.rounds, options.seconds)
                took = time.perf_counter() - began
                for process in processes:
                    process.wait(20)
        except Ended:
            codes = {way: process.poll() for way, process in zip(commands, processes)}
            sys.exit(f"a process ended before its time; exit status of each so far: {codes}")
        finally:
            for process in processes:
                process.kill()
    options.output.write_text(json.dumps({"ways": figures, "took": took}))


if __name__ == "__main__":
    main()
