"""What the user is told: every line of the Python side goes through here.

A line that cannot be printed is nobody's concern: standard error may be closed, a pipe that nobody reads any more, or a
file on a full disk, and the job runs on. ``crates/runtime/src/messages.rs`` is the same for Rust.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import unicodedata


#: Characters that turn the direction of the text around them.
_TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def say(text: str) -> None:
    """One line on standard error; never raises, and leaves nothing behind that could fail later."""
    try:
        line = f"stalloc: {_printable(text)}\n"
        descriptor = _descriptor()
        if descriptor is None:  # the program has put something of its own there
            sys.stderr.write(line)
            sys.stderr.flush()
        else:
            _write(descriptor, line.encode(errors="backslashreplace"))
    except Exception:  # noqa: S110 - there is nobody left to tell
        pass


def _printable(text: str) -> str:
    """``text`` with what a terminal would take for a command, or hide, spelt out, as ``crates/common/src/printable.rs``."""
    return "".join(f"\\u{{{ord(c):x}}}" if c in _TURNING or unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


def _descriptor() -> int | None:
    """Where standard error goes, past Python's buffer: what the buffer cannot get rid of fails the process at its end."""
    try:
        return sys.stderr.fileno()
    except Exception:
        return None


def _write(descriptor: int, line: bytes) -> None:
    # A program may have given SIGPIPE back its default, which ends the process.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        while line:
            line = line[os.write(descriptor, line) :]
    except OSError as error:
        if error.errno == errno.EPIPE and signal.SIGPIPE not in blocked:
            signal.sigtimedwait({signal.SIGPIPE}, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
