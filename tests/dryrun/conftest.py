"""Runs programs on the stand-in CUDA library, each in a process of its own."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

import stalloc

ROOT = pathlib.Path(__file__).parents[2]
#: What every program starts with: the compiler is not imported before it is used.
START = ROOT / "tests" / "python" / "start"
PROGRAMS = pathlib.Path(__file__).parent / "programs"
LINKS = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")


@pytest.fixture(scope="session")
def links(tmp_path_factory):
    """A directory in which a program finds the stand-in under the names of the real libraries."""
    library = os.environ.get("STALLOC_DRYRUN_LIB") or pathlib.Path(stalloc.__file__).parent / "_bin" / "libstalloc_dryrun.so"
    directory = tmp_path_factory.mktemp("links")
    for name in LINKS:
        (directory / name).symlink_to(library)
    return directory


@pytest.fixture(scope="session")
def run(links):
    """run(PROGRAM, *arguments, **variables): a program of `programs/` on the stand-in, to its end.

    Variables are those of the stand-in without their prefix (gpu="l40s"), or any others in capitals.
    """

    def run(program, *arguments, check=True, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STALLOC_DRYRUN_")}
        environment |= {"LD_PRELOAD": str(links / LINKS[0]), "LD_LIBRARY_PATH": str(links), "TRITON_LIBCUDA_PATH": str(links)}
        environment["PYTHONPATH"] = os.pathsep.join([str(START), *filter(None, [os.environ.get("PYTHONPATH")])])
        for name, value in variables.items():
            environment[name if name.isupper() else f"STALLOC_DRYRUN_{name.upper()}"] = str(value)
        command = [sys.executable, PROGRAMS / f"{program}.py", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert not check or done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def answer(run):
    """As `run`: what the program printed last, which is JSON."""
    return lambda *arguments, **variables: json.loads(run(*arguments, **variables).stdout.splitlines()[-1])
