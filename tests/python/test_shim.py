"""The shim covers PyTorch's allocator, also that of a version which nobody has seen yet."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import Counter
from pathlib import Path

import torch

from stalloc._serve import shim as _shim

INCLUDE = Path(torch.__file__).parent / "include" / "c10"
#: Left to PyTorch's base classes on purpose: they call what is overridden, or have nothing to do with an allocator.
LEFT = Counter(["recordStream", "getMemoryInfo", "is_simple_data_ptr"])


def virtual_methods(header: str, name: str) -> Counter[str]:
    """How often a class declares a virtual method of each name."""
    source = re.sub(r"//.*", "", (INCLUDE / header).read_text())
    (body,) = re.findall(rf"^(?:class|struct) (?:\w+ )?{name}\b[^;]*?\{{(.*?)^\}};", source, re.M | re.S)
    return Counter(re.findall(r"\bvirtual\s[^();=]*?(\w+)\s*\(", body))


def test_every_method_of_pytorchs_allocator_is_overridden_or_left_on_purpose():
    declared = virtual_methods("cuda/CUDACachingAllocator.h", "CUDAAllocator")
    declared += virtual_methods("core/CachingDeviceAllocator.h", "DeviceAllocator")
    declared += virtual_methods("core/Allocator.h", "Allocator")
    del declared["Allocator"]  # its destructor
    assert len(declared) > 40
    command = [_shim._compiler(), *_shim._flags(True), "-fsyntax-only", "-Wsuggest-override", str(_shim.SOURCES / "front.cpp")]
    compiled = subprocess.run(command, text=True, capture_output=True)
    assert compiled.returncode == 0, compiled.stderr
    overridden = Counter(re.findall(r"<Native>::(\w+)\(.*can be marked override", compiled.stderr))
    assert declared - overridden - LEFT == Counter(), "new in this version of PyTorch"
    assert overridden - declared == Counter(), "read wrongly from the headers"


def test_the_history_is_in_order_whatever_threads_do_and_holds_no_lock_while_it_asks():
    """The program plays the core: it lets another thread pass while it answers, and counts what it is asked."""
    library = _shim.load("history_threads", folder=Path(__file__).parent / "programs")
    library.history_problems.restype = ctypes.c_char_p
    assert library.history_problems() == b""
