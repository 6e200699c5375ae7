"""What a program or its environment says of its allocator is followed, and stalloc says what it does then."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from runs import PROGRAMS, run

GPU = ("--dry-run", "h100-80gb")
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

#: Asks for memory and says how much of it PyTorch's statistics know of, and stalloc's.
ASK = """
import torch, stalloc
kept = [torch.empty(5_000_000, device="cuda") for _ in range(4)]
print(torch.cuda.memory_allocated(), stalloc.memory_stats().get("requests", 0))
"""

OWN = """
import sys, torch, stalloc
own = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")
torch.cuda.memory.change_current_allocator(own)
kept = torch.empty(5_000_000, device="cuda")
print(torch.cuda.get_allocator_backend(), stalloc.memory_stats().get("requests", 0))
"""

#: Stands for torch_memory_saver's library, whose threads want all that they allocate.
SAVER = "#include <stdbool.h>\nbool tms_get_interesting_region(void) { return true; }\n"
OWN_ALLOCATOR = """
#include <stddef.h>
#include <sys/types.h>
int cudaMalloc(void** address, size_t size);
int cudaFree(void* address);
void* own_malloc(ssize_t size, int device, void* stream) { void* address = NULL; cudaMalloc(&address, size); return address; }
void own_free(void* address, ssize_t size, int device, void* stream) { cudaFree(address); }
"""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def serve(directory, program, *arguments, before=(), **env):
    command = ("run", "--plan", directory, "--frozen", *GPU, "--", *before, sys.executable, "-c", program, *arguments)
    process = run(*command, env=env)
    assert process.returncode == 0, process.stderr
    return process


def library(folder, source):
    (folder / "library.c").write_text(source)
    built = folder / "library.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, folder / "library.c"], check=True)
    return built


def test_without_caching_nothing_is_served_and_a_line_says_so(planned):
    process = serve(planned, ASK, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert process.stdout.split() == ["0", "0"], "PyTorch counts nothing then"
    assert process.stderr.count("PYTORCH_NO_CUDA_MEMORY_CACHING is set") == 1, process.stderr


def test_another_allocator_of_pytorchs_stays_and_a_line_says_so(planned):
    process = serve(planned, ASK, **dict.fromkeys(SETTINGS, "backend:cudaMallocAsync"))
    assert process.stdout.split()[1] == "0"
    assert process.stderr.count("choose another allocator (cudaMallocAsync)") == 1, process.stderr


@needs_compiler
def test_an_allocator_of_the_programs_own_takes_our_place_and_a_line_says_so(planned, tmp_path):
    process = serve(planned, OWN, library(tmp_path, OWN_ALLOCATOR))
    assert process.stdout.split() == ["pluggable", "0"]
    assert process.stderr.count("installs an allocator of its own: stalloc serves nothing more") == 1, process.stderr


@needs_compiler
def test_what_torch_memory_saver_is_to_pause_is_left_to_pytorchs_allocator(planned, tmp_path):
    saver = library(tmp_path, SAVER)
    process = serve(planned, ASK, before=("bash", "-c", f'LD_PRELOAD="{saver}:$LD_PRELOAD" exec "$@"', "bash"))
    allocated, served = map(int, process.stdout.split())
    assert allocated >= 4 * 20_000_000 and served == 0
    assert process.stderr.count("torch_memory_saver is loaded") == 1, process.stderr


def test_whoever_listens_to_memory_hears_of_the_arenas(planned):
    command = ("run", "--plan", planned, "--frozen", *GPU, "--", sys.executable, PROGRAMS / "listeners.py")
    process = run(*command)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1])["wrong"] == []
