"""What a lever saved on strangers' GPUs, against what the same two programs say in a dry run: pairs of the peaks in bench/results/fidelity.md.

    python bench/lever_pairs.py [--write]

The programs, and where each figure is published, are listed in bench/published.toml and bench/fidelity.toml; bench/published.py and
bench/fidelity.py run them. A pair is one program with a lever and without it. --write puts the table into bench/results/levers.md.
"""

from __future__ import annotations

import re
import sys

import page

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


def peak(repository: str, row: str, index: int) -> tuple[str, float, float]:
    """The repository, what is published, and the dry run's, in GiB."""
    for mark in ("published", "programs"):
        for line in page.read(mark, "fidelity.md").splitlines():
            if repository in line and row in line:
                cells = [cell.strip() for cell in line.split("|")]
                if mark == "programs":
                    (real,) = numbers(cells[5])  # the same
                    return cells[1], real / 1024, real / 1024
                real = numbers(cells[4])[index]
                return cells[1], real, real if cells[5] == "the same" else numbers(cells[5])[index]
    raise SystemExit(f"no row of {repository} has {row}")


def main() -> None:
    rows = ["| lever | repository | published, GiB | saved | dry run, GiB | saved | off by |", "|---|---|---|---:|---|---:|---:|"]
    within = 0
    for lever, repository, without, with_it in PAIRS:
        (name, real, dry), (_, real_with, dry_with) = peak(repository, *without), peak(repository, *with_it)
        saved, dry_saved = real - real_with, dry - dry_with
        error = dry_saved / saved - 1
        within += abs(error) <= 0.02
        rows.append(f"| {lever} | {name} | {real:.3f} → {real_with:.3f} | {saved:.3f} | {dry:.3f} → {dry_with:.3f} | {dry_saved:.3f} | {100 * error:+.2f} % |")
    total = f"{within} of {len(PAIRS)} differences are within 2 %."
    print("\n".join([total, *rows]))
    if "--write" in sys.argv:
        page.write("pairs", "\n".join(rows), "levers.md")
        page.write("pairs total", total, "levers.md")


if __name__ == "__main__":
    main()
