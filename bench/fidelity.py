"""Run strangers' programs without a GPU, next to the memory snapshots that they took of them on real ones.

    python bench/fidelity.py --stalloc $(scripts/python-package --release)/stalloc/_bin/stalloc [--only TEXT] [--write]

The programs are listed in bench/fidelity.toml: a repository at a commit, what it runs on, and for each published snapshot the
command that made it. A program runs under `stalloc trace --dry-run` and writes its own snapshot as it did there; `stalloc info
--compare` holds that against the published one, event for event. Repositories and environments are fetched once, into
--cache; --repositories DIR takes clones named OWNER+NAME from there. With --write the table goes into bench/results/fidelity.md.
"""

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

import page

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bench" / "fidelity.toml"
HEADER = "| repository | recording | PyTorch, GPU | events the same, in order | peak allocated, real / dry | peak reserved, real / dry |\n|---|---|---|---|---|---|"
#: Lines of a program's output that are shown when it fails.
LAST_LINES = 15


class Failed(Exception):
    """A program could not be run, or left no snapshot."""


def run(*command: object, **options: object) -> subprocess.CompletedProcess:
    """A command that must succeed."""
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **options)
    if done.returncode:
        lines = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        raise Failed(f"{shlex.join(map(str, command))} ended with status {done.returncode}:\n{lines}")
    return done


def environment(program: dict, cache: Path, uv: str) -> Path:
    """The interpreter of a virtual environment with what a program runs on."""
    words = [program["python"], *program["packages"]]
    folder = cache / f"env-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:12]}"
    interpreter = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        print(f"installing {' '.join(words[1:])} for Python {words[0]}", file=sys.stderr, flush=True)
        run(uv, "venv", "--quiet", "--clear", "--python", program["python"], folder)
        run(uv, "pip", "install", "--quiet", "--python", interpreter, *program["packages"])
        (folder / ".complete").touch()
    return interpreter


def clone(program: dict, cache: Path, repositories: Path | None) -> Path:
    """A clone of a program's repository."""
    name = program["repository"].replace("/", "+")
    source = repositories / name if repositories and (repositories / name).exists() else f"https://github.com/{program['repository']}"
    folder = cache / name
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
            raise Failed(f"{program['repository']}: {edit['file']} does not have {edit['old']!r}")
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


def replay(program: dict, recording: dict, tree: Path, interpreter: Path, stalloc: Path) -> dict:
    """What `stalloc info --compare` says of a published snapshot and of what the dry run of its program wrote."""
    check_out(program, recording, tree)
    make_checkpoint(program, tree, interpreter)
    name = f"{program['snapshots']}/{recording['snapshot']}"
    published = tree / ".published.pickle"
    published.write_bytes(run_bytes("git", "-C", tree, "show", f"{program['commit']}:{name}"))
    folder = tree / program.get("in", ".")
    folder.mkdir(exist_ok=True)
    dumps = program.get("dumps", "")
    written = folder / (dumps if dumps.endswith(".pickle") else dumps + Path(name).name)
    # The published file may lie where the program writes.
    written.parent.mkdir(parents=True, exist_ok=True)
    written.unlink(missing_ok=True)
    command, settings = dry_run(program, recording, tree, interpreter, stalloc)
    run(*command, cwd=folder, env=settings)
    if not written.exists():
        raise Failed(f"{program['repository']}: no snapshot at {written.relative_to(tree)}")
    done = subprocess.run([stalloc, "info", "--compare", "--json", published, written], text=True, capture_output=True)
    if done.returncode not in (0, 1):
        raise Failed(done.stderr)
    return json.loads(done.stdout)["devices"][0]


def dry_run(program: dict, entry: dict, tree: Path, interpreter: Path, stalloc: Path) -> tuple[list[object], dict[str, str]]:
    """The command that runs a program without a GPU as an entry of its list says, and its environment."""
    words = shlex.split(entry["command"]) + shlex.split(program.get("arguments", ""))
    search = os.pathsep.join(str(tree / part) for part in program.get("path", []))
    settings = {**os.environ, "PYTHONPATH": search, **as_a_trial(tree), **program.get("environment", {}), **entry.get("environment", {})}
    options = shlex.split(program.get("options", ""))
    trace = [stalloc, "trace", "-o", tree / ".traces", "--dry-run", entry.get("gpu", program["gpu"]), *options]
    return [*trace, "--", interpreter, *words], settings


def as_a_trial(tree: Path) -> dict[str, str]:
    """What spares a program the drawing of large weights in host memory, as in a trial of `stalloc fit`: most of its time otherwise."""
    notes = tree / ".notes"
    notes.mkdir(exist_ok=True)
    return {"STALLOC_TRIAL_NOTES": str(notes)}


def run_bytes(*command: object) -> bytes:
    """The standard output of a command that must succeed."""
    return subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout


def mib(bytes_: int | None) -> str:
    """In MiB, for the table."""
    return "?" if bytes_ is None else f"{bytes_ / (1 << 20):,.2f}"


def pair(real: int | None, dry: int | None) -> str:
    """Two figures, or one if they are equal."""
    return f"{mib(real)}, the same" if real == dry else f"{mib(real)} / {mib(dry)}"


def first_difference(found: dict) -> Iterator[str]:
    """The first difference, in lines."""
    for difference in found["first"][:1]:
        yield f"  first: {difference['kind']}"
        for side in ("a", "b"):
            request = difference.get(side)
            if request:
                lines = [frame for frame in request["stack"] if ".py:" in frame][:6]
                yield f"    {'real' if side == 'a' else 'dry'}: {request['size']:,} bytes, events {request['allocated']} to {request['freed']}"
                yield from (f"      {line}" for line in lines)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of a command that runs strangers' programs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stalloc", type=Path, required=True, help="the command of a built package")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "stalloc" / "fidelity")
    parser.add_argument("--repositories", type=Path, help="a folder of clones named OWNER+NAME")
    parser.add_argument("--uv", default="uv", help="the uv command")
    return parser


def main() -> int:
    """Replay what is asked for and print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="recordings whose repository or file name holds this text")
    parser.add_argument("--write", action="store_true", help="put the table into bench/results/fidelity.md")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write takes the whole list")
    options.cache.mkdir(parents=True, exist_ok=True)
    rows, real, same, exact_peaks, count, failures = [], 0, 0, 0, 0, 0
    for program in tomllib.loads(PROGRAMS.read_text())["program"]:
        chosen = [r for r in program["recording"] if options.only in f"{program['repository']} {r['snapshot']}"]
        if not chosen:
            continue
        try:
            interpreter = environment(program, options.cache, options.uv)
            tree = clone(program, options.cache, options.repositories)
        except Failed as error:
            print(error, file=sys.stderr, flush=True)
            failures += len(chosen)
            continue
        for recording in chosen:
            try:
                found = replay(program, recording, tree, interpreter, options.stalloc.resolve())
            except Failed as error:
                print(error, file=sys.stderr, flush=True)
                failures += 1
                continue
            count += 1
            real, same = real + found["events_a"], same + found["same_events"]
            exact_peaks += found["peak_allocated_a"] == found["peak_allocated_b"]
            torch = next(p for p in program["packages"] if p.startswith("torch==")).removeprefix("torch==")
            name = recording["snapshot"].removesuffix(".pickle").removesuffix("_memory_snapshot")
            rows.append(
                f"| {program['repository']} | {name} | {torch}, {recording.get('gpu', program['gpu']).rpartition('name=')[2]} | {found['same_events']:,} of {found['events_a']:,} |"
                f" {pair(found['peak_allocated_a'], found['peak_allocated_b'])} | {pair(found['peak_reserved_a'], found['peak_reserved_b'])} |"
            )
            print(rows[-1], flush=True)
            for line in first_difference(found):
                print(line, flush=True)
    total = f"{same:,} of {real:,} events of {count} recordings are the same, in order; {exact_peaks} of {count} peaks are equal to the byte."
    print(total)
    if options.write:
        page.write("total", total, "fidelity.md")
        page.write("programs", HEADER + "\n" + "\n".join(rows), "fidelity.md")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
