"""Builds the C++ shims against the installed PyTorch, once per version, and loads them.

The list of virtual methods of PyTorch's allocator differs between versions, so a shim is compiled where it runs: a few
seconds, kept in the user's cache, keyed by everything that it was made from.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "shim"


class ShimError(RuntimeError):
    """The shim cannot be had here; the message says why and what would help."""


def load(name: str, folder: Path = SOURCES, gpu: bool = True) -> ctypes.CDLL:
    """The shim `name`, compiled from its source in `folder` if it is not in the cache yet; without ``gpu`` it needs
    nothing of CUDA."""
    library = build(name, folder, gpu)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ShimError(f"the compiled shim {library} does not load: {error}; delete it to have it built again") from error


def build(name: str, folder: Path = SOURCES, gpu: bool = True) -> Path:
    """Path of the compiled shim."""
    compiler = _compiler()
    source = folder / f"{name}.cpp"
    command = [compiler, *_flags(gpu), str(source)]
    directory = _cache() / f"{name}-{_key(command, source)}"
    library = directory / f"{name}.so"
    if library.exists():
        return library
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            built = Path(scratch) / library.name
            _compile([*command, "-o", str(built), *_libraries(gpu)])
            built.replace(library)  # in one step: two processes may build at once
    except OSError as error:
        raise ShimError(f"cannot write the compiled shim: {error}; set XDG_CACHE_HOME to a folder that can be written") from error
    return library


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LD_PRELOAD": ""})
    except OSError as error:
        raise ShimError(f"the compiler {command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise ShimError(f"{command[0]} could not compile the shim for PyTorch {_torch().__version__}: " + "; ".join(lines[:3]))


def _compiler() -> str:
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for candidate in wanted:
        found = shutil.which(candidate)
        if found:
            return found
    raise ShimError(f"no C++ compiler was found (looked for {', '.join(wanted)})")


def _flags(gpu: bool) -> list[str]:
    torch = _torch()
    root = Path(torch.__file__).parent / "include"
    includes = [root, root / "torch/csrc/api/include", *(_cuda_headers() if gpu else [])]
    abi = int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))
    standard = "-std=c++20" if _version() >= (2, 10) else "-std=c++17"
    flags = [standard, "-O2", "-fPIC", "-shared", "-DNDEBUG", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    return flags + [f"-isystem{path}" for path in includes]


def _cuda_headers() -> list[Path]:
    """Folders that hold the CUDA runtime's headers: pip's packages beside PyTorch, or a toolkit."""
    site = Path(_torch().__file__).parent.parent
    candidates = [*site.glob("nvidia/cu*/include"), site / "nvidia/cuda_runtime/include"]
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    candidates.append(Path(toolkit) / "include")
    found = [path for path in candidates if (path / "cuda_runtime_api.h").exists()]
    if not found:
        raise ShimError("the CUDA runtime's headers were not found; `pip install nvidia-cuda-runtime` brings them")
    # pip's runtime package leaves crt/host_defines.h to another package; ours, last in line, stands in for it.
    return [found[0], SOURCES / "stub"]


def _libraries(gpu: bool) -> list[str]:
    lib = Path(_torch().__file__).parent / "lib"
    names = ["c10", "c10_cuda", "torch_cuda", "torch_cpu", "torch"] if gpu else ["c10"]
    return [f"-L{lib}", *(f"-l{library}" for library in names)]


def _key(command: list[str], used: Path) -> str:
    digest = hashlib.sha256()
    for part in [_torch().__version__, sys.platform, *command]:
        digest.update(part.encode() + b"\0")
    for source in [used, *sorted(SOURCES.rglob("*.h"))]:
        if source.is_file():
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stalloc" / "shim"


def _version() -> tuple[int, int]:
    major, minor = _torch().__version__.split(".")[:2]
    return int(major), int(minor)


def _torch():
    import torch

    return torch
