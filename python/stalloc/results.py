"""What `stalloc.fit`, `stalloc.levers` and `stalloc.memory_stats` answer, for type checkers. Sizes are in bytes."""

from __future__ import annotations

from typing import TypedDict, Union

#: What a name of ``vary`` stands for.
Value = Union[int, float, str]
Values = dict[str, Value]


class Part(TypedDict):
    """Something that takes memory outside PyTorch, the least and the most of it, and where both are from."""

    name: str
    low: int
    high: int
    source: str


class Outside(TypedDict):
    """What a process takes of a GPU outside PyTorch."""

    low: int
    high: int
    parts: list[Part]


class FailedVerdict(TypedDict):
    """An allocator's verdict; of a program that did not run, there is no more."""

    fits: bool
    peak_reserved: int | None


class Verdict(FailedVerdict, total=False):
    """An allocator's verdict. ``edge``: it fits only if the least is taken outside PyTorch; ``step_ms``: of a step, by the dry run's clock."""

    edge: bool
    peak_reserved_late: int | None
    needed: int | None
    left: int | None
    step_ms: float | None
    rank: int
    smallest_gpu: str | None


class Failure(TypedDict):
    """Why a trial says nothing about memory, with the program's last lines."""

    kind: str
    status: int | None
    lines: list[str]


class RankFailure(Failure):
    """The same of a rank."""

    rank: int


class RankPeak(TypedDict):
    """What a rank has allocated at most."""

    rank: int
    device: int
    peak_allocated: int


class HostBytes(TypedDict):
    """Page-locked host memory that a rank takes to sleep: for what lives between steps, and while gradients live, too."""

    between_steps: int
    at_step_end: int


class _Candidate(TypedDict):
    values: Values
    gpu: str
    capacity: int
    peak_allocated: int | None
    peak_if_none: int | None
    asleep: HostBytes | None
    steps: int
    is_cut: bool
    rise: int | None
    allocators: dict[str, Verdict]
    outside: Outside
    ranks: list[RankPeak]


class Candidate(_Candidate, total=False):
    """Values that were tried on a GPU. ``peak_if_none``: the peak with the least that guessed sizes can be. ``rise``: bytes that
    the last step of a trial that was cut left behind, if many. ``error``: the program did not run."""

    error: RankFailure


class Refused(TypedDict):
    """Requests of one line that were refused: how many, and the bytes of the largest."""

    site: str | None
    count: int
    most: int


class Caught(TypedDict):
    """Values with which the command runs because it catches that requests are refused. ``slower``: the lines that do without."""

    values: Values
    refused: int
    slower: list[Refused]


class Frontier(TypedDict):
    """The largest values that fit, by allocator, for a combination of the others. ``open``: the range that was not searched to its end.
    ``caught``: what runs under PyTorch's allocator although it does not fit."""

    gpu: str
    values: Values
    largest: dict[str, Values | None]
    caught: Caught | None
    complete: bool
    open: list[int] | None
    unused: bool
    world_size: int | None
    same_ranks: list[list[int]]


class FitAnswer(TypedDict):
    """What fits. ``largest`` is by GPU and allocator."""

    candidates: list[Candidate]
    largest: dict[str, dict[str, Values | None]]
    frontier: list[Frontier]
    world_size: int | None
    same_ranks: list[list[int]]
    interrupted: bool


class Reserved(TypedDict):
    """What an allocator holds at most."""

    peak_reserved: int


class _Figures(TypedDict):
    peak_allocated: int | None
    peak_reserved: int | None
    extra_flops: int | None
    host_bytes_per_step: int | None


class Figures(_Figures, total=False):
    """What a script needs with some levers, by our allocator; the peak by who holds it. With ``error`` there is no more."""

    holders: dict[str, int]
    step_ms: float | None
    needed: int | None
    fits: bool
    allocators: dict[str, Reserved]
    error: Failure


class BaseRow(Figures):
    """The script as it is. ``largest``: the largest value of the name of ``vary`` that fits."""

    largest: dict[str, int] | None


class LeverRow(BaseRow):
    """A lever: what it changes, how by hand, where in the script, and what it does to the numbers."""

    name: str
    what: str
    how: str
    where: str
    numerics: str


class SkippedLever(TypedDict):
    """A lever that was not tried, and why."""

    name: str
    what: str
    why: str | None


class Change(TypedDict):
    """What to change by hand, and where."""

    where: str
    how: str


class Combination(Figures):
    """The cheapest set of levers that fits, or what came nearest."""

    levers: list[str]
    how: list[Change]


class LeversAnswer(TypedDict):
    """What would make a script fit. ``at``: the values at which peaks are compared."""

    gpu: str
    goal: int
    at: Values
    base: BaseRow
    levers: list[LeverRow]
    skipped: list[SkippedLever]
    combination: Combination | None
    interrupted: bool


class Causes(TypedDict):
    """Why requests were not at planned offsets, in requests."""

    address_taken: int
    no_memory: int
    without_offset: int
    not_in_plan: int
    position_unknown: int
    capturing: int
    refused: int


class Departure(TypedDict):
    """Where the program first left its plan: the request, bytes and stream that were
    expected and seen, and the Python stack, innermost first."""

    request: int
    expected: tuple[int, int] | None
    seen: tuple[int, int]
    stack: list[str] | None


class MemoryStats(TypedDict, total=False):
    """What was served on a device; empty if nothing was. See `stalloc.memory_stats`."""

    requests: int
    planned: int
    open: int
    fallback: int
    steps: int
    arena: int
    arena_reserved: int
    arena_peak_reserved: int
    arena_allocated: int
    arena_peak_allocated: int
    fallback_reserved: int
    peak_reserved: int
    peak_allocated: int
    efficiency: float
    remaps: int
    remapped_bytes: int
    driver_calls: int
    driver_ms: float
    plans: int
    plans_withdrawn: int
    causes: Causes
    pinned_requests: int
    pinned_allocated: int
    pinned_peak_allocated: int
    pinned_reserved: int
    pinned_peak_reserved: int
    other_program: bool
    departure: Departure
