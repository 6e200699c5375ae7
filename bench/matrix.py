"""The paper's matrix: memory efficiency of every model under every setting, written to bench/results/evaluation.md.

    cargo build --release -p stalloc-cli -p stalloc-dryrun -p stalloc-python && scripts/python-package
    python bench/matrix.py --stalloc target/release/stalloc --only gpt2-345m --write

Each cell is recorded on a dry-run A100 of 80 GB with the largest micro-batch that fits under PyTorch's allocator
(a power of two, or one and a half times that), planned and simulated. Cells and traces are kept in --cache, so that the
command can be interrupted and goes on where it was. A cell whose trace is there is planned and simulated again with
--again; one whose trace is deleted is recorded again. With --known the micro-batches are those of the page's table, and not
looked for again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import page
from allocators import ALLOCATORS

#: Of the table in the page.
MARK = "cells, written by bench/matrix.py"
ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "megatron_gpt.py"

#: Options of each model: how many ranks it is spread over, so that weights and states leave room on a device.
MODELS = {
    "gpt2-345m": ["--micro-batches", "4"],
    "llama2-7b": ["--tensor", "2", "--micro-batches", "8", "--flash"],
    "qwen2.5-7b": ["--tensor", "4", "--micro-batches", "8", "--flash"],
    "qwen2.5-14b": ["--tensor", "8", "--micro-batches", "8", "--flash"],
    "qwen1.5-moe-a2.7b": [
        *("--experts", "60", "--top-k", "4", "--expert", "4", "--data", "4", "--pipeline", "2"),
        *("--micro-batches", "8", "--flash"),
    ],
}
#: R: recomputation, V: virtual pipeline, Z: ZeRO. Offload (ZOR) is not in megatron-core without TransformerEngine.
SETTINGS = {
    "None": [],
    "R": ["--recompute", "full"],
    "V": ["--pipeline", "4", "--chunks", "2"],
    "VR": ["--pipeline", "4", "--chunks", "2", "--recompute", "full"],
    "ZR": ["--data", "8", "--distributed-optimizer", "--recompute", "full"],
}
#: 28 layers do not divide into 4 stages of 2 chunks.
STAGES = {"qwen2.5-7b": ["--pipeline", "2"]}
LARGEST_MICRO_BATCH = 256
#: Steps that are recorded: auto learns in the first of them.
STEPS = 10


class Matrix:
    """The cells, as far as they are known."""

    def __init__(self, command: str, cache: Path, start: int, again: bool, known: dict[tuple[str, str], int]) -> None:
        self.command = command
        self.cache = cache
        self.start = start
        self.again = again
        self.known = known

    def cell(self, model: str, setting: str) -> None:
        """Make one cell, unless it is kept."""
        kept = self.cache / f"{model}-{setting}.json"
        if self.again or not kept.exists():
            kept.write_text(json.dumps(self.make(model, setting)))

    def make(self, model: str, setting: str) -> dict:
        """Simulate the trace of a cell, which is recorded now unless it is kept."""
        name = f"{model}-{setting}-micro-batch-"
        kept = next(self.cache.glob(f"{name}*.trace"), None) or self.trace(model, setting, name)
        if kept is None:
            return {"micro_batch": 0}
        simulated = json.loads(self.run("simulate", kept, "--smallest", "--json"))
        return {"micro_batch": int(kept.stem.removeprefix(name)), **simulated}

    def trace(self, model: str, setting: str, name: str) -> Path | None:
        """Find the micro-batch and record with it; None if not even one sample fits."""
        for size in self.sizes(model, setting):
            directory = self.record(model, setting, size, STEPS)
            if directory is not None:
                return (directory / "rank0_dev0.trace").rename(self.cache / f"{name}{size}.trace")
        return None

    def sizes(self, model: str, setting: str) -> list[int]:
        """Micro-batches that fit in two short steps, the largest first: a power of two or one and a half times that."""

        def fits(size: int) -> bool:
            return self.record(model, setting, size, steps=2, more=["--micro-batches", "4"]) is not None

        if (model, setting) in self.known:
            return [self.known[model, setting]]
        size = self.start
        while size and not fits(size):
            size //= 2
        while 0 < size < LARGEST_MICRO_BATCH and fits(2 * size):
            size *= 2
        smaller = [size, size * 3 // 4, size // 2] if size > 2 else [size, size // 2]
        if size > 1 and fits(size * 3 // 2):
            smaller.insert(0, size * 3 // 2)
        return [size for size in smaller if size]

    def record(self, model: str, setting: str, size: int, steps: int, more: list[str] = []) -> Path | None:
        """Record some steps of the first rank, which holds the most of a pipeline; None if they do not fit."""
        stages = STAGES.get(model, []) if "V" in setting else []
        options = [*MODELS[model], *SETTINGS[setting], *stages, *more]
        factors = {"--tensor": 1, "--pipeline": 1, "--data": 1}
        for name, value in zip(options, options[1:]):
            if name in factors:
                factors[name] = int(value)
        world = factors["--tensor"] * factors["--pipeline"] * factors["--data"]
        directory = self.cache / "traces"
        print(f"{model} {setting}: micro-batch {size}, {steps} steps", file=sys.stderr, flush=True)
        try:
            self.run(
                *("trace", "--dry-run", "a100-80gb", "--stacks", "0", "--steps", steps, "--json", "-o", directory),
                *("--world-size", world, "--rank", 0, "--", sys.executable, EXAMPLE),
                *("--model", model, "--micro-batch", size, "--steps", steps, *options),
            )
        except subprocess.CalledProcessError as error:
            if "OutOfMemoryError" in error.stderr:
                return None
            sys.exit(f"{model} {setting} failed:\n{error.stderr[-2000:]}")
        return directory

    def run(self, *arguments) -> str:
        """Run the `stalloc` command."""
        command = [self.command, *map(str, arguments)]
        return subprocess.run(command, check=True, text=True, capture_output=True).stdout

    def table(self) -> str:
        """What is known, as Markdown."""
        lines = [
            "| model | setting | micro-batch | requests | peak allocated, GiB | "
            + " | ".join(f"{name}: E · capacity" for name in ALLOCATORS.values())
            + " |",
            "|---|---|---:|---:|---:|" + "---:|" * len(ALLOCATORS),
        ]
        for model in MODELS:
            for setting in SETTINGS:
                kept = self.cache / f"{model}-{setting}.json"
                if not kept.exists():
                    lines.append(f"| {model} | {setting} | not run |" + " |" * (2 + len(ALLOCATORS)))
                    continue
                cell = json.loads(kept.read_text())
                if not cell["micro_batch"]:
                    lines.append(f"| {model} | {setting} | does not fit |" + " |" * (2 + len(ALLOCATORS)))
                    continue
                found = {result["allocator"]: result for result in cell["results"]}
                shown = [figures(found.get(name), cell["peak_allocated"]) for name in ALLOCATORS]
                peak = f"{cell['peak_allocated'] / 2**30:.1f}"
                lines.append(
                    f"| {model} | {setting} | {cell['micro_batch']} | {cell['requests']:,} | {peak} | "
                    + " | ".join(shown)
                    + " |"
                )
        return "\n".join(lines)


def figures(result: dict | None, live: int) -> str:
    """Peak allocated over peak reserved, and the smallest device in thousandths of the peak of live bytes."""
    if result is None:
        return ""
    if result["oom"]:
        return "out of memory"
    return f"{result['efficiency']:.3f} · {1000 * result['smallest_capacity'] / live:.0f}"


def known_sizes() -> dict[tuple[str, str], int]:
    """The micro-batches of the page's table, by model and setting."""
    rows = (line.split("|") for line in page.read(MARK).splitlines())
    cells = ([cell.strip() for cell in row] for row in rows if len(row) > 4)
    return {(cell[1], cell[2]): int(cell[3]) for cell in cells if cell[3].isdigit()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stalloc", default="stalloc", help="the command")
    parser.add_argument("--cache", type=Path, default=ROOT / "target" / "matrix", help="where cells are kept")
    parser.add_argument("--start", type=int, default=4, help="micro-batch to try first, a power of two")
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=MODELS, help="models to run")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS, help="settings to run")
    parser.add_argument("--again", action="store_true", help="plan and simulate cells that are kept, too")
    parser.add_argument("--known", action="store_true", help="use the micro-batches of bench/results/evaluation.md")
    parser.add_argument("--write", action="store_true", help="write bench/results/evaluation.md")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(options.stalloc, options.cache, options.start, options.again, known_sizes() if options.known else {})
    for model in options.only:
        for setting in options.settings:
            matrix.cell(model, setting)
    if options.write:
        page.write(MARK, matrix.table())
    print(matrix.table())


if __name__ == "__main__":
    main()
