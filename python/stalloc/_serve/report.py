"""What serving came to: figures for programs, lines for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from stalloc import _native
from stalloc._common.output import say
from stalloc._serve import departure
from stalloc._serve.settings import Mode, Settings

if TYPE_CHECKING:
    from stalloc.results import Departure, MemoryStats

#: Why a request was not at a planned offset, by its name in the figures.
_CAUSES = {
    "address_taken": "whose planned address was taken",
    "no_memory": "for which the device had no memory left",
    "without_offset": "that the plan gives no offset",
    "not_in_plan": "not in the plan",
    "position_unknown": "with unknown position in the plan",
    "capturing": "during the capture of a CUDA graph",
    "refused": "left to PyTorch because the plan was switched off",
}


def of(device: int) -> MemoryStats | None:
    """Figures of a device; None if nothing was served there."""
    figures = _native.serve_report(device)
    if figures is None:
        return None
    reserved = max(figures["peak_reserved"], 1)
    figures["efficiency"] = min(figures["peak_allocated"] / reserved, 1.0)
    if "departure" in figures:
        figures["departure"]["stack"] = departure.stack(device)
    return figures


def of_all(torch: Any, plans: dict[int, str]) -> dict[int, dict[str, Any]]:
    """What the summary of a job needs of this process's devices; ``plans``: what each follows."""
    devices: dict[int, dict[str, Any]] = {}
    for device in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        figures = of(device)
        # A device that nothing was asked of is another process's.
        if figures is not None and figures["requests"]:
            kept = {name: figures[name] for name in ("peak_reserved", "peak_allocated", "efficiency", "remaps", "plans")}
            devices[device] = {**kept, "plan": plans.get(device)}
    return devices


def per_step(torch: Any) -> None:
    """The artifact's line per iteration."""
    for device in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        reserved = torch.cuda.max_memory_reserved(device)
        if reserved > 0:
            allocated = torch.cuda.max_memory_allocated(device)
            gib = 1 << 30
            say(
                f"dev{device} : max_reserved:{reserved / gib:.2f}, max_allocated:{allocated / gib:.2f}, "
                f"utilization:{100 * allocated / reserved:.2f}%"
            )


def at_exit(torch: Any, settings: Settings, begun: int) -> None:
    """A line per device, and one on where the program left its plan. Of the steps so many have only begun."""
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        figures = of(device)
        if figures is None:
            continue
        name = f"rank{settings.rank} dev{device}" if settings.is_one_of_several else f"dev{device}"
        requests = max(figures["requests"], 1)
        gib = 1 << 30
        say(
            f"{name}: {100 * figures['planned'] / requests:.2f} % of {figures['requests']:,} requests at planned offsets, "
            f"{figures['open']:,} where they fitted best, {figures['fallback']:,} by PyTorch's allocator; "
            f"{figures['remaps']:,} remaps, peak reserved {figures['peak_reserved'] / gib:.2f} GiB, "
            f"efficiency {100 * figures['efficiency']:.1f} %{_room(figures)}"
        )
        if settings.mode is Mode.AUTO:
            outcome = _native.serve_outcome(device)
            say(f"{name}: {_learned(figures, outcome, max(0, figures['steps'] - begun))}")
            if outcome is not None and "pytorch" in outcome and device not in slept:
                say(f"{name}: {_compared(figures, outcome)}")
            continue
        causes = {cause: count for cause, count in figures["causes"].items() if count}
        if causes:
            reasons = "; ".join(f"{count:,} {_CAUSES.get(cause, cause)}" for cause, count in causes.items())
            say(f"{name}: requests that were not at planned offsets: {reasons}")
        if "departure" in figures:
            say(f"{name}: {_departure(figures['departure'], departure.place(device))}")
        if figures["other_program"]:
            say(f"{name}: the program is not the one that the plan was made from, or changed a lot; record and plan it again")


#: GPUs that were given away for a while: what lived then was not on them, which PyTorch's allocators cannot do.
slept: set[int] = set()

#: Bytes that nobody needs to be told of.
_LITTLE = 64 << 20


def _room(figures: MemoryStats) -> str:
    """Why much more was held than used, if it was because nobody needed the memory."""
    empty = 1 - figures["efficiency"]
    is_little = empty < 0.1 or empty * figures["peak_reserved"] < _LITTLE
    if is_little or figures["remaps"] or os.environ.get("STALLOC_TIGHT") == "1":
        return ""
    return "; there was room, STALLOC_TIGHT=1 holds less"


#: Eight steps in a row are looked at, and those before them make optimizer states and buckets. With fewer nobody can say that steps vary.
_FEW_STEPS = 12

#: Why no plan was followed.
_FINDINGS = {
    "vary": "they vary",
    "no_time": "the learner had no time to plan them",
    "refused": "they repeat, but a plan would need more memory",
}


def _compared(figures: MemoryStats, outcome: dict[str, Any]) -> str:
    """Whether it helped, for whoever decides."""
    gib = 1 << 30
    held = figures["peak_reserved"]
    rivals = [outcome["pytorch"], outcome["expandable"]]
    best = min((bytes for bytes, runs_out in zip(rivals, outcome["runs_out"]) if not runs_out), default=None)
    pytorch, expandable = (f"{'run out of memory with' if runs_out else 'held'} {bytes / gib:.2f} GiB" for bytes, runs_out in zip(rivals, outcome["runs_out"]))
    begin = f"held {held / gib:.2f} GiB for {figures['peak_allocated'] / gib:.2f} GiB of tensors; for the same requests PyTorch's allocator would have {pytorch}, "
    if best is None:
        return f"{begin}its expandable segments would have {expandable}"
    more = (held - best) / gib
    change = f"{abs(more):.2f} GiB {'more' if more > 0 else 'less'} than" if abs(more) >= 0.005 else "as much as"
    text = f"would have {expandable}" if outcome["runs_out"][1] else expandable.removeprefix("held ")
    return f"{begin}its expandable segments {text}: {change} the better of them"


def _learned(figures: MemoryStats, outcome: dict[str, Any] | None, steps: int) -> str:
    plans = figures["plans"]
    if figures["planned"] and not plans:
        return f"{steps:,} steps; they are the plan's"
    if plans:
        times = "one plan was" if plans == 1 else f"{plans:,} plans were"
        return f"{steps:,} steps; {times} learned from steps that repeat exactly"
    if steps < _FEW_STEPS:
        return f"{steps:,} steps: too few to learn from, so each request went where it fitted best"
    finding = "no_time" if outcome is None else outcome["finding"]
    return f"{steps:,} steps; {_FINDINGS[finding]}, so each request went where it fitted best"


def _departure(first: Departure, place: str | None) -> str:
    size, _stream = first["seen"]
    expected = f"where {first['expected'][0]:,} were planned" if first["expected"] else "where none was planned"
    return f"the program first left its plan at request {first['request']:,}, of {size:,} bytes {expected}: {place or 'place unknown'}"
