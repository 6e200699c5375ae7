"""Copies between host and device: bytes per second by size and direction, alone and while matrices are multiplied, and what that loses."""

from __future__ import annotations

import time
from typing import Any, Callable

import figures
import torch

GIB = 1 << 30


def timed(work: Callable[[], None]) -> float:
    """Seconds of what `work` queues on all streams, the device idle before."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    options = figures.parser().parse_args()
    most, width, products = (64 << 20, 256, 4) if options.tiny else (4 * GIB, 8192, 160)
    torch.cuda.init()
    device = torch.empty(2, most, dtype=torch.uint8, device="cuda")
    start = time.perf_counter()
    host = torch.empty(2, most, dtype=torch.uint8, pin_memory=True)
    found: dict[str, Any] = {"pinning_gib_per_second": 2 * most / GIB / (time.perf_counter() - start), "alone": []}
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def copy(way: int, size: int) -> None:
        with torch.cuda.stream(streams[way]):
            for begin in range(0, most, size):
                pair = host[way, begin : begin + size], device[way, begin : begin + size]
                (pair[1] if way else pair[0]).copy_(pair[0] if way else pair[1], non_blocking=True)

    both = lambda size: (copy(0, size), copy(1, size))
    ways: dict[str, tuple[int, Callable[[int], Any]]] = {
        "to host": (1, lambda size: copy(0, size)),
        "to device": (1, lambda size: copy(1, size)),
        "both": (2, both),
    }
    for size in (1 << 20, 16 << 20, most):
        for way, (count, work) in ways.items():
            rates = [count * most / GIB / timed(lambda: work(size)) for _ in range(3)]
            found["alone"].append({"mib": size >> 20, "way": way, "gib_per_second": max(rates)})
    a, b = torch.randn(2, width, width, device="cuda", dtype=torch.bfloat16)

    def multiply() -> None:
        for _ in range(products):
            torch.mm(a, b)

    multiply()
    found["products_ms"] = 1e3 * min(timed(multiply) for _ in range(3))
    found["kernel_time_ms"] = []
    for way, (_, work) in ways.items():
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        work(16 << 20)
        first.record()
        multiply()
        last.record()
        torch.cuda.synchronize()
        found["kernel_time_ms"].append({"way": way, "ms": first.elapsed_time(last)})
    figures.write(options.output, found)


if __name__ == "__main__":
    main()
