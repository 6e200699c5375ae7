"""What the commands `stalloc plan` and `stalloc simulate` do, for programs: on files, with the same figures."""

from __future__ import annotations

import array
import json
import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, Sequence

from stalloc import _native
from stalloc._common.output import say


class Figures:
    """Figures by name, as the command's ``--json`` has them. Sizes are in bytes."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self._figures = figures

    if not TYPE_CHECKING:  # there, a figure has to be among a class's own

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


class Planned(Figures):
    """What has offsets: requests, what no plan can be below, the highest address used, and `peak / lower_bound`."""

    requests: int
    lower_bound: int
    peak: int
    ratio: float


class Unplanned(Figures):
    """What has none: requests, and the most of them that lives at once."""

    requests: int
    peak: int


class Plan(Figures):
    """What a plan came to: see `stalloc plan --json`."""

    kind: str
    device: int
    requests: int
    steps: int
    static: Planned
    dynamic: Unplanned
    peak_allocated: int
    expected_peak: int
    planned_reserved: int
    efficiency: float
    seconds: float

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.static.requests:,} of {self.requests:,} requests at planned offsets, "
            f"reserved {_native.format_bytes(self.planned_reserved)}, efficiency {100 * self.efficiency:.1f} %>"
        )


class Outcome(Figures):
    """What one allocator made of a trace: see `stalloc simulate --json`. The lists are there if it remaps, `planned` if it follows a plan,
    `peak_reserved_late` (what is held where what other streams use comes back when the step ends) if the recording decides it."""

    allocator: str
    peak_reserved: int
    peak_reserved_late: int
    efficiency: float
    fragmentation_bytes: int
    oom: bool
    ns_per_op: float
    remaps: int | None
    remapped_bytes: int | None
    remaps_by_step: list[int]
    driver_ms_by_step: list[float]
    planned: int
    driver_calls: int
    driver_ms: float
    waited_ms: float
    step_ms: float | None
    smallest_capacity: int | None

    def __repr__(self) -> str:
        reserved = _native.format_bytes(self.peak_reserved)
        if self.oom:
            return f"<{self.allocator}: out of memory at {reserved}>"
        return f"<{self.allocator}: reserved {reserved}, efficiency {100 * self.efficiency:.1f} %>"


class Comparison(Figures):
    """What several allocators made of a trace; ``comparison["pytorch"]`` is one of them. `actual_peak_reserved` is there if the recording has it,
    `clock` ("measured" or "modelled") if it says how long its steps take."""

    device: int
    requests: int
    peak_allocated: int
    actual_peak_reserved: int
    clock: str

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


class BufferPlan(NamedTuple):
    """An offset for each buffer, a numpy array if `lower` was one; the highest address used; what no plan can be below; whether
    the peak is proven the least; whether it fits into the capacity that was asked about; and whether Ctrl-C ended the search."""

    offsets: Any
    peak: int
    lower_bound: int
    optimal: bool
    fits: bool | None
    interrupted: bool


def _numbers(name: str, values: Any) -> bytes:
    """Whole numbers as native unsigned ones of 64 bits."""
    if hasattr(values, "astype") and hasattr(values, "dtype"):
        if values.dtype.kind not in "iu":
            raise TypeError(f"{name}: an array of {values.dtype}; whole numbers are needed")
        if values.ndim != 1 or (values.dtype.kind == "i" and values.size and values.min() < 0):
            raise ValueError(f"{name}: one number from 0 to 2^64 - 1 for each buffer")
        return bytes(values.astype("uint64").tobytes())
    try:
        return array.array("Q", values).tobytes()
    except OverflowError:
        raise ValueError(f"{name}: one number from 0 to 2^64 - 1 for each buffer") from None


def plan_buffers(
    lower: Any,
    upper: Any,
    size: Any,
    *,
    alignment: Any = 1,
    fixed: Any = None,
    period: int | None = None,
    conflicts: Iterable[tuple[int, int]] = (),
    gaps: Iterable[tuple[int, ...]] = (),
    capacity: int | None = None,
    time_limit: float = 1.0,
    work_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    callback: Callable[[int, int], Any] | None = None,
) -> BufferPlan:
    """Choose an offset for every buffer so that the highest address is as low as it can be.

    Buffer ``i`` needs ``size[i]`` bytes from ``lower[i]`` to just before ``upper[i]``; arrays of numpy or any sequences.
    ``alignment``: one number, or one for each. ``fixed``: its offset for each that must not be chosen, otherwise ``None`` or a
    negative number. ``period``: time wraps around there. ``conflicts``: pairs of buffers that share no address although they do not
    live together. ``gaps``: ``(buffer, from, until)`` when it needs nothing, ``(buffer, from, until, first, last)`` when it needs those
    bytes alone. ``capacity``: any plan within it is good enough. ``callback(peak, lower_bound)`` hears of better plans; where
    it answers ``False``, and on Ctrl-C, the best plan so far is the answer. The same input, ``work_limit``, ``threads`` and
    ``seed`` give the same plan. Raises ValueError, in a sentence, if there is no such plan.
    """
    count = len(lower)
    if fixed is not None:
        fixed = [None if at is None or at < 0 else int(at) for at in fixed]
    wanted = {
        "lower": _numbers("lower", lower),
        "upper": _numbers("upper", upper),
        "size": _numbers("size", size),
        "alignment": _numbers("alignment", [alignment] * count if isinstance(alignment, int) else alignment),
        "fixed": fixed,
        "period": period,
        "conflicts": [(int(a), int(b)) for a, b in conflicts],
        "gaps": [(int(gap[0]), int(gap[1]), int(gap[2]), (int(gap[3]), int(gap[4])) if gap[3:] else None) for gap in gaps],
        "capacity": capacity,
        "seconds": float(time_limit),
        "work_limit": work_limit,
        "threads": threads,
        "seed": seed,
    }
    placed, peak, lower_bound, optimal, interrupted = _native.plan_buffers(wanted, callback)
    offsets: Any = array.array("Q", placed)
    if hasattr(lower, "dtype"):
        import numpy

        offsets = numpy.frombuffer(placed, dtype=numpy.uint64).copy()
    return BufferPlan(offsets, peak, lower_bound, optimal, None if capacity is None else peak <= capacity, interrupted)
