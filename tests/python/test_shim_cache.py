"""What lies in the cache of compiled shims is run only if it is whole and nobody else could have put it there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from stalloc._serve import shim as _shim


@pytest.fixture
def shim(tmp_path, monkeypatch):
    """Builds a small shim in a cache of its own; ``shim.compiled`` counts how often the compiler ran."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(_shim, "_flags", lambda gpu: ["-shared", "-fPIC"])
    monkeypatch.setattr(_shim, "_libraries", lambda gpu: [])
    (tmp_path / "small.cpp").write_text('extern "C" int answer() { return 42; }')
    real = _shim._compile

    def compile(command):
        build.compiled += 1
        real(command)

    monkeypatch.setattr(_shim, "_compile", compile)

    def build():
        return _shim.build("small", tmp_path, gpu=False)

    build.compiled = 0
    build.load = lambda: _shim.load("small", tmp_path, gpu=False).answer()
    return build


def test_a_shim_is_compiled_once(shim):
    assert shim() == shim() and shim.compiled == 1
    assert shim.load() == 42


def test_a_shim_is_nobody_elses_whatever_the_umask_is(shim):
    before = os.umask(0)
    try:
        library = shim()
    finally:
        os.umask(before)
    assert library.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("length", [0, 100, 5000])
def test_a_shim_that_was_cut_short_is_built_again(shim, length):
    library = shim()
    content = library.read_bytes()
    assert len(content) > length
    library.write_bytes(content[:length])
    assert shim.load() == 42 and shim.compiled == 2


def test_a_shim_that_was_changed_is_built_again(shim):
    library = shim()
    library.write_bytes(library.read_bytes().replace(b"answer", b"anSWER"))
    assert shim.load() == 42 and shim.compiled == 2


def test_the_shim_of_a_wheel_is_taken_without_a_compiler(shim, tmp_path, monkeypatch):
    built = shim()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    monkeypatch.setattr(_shim, "PREBUILT", tmp_path / "prebuilt")
    (tmp_path / "prebuilt").mkdir()
    version = ".".join(torch.__version__.split(".")[:2])
    built.rename(tmp_path / "prebuilt" / _shim.prebuilt_name("small", tmp_path, version, _shim._cxx11_abi()))
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    # Whichever CUDA and patch release: it is the minor version that decides.
    for release in (f"{version}.0", f"{version}.7+cu118", f"{version}.1+cpu"):
        monkeypatch.setattr(torch, "__version__", release)
        assert shim.load() == 42
    for other in (f"{version}.0+rocm6.3", f"{version}.0a0+git1234567", f"{version}.0.dev20250101+cu128", f"{version}.0a0+nv24.10", "9.9.0"):
        monkeypatch.setattr(torch, "__version__", other)
        with pytest.raises(_shim.ShimError, match="no C\\+\\+ compiler"):
            shim.load()
    monkeypatch.setattr(torch, "__version__", f"{version}.0")
    (tmp_path / "small.cpp").write_text('extern "C" int answer() { return 43; }')
    with pytest.raises(_shim.ShimError, match="no C\\+\\+ compiler"):
        shim.load()  # the wheel's is of other sources


def test_a_shim_of_a_wheel_that_does_not_load_here_is_compiled(shim, tmp_path, monkeypatch):
    monkeypatch.setattr(_shim, "PREBUILT", tmp_path)
    version = ".".join(torch.__version__.split(".")[:2])
    (tmp_path / _shim.prebuilt_name("small", tmp_path, version, _shim._cxx11_abi())).write_bytes(b"for another system")
    assert shim.load() == 42 and shim.compiled == 1


def test_processes_that_start_together_compile_once_and_what_a_killed_one_left_goes(shim, tmp_path, monkeypatch):
    leftover = tmp_path / "cache/stalloc/shims" / f"small-{_shim._key(tmp_path / 'small.cpp')}" / "building"
    for folder in (*reversed(leftover.parents[:3]), leftover):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (leftover / "small.so").write_text("half of it")
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho once >> {tmp_path}/compiled\nsleep 0.3\nexec g++ \"$@\"\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    children = []
    for _ in range(8):
        if (child := os.fork()) == 0:
            try:
                os._exit(0 if shim.load() == 42 else 1)
            except BaseException:
                os._exit(2)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    assert (tmp_path / "compiled").read_text().split() == ["once"]
    assert sorted(path.name.partition("-")[0] for path in leftover.parent.iterdir()) == ["lock", "small"]


def test_nothing_is_loaded_from_where_others_can_write(shim, tmp_path):
    kept = shim()
    assert kept.is_relative_to(tmp_path / "cache")
    kept.parent.parent.chmod(0o777)  # others could have put it there
    elsewhere = shim()
    assert elsewhere.is_relative_to(tmp_path / "temporary" / f"stalloc-{os.geteuid()}" / "shims") and shim.compiled == 2
    elsewhere.parent.chmod(0o777)
    with pytest.raises(_shim.ShimError, match="can be written to by other users"):
        shim()


def test_a_link_in_the_place_of_the_cache_is_not_followed(shim, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "cache" / "stalloc").mkdir(parents=True)
    (tmp_path / "cache" / "stalloc" / "shims").symlink_to(tmp_path / "theirs")
    assert shim().is_relative_to(tmp_path / "temporary") and not list((tmp_path / "theirs").iterdir())


def test_a_user_without_a_home_has_a_private_folder(shim, tmp_path, monkeypatch):
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert shim().is_relative_to(tmp_path / "temporary")
    assert (tmp_path / "temporary" / f"stalloc-{os.geteuid()}").stat().st_mode & 0o777 == 0o700


def test_two_versions_of_pytorch_in_one_home_have_a_shim_each(shim, monkeypatch):
    first = shim()
    monkeypatch.setattr(_shim._torch(), "__version__", "2.99.0")
    second = shim()
    assert first != second and shim.compiled == 2
    monkeypatch.undo()
    assert first.is_file() and second.is_file()


def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(shim, tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/started\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    for seconds in (1, 10, 100):  # until it had time to start something
        monkeypatch.setattr(_shim, "COMPILER_SECONDS", seconds)
        with pytest.raises(_shim.ShimError, match=f"within {seconds} seconds"):
            shim()
        if (tmp_path / "started").exists():
            break
    started = Path(f"/proc/{(tmp_path / 'started').read_text().strip()}")
    for _ in range(6000):
        if not started.exists() or "Z" in (started / "stat").read_text().rpartition(")")[2].split()[0]:
            return
        time.sleep(0.05)
    pytest.fail("what the compiler started still runs")
