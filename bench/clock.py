"""How long steps take by the clock of a dry run, and how long they took on a GPU: `bench/results/clock.md`.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/clock.py [JOB ... | levers] [--write]

Jobs that are not named keep what the page says of them. `levers`: what `run --fit` says that a lever costs, and what it cost there.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

from lib import pages, runs

FOLDER = runs.BENCH / "gpu" / "kit"
sys.path.insert(0, str(FOLDER))
import measurements  # noqa: E402

KIT, H100 = (json.loads((FOLDER / f"{name}.json").read_text())["measurements"] for name in ("h200", "h100"))
#: A job's GPU, its command, the milliseconds of its steps there (of each, or of one in the mean), and the first steps that do not count.
Timed = tuple[str, list[object], list[float], int]
HEAD = "| job | GPU | measured, ms | modelled, ms | off by | host waits, share | used to choose |\n|---|---|---|---|---|---|---|"


def kit(model: str, batch: int, key: str, steps: int) -> Timed:
    """One of the kit's models: it waits for the device in each step."""
    measured = [1e3 * seconds for seconds in KIT[key]["figures"]["step_seconds"]]
    program = [FOLDER / "train.py", "--model", model, "--micro-batch", batch, "--steps", steps, "--output", os.devnull]
    return "h200-141gb", program, measured, 2


def timed(job: str) -> Timed:
    """A job that the kit timed on the H100 by turns, natively: the same steps, of which those count that were timed."""
    ways = H100[f"turns/{job}"]["figures"]["ways"]
    segments = [segment for name, way in ways.items() if name.startswith("native") for segment in way["segments"]]
    native = ways["native"]
    before, steps = (sum(len(segment["steps"]) for segment in part) for part in ([native["first_five"], native["warm"]], native["segments"]))
    program = [FOLDER / "program.py", "steps", before + steps, *measurements.program(job, runs.ROOT)]
    return "h100-80gb", program, [1e3 * sum(each["seconds"] for each in segments) / sum(len(each["steps"]) for each in segments)], before


def profiled(model: str, batch: int) -> Timed:
    """A model whose kernels were timed on the H100."""
    kernels = H100[f"profile/{model}"]["figures"]["kernels"]
    return "h100-80gb", kit(model, batch, "cost/speed/native/1", 6)[1], [1e3 * kernels["seconds"] / kernels["steps"]], 2


def loops() -> dict[str, Timed]:
    """Each job."""
    small = H100["pay/speed/nothing /1"]["figures"]["step_seconds"]
    return {
        "SAC": timed("sac"),
        "experts": profiled("moe", 8),
        "batches of drawn sizes": timed("prefetch"),
        "drawn lengths": profiled("lengths", 4),
        "llama-1b, batch 8": kit("llama-1b", 8, "cost/speed/native/1", 4),
        "activations offloaded": timed("two_way_offload"),
        "PPO": timed("ppo_control"),
        "U-Net": timed("unet"),
        "YOLO-like": timed("yolo"),
        "graph network": timed("sampled_graphs"),
        "sharded": timed("sharded"),
        "detection": timed("detection"),
        "any length": timed("any-length"),
        "llama-small": ("h100-80gb", kit("llama-small", 16, "cost/speed/native/1", 6)[1], [1e3 * seconds for seconds in small], 2),
        "gpt2": profiled("gpt2", 16),
        "conv": kit("conv", 64, "truth/recorded/conv", 6),
        "llama-1b, batch 22": kit("llama-1b", 22, "gain/largest/llama-1b/native/22", 3),
        "compiled": kit("compiled", 8, "truth/recorded/compiled", 4),
    }


#: The jobs by which shares were chosen; the others judge.
CHOSEN = ("SAC", "experts", "batches of drawn sizes", "drawn lengths", "llama-1b, batch 8", "activations offloaded", "YOLO-like", "conv")


def row(name: str, gpu: str, program: list[object], measured: list[float], since: int) -> str:
    import stalloc

    with tempfile.TemporaryDirectory() as folder:
        runs.stalloc("trace", "--dry-run", gpu, "-o", folder, "--", sys.executable, *program)
        (trace,) = Path(folder).glob("*.trace")
        told = stalloc.read_trace(trace)["traces"][0]["metadata"]["step_times_us"]
    moments = [tuple(map(int, moment.split(":"))) for moment in told.split()]
    steps = [((after[0] - before[0]) / 1e3, (after[1] - before[1]) / 1e3) for before, after in zip(moments, moments[1:])]
    # The last step that is seen is what follows the last update.
    counted = [step for step in steps[:-1] if step[0] > 0][since:] or steps
    middle = statistics.mean if len(measured) == 1 else statistics.median
    modelled, was = middle(step for step, _ in counted), statistics.median(measured[2:] or measured)
    share = middle(waited / step for step, waited in counted)
    off = f"{100 * (modelled / was - 1):+.0f} %"
    return f"| {name} | {gpu} | {was:.1f} | {modelled:.1f} | {off} | {share:.2f} | {'yes' if name in CHOSEN else 'no'} |"


def levers() -> str:
    """A step with each lever that the kit timed on the H100, and what `run --fit` says of it."""
    measured: dict[str, list[float]] = {}
    for name, entry in H100.items():
        if name.startswith("pay/speed/"):
            figures = entry["figures"]
            measured.setdefault(name.split("/")[2].strip(), []).append(1e3 * statistics.median(figures["step_seconds"][figures["warm_up"] :]))
    plain = statistics.median(measured.pop("nothing"))
    rows = ["| lever, MiB to fit into | measured, ms | longer | said, ms | longer |", "|---|---|---|---|---|"]
    for way, each in measured.items():
        lever, mib = way.split()
        program = [FOLDER / "train.py", "--model", "llama-small", "--micro-batch", 16, "--steps", 10, "--output", os.devnull]
        said = runs.stalloc("run", f"--fit={mib}MiB", "--only", lever, "--only-say", *runs.GPU, "--", sys.executable, *program).stderr
        (step, longer) = re.search(r"a step takes ([0-9.]+) ms, ([+0-9.]+) %", said).groups()
        took = statistics.median(each)
        rows.append(f"| {way} | {took:.1f} | {100 * (took / plain - 1):+.0f} % | {step} | {float(longer):+.0f} % |")
        print(rows[-1], flush=True)
    return "\n".join(rows)


def main() -> None:
    parser = runs.parser("clock.md")
    parser.add_argument("jobs", nargs="*", help="names as the page has them, or levers; all by default")
    options = parser.parse_args()
    if not options.jobs or "levers" in options.jobs:
        said = levers()
        if options.write:
            pages.write("levers", said, "clock.md")
    for name, job in loops().items():
        if name in options.jobs or not options.jobs:
            made = row(name, *job)
            print(made, flush=True)
            if options.write:
                pages.put("steps", HEAD, [made], "clock.md")


if __name__ == "__main__":
    main()
