"""The part of the kit's page on the time of a step: jobs whose allocators took turns within one run (by_turns.py)."""

from __future__ import annotations

import statistics
from typing import Any

RIVALS = ("native", "expandable")


def seconds(way: dict[str, Any]) -> list[float]:
    """Seconds of a step in each round."""
    return [each["seconds"] / len(each["steps"]) for each in way["segments"]]


def timed(page: Any) -> dict[str, dict[str, Any]]:
    """The ways of each job that was timed."""
    return {job: entry["figures"]["ways"] for job, entry in page.under("turns/").items() if entry["state"] == "done"}


def ratio(ways: dict[str, Any], way: str) -> float:
    """A step's time, as a multiple of the better of PyTorch's two."""
    return statistics.mean(seconds(ways[way])) / min(statistics.mean(seconds(ways[rival])) for rival in RIVALS)


def chance(ways: dict[str, Any]) -> float | None:
    """How much the same allocator differs from itself: of two processes, natively, the slower's step by the faster's."""
    pair = [statistics.mean(seconds(ways[way])) for way in ("native", "native again") if way in ways]
    return max(pair) / min(pair) if len(pair) == 2 else None


def summary(page: Any) -> list[str]:
    """The answer in a line."""
    jobs = timed(page)
    if not jobs:
        return []
    ratios = {job: ratio(ways, "auto") for job, ways in jobs.items()}
    worst = max(ratios, key=ratios.__getitem__)
    reserved = lambda ways, way: ways[way]["peak_reserved"]
    smaller = sum(reserved(ways, "auto") <= min(reserved(ways, rival) for rival in RIVALS) for ways in jobs.values())
    noise = sorted(filter(None, map(chance, jobs.values())))
    repeats = f" (two native processes differ by {statistics.median(noise):.3f} in the median, {noise[-1]:.3f} in the worst)" if noise else ""
    return [
        f"A step under auto in {len(ratios)} jobs: {statistics.median(ratios.values()):.3f} of the better of PyTorch's two in the median, "
        f"{ratios[worst]:.3f} in the worst ({worst}){repeats}; memory at most the better's in {smaller}."
    ]


def values(ways: dict[str, Any], way: str) -> str:
    """Whether the weights at the end are native's to the bit, where native's are its own."""
    if "native again" not in ways or ways["native again"]["weights"] != ways["native"]["weights"]:
        return "native differs from itself"
    return "yes" if ways[way]["weights"] == ways["native"]["weights"] else "NO"


def times(page: Any) -> None:
    """A row for each job and allocator."""
    jobs = timed(page)
    if not jobs:
        return
    page.say(
        "## Time of a step",
        "",
        "A process for each allocator, begun at once; after the first five steps and some to warm up, which all make together, one at a time makes steps: "
        "the same ones, a segment each, in another order each round. `native again` is another process under PyTorch's own allocator: what differs between "
        "the two is chance. Time is a step's mean over the rounds, with what the GPU still had to do at a segment's end; `of the better` is as a multiple of "
        "the better of `native` and `expandable`, then the least and the most of the rounds. Processor: the time of all of the process's threads. Driver: what mapping memory took, in the turns alone.",
    )
    rows = []
    for job, ways in jobs.items():
        rounds = len(ways["native"]["segments"])
        better = [min(pair) for pair in zip(*(seconds(ways[rival]) for rival in RIVALS))]
        for way, found in ways.items():
            each = seconds(found)
            of = [a / b for a, b in zip(each, better)]
            steps = [step for segment in found["segments"] for step in segment["steps"]]
            driver = "-"
            if "driver_ms" in found["warm"]:
                last = found["segments"][-1]
                driver = f"{(last['driver_ms'] - found['warm']['driver_ms']) / len(steps):.3f}, {last['remaps'] - found['warm']['remaps']} remaps; {found['first_five']['driver_ms']:.0f} ms in the first five"
            rows.append(
                [job, way, f"{rounds} x {len(steps) // rounds}", f"{1e3 * statistics.mean(each):,.2f}", f"{ratio(ways, way):.3f}", f"{min(of):.3f} to {max(of):.3f}"]
                + [f"{1e3 * max(steps):,.0f}", f"{1e3 * sum(segment['cpu_seconds'] for segment in found['segments']) / len(steps):,.2f}", f"{found['peak_reserved'] / 2**20:,.0f}", driver, "the reference" if way == "native" else values(ways, way)]
            )
    page.table(["job", "allocator", "rounds x steps", "step, ms", "of the better", "rounds", "longest, ms", "processor, ms a step", "peak reserved, MiB", "driver, ms a step", "weights as native's"], rows)


PARTS = (times,)
