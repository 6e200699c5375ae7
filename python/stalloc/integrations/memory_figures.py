"""What an integration writes into its framework's logs: a device's memory in a few numbers, and the verdict in a line."""

from __future__ import annotations

from typing import Any

#: Efficiency below this is severe fragmentation, as the STAlloc paper's artifact has it.
SEVERE = 0.90
_GIB = 1 << 30


def memory_figures(device: Any = None, prefix: str = "memory/") -> dict[str, float]:
    """A device's memory so far: peaks in GiB, efficiency from 0 to 1 and, where stalloc serves, remaps, learned plans and the
    share of requests at planned offsets. Empty before the first use of CUDA."""
    import torch

    from stalloc._enable import memory_stats

    if not torch.cuda.is_initialized():
        return {}
    allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    figures = {
        "peak_allocated_gib": allocated / _GIB,
        "peak_reserved_gib": reserved / _GIB,
        "efficiency": min(allocated / max(reserved, 1), 1.0),
    }
    served = memory_stats(device)
    if served.get("requests"):
        figures["efficiency"] = served["efficiency"]
        figures["peak_reserved_gib"] = served["peak_reserved"] / _GIB
        figures["remaps"] = float(served["remaps"])
        figures["plans"] = float(served["plans"])
        figures["planned_share"] = served["planned"] / served["requests"]
    return {f"{prefix}{name}": value for name, value in figures.items()}


def verdict(device: Any = None) -> str | None:
    """The figures in a sentence, with what to do if memory is wasted; None before the first use of CUDA."""
    figures = memory_figures(device, prefix="")
    if not figures:
        return None
    allocated, reserved, share = figures["peak_allocated_gib"], figures["peak_reserved_gib"], figures["efficiency"]
    held = f"{reserved:.2f} GiB reserved for {allocated:.2f} GiB allocated at the peak, efficiency {100 * share:.1f} %"
    if "planned_share" in figures:
        return f"{held}; {100 * figures['planned_share']:.1f} % of requests at planned offsets, {figures['remaps']:,.0f} remaps"
    if share < SEVERE:
        return f"{held}: severe fragmentation; `stalloc run --` in front of the command serves the job with less"
    return held
