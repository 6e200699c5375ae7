"""What the commands `stalloc plan` and `stalloc simulate` do, for programs: on files, with the same figures."""

from __future__ import annotations

import json
import os
from typing import Any, Sequence

from stalloc import _native
from stalloc._common.output import say


class Figures:
    """Figures by name, as the command's ``--json`` has them. Sizes are in bytes."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self._figures = figures

    def __getattr__(self, name: str) -> Any:
        try:
            value = self.__dict__["_figures"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no figure {name!r}") from None
        return Figures(value) if isinstance(value, dict) else value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._figures]

    def as_dict(self) -> dict[str, Any]:
        """All figures."""
        return self._figures

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._figures.items())})"


class Plan(Figures):
    """What a plan came to: see `stalloc plan --json`."""

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.static.requests:,} of {self.requests:,} requests at planned offsets, "
            f"reserved {_native.format_bytes(self.planned_reserved)}, efficiency {100 * self.efficiency:.1f} %>"
        )


class Outcome(Figures):
    """What one allocator made of a trace: see `stalloc simulate --json`."""

    def __repr__(self) -> str:
        reserved = _native.format_bytes(self.peak_reserved)
        if self.oom:
            return f"<{self.allocator}: out of memory at {reserved}>"
        return f"<{self.allocator}: reserved {reserved}, efficiency {100 * self.efficiency:.1f} %>"


class Comparison(Figures):
    """What several allocators made of a trace; ``comparison["pytorch"]`` is one of them."""

    @property
    def results(self) -> list[Outcome]:
        """One for each allocator."""
        return [Outcome(result) for result in self._figures["results"]]

    def __getitem__(self, allocator: str) -> Outcome:
        for result in self.results:
            if result.allocator == allocator:
                return result
        raise KeyError(allocator)

    def __repr__(self) -> str:
        return f"<Comparison: peak allocated {_native.format_bytes(self.peak_allocated)}, {self.results}>"


def plan(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    device: int | None = None,
    time_limit: float = 2.0,
) -> Plan:
    """Make a plan from a trace or a PyTorch snapshot, as `stalloc plan` does; with ``output``, keep it in that file.

    ``device``: which of the recording's; the first with requests by default. ``time_limit``: about how many seconds to look
    for a better plan. Raises ValueError, in a sentence, if the file cannot be read or holds nothing to plan.
    """
    figures, notes = _native.plan_file(os.fspath(path), None if output is None else os.fspath(output), device, time_limit)
    for note in notes:
        say(note)
    return Plan(json.loads(figures))


def simulate(
    path: str | os.PathLike[str],
    *,
    device: int | None = None,
    allocators: Sequence[str] = (),
    plan: str | os.PathLike[str] | None = None,
    capacity: int | None = None,
    smallest: bool = False,
) -> Comparison:
    """Replay a trace or a PyTorch snapshot through allocators, as `stalloc simulate` does.

    ``allocators``: their names, all by default. ``plan``: a file for "stalloc" to follow; by default one is made. ``capacity``:
    bytes of the device; unlimited by default. ``smallest``: look for the smallest device that each gets through on. Raises
    ValueError, in a sentence, if a file cannot be read.
    """
    names = [allocators] if isinstance(allocators, str) else list(allocators)
    figures, notes = _native.simulate_file(
        os.fspath(path), device, names, None if plan is None else os.fspath(plan), capacity, smallest
    )
    for note in notes:
        say(note)
    return Comparison(json.loads(figures))
