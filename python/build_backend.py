"""Builds the wheel and the source distribution: three crates (the module, the `stalloc` command, the dry-run library) in one build, and
the Python package. maturin, which packs one crate, writes the metadata and editable installs.

`STALLOC_BUILD_PROFILE=dev` makes a quick, slower build. `python python/build_backend.py FOLDER [TARGET GLIBC]` builds a wheel with what is
installed, as scripts/build-wheel does: for another machine or an older glibc, by zig. `--sdist FOLDER` makes the source distribution. Both
have the same bytes for the same sources.
"""

import base64
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import maturin
from maturin import *  # noqa: F403  (the hooks that need nothing of ours)

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python"
BIN = PYTHON / "stalloc" / "_bin"
#: What a source distribution holds, and what of it was built rather than written.
SOURCES = ("Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "crates", "pyproject.toml", "python")
BUILT = ("__pycache__", "_bin", "prebuilt", "target")
#: What was built, and where it lies in the package.
PROGRAMS = {
    "libstalloc_native.so": "stalloc/_native.abi3.so",
    "libstalloc_dryrun.so": "stalloc/_bin/libstalloc_dryrun.so",
    "stalloc": "stalloc/_bin/stalloc",
}


def _profile():
    return os.environ.get("STALLOC_BUILD_PROFILE", "wheel")


def _build(target="", glibc=""):
    """The folder of the programs."""
    profile = _profile()
    command = ["cargo", "zigbuild", "--target", f"{target}.{glibc}"] if target else ["cargo", "build"]
    crates = ["-p", "stalloc-python", "-p", "stalloc-cli", "-p", "stalloc-dryrun"]
    subprocess.run([*command, "--locked", "--profile", profile, *crates], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target / ("debug" if profile == "dev" else profile)


def _metadata(folder, config_settings):
    return Path(folder) / maturin.prepare_metadata_for_build_wheel(str(folder), config_settings)


def _files(top, built=BUILT):
    for file in [top] if top.is_file() else sorted(top.rglob("*")):
        if file.is_file() and not set(file.relative_to(ROOT).parts) & set(built):
            yield file


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None, target="", glibc=""):
    built = _build(target, glibc)
    tag = f"cp39-abi3-linux_{target.partition('-')[0] or platform.machine()}"
    with tempfile.TemporaryDirectory() as scratch:
        described = _metadata(scratch, config_settings)
        (described / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: stalloc\nRoot-Is-Purelib: false\nTag: {tag}\n")
        name = described.name[: -len(".dist-info")]
        package = (file for file in _files(PYTHON, ("__pycache__", "_bin")) if file != Path(__file__).resolve() and (file.suffix != ".so" or file.parent.name == "prebuilt"))
        packed = [(str(file.relative_to(PYTHON)), file) for file in package]
        packed += [(inside, built / program) for program, inside in PROGRAMS.items()]
        packed += [(str(file.relative_to(scratch)), file) for file in sorted(described.rglob("*")) if file.is_file() and file.name != "RECORD"]
        record = ""
        path = Path(wheel_directory) / f"{name}-{tag}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            for inside, source in packed:
                content = source.read_bytes()
                _add(wheel, inside, content, os.access(source, os.X_OK))
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record += f"{inside},sha256={digest},{len(content)}\n"
            _add(wheel, f"{described.name}/RECORD", f"{record}{described.name}/RECORD,,\n".encode(), False)
    return path.name


def _add(wheel, inside, content, can_run):
    entry = zipfile.ZipInfo(inside)
    entry.external_attr = (0o100755 if can_run else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, content)


def build_sdist(sdist_directory, config_settings=None):
    with tempfile.TemporaryDirectory() as scratch:
        described = _metadata(scratch, config_settings)
        name = described.name[: -len(".dist-info")]
        sources = (file for top in SOURCES for file in _files(ROOT / top) if file.suffix != ".so")
        packed = [("PKG-INFO", described / "METADATA"), *((str(file.relative_to(ROOT)), file) for file in sources)]
        path = Path(sdist_directory) / f"{name}.tar.gz"
        with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
            for inside, source in packed:
                entry = tarfile.TarInfo(f"{name}/{inside}")
                entry.size, entry.mode = source.stat().st_size, 0o755 if os.access(source, os.X_OK) else 0o644
                with open(source, "rb") as content:
                    tar.addfile(entry, content)
    return path.name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    built = _build()
    BIN.mkdir(exist_ok=True)
    for program, inside in PROGRAMS.items():
        if inside.startswith("stalloc/_bin/"):
            shutil.copy2(built / program, BIN)
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {_profile()} --locked")
    return maturin.build_editable(wheel_directory, settings, metadata_directory)


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # maturin's program
    if sys.argv[1] == "--sdist":
        build_sdist(sys.argv[2])
    else:
        build_wheel(sys.argv[1], None, None, *sys.argv[2:])
