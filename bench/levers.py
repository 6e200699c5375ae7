"""Holds each lever's peak, and the largest batch with it, against the same script with the printed lines written in by hand.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env frameworks) bench/levers.py [NAME...] [--levers checkpoint,offload] [--largest LEVER,...] [--write]

Small scripts of ten kinds, in bench/levers/. The lines go where `stalloc levers` says, as they are; for a Trainer of transformers,
where a script says `# before the trainer`. Without --largest peaks are compared at batch 4; with it, the largest batch under --goal
too. --write puts the table into bench/results/levers.md; what was not run again keeps its row.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import page
import stalloc

COMMAND = Path(stalloc.__file__).parent / "_bin" / "stalloc"
FOLDER = Path(__file__).resolve().parent / "levers"
GPU = ("--dry-run", "h100-80gb")
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
HEADER = "| script | as it is, MiB | levers compared | by hand: the worst differs by | largest batch the same | not tried |\n|---|---:|---|---:|---:|---|"


def ran(*words: str | Path, folder: Path) -> dict:
    # The last: what asks while it is imported whether there is a GPU does not use it, so that its process can be forked.
    settings = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    environment = os.environ | settings | {"PYTHONPATH": f"{Path(stalloc.__file__).parents[1]}:{FOLDER.parent / 'frameworks'}"}
    done = subprocess.run([str(word) for word in (COMMAND, *words)], capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode not in (0, 1) or (words[0] == "trace" and done.returncode):
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def written(text: str, how: str, where: str) -> str:
    """The script with the lines of a lever."""
    lines = text.splitlines()
    if where == "before the trainer is made":
        first = last = next(number for number, line in enumerate(lines, 1) if "# before the trainer" in line)
        kind = "after"
    else:
        kind, first, last = re.fullmatch(r"(?:(before|after) )?[^:]+:(\d+)(?:-(\d+))?", where).groups()
        first, last = int(first), int(last or first)
    indent = re.match(r"\s*", lines[first - 1])[0]
    start, end = {"before": (first - 1, first - 1), "after": (last, last), None: (first - 1, last)}[kind]
    lines[start:end] = textwrap.indent(how, indent).splitlines()
    return "\n".join(lines) + "\n"


def peaks_by_hand(folder: Path, scripts: list[tuple[str, int]], ranks: int) -> list[int]:
    """The peak of each script with a batch: one process imports what the first of them does, and forks before CUDA is in use."""
    if not scripts:
        return []
    world = ("--world-size", str(ranks), "--rank", "0") if ranks > 1 else ()
    place = Path(tempfile.mkdtemp(dir=folder))
    for number, (text, _batch) in enumerate(scripts):
        (place / f"{number}.py").write_text(text)
    batches = [str(batch) for _text, batch in scripts]
    ran("trace", *GPU, *world, "--steps", "3", "--json", "-o", place / "own", "--", sys.executable, __file__, "--fork", place, *batches, folder=folder)
    recorded = [ran("info", place / f"{number}.traces", "--json", folder=folder) for number in range(len(scripts))]
    return [max(device["peak_allocated"] for device in one["devices"]) for one in recorded]


def fork(place: str, *batches: str) -> None:
    """Runs each script of a folder in a child of this process, recorded on its own."""
    import torch
    from torch.utils import _triton

    # What torchao and bitsandbytes ask while they are imported, which would use CUDA.
    asked = torch.cuda.get_device_capability
    _triton.has_triton, torch.cuda.get_device_capability = lambda: True, lambda *_device: (9, 0)
    parts = ast.parse(Path(place, "0.py").read_text()).body
    exec(compile(ast.Module([part for part in parts if isinstance(part, (ast.Import, ast.ImportFrom))], []), "imports", "exec"), {})  # noqa: S102
    torch.cuda.get_device_capability = asked
    if torch.cuda.is_initialized():
        sys.exit("an import used CUDA")
    for number, batch in enumerate(batches):
        child = os.fork()
        if child == 0:
            traces = Path(place, f"{number}.traces")
            traces.mkdir()
            os.environ["STALLOC_TRACE_DIR"] = str(traces)
            sys.argv = [f"{place}/{number}.py", batch]
            runpy.run_path(sys.argv[0], run_name="__main__")
            return
        if os.waitpid(child, 0)[1]:
            sys.exit(f"script {number} failed")
    torch.ones(1, device="cuda")  # its own recording must not be empty


def main() -> None:
    if sys.argv[1:2] == ["--fork"]:
        return fork(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*SCRIPTS, []], help="scripts; all by default")
    parser.add_argument("--levers", default="", help="which levers")
    parser.add_argument("--largest", action="store_true", help="the largest batch with each lever too, which takes much longer")
    parser.add_argument("--goal", default="1GiB", help="of --largest")
    parser.add_argument("--batches", default="1..256", help="where --largest looks")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for name in options.names or SCRIPTS:
        with tempfile.TemporaryDirectory() as place:
            row = compared(name, Path(place), options)
        print(row, flush=True)
        if options.write:
            rows = {line.split("|")[1].strip(): line for line in page.read("levers", "levers.md").splitlines()[2:]}
            page.write("levers", "\n".join([HEADER, *(rows | {name: row}).values()]), "levers.md")


def compared(name: str, folder: Path, options: argparse.Namespace) -> str:
    text = SCRIPTS[name].read_text()
    script = folder / f"{name}.py"
    script.write_text(text)
    only = ("--only", options.levers) if options.levers else ()
    batches = f"BATCH={options.batches}" if options.largest else "BATCH=4..4"
    goal = ("--goal", options.goal) if options.largest else ()
    ranks = ("--world-size", "2") if name == "fsdp2" else ()
    answer = ran("levers", *GPU, *ranks, *only, *goal, "--vary", batches, "--json", "--", sys.executable, script, "{BATCH}", folder=folder)
    at = answer["at"]["BATCH"]
    print(f"{name}: {answer['base']['peak_allocated'] / 2**20:.1f} MiB as it is with batch {at}, largest {answer['base']['largest']}", flush=True)
    not_tried = [one["name"] for one in answer["skipped"]]
    for one in answer["skipped"]:
        print(f"  {one['name']}: {one['why']}")
    worst, same, largest, by_hand = 0.0, [], [], {}
    for one in answer["levers"]:
        if one["peak_allocated"] is None or one["where"].startswith("nowhere"):
            print(f"  {one['name']}: {one['where'] if one['peak_allocated'] else one['error']['lines'][-1:]}", flush=True)
            not_tried.append(one["name"])
            continue
        of = int(one["name"].rpartition("_")[2]) if one["name"].startswith("fsdp2") else 1 + bool(ranks)
        half = 2 if one["name"] == "accumulate" else 1
        by_hand.setdefault(of, []).append((one, half, written(text, one["how"], one["where"])))
    for of, those in by_hand.items():
        peaks = peaks_by_hand(folder, [(script, -(-at // half)) for _one, half, script in those], of)
        for (one, half, edited), peak in zip(those, peaks):
            worst = max(worst, abs(one["peak_allocated"] / peak - 1))
            same.append(one["name"])
            print(f"  {one['name']}: {one['peak_allocated'] / 2**20:.3f} MiB, by hand {peak / 2**20:.3f}", flush=True)
            if not options.largest or not one["largest"]:
                continue
            script.write_text(edited)
            world = ("--world-size", str(of)) if of > 1 else ()
            said = ran("levers", *GPU, *world, *goal, "--only", "as_it_is", "--vary", batches, "--json", "--", sys.executable, script, "{BATCH}", folder=folder)
            found = said["base"]["largest"]["BATCH"] * half
            print(f"    largest {one['largest']['BATCH']}, by hand {found}", flush=True)
            largest.append(one["largest"]["BATCH"] == found)
    right = f"{sum(largest)} of {len(largest)}" if largest else ""
    return f"| {name} | {answer['base']['peak_allocated'] / 2**20:.1f} | {', '.join(same)} | {100 * worst:.4f} % | {right} | {', '.join(not_tried)} |"


if __name__ == "__main__":
    main()
