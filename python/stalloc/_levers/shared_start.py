"""Trials of one command share their start: the first leaves a copy of itself before it uses CUDA, from which the others go on.

Imports and the making of a model take most of a trial's time and are the same with every lever, which are applied later.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Callable

from stalloc import _native
from stalloc._common import endings

#: Who tries, and the folder where its trials meet: ``PID:FOLDER``.
VARIABLE = "STALLOC_LEVERS_SHARED"

#: How often the copy looks for a child that ended, seconds.
_POLL = 0.05


def _meeting() -> tuple[_native.PrivateFolder, Path]:
    """The folder where trials meet, which must be ours alone, and the socket of this command in it, by the folder's descriptor."""
    folder = _native.PrivateFolder.open(Path(os.environ[VARIABLE].partition(":")[2]))
    command = json.dumps([sys.orig_argv, os.getcwd(), os.environ.get("WORLD_SIZE")])
    return folder, Path(f"/proc/self/fd/{folder.fileno()}", hashlib.sha256(command.encode()).hexdigest()[:16])


def _is_ours(other: socket.socket) -> bool:
    """Whether the process at the other end is this user's."""
    _, user, _ = struct.unpack("3i", other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())


def follow() -> None:
    """Goes on from a copy, if there is one: this process then waits for it, and ends if all went well. Else it runs from the start."""
    if VARIABLE not in os.environ:
        return
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            folder, path = _meeting()
            asking.connect(str(path))
            if not _is_ours(asking):
                raise PermissionError(f"the socket in {folder.path} is another user's")
            socket.send_fds(asking, [b"."], [1, 2])
            asking.sendall(json.dumps([dict(os.environ), os.getpgid(0)]).encode())
            asking.shutdown(socket.SHUT_WR)
            status = asking.recv(1)
        except OSError:
            return
    if status == b"\0":
        os._exit(0)
    for name in ("STALLOC_TRACE_DIR", "STALLOC_TRIAL_NOTES"):
        for left in Path(os.environ[name]).glob("[!.]*"):  # not what the launch is told
            left.unlink()


def leave_copy(gone_on: Callable[[], None]) -> None:
    """Leaves a copy of this process, once for all trials. In one that goes on from it ``gone_on`` is called, and this returns."""
    if VARIABLE not in os.environ or threading.active_count() > 1:
        return
    try:
        folder, path = _meeting()
        (path.parent / "made").touch(0o600, exist_ok=False)
        listener = socket.socket(socket.AF_UNIX)
        os.fchmod(listener.fileno(), 0o600)  # what `bind` makes has these permissions then
        listener.bind(str(path))
        listener.listen(64)
    except OSError:
        return
    copy = os.fork()
    if copy:
        os.setpgid(copy, copy)  # what a trial leaves behind is ended with its group
        listener.close()
        return
    os.setpgid(0, 0)
    waiting = _serve(listener, path, int(os.environ[VARIABLE].partition(":")[0]))
    _, outputs, *_ = socket.recv_fds(waiting, 1, 2)
    environment, group = json.loads(waiting.makefile().read())
    os.setpgid(0, group)
    for output, number in zip(outputs, (1, 2)):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(environment)
    endings.own_process = os.getpid()
    gone_on()


def _serve(listener: socket.socket, path: Path, asked_by: int) -> socket.socket:
    """Forks for everyone who asks, and tells how that ended; returns in those alone."""
    running: dict[int, socket.socket] = {}
    while path.exists() and Path("/proc", str(asked_by)).exists():
        if select.select([listener], [], [], _POLL)[0]:
            waiting, _ = listener.accept()
            if not _is_ours(waiting):
                waiting.close()
                continue
            child = os.fork()
            if child == 0:
                listener.close()
                return waiting
            running[child] = waiting
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                with running.pop(child) as waiting:
                    waiting.send(b"\0" if status == 0 else b"\1", socket.MSG_NOSIGNAL)
    os._exit(0)
