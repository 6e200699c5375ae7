"""Run strangers' programs without a GPU, next to the memory snapshots that they took of them on real ones.

    PYTHONPATH=$(scripts/python-package --release) python bench/fidelity.py [--only TEXT] [--write]

The programs are listed in bench/fidelity.toml: a repository at a commit, what it runs on, and for each published snapshot the
command that made it. A program runs under `stalloc trace --dry-run` and writes its own snapshot as it did there; `stalloc info
--compare` holds that against the published one, event for event. Repositories and environments are fetched once, into
--cache; --repositories DIR takes clones named OWNER+NAME from there. With --write the table goes into bench/results/fidelity.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lib import pages, runs, strangers

PROGRAMS = runs.BENCH / "fidelity.toml"
HEADER = "| repository | recording | PyTorch, GPU | events the same, in order | peak allocated, real / dry | peak reserved, real / dry |\n|---|---|---|---|---|---|"


def replay(program: dict, recording: dict, tree: Path, interpreter: Path) -> dict:
    """What `stalloc info --compare` says of a published snapshot and of what the dry run of its program wrote."""
    strangers.check_out(program, recording, tree)
    strangers.make_checkpoint(program, tree, interpreter)
    name = f"{program['snapshots']}/{recording['snapshot']}"
    published = tree / ".published.pickle"
    shown = subprocess.run(["git", "-C", tree, "show", f"{program['commit']}:{name}"], check=True, capture_output=True)
    published.write_bytes(shown.stdout)
    folder = tree / program.get("in", ".")
    folder.mkdir(exist_ok=True)
    dumps = program.get("dumps", "")
    written = folder / (dumps if dumps.endswith(".pickle") else dumps + Path(name).name)
    # The published file may lie where the program writes.
    written.parent.mkdir(parents=True, exist_ok=True)
    written.unlink(missing_ok=True)
    command, settings = strangers.dry_run(program, recording, tree, interpreter)
    strangers.run(*command, cwd=folder, env=settings)
    if not written.exists():
        raise runs.Failed(f"{program['repository']}: no snapshot at {written.relative_to(tree)}")
    return runs.said("info", "--compare", published, written, answers=(0, 1))["devices"][0]


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


def main() -> int:
    """Replay what is asked for and print the table."""
    parser = strangers.arguments()
    parser.add_argument("--only", default="", help="recordings whose repository or file name holds this text")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write takes the whole list")
    programs = strangers.Strangers(options)
    rows, real, same, exact_peaks = [], 0, 0, 0
    for program, recording, tree, interpreter in programs.of(PROGRAMS, "recording", ("snapshot",)):
        try:
            found = replay(program, recording, tree, interpreter)
        except runs.Failed as error:
            programs.failed(error)
            continue
        real, same = real + found["events_a"], same + found["same_events"]
        exact_peaks += found["peak_allocated_a"] == found["peak_allocated_b"]
        torch = next(p for p in program["packages"] if p.startswith("torch==")).removeprefix("torch==")
        name = recording["snapshot"].removesuffix(".pickle").removesuffix("_memory_snapshot")
        gpu = recording.get("gpu", program["gpu"]).rpartition("name=")[2]
        events = f"{found['same_events']:,} of {found['events_a']:,}"
        peaks = [pair(found[f"peak_{what}_a"], found[f"peak_{what}_b"]) for what in ("allocated", "reserved")]
        rows.append(pages.line([program["repository"], name, f"{torch}, {gpu}", events, *peaks]))
        print(rows[-1], *first_difference(found), sep="\n", flush=True)
    total = f"{same:,} of {real:,} events of {len(rows)} recordings are the same, in order; {exact_peaks} of {len(rows)} peaks are equal to the byte."
    print(total)
    if options.write:
        pages.write("total", total, "fidelity.md")
        pages.write("programs", "\n".join([HEADER, *rows]), "fidelity.md")
    return 1 if programs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
