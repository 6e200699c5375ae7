"""Training steps: as the script marks them, else as its optimizer takes them."""

from __future__ import annotations

import time
from typing import Callable

from stalloc import _native
from stalloc._record.history import History
from stalloc._steps import marks as script
from stalloc._steps.step_detection import StepDetector


#: A trial whose live memory still rises goes on until it does not, or for so many steps or seconds: three steps cannot tell what grows from
#: what is made late, as the states of a second optimizer.
_MOST_STEPS, _MOST_SECONDS = 12, 60
#: A rise by less than this part of what lives is none: a loss that is kept.
_NOTHING = 10_000


class Steps:
    """The steps of this process, from wherever they are known."""

    #: Whether the program was ended because as many steps were done as were asked for.
    is_cut = False

    def __init__(self, history: History, last: int | None, live_bytes: Callable[[], list[int]] | None) -> None:
        self._history = history
        self._last = last
        #: The live bytes of each device; of a trial alone.
        self._live_bytes = live_bytes
        self._done = 0
        self._started = time.monotonic()
        #: What lived as the last two steps ended.
        self._lived: tuple[list[int], list[int]] = ([], [])
        self.is_open = False

    def begin(self) -> None:
        """A step begins, unless as many are done as were asked for: then the program ends."""
        self.end()
        self.stop_if_done()
        self.is_open = True
        self._history.before_mark()
        _native.mark_step_begin()

    def end(self) -> None:
        """A step ends."""
        if not self.is_open:
            return
        self.is_open = False
        self._done += 1
        self.extend()
        self._history.step_done(self._done)
        if self._live_bytes is not None:
            self._lived = (self._lived[1], self._live_bytes())

    def extend(self) -> None:
        """The step that was said to end went on until here."""
        self._history.before_mark()
        _native.mark_step_end()

    def stop_if_done(self) -> None:
        """Ends the program if as many steps are done as were asked for."""
        if self._last is not None and self._done >= self._last + script.more_steps and not self._rises():
            Steps.is_cut = True
            raise SystemExit(0)

    def _rises(self) -> bool:
        """Whether the last step has left more than the one before it. The first two make the optimizer's states."""
        may = 2 < self._done < _MOST_STEPS and time.monotonic() < self._started + _MOST_SECONDS
        return may and any(now - before > now // _NOTHING for before, now in zip(*self._lived))


class Early(script.Listener):
    """Remembers where the script is, by its marks, until there is a device to record."""

    def __init__(self) -> None:
        self._has_marked = False
        self._is_in_step = False
        self._phase: tuple[str, int] | None = None

    def step_begin(self) -> None:
        self._has_marked = self._is_in_step = True
        self._phase = None

    def step_end(self) -> None:
        self._is_in_step = False
        self._phase = None

    def phase(self, kind: str, micro_batch: int) -> None:
        self._phase = kind, micro_batch

    def hand_over(self, marks: Marks) -> None:
        """``marks`` listens from now on: tell it what lasts. Steps that are over used no device, and are no steps of it."""
        if self._has_marked:
            marks.stop_detection()
        if self._is_in_step:
            marks.step_begin()
        if self._phase is not None:
            marks.phase(*self._phase)


class Marks(script.Listener):
    """Marks of the script go into the trace; those of modules only where the tracker makes them cheap."""

    def __init__(self, steps: Steps, detector: StepDetector, history: History) -> None:
        self._steps = steps
        self._detector = detector
        self._history = history

    def stop_detection(self) -> None:
        """The script marks its steps itself."""
        self._detector.stop()

    def step_begin(self) -> None:
        self.stop_detection()
        self._steps.begin()

    def step_end(self) -> None:
        self._steps.end()
        self._steps.stop_if_done()

    def phase(self, kind: str, micro_batch: int) -> None:
        self._history.before_mark()
        _native.mark_phase(kind, micro_batch)

    def module_enter(self, name: str) -> None:
        if self._history.tracks:
            _native.mark_module_enter(name)

    def module_exit(self, name: str) -> None:
        if self._history.tracks:
            _native.mark_module_exit(name)
