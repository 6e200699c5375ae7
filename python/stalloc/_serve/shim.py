"""Finds the C++ shim for the installed PyTorch, or compiles it, and loads it.

The list of virtual methods of PyTorch's allocator differs between minor versions, so a shim belongs to one of them and to one C++ ABI. The
wheel carries those of the versions that it was built with, for any CUDA and patch release. For any other PyTorch, and for nightlies, vendors'
builds and ROCm, the shim is compiled where it runs: ten seconds, once, kept in the user's cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import io
import os
import platform
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Iterator

SOURCES = Path(__file__).parent.parent / "shim"
#: Shims that were compiled when the wheel was built.
PREBUILT = SOURCES / "prebuilt"

#: A compiler gets so much time: a job must not wait for one that hangs.
COMPILER_SECONDS = 300


class ShimError(RuntimeError):
    """The shim cannot be had here; the message says why and what would help."""


def load(name: str, folder: Path = SOURCES, gpu: bool = True) -> ctypes.CDLL:
    """The shim `name`: the wheel's, or else compiled from its source in `folder` if it is not in the cache yet; without ``gpu``
    it needs nothing of CUDA."""
    prebuilt = _prebuilt(name, folder)
    if prebuilt is not None and prebuilt.exists():
        try:
            return ctypes.CDLL(str(prebuilt))
        except OSError:
            pass  # this machine's C++ library is older than PyTorch asks for
    library = build(name, folder, gpu)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ShimError(f"the compiled shim {library} does not load: {error}; delete it to have it built again") from error


def build(name: str, folder: Path = SOURCES, gpu: bool = True) -> Path:
    """Path of the compiled shim. Its name has the hash of its content: what was cut short or changed is built again."""
    source = folder / f"{name}.cpp"
    from stalloc import _native  # not there while scripts/prebuild-shims uses this file

    try:
        directory = _native.PrivateFolder.kept("shims").below(f"{name}-{_key(source)}").path
    except OSError as error:
        raise ShimError(f"no shim can be kept: {error}") from error
    try:
        # Of the processes that start together one compiles, and the others wait for it.
        with _locked(directory / "lock"):
            for library in directory.glob(f"{name}-*.so"):
                if _is_whole(library):
                    return library
                library.unlink(missing_ok=True)
            scratch = directory / "building"
            shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
            scratch.mkdir(mode=0o700)
            try:
                built = scratch / f"{name}.so"
                inputs = [str(_for_platform(source, scratch)), "-o", str(built), *_libraries(gpu)]
                _compile([_compiler(), *_flags(gpu), *inputs])
                built.chmod(0o700)  # whatever the umask
                library = directory / f"{name}-{_hash(built)}.so"
                _sync(built)
                built.replace(library)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            _sync(directory)
    except OSError as error:
        raise ShimError(f"cannot write the compiled shim: {error}; set XDG_CACHE_HOME to a folder that can be written") from error
    return library


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock while no other process does; where the file system knows none, do without."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


#: A release of PyTorch, for whichever CUDA: the interface of its allocator is that of its minor version.
_RELEASE = re.compile(r"(\d+\.\d+)\.\d+(?:\+(?:cu\d+|cpu))?")


def _prebuilt(name: str, folder: Path) -> Path | None:
    """Where the wheel has the shim for the installed PyTorch; None if that is no release."""
    release = _RELEASE.fullmatch(_torch().__version__)
    if release is None or _torch().version.hip is not None:
        return None
    return PREBUILT / prebuilt_name(name, folder, release[1], _cxx11_abi())


def prebuilt_name(name: str, folder: Path, version: str, abi: int) -> str:
    """What a shim is called that was compiled from these sources for a minor version of PyTorch and a C++ ABI."""
    digest = hashlib.sha256()
    _add_sources(digest, folder / f"{name}.cpp")
    return f"{name}-{version}-abi{abi}-{digest.hexdigest()[:16]}.so"


def _for_platform(source: Path, scratch: Path) -> Path:
    """The source to compile: on ROCm what PyTorch's own converter, which made PyTorch's headers there too, makes of it in `scratch`."""
    if _torch().version.hip is None:
        return source
    from torch.utils.hipify import hipify_python

    folder = scratch / "hip"
    folder.mkdir()
    for file in [source, *source.parent.glob("*.h")]:
        shutil.copy(file, folder)
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of each file
        made = hipify_python.hipify(
            project_directory=str(folder),
            output_directory=str(folder),
            includes=[f"{folder}/*"],
            header_include_dirs=[str(folder)],
            is_pytorch_extension=True,
        )
    copy = folder / source.name
    result = made.get(str(copy))
    return Path(result.hipified_path) if result is not None and result.hipified_path else copy


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32]


def _is_whole(library: Path) -> bool:
    """Whether a shim is what was compiled."""
    return library.stem.rpartition("-")[2] == _hash(library)


def _sync(path: Path) -> None:
    """Have a file or folder on disk: after a crash the name must not be there without the content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compile(command: list[str]) -> None:
    try:
        # A session of its own, so that what the compiler starts can be ended with it.
        with subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LD_PRELOAD": ""},
            start_new_session=True,
        ) as compiler:
            try:
                _, told = compiler.communicate(timeout=COMPILER_SECONDS)
            except BaseException as error:
                os.killpg(compiler.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise ShimError(f"{command[0]} did not compile the shim within {COMPILER_SECONDS} seconds") from error
                raise
    except OSError as error:
        raise ShimError(f"the compiler {command[0]} cannot be run: {error}") from error
    if compiler.returncode != 0:
        lines = [line for line in told.splitlines() if "error" in line] or told.splitlines()
        raise ShimError(f"{command[0]} could not compile the shim for PyTorch {_torch().__version__}: " + "; ".join(lines[:3]))


def _compiler() -> str:
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for candidate in wanted:
        found = shutil.which(candidate)
        if found:
            return found
    raise ShimError(
        f"this package has no compiled shim for PyTorch {_torch().__version__}, and no C++ compiler was found (looked for "
        f"{', '.join(wanted)}): install g++, or a release of stalloc that has the shim"
    )


def _flags(gpu: bool) -> list[str]:
    torch = _torch()
    root = Path(torch.__file__).parent / "include"
    is_hip = torch.version.hip is not None
    includes = [root, root / "torch/csrc/api/include"]
    if gpu:
        includes += _hip_headers() if is_hip else _cuda_headers()
    standard = "-std=c++20" if _version() >= (2, 10) else "-std=c++17"
    flags = [standard, "-O2", "-fPIC", "-shared", "-DNDEBUG", f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi()}"]
    if is_hip:
        flags += ["-D__HIP_PLATFORM_AMD__=1", "-DUSE_ROCM=1"]
    return flags + [f"-I{SOURCES}", *(f"-isystem{path}" for path in includes)]


def _cxx11_abi() -> int:
    return int(getattr(_torch()._C, "_GLIBCXX_USE_CXX11_ABI", True))


def _cuda_headers() -> list[Path]:
    """Folders that hold the CUDA runtime's headers: pip's packages next to PyTorch, or a toolkit."""
    site = Path(_torch().__file__).parent.parent
    candidates = [*site.glob("nvidia/cu*/include"), site / "nvidia/cuda_runtime/include"]
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    candidates.append(Path(toolkit) / "include")
    found = [path for path in candidates if (path / "cuda_runtime_api.h").exists()]
    if not found:
        raise ShimError("the CUDA runtime's headers were not found; `pip install nvidia-cuda-runtime` brings them")
    # pip's runtime package leaves crt/host_defines.h to another package; ours, last in line, stands in for it.
    return [found[0], SOURCES / "stub"]


def _hip_headers() -> list[Path]:
    """The folder that holds HIP's headers."""
    named = [os.environ[name] for name in ("ROCM_HOME", "ROCM_PATH") if os.environ.get(name)]
    candidates = [Path(folder) / "include" for folder in [*named, "/opt/rocm", "/usr"]]
    found = [path for path in candidates if (path / "hip/hip_runtime_api.h").exists()]
    if not found:
        raise ShimError("HIP's headers were not found; set ROCM_PATH to the folder of ROCm")
    return found[:1] if found[0] != Path("/usr/include") else []  # where every compiler looks


def _libraries(gpu: bool) -> list[str]:
    torch = _torch()
    lib = Path(torch.__file__).parent / "lib"
    platform = "hip" if torch.version.hip is not None else "cuda"
    # Up to 2.5 what puts another allocator in place is in the library for Python.
    names = ["c10", f"c10_{platform}", f"torch_{platform}", "torch_cpu", "torch", "torch_python"] if gpu else ["c10"]
    return [f"-L{lib}", *(f"-l{library}" for library in names)]


def _key(used: Path) -> str:
    """What a compiled shim depends on: this very build of PyTorch, and the sources."""
    torch = _torch()
    parts = [torch.__version__, torch.version.git_version, torch.version.cuda, torch.version.hip, _cxx11_abi(), platform.machine(), used]
    digest = hashlib.sha256("\0".join(map(str, parts)).encode())
    _add_sources(digest, used)
    return digest.hexdigest()[:16]


def _add_sources(digest: hashlib._Hash, used: Path) -> None:
    for source in [used, *sorted(SOURCES.rglob("*.h"))]:
        if source.is_file():
            digest.update(source.read_bytes())


def _version() -> tuple[int, int]:
    major, minor = _torch().__version__.split(".")[:2]
    return int(major), int(minor)


def _torch() -> Any:
    import torch

    return torch
