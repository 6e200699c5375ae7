"""Hold the dry run against the largest batches that timm's authors found on real GPUs and published.

    PYTHONPATH=$(scripts/python-package --release) python bench/batches.py [--rows N] [--write]

timm's benchmark.py takes the next smaller batch of a fixed sequence each time that one fails, so that a row of its tables in results/ says two things: this
batch ran, and the next larger one did not. Of each table N rows below the first batch are drawn by a seed. benchmark.py of the commit that published the
table starts at the first batch, as it did there, on a stand-in that holds what the card does, less the most that CUDA's context is known to take; where it
ends below the published batch, once more, less the least. Where it ends is held against the table. With --write the result goes into
bench/results/fidelity.md.
"""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from lib import pages, strangers

REPOSITORY = "huggingface/pytorch-image-models"
PACKAGES = ["torch==2.9.1", "torchvision==0.24.1", "numpy", "pyyaml", "huggingface_hub", "safetensors"]
#: What PyTorch 1.12 does where nothing is said, and later ones do not.
OLDER = (
    {"file": "benchmark.py", "old": "self.optimizer.zero_grad()", "new": "self.optimizer.zero_grad(set_to_none=False)"},
    {"file": "benchmark.py", "old": "lr=kwargs.pop('lr', 1e-4))", "new": "lr=kwargs.pop('lr', 1e-4), foreach=False)"},
)
RIGHT, FITS, DOES_NOT_FIT, EDGE, FAILED = "the same", "wrong: fits", "wrong: does not fit", "edge", "not run"
HEADER = f"| table | rows | {RIGHT} | {FITS} | {DOES_NOT_FIT} | {EDGE} | {FAILED} |\n|---|---:|---:|---:|---:|---:|---:|"
#: Longer than any row takes, seconds.
LIMIT = 900


@dataclass
class Table:
    """A published table: the file in results/, the commit, the card, what CUDA's context takes of it at least and at most, MiB, and options of the run."""

    file: str
    commit: str
    gpu: str
    context: tuple[int, int]
    edits: tuple = ()
    options: str = ""


#: Their tables do not say it. Twelve models hold more images on an RTX 4090 than on an RTX 5090, all with group, layer or RMS norms, which autocast computes
#: in float32 without it: efficientnet_b3_g8_gn 768 in 24 GiB and 512 in 32, at 1.4 times the speed of the larger card.
FAST_NORM = "--fast-norm"
TABLES = [
    # CUDA before 11.7 loads all kernels at once: bench/results/fidelity.md has the sources of the range.
    Table("benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv", "c865028c", "rtx3090", (1_240, 1_650), OLDER),
    Table("benchmark-infer-amp-nchw-pt291-cu128-4090.csv", "90cae8c5", "rtx4090", (250, 530), options=FAST_NORM),
    Table("benchmark-infer-amp-nchw-pt291-cu130-5090.csv", "90cae8c5", "rtx5090", (250, 600)),
    Table(
        "benchmark-infer-amp-nchw-pt291-cu130-pro6000maxq.csv",
        "90cae8c5",
        "sm=188,memory=97249MiB,capability=12.0,name=RTX PRO 6000",
        (250, 720),
        options=FAST_NORM,
    ),
]


def below(batch: int) -> int:
    """The batch that timm tries after one that failed: powers of two and what is halfway."""
    half = 1 << (batch - 1).bit_length() - 1
    return half if batch <= half + half // 2 else half + half // 2


def sample(table: Table, tree: Path, count: int, seed: int) -> list[dict]:
    """Rows drawn of those whose batch is not the first that was tried, each with the first batch."""
    text = strangers.run("git", "-C", tree, "show", f"{table.commit}:results/{table.file}").stdout
    rows = []
    for line in csv.DictReader(text.splitlines()):
        size, batch = (next(value for key, value in line.items() if key.endswith(end)) for end in ("_img_size", "_batch_size"))
        rows.append({"model": line["model"], "size": int(size), "batch": int(float(batch or 0))})
    tried = [max(row["batch"] for row in rows)]
    while tried[-1] > 1:
        tried.append(below(tried[-1]))
    rows = [{**row, "first": tried[0]} for row in rows if row["batch"] in tried[1:]]
    random.Random(f"{seed} {table.file}").shuffle(rows)
    return rows[:count]


def largest(table: Table, row: dict, context: int, tree: Path, interpreter: Path) -> int | None:
    """The batch that benchmark.py ends at on a stand-in; none if it says none."""
    program = {"repository": REPOSITORY, "commit": table.commit, "edits": table.edits, "path": ["."], "gpu": table.gpu, "options": "--stacks 0"}
    strangers.check_out(program, {}, tree)
    bench = "train" if "-train-" in table.file else "inference"
    what = f"benchmark.py --model {row['model']} --img-size {row['size']} --bench {bench} --amp -b {row['first']} --num-warm-iter 1 --num-bench-iter 5 {table.options}"
    command, settings = strangers.dry_run(program, {"command": what}, tree, interpreter)
    settings |= {"STALLOC_DRYRUN_CONTEXT_MIB": str(context)}
    try:
        done = subprocess.run(command, text=True, capture_output=True, cwd=tree, env=settings, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None
    found = re.search(r'_batch_size": (\d+)', done.stdout + done.stderr)
    return int(found[1]) if found else None


def held(row: dict, found: list[int | None]) -> str:
    """What the dry run's batches, with the most taken and the least, come to next to the published one."""
    if found[0] is None:
        return FAILED
    if found[0] >= row["batch"]:
        return RIGHT if found[0] == row["batch"] else FITS
    return EDGE if (found[-1] or 0) >= row["batch"] else DOES_NOT_FIT


def table_of(rows: list[dict]) -> str:
    """A line for each published table."""
    lines = [HEADER]
    for file in dict.fromkeys(row["table"] for row in rows):
        results = Counter(held(row, row["found"]) for row in rows if row["table"] == file)
        counts = " | ".join(str(results[result]) for result in (RIGHT, FITS, DOES_NOT_FIT, EDGE, FAILED))
        lines.append(f"| {file.removeprefix('benchmark-').removesuffix('.csv')} | {results.total()} | {counts} |")
    return "\n".join(lines)


def main() -> int:
    """Run what is drawn, row by row, and print the table."""
    parser = strangers.arguments()
    parser.add_argument("--rows", type=int, default=28, help="rows drawn of each table")
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--keep", type=Path, help="a file that results are kept in, a line each: what is there is not run again")
    options = parser.parse_args()
    programs = strangers.Strangers(options)
    interpreter, tree = programs.environment({"python": "3.11", "packages": PACKAGES}), programs.clone({"repository": REPOSITORY})
    kept = [json.loads(line) for line in options.keep.read_text().splitlines()] if options.keep and options.keep.exists() else []
    drawn = [[(table, row) for row in sample(table, tree, options.rows, options.seed)] for table in TABLES]
    rows = []
    # In turns, so that what is there when it is stopped is a sample of each table.
    for table, sampled in (one for turn in zip_longest(*drawn) for one in turn if one):
        row = {"table": table.file, **sampled}
        known = next((one for one in kept if row.items() <= one.items()), None)
        if known is None:
            found: list[int | None] = []
            for context in reversed(table.context):
                found.append(largest(table, row, context, tree, interpreter))
                if found[-1] is None or found[-1] >= row["batch"]:
                    break
            known = {**row, "found": found}
            if options.keep:
                with options.keep.open("a") as file:
                    file.write(json.dumps(known) + "\n")
        rows.append(known)
        print(f"{table.file} {row['model']} {row['size']}: {row['batch']}, here {known['found']}: {held(row, known['found'])}", flush=True)
    print(table_of(rows))
    if options.write:
        pages.write("batches", table_of(rows), "fidelity.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
