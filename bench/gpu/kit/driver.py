"""What the driver's virtual memory calls cost, in microseconds, through ctypes: with the GPU idle and busy; and what a remap
in the middle of a step costs that step. Writes JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from typing import Any, Callable

import figures
import torch

MIB = 1 << 20


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


DEVICE = Location(1, 0)
PROP = AllocationProp(1, 0, DEVICE, None)
READ_WRITE = Access(DEVICE, 3)
CUDA = ctypes.CDLL("libcuda.so.1")


class Clock:
    """Calls the driver, and keeps what each call took."""

    def __init__(self) -> None:
        self.microseconds: dict[str, list[float]] = {}

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(CUDA, name)
        start = time.perf_counter_ns()
        status = function(*arguments)
        self.microseconds.setdefault(name, []).append((time.perf_counter_ns() - start) / 1e3)
        if status:
            raise RuntimeError(f"{name} failed with CUDA error {status}")

    def summary(self) -> dict[str, dict[str, float]]:
        return {name: {"median": statistics.median(each), "most": max(each)} for name, each in self.microseconds.items()}


def size_t(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


class Range:
    """Reserved addresses, with pages of one size mapped from their start."""

    def __init__(self, clock: Clock, page: int, count: int) -> None:
        self.clock, self.page, self.count = clock, page, count
        self.address, self.handles = ctypes.c_uint64(), []
        clock.call("cuMemAddressReserve", ctypes.byref(self.address), size_t(page * count), size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))

    def at(self, index: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.address.value + index * self.page)

    def create(self) -> None:
        for _ in range(self.count):
            handle = ctypes.c_uint64()
            self.clock.call("cuMemCreate", ctypes.byref(handle), size_t(self.page), ctypes.byref(PROP), ctypes.c_uint64(0))
            self.handles.append(handle)

    def map(self, at_once: bool) -> None:
        for index, handle in enumerate(self.handles):
            self.clock.call("cuMemMap", self.at(index), size_t(self.page), size_t(0), handle, ctypes.c_uint64(0))
        pieces = [(0, self.count)] if at_once else [(index, 1) for index in range(self.count)]
        for index, pages in pieces:
            self.clock.call("cuMemSetAccess", self.at(index), size_t(pages * self.page), ctypes.byref(READ_WRITE), size_t(1))

    def unmap(self) -> None:
        for index in range(self.count):
            self.clock.call("cuMemUnmap", self.at(index), size_t(self.page))

    def release(self) -> None:
        while self.handles:
            self.clock.call("cuMemRelease", self.handles.pop())

    def close(self) -> None:
        self.clock.call("cuMemAddressFree", self.address, size_t(self.page * self.count))


def cycle(page: int, count: int, repeats: int, at_once: bool) -> dict[str, dict[str, float]]:
    """Each call of making, mapping and giving back so many pages of a size."""
    clock = Clock()
    for repeat in range(repeats + 1):
        if repeat == 1:
            clock.microseconds.clear()  # the first is a warm-up
        pages = Range(clock, page, count)
        pages.create()
        pages.map(at_once)
        pages.unmap()
        pages.release()
        pages.close()
    return clock.summary()


def work(size: int) -> Callable[[int], None]:
    """A function that starts so many matrix products and does not wait."""
    left, out = torch.rand(size, size, device="cuda", dtype=torch.bfloat16), torch.empty(size, size, device="cuda", dtype=torch.bfloat16)

    def start(count: int) -> None:
        for _ in range(count):
            torch.mm(left, left, out=out)

    return start


def calls(options: argparse.Namespace) -> dict[str, Any]:
    """Every size and number of pages, idle or busy."""
    start = work(options.matrix)
    start(1)
    torch.cuda.synchronize()
    cells = []
    for mib, count in options.pages:
        for at_once in (False, True) if count > 1 else (True,):
            if options.busy:
                start(options.products)
            took = cycle(mib * MIB, count, options.repeats, at_once)
            was_busy = options.busy and not torch.cuda.current_stream().query()
            cells.append({"mib": mib, "pages": count, "access_at_once": at_once, "calls": took, "busy_to_the_end": was_busy})
            torch.cuda.synchronize()
    return {"busy": options.busy, "cells": cells}


def ranges(options: argparse.Namespace) -> dict[str, Any]:
    """Several mappings undone by one call, and memory that is taken and given back without mapping (what cudaMalloc and cudaFree do)."""
    unmapped, plain = [], []
    for mib, count in options.pages:
        clock = Clock()
        for _ in range(options.repeats):
            pages = Range(clock, mib * MIB, count)
            pages.create()
            pages.map(at_once=False)
            clock.call("cuMemUnmap", pages.at(0), size_t(mib * MIB * count))
            pages.release()
            pages.close()
        unmapped.append({"mib": mib, "pages": count, "microseconds": clock.summary()["cuMemUnmap"]["median"]})
    for mib in options.sizes:
        clock, address = Clock(), ctypes.c_uint64()
        for _ in range(options.repeats):
            clock.call("cuMemAlloc_v2", ctypes.byref(address), size_t(mib * MIB))
            clock.call("cuMemFree_v2", address)
        plain.append({"mib": mib, **{name: took["median"] for name, took in clock.summary().items()}})
    return {"unmapped": unmapped, "plain": plain}


def remaps(options: argparse.Namespace) -> dict[str, Any]:
    """A step of matrix products without and with a remap in its middle: the device is waited for, pages go elsewhere."""
    start = work(options.matrix)
    clock, rows = Clock(), []
    for mib, count in options.pages:
        pages = Range(clock, mib * MIB, count)
        pages.create()
        pages.map(at_once=False)
        seconds: dict[str, list[float]] = {"without": [], "waiting": [], "remapping": []}
        for _ in range(options.repeats):
            for way, times in seconds.items():
                torch.cuda.synchronize()
                began = time.perf_counter()
                start(options.products // 2)
                if way != "without":
                    torch.cuda.synchronize()
                if way == "remapping":
                    pages.unmap()
                    pages.map(at_once=False)
                start(options.products // 2)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - began)
        pages.unmap()
        pages.release()
        pages.close()
        rows.append({"mib": mib, "pages": count, **{f"{way}_ms": 1e3 * statistics.median(times) for way, times in seconds.items()}})
    return {"rows": rows}


def main() -> None:
    parser = figures.parser()
    parser.add_argument("what", choices=["calls", "ranges", "remaps"])
    parser.add_argument("--busy", action="store_true", help="while matrix products are under way")
    options = parser.parse_args()
    options.pages = [(2, 1), (8, 1), (32, 1), (128, 1), (512, 1), (2, 16), (2, 256), (32, 16)]
    options.repeats, options.matrix, options.products = 20, 8192, 1500
    if options.what == "remaps":
        options.pages, options.products = [(2, 1), (2, 16), (2, 256), (32, 4), (128, 4)], 100
        options.repeats = 7
    options.sizes = [2, 20, 64, 512, 2048]
    if options.what == "ranges":
        options.pages, options.repeats = [(2, 16), (2, 64), (2, 256), (20, 16), (32, 16)], 8
    if options.tiny:
        options.pages, options.sizes = [(2, 1), (2, 4)], [2]
        options.repeats, options.matrix, options.products = 2, 64, 4
    torch.cuda.init()
    figures.write(options.output, {"calls": calls, "ranges": ranges, "remaps": remaps}[options.what](options))


if __name__ == "__main__":
    main()
