"""Builds the wheel: maturin's, and the `stalloc` command and the dry-run library next to the module.

maturin packs one crate; the command and the library are two others, so they are built first and lie in the package
when maturin packs it. `STALLOC_BUILD_PROFILE=dev` makes a quick, slower build.

`python python/build_backend.py FOLDER` builds a wheel with what is installed, as scripts/build-wheel does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import *  # noqa: F403  (the hooks that need nothing of ours)

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "python" / "stalloc" / "_bin"


def _profile():
    return os.environ.get("STALLOC_BUILD_PROFILE", "wheel")


def _build_programs():
    profile = _profile()
    subprocess.run(
        ["cargo", "build", "--locked", "--profile", profile, "-p", "stalloc-cli", "-p", "stalloc-dryrun"],
        cwd=ROOT,
        check=True,
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / ("debug" if profile == "dev" else profile)
    BIN.mkdir(exist_ok=True)
    for name in ("stalloc", "libstalloc_dryrun.so"):
        shutil.copy2(target / name, BIN / name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_programs()
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {_profile()} --locked")
    return maturin.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_programs()
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {_profile()} --locked")
    return maturin.build_editable(wheel_directory, settings, metadata_directory)


if __name__ == "__main__":
    build_wheel(sys.argv[1])
