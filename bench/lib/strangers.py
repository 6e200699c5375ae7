"""Runs strangers' programs without a GPU: a list has the repository of each at a commit, what it runs on, and the commands of its entries."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from lib import runs

#: Lines of a program's output that are shown when it fails.
LAST_LINES = 15


def run(*command: object, **options: object) -> subprocess.CompletedProcess:
    """A command that must succeed."""
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **options)
    if done.returncode:
        raise runs.Failed(f"{shlex.join(map(str, command))} ended with status {done.returncode}:\n{last_lines(done.stdout + done.stderr)}")
    return done


def last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-LAST_LINES:])


def arguments() -> argparse.ArgumentParser:
    """The options of a program that runs strangers' programs."""
    parser = runs.parser("fidelity.md")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "stalloc" / "fidelity", help="where repositories and environments are kept")
    parser.add_argument("--repositories", type=Path, help="a folder of clones named OWNER+NAME")
    parser.add_argument("--uv", default="uv", help="the uv command")
    return parser


class Strangers:
    """The entries of a list of programs, each with what it runs in; what cannot be run is said, and counted."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failures = 0
        options.cache.mkdir(parents=True, exist_ok=True)

    def of(self, file: Path, kind: str, named_by: tuple[str, ...]) -> Iterator[tuple[dict, dict, Path, Path]]:
        """Program, entry, tree and interpreter of the entries of a kind in whose words `--only` is."""
        for program in tomllib.loads(file.read_text())["program"]:
            chosen = [one for one in program[kind] if self.options.only in " ".join([program["repository"], *(one[name] for name in named_by)])]
            if not chosen:
                continue
            try:
                interpreter, tree = self.environment(program), self.clone(program)
            except runs.Failed as error:
                self.failed(error, len(chosen))
                continue
            for entry in chosen:
                yield program, entry, tree, interpreter

    def failed(self, error: object, count: int = 1) -> None:
        print(error, file=sys.stderr, flush=True)
        self.failures += count

    def environment(self, program: dict) -> Path:
        """The interpreter of a virtual environment with what a program runs on."""
        words = [program["python"], *program["packages"]]
        folder = self.options.cache / f"env-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:12]}"
        interpreter = folder / "bin" / "python"
        if not (folder / ".complete").exists():
            print(f"installing {' '.join(words[1:])} for Python {words[0]}", file=sys.stderr, flush=True)
            run(self.options.uv, "venv", "--quiet", "--clear", "--python", program["python"], folder)
            run(self.options.uv, "pip", "install", "--quiet", "--python", interpreter, *program["packages"])
            (folder / ".complete").touch()
        return interpreter

    def clone(self, program: dict) -> Path:
        """A clone of a program's repository."""
        name, repositories = program["repository"].replace("/", "+"), self.options.repositories
        source = repositories / name if repositories and (repositories / name).exists() else f"https://github.com/{program['repository']}"
        folder = self.options.cache / name
        if not folder.exists():
            run("git", "clone", "--quiet", "--no-checkout", source, folder)
        # The rest can be large; the snapshots are read from the repository itself.
        run("git", "-C", folder, "sparse-checkout", "set", "--no-cone", "*.py", *program.get("files", []))
        return folder


def check_out(program: dict, recording: dict, tree: Path) -> None:
    """The files of a program's commit, with the edits that a recording needs."""
    run("git", "-C", tree, "checkout", "--quiet", "--force", program["commit"])
    if notebook := program.get("notebook"):
        cells = json.loads((tree / notebook).read_text())["cells"]
        text = "\n\n".join("".join(cells[index]["source"]) for index in recording["cells"])
        (tree / notebook).with_suffix(".py").write_text(text + "\n")
    for edit in [*program.get("edits", []), *recording.get("edits", [])]:
        path = tree / edit["file"]
        text = path.read_text()
        if edit["old"] not in text:
            raise runs.Failed(f"{program['repository']}: {edit['file']} does not have {edit['old']!r}")
        path.write_text(text.replace(edit["old"], edit["new"]))


def make_checkpoint(program: dict, tree: Path, interpreter: Path) -> None:
    """A checkpoint of the sizes that a program loads, where weights that nobody computes with would be fetched: a file of nothing but a hole."""
    if (checkpoint := program.get("checkpoint")) is None or (tree / checkpoint["folder"] / "model.safetensors").exists():
        return
    folder = tree / checkpoint["folder"]
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(checkpoint["config"]))
    ask = (
        "import json, sys, torch; from transformers import AutoConfig, AutoModelForCausalLM as Model\n"
        "with torch.device('meta'): model = Model.from_config(AutoConfig.from_pretrained(sys.argv[1]))\n"
        "print(json.dumps({name: list(weight.shape) for name, weight in model.state_dict().items()}))"
    )
    shapes = json.loads(run(interpreter, "-c", ask, folder).stdout.splitlines()[-1])
    end, header = 0, {"__metadata__": {"format": "pt"}}
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    words = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        file.truncate(8 + len(words) + end)


def dry_run(program: dict, entry: dict, tree: Path, interpreter: Path) -> tuple[list[str], dict[str, str]]:
    """The command that runs a program without a GPU as an entry of its list says, and its environment."""
    words = shlex.split(entry["command"]) + shlex.split(program.get("arguments", ""))
    search = os.pathsep.join(str(tree / part) for part in program.get("path", []))
    # Notes spare a program the drawing of large weights in host memory, as in a trial of `stalloc fit`: most of its time otherwise.
    notes = tree / ".notes"
    notes.mkdir(exist_ok=True)
    settings = {**os.environ, "PYTHONPATH": search, "STALLOC_TRIAL_NOTES": str(notes), **program.get("environment", {}), **entry.get("environment", {})}
    options = shlex.split(program.get("options", ""))
    trace = [runs.command(), "trace", "-o", tree / ".traces", "--dry-run", entry.get("gpu", program["gpu"]), *options]
    return [str(word) for word in (*trace, "--", interpreter, *words)], settings
