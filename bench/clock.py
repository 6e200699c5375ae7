"""How long steps take by the clock of a dry run, and how long they took on a GPU: `bench/results/clock.md`.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/clock.py [--loops DIR] [JOB ...]

`--loops DIR`: where the loops of the H100 are, which are not part of this repository. Jobs that are not named keep what the page says of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import page
import stalloc

BENCH = Path(__file__).resolve().parent
KIT = json.loads((BENCH / "gpu" / "kit" / "h200.json").read_text())["measurements"]
HEAD = "| job | GPU | measured, ms | modelled, ms | off by | host waits, share | used to choose |\n|---|---|---|---|---|---|---|"


def kit(model: str, batch: int, key: str, steps: int) -> tuple[str, list[object], list[float]]:
    """One of the kit's models: it waits for the device in each step."""
    measured = [1e3 * seconds for seconds in KIT[key]["figures"]["step_seconds"]]
    program = [BENCH / "gpu" / "kit" / "train.py", "--model", model, "--micro-batch", batch, "--steps", steps, "--output", os.devnull]
    return "h200-141gb", program, measured


def loops(folder: Path) -> dict[str, tuple[str, list[object], list[float]]]:
    """Each job: its GPU, its command, and the milliseconds of its steps there: of each, or of the median one."""
    return {
        "llama-1b, batch 8": kit("llama-1b", 8, "cost/speed/native/1", 4),
        "gpt2": kit("gpt2", 16, "truth/recorded/gpt2", 4),
        "conv": kit("conv", 64, "truth/recorded/conv", 4),
        "lengths, batch 4": kit("lengths", 4, "truth/snapshot/native", 6),
        "U-Net of drawn shapes": ("h100-80gb", [folder / "unet.py"], [37.8]),
        "llama-1b, batch 22": kit("llama-1b", 22, "gain/largest/llama-1b/native/22", 3),
        "lengths, batch 10": kit("lengths", 10, "gain/largest/lengths/native/10", 6),
        "moe": kit("moe", 8, "truth/recorded/moe", 4),
        "compiled": kit("compiled", 8, "truth/recorded/compiled", 4),
        "decoding, then the loss": ("h100-80gb", [folder / "grpo.py"], [1433]),
        "activations offloaded": ("h100-80gb", [BENCH / "jobs" / "two_way_offload.py", "--steps", "6"], [353]),
    }


#: The jobs by which shares were chosen; the others judge.
CHOSEN = ("llama-1b, batch 8", "gpt2", "activations offloaded", "U-Net of drawn shapes")


def row(name: str, gpu: str, program: list[object], measured: list[float]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = ["stalloc", "trace", "--dry-run", gpu, "-o", folder, "--", sys.executable, *program]
        path = os.pathsep.join([str(Path(stalloc.__file__).parent / "_bin"), os.environ["PATH"]])
        subprocess.run(list(map(str, command)), check=True, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL)
        (trace,) = Path(folder).glob("*.trace")
        told = stalloc.read_trace(trace)["traces"][0]["metadata"]["step_times_us"]
    moments = [tuple(map(int, moment.split(":"))) for moment in told.split()]
    steps = [((after[0] - before[0]) / 1e3, (after[1] - before[1]) / 1e3) for before, after in zip(moments, moments[1:])]
    # The last step that is seen is what follows the last update.
    counted = [step for step in steps[:-1] if step[0] > 0][2:] or steps
    modelled, was = statistics.median(step for step, _ in counted), statistics.median(measured[2:] or measured)
    share = statistics.median(waited / step for step, waited in counted)
    off = f"{100 * (modelled / was - 1):+.0f} %"
    return f"| {name} | {gpu} | {was:.1f} | {modelled:.1f} | {off} | {share:.2f} | {'yes' if name in CHOSEN else 'no'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=Path, default=Path())
    parser.add_argument("jobs", nargs="*", help="names as the page has them")
    options = parser.parse_args()
    before = {line.split(" | ")[0].strip("| "): line for line in page.read("steps", "clock.md").splitlines()[2:]}
    for name, (gpu, program, measured) in loops(options.loops).items():
        if name in options.jobs or not options.jobs:
            before[name] = row(name, gpu, program, measured)
            print(before[name], flush=True)
            page.write("steps", "\n".join([HEAD, *before.values()]), "clock.md")


if __name__ == "__main__":
    main()
