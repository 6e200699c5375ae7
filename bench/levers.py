"""Holds each lever's peak, and the largest batch with it, against the same script with the printed lines written in by hand.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env frameworks) bench/levers.py [NAME...] [--levers checkpoint,offload] [--largest] [--write]
    python bench/levers.py --published [--write]

Small scripts of ten kinds, in bench/levers/. The lines go where `stalloc levers` says, as they are; for a Trainer of transformers,
where a script says `# before the trainer`. Without --largest peaks are compared at batch 4; with it, the largest batch under --goal
too. --write puts the table into bench/results/levers.md; what was not run again keeps its row.

--published holds what a lever saved on strangers' GPUs against what the same two programs say in a dry run: pairs of the peaks that bench/published.py
and bench/fidelity.py put into bench/results/fidelity.md.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import runpy
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from lib import pages, runs

FOLDER = runs.BENCH / "levers"
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
HEADER = "| script | as it is, MiB | levers compared | by hand: the worst differs by | largest batch the same | not tried |\n|---|---:|---|---:|---:|---|"


def ran(*words: object, folder: Path, answers: tuple[int, ...] = (0, 1)) -> Any:
    """What a command says; where nothing fits it ends with 1."""
    settings = {**runs.OFFLINE, **runs.FORKED, "PYTHONPATH": str(runs.BENCH / "frameworks")}
    return runs.said(*words, answers=answers, cwd=folder, env=runs.environment(**settings))


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
    ran("trace", *runs.GPU, *world, "--steps", "3", "-o", place / "own", "--", *runs.own("--fork", place, *batches), folder=folder, answers=(0,))
    recorded = [ran("info", place / f"{number}.traces", folder=folder) for number in range(len(scripts))]
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


#: Lever, repository, (row, number in it) without the lever, and the same with it. A row by its second and third cell.
ENZO, SHIBUKI, LIN, RASBT, BOOK = "EnzoDing-rgb", "ShibukiZero", "LINYUNLinYun", "rasbt/pytorch-memory-optim", "rasbt/LLMs-from-scratch"
SEGMENTS, CELLS, AILZHANG = "ctx 512, fp32, recomputation", "eight cells", "ailzhang"
PAIRS = [
    *((f"checkpoint, segments of {n} layers", ENZO, (SEGMENTS, 0), (SEGMENTS, i)) for i, n in enumerate((1, 2, 4, 8, 16), 1)),
    ("checkpoint, 32 segments instead of 8", LIN, ("recomputation in 8 segments", 0), ("recomputation in 32 segments", 0)),
    ("checkpoint, nested, instead of 8 segments", LIN, ("recomputation in 8 segments", 0), ("nested recomputation", 0)),
    ("checkpoint, six layers", AILZHANG, ("six layers", 1), ("six layers", 0)),
    ("accumulate, four halves", AILZHANG, ("gradients not accumulated", 0), ("gradients accumulated", 0)),
    ("accumulate, GPT-2 large", AILZHANG, ("0_VRAM_Original", 0), ("1_VRAM_Gradient_Accumulation", 0)),
    ("accumulate, four batches of 4, ViT-L", RASBT, ("and batches of 16", 0), ("gradients of four batches", 0)),
    ("smaller batches, 16 of 64, ViT-L", RASBT, ("and bf16", 0), ("and batches of 16", 0)),
    ("autocast fp16, ViT-L", RASBT, ("Lightning Fabric", 0), ("mixed precision, fp16", 0)),
    ("autocast bf16, a step, ctx 512", ENZO, (CELLS, 14), (CELLS, 18)),
    ("autocast bf16, a forward pass, ctx 512", ENZO, (CELLS, 10), (CELLS, 11)),
    ("autocast bf16, a step, ctx 512", SHIBUKI, ("ctx 512, fp32 | step", 0), ("ctx 512, bf16 | step", 0)),
    ("autocast bf16, a step, ctx 512, RTX PRO 6000", LIN, ("xl_ctx512_full_step_none", 0), ("xl_ctx512_full_step_bf16", 0)),
    ("weights bf16, ViT-L", RASBT, ("mixed precision, fp16", 0), ("and bf16", 0)),
    ("weights bf16, GPT-2 of a book", BOOK, ("and pinned batches", 0), ("and bf16", 0)),
    ("optimizer SGD instead of Adam, ViT-L", RASBT, ("gradients of four batches", 0), ("and SGD", 0)),
    ("optimizer states over two ranks, 2B", SHIBUKI, ("| whole |", 4), ("| sharded |", 4)),
    ("optimizer states over two ranks, 3.4B", "Wedsonlin", ("| whole |", 2), ("| sharded |", 2)),
    ("smaller batches, 8 of 32, GPT-2 of a book", BOOK, ("and batches of 32", 0), ("a vocabulary of 50,304", 0)),
]


def numbers(cell: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.\d+", cell)]


def published_peak(repository: str, row: str, index: int) -> tuple[str, float, float]:
    """The repository, what is published, and the dry run's, in GiB."""
    for mark in ("published", "programs"):
        for line in pages.read(mark, "fidelity.md").splitlines():
            if repository in line and row in line:
                cells = [cell.strip() for cell in line.split("|")]
                if mark == "programs":
                    (real,) = numbers(cells[5])  # the same
                    return cells[1], real / 1024, real / 1024
                real = numbers(cells[4])[index]
                return cells[1], real, real if cells[5] == "the same" else numbers(cells[5])[index]
    raise SystemExit(f"no row of {repository} has {row}")


def published() -> tuple[str, str]:
    """How many pairs agree, and the table."""
    rows = ["| lever | repository | published, GiB | saved | dry run, GiB | saved | off by |\n|---|---|---|---:|---|---:|---:|"]
    within = 0
    for lever, repository, without, with_it in PAIRS:
        (name, real, dry), (_, real_with, dry_with) = published_peak(repository, *without), published_peak(repository, *with_it)
        saved, dry_saved = real - real_with, dry - dry_with
        error = dry_saved / saved - 1
        within += abs(error) <= 0.02
        cells = [f"{real:.3f} → {real_with:.3f}", f"{saved:.3f}", f"{dry:.3f} → {dry_with:.3f}", f"{dry_saved:.3f}", f"{100 * error:+.2f} %"]
        rows.append(pages.line([lever, name, *cells]))
    return f"{within} of {len(PAIRS)} differences are within 2 %.", "\n".join(rows)


def main() -> None:
    if sys.argv[1:2] == ["--fork"]:
        return fork(*sys.argv[2:])
    parser = runs.parser("levers.md")
    parser.add_argument("names", nargs="*", choices=[*SCRIPTS, []], help="scripts; all by default")
    parser.add_argument("--levers", default="", help="which levers")
    parser.add_argument("--largest", action="store_true", help="the largest batch with each lever too, which takes much longer")
    parser.add_argument("--goal", default="1GiB", help="of --largest")
    parser.add_argument("--batches", default="1..256", help="where --largest looks")
    parser.add_argument("--published", action="store_true", help="pairs of published peaks instead, from bench/results/fidelity.md")
    options = parser.parse_args()
    if options.published:
        total, table = published()
        print(f"{total}\n{table}")
        if options.write:
            pages.write("pairs", table, "levers.md")
            pages.write("pairs total", total, "levers.md")
        return
    for name in options.names or SCRIPTS:
        with tempfile.TemporaryDirectory() as place:
            row = compared(name, Path(place), options)
        print(row, flush=True)
        if options.write:
            pages.put("levers", HEADER, [row], "levers.md")


def compared(name: str, folder: Path, options: argparse.Namespace) -> str:
    text = SCRIPTS[name].read_text()
    script = folder / f"{name}.py"
    script.write_text(text)
    only = ("--only", options.levers) if options.levers else ()
    batches = f"BATCH={options.batches}" if options.largest else "BATCH=4..4"
    goal = ("--goal", options.goal) if options.largest else ()
    ranks = ("--world-size", "2") if name == "fsdp2" else ()
    answer = ran("levers", *runs.GPU, *ranks, *only, *goal, "--vary", batches, "--", sys.executable, script, "{BATCH}", folder=folder)
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
            said = ran("levers", *runs.GPU, *world, *goal, "--only", "as_it_is", "--vary", batches, "--", sys.executable, script, "{BATCH}", folder=folder)
            found = said["base"]["largest"]["BATCH"] * half
            print(f"    largest {one['largest']['BATCH']}, by hand {found}", flush=True)
            largest.append(one["largest"]["BATCH"] == found)
    right = f"{sum(largest)} of {len(largest)}" if largest else ""
    return f"| {name} | {answer['base']['peak_allocated'] / 2**20:.1f} | {', '.join(same)} | {100 * worst:.4f} % | {right} | {', '.join(not_tried)} |"


if __name__ == "__main__":
    main()
