"""How long a look at the program's objects may take, and what becomes of one that fails."""

from __future__ import annotations

import time
from types import TracebackType

#: Seconds that may pass for each second of the processor's time, which is less on a busy machine: a look that waits for something ends too.
WALL = 30.0


class Deadline:
    """Ends after seconds of this thread's processor time, or after some more of the clock's."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._processor, self._clock = seconds, time.thread_time(), time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time is over: nothing more is looked for."""
        return self._is_past(self._seconds)

    @property
    def is_far_over(self) -> bool:
        """Whether as much time again is over: what was found is looked at no further."""
        return self._is_past(2 * self._seconds)

    def _is_past(self, seconds: float) -> bool:
        return time.thread_time() - self._processor > seconds or time.monotonic() - self._clock > WALL * seconds


class Apart:
    """Leaves out and counts what fails in it, so that the program goes on with its own error, whatever ours is."""

    def __init__(self) -> None:
        self.left_out = 0
        #: Whether the user wanted an end meanwhile.
        self.is_interrupted = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if kind is not None:
            self.left_out += 1
            self.is_interrupted |= kind is KeyboardInterrupt
        return True
