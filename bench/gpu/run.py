"""A real model under PyTorch's allocator, expandable segments and stalloc, on the GPU of this machine: one table.

    PYTHONPATH=$(scripts/python-package --release) python bench/gpu/run.py

Peak reserved memory, efficiency and tokens per second at one micro-batch; the largest micro-batch that fits; and whether a
recording made without the GPU asks for what one made on it does. Under 25 minutes on one H200 by its own clock: what is not
measured by then is said to be missing. Every run is kept in --work, so that the command goes on where it was.

Without a GPU, `--dry-run h100-80gb --model tiny` runs it on the stand-in: memory is counted, time means nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from table import page

HERE = Path(__file__).resolve().parent
ALLOCATORS = ("native", "expandable", "stalloc")

#: Shape of each model, and the micro-batch that all allocators are compared at.
MODELS = {
    "tiny": (["--layers", "2", "--hidden", "256", "--length", "512"], 2),
    "1b": (["--layers", "22", "--hidden", "2048"], 16),
    "3b": (["--layers", "24", "--hidden", "3072"], 12),
}
#: What the stand-in calls a GPU, by a part of the name that the driver gives it.
STAND_INS = {
    **{"H200": "h200-141gb", "H100": "h100-80gb", "A100-SXM4-40GB": "a100-40gb", "A100-PCIE-40GB": "a100-40gb"},
    **{"A100": "a100-80gb", "B200": "b200", "L40S": "l40s", "RTX 4090": "rtx4090"},
}
#: Steps of a recording, of a run that is timed, and of one that only has to fit.
RECORDED, TIMED, TRIED = 4, 12, 4
MOST_SECONDS_A_RUN = 400


class OutOfTime(Exception):
    """The bench's own time is over."""


@dataclass
class Bench:
    """The runs of one model, as far as they are known."""

    stalloc: Path
    model: str
    dry_run: str | None
    work: Path
    deadline: float

    @property
    def timed(self) -> int:
        """Steps of a run that the allocators are compared by; without times there need not be more than were recorded."""
        return RECORDED if self.dry_run else TIMED

    def train(self, name: str, prefix: list[Any], micro_batch: int, steps: int, **environment: str) -> dict[str, Any]:
        """Figures of one run, from the cache or made now; OutOfTime if there is no time for it."""
        kept = self.work / f"{name}.json"
        if not kept.exists():
            left = self.deadline - time.monotonic()
            if left < 20:
                raise OutOfTime
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            start = time.monotonic()
            part = kept.with_suffix(".part")
            part.unlink(missing_ok=True)
            command = [*prefix, sys.executable, HERE / "train.py", *MODELS[self.model][0]]
            command += ["--micro-batch", micro_batch, "--steps", steps, "--output", part]
            self.call(command, min(left, MOST_SECONDS_A_RUN), self.work / f"{name}.log", environment)
            if not part.exists():
                sys.exit(f"\n{name} left no figures; its output is in {self.work / name}.log")
            part.replace(kept)
            print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)
        return json.loads(kept.read_text())

    @staticmethod
    def call(command: list[Any], seconds: float, log: Path, environment: dict[str, str]) -> None:
        """Run a command to its end or to the time's; its output goes to a file."""
        with log.open("w") as output:
            try:
                subprocess.run(
                    ["timeout", "--kill-after=5", str(int(seconds)), *map(str, command)],
                    env={**os.environ, **environment},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            except OSError as error:
                sys.exit(f"cannot run {command[0]}: {error}")

    def run(self, allocator: str, micro_batch: int, steps: int) -> dict[str, Any]:
        """Figures of one allocator at one micro-batch."""
        name = f"{allocator}-{micro_batch}-{steps}"
        if allocator == "stalloc":
            folder = self.plan(micro_batch)
            if folder is None:
                return {"micro_batch": micro_batch, "oom": True, "message": "the plan is larger than the GPU"}
            dry = ["--dry-run", self.dry_run] if self.dry_run else []
            return self.train(name, [self.stalloc, "run", "--plan", folder, "--frozen", *dry, "--"], micro_batch, steps)
        prefix = self.recording(self.work / f"traces-{name}") if self.dry_run else []
        option = "expandable_segments:True" if allocator == "expandable" else ""
        return self.train(name, prefix, micro_batch, steps, PYTORCH_CUDA_ALLOC_CONF=option)

    def recording(self, folder: Path, gpu: str | None = None) -> list[Any]:
        """What records a program into a folder: on the stand-in for a GPU, else on the real one."""
        gpu = gpu or self.dry_run
        return [self.stalloc, "trace", *(["--dry-run", gpu] if gpu else []), "-o", folder, "--"]

    def plan(self, micro_batch: int) -> Path | None:
        """A folder with a plan, from a recording on the stand-in; None if no GPU of this size can hold it.

        The stand-in has twice the memory, so that what PyTorch's allocator wastes does not keep a recording from its end.
        """
        folder = self.work / f"recorded-{micro_batch}"
        gpu, total = self.gpu()
        environment = {"STALLOC_DRYRUN_TOTAL_MIB": str(2 * total >> 20)}
        recorded = self.train(folder.name, self.recording(folder, gpu), micro_batch, RECORDED, **environment)
        if recorded["oom"] or recorded["peak_allocated"] > total:
            return None
        plan = folder / "rank0_dev0.plan"
        if not plan.exists():
            command = [self.stalloc, "plan", folder / "rank0_dev0.trace", "-o", plan, "--json"]
            self.call(command, 120, folder / "plan.json", {})
            if not plan.exists():
                sys.exit(f"no plan was made: see {folder / 'plan.json'}")
        return folder

    def gpu(self) -> tuple[str, int]:
        """The stand-in for this GPU, and the GPU's bytes."""
        native = self.run("native", MODELS[self.model][1], self.timed)
        if self.dry_run:
            return self.dry_run, native["total"]
        for part, preset in STAND_INS.items():
            if part in native["device"]:
                return preset, native["total"]
        sys.exit(f"there is no stand-in for {native['device']}; the nearest can be named in STAND_INS of {__file__}")

    def fidelity(self) -> dict[str, Any]:
        """How a recording on the stand-in differs from one of the same program on the GPU."""
        micro_batch = MODELS[self.model][1]
        self.plan(micro_batch)
        if self.dry_run:  # the run under PyTorch's allocator was recorded as well
            other = self.work / f"traces-native-{micro_batch}-{self.timed}"
        else:
            other = self.work / "recorded-on-gpu"
            self.train(other.name, self.recording(other), micro_batch, RECORDED)
        files = [folder / "rank0_dev0.trace" for folder in (self.work / f"recorded-{micro_batch}", other)]
        command = [str(self.stalloc), "info", "--compare", *map(str, files), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode > 1:
            sys.exit(f"the recordings cannot be compared: {done.stderr.strip()}")
        return json.loads(done.stdout)


def largest(fits: Callable[[int], bool], start: int) -> tuple[int, bool]:
    """The largest micro-batch that fits, to one part in sixteen; and false if time ended the search early."""
    good, bad = 0, None
    size = start
    try:
        while bad is None or bad - good > max(good // 16, 1):
            if fits(size):
                good = size
            else:
                bad = size
            size = 2 * good if bad is None else (good + bad) // 2
            if size <= good:
                break
    except OutOfTime:
        return good, False
    return good, True


def measure(bench: Bench, parts: set[str]) -> dict[str, Any]:
    """Everything that there is time for, most valuable first."""
    results: dict[str, Any] = {"model": bench.model, "dry_run": bench.dry_run, "same": {}, "largest": {}, "fidelity": None}
    micro_batch = MODELS[bench.model][1]
    try:
        for allocator in ALLOCATORS:
            results["same"][allocator] = bench.run(allocator, micro_batch, bench.timed)
        if "fidelity" in parts:
            results["fidelity"] = bench.fidelity()
    except OutOfTime:
        return results
    if "largest" in parts:
        for allocator in ALLOCATORS:
            fits = lambda size: not bench.run(allocator, size, TRIED)["oom"]
            results["largest"][allocator] = largest(fits, micro_batch)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="1b")
    parser.add_argument("--dry-run", metavar="GPU", help="no GPU: a stand-in for this one")
    parser.add_argument("--without", action="append", default=[], choices=["largest", "fidelity"], help="leave a part out")
    parser.add_argument("--minutes", type=float, default=24, help="start nothing new after so long")
    parser.add_argument("--work", type=Path, default=Path("target/bench-gpu"), help="where runs are kept")
    parser.add_argument("--output", type=Path, help="where the table goes, in addition to standard output; docs/gpu.md keeps results")
    options = parser.parse_args()
    try:
        import stalloc
    except ImportError:
        sys.exit("stalloc is not on the path: PYTHONPATH=$(scripts/python-package --release)")
    command = Path(stalloc.__file__).parent / "_bin" / "stalloc"
    work = (options.work / f"{options.dry_run or 'gpu'}-{options.model}").resolve()
    work.mkdir(parents=True, exist_ok=True)
    bench = Bench(command, options.model, options.dry_run, work, time.monotonic() + 60 * options.minutes)
    results = measure(bench, {"largest", "fidelity"} - set(options.without))
    text = page(results)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
