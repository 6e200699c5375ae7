"""Holds what `run --fit` says of a job against the job, and its step against what others offer.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env frameworks) bench/fits.py [SCRIPT...] [--parts 0.9,0.75,0.6] [--write]

A SCRIPT is a name of FITTED, which are all run where none is given, or a command in quotes: "path/to/train.py --batch 8". Each is made to fit into
parts of its own peak. What others offer is each block checkpointed, save_on_cpu, and the offloads of TRL and torchtune, with their files as they are
installed. With --write rows go into bench/results/levers.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from lib import pages, runs

#: Scripts of twenty kinds that `run --fit` is measured on, with the sizes that they are run at.
FITTED = {
    "convnet": "bench/jobs/convnet.py --steps 12",
    "gpt": "bench/jobs/gpt.py --steps 12 --batch 8 --layers 12 --width 768",
    "gpt, 4 micro-batches": "bench/jobs/gpt.py --steps 12 --batch 4 --layers 8 --width 768 --micro-batches 4",
    "lstm": "bench/jobs/lstm.py --steps 12",
    "vit": "bench/jobs/vit.py --steps 12 --batch 48",
    "encoder_decoder": "bench/jobs/encoder_decoder.py --steps 12 --batch 8 --width 768",
    "moe, its load drifts": "bench/jobs/moe.py --steps 12 --batch 4 --layers 4",
    "bert": "bench/levers/bert.py 64",
    "cnn": "bench/levers/cnn.py 64",
    "moe": "bench/levers/moe.py 48",
    "t5": "bench/levers/seq2seq.py 64",
    **{path.stem: f"bench/fits/{path.name}" for path in sorted((runs.BENCH / "fits").glob("*.py"))},
}
#: What others offer, by what `--child` calls it.
RIVALS = {"save_on_cpu": "`save_on_cpu`", "trl": "TRL", "torchtune": "torchtune"}
HEAD = (
    f"| script | part of its peak | chosen | peak, MiB | off by | step, ms: as it is | said | seen | each block checkpointed | {' | '.join(RIVALS.values())} |\n"
    "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def installed(name: str, file: str) -> type:
    """`OffloadActivations` of a package's file as it is; of what it imports that is not there, or does not import, a name is enough."""
    import importlib.util
    import types

    place, before = importlib.util.find_spec(name).submodule_search_locations[0], set(sys.modules)
    if name == "torchtune":  # 0.6.1 imports functions that torchao no longer has; its file needs none of them
        names = {"torchao.dtypes.nf4tensor": "NF4Tensor", "torchtune.modules": "TiedLinear", "torchtune.utils": "get_logger"}
        for one in ("torchao", "torchao.dtypes", "torchtune", *names):
            sys.modules[one] = types.ModuleType(one)
        for one, what in names.items():
            setattr(sys.modules[one], what, type(what, (), {"__init__": lambda *_: None}))
    spec = importlib.util.spec_from_file_location("offload", f"{place}/{file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for one in [one for one in sys.modules if one not in before and one.partition(".")[0] in ("torchao", "torchtune")]:
        del sys.modules[one]  # for a script that looks for the true ones
    return module.OffloadActivations


def rival(name: str) -> contextlib.AbstractContextManager:
    """What saves memory around a whole script."""
    import torch

    if name == "save_on_cpu":
        return torch.autograd.graph.save_on_cpu(pin_memory=True)
    if name == "torchtune":
        return installed(name, "training/_activation_offloading.py")()
    if name != "trl":
        return contextlib.nullcontext()
    offload, known = installed(name, "models/activation_offloading.py")(), {}

    def called(module: torch.nn.Module, *_arguments: object) -> None:
        # TRL is told of a model's weights, which it does not copy.
        if id(module) not in known:
            known[id(module)] = list(module.parameters(recurse=False))
            offload.update_model_params(argparse.Namespace(parameters=lambda: sum(known.values(), [])))

    torch.nn.modules.module.register_module_forward_pre_hook(called)
    return offload


def child(name: str, script: str, *arguments: str) -> None:
    """Runs a script under a rival, or none; at its end the peak, and how long each step of its first optimizer took by the clock."""
    import runpy

    import torch
    from torch.optim import optimizer

    name, _, each_step = name.partition("-")
    within, events, optimizers = rival(name), [], []

    def stepped(one, *_arguments: object) -> None:
        if one not in optimizers:
            optimizers.append(one)
        if one is optimizers[0] and torch.cuda.is_initialized():
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
        if each_step and one is optimizers[-1] and len(events) > 1:  # by then all optimizers have stepped
            within.__exit__(None, None, None)
            within.__enter__()

    optimizer.register_optimizer_step_post_hook(stepped)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    with within:
        runpy.run_path(script, run_name="__main__")
    torch.cuda.synchronize()
    steps = [sooner.elapsed_time(later) for sooner, later in zip(events, events[1:])]
    runs.tell({"peak": torch.cuda.max_memory_allocated(), "steps": steps})


class Script:
    """One script: what its trial says, and the job itself."""

    def __init__(self, script: str, folder: Path) -> None:
        path, *arguments = shlex.split(script)
        self.child = lambda name: runs.own("--child", name, runs.ROOT / path, *arguments)
        self.folder = folder
        trial = f'export STALLOC_LEVERS=none; "$@" || exit $?; cp $STALLOC_TRIAL_NOTES/*.levers {folder}/notes'
        words = ["fit", *runs.GPU, "--json", "--steps", "3", "--no-cache", "--", "sh", "-c", trial, "sh", *self.child("none")]
        (found,) = json.loads(self.ran(*words, answers=(0, 1)).stdout)["candidates"]
        self.peak, self.needed = found["peak_allocated"], found["allocators"]["stalloc"]["needed"]
        self.notes = json.loads((folder / "notes").read_text())

    def ran(self, *words: object, answers: tuple[int, ...] | None = (0,)) -> subprocess.CompletedProcess[str]:
        return runs.stalloc(*words, answers=answers, env=runs.environment(**runs.OFFLINE, **runs.FORKED), cwd=self.folder)

    def job(self, told: str = "", memory: int | None = None, under: str = "none", plans: str = "") -> dict:
        """The job with levers or a rival, on a card of its own size and with a folder of plans; empty where it does not finish."""
        card = runs.GPU if memory is None else ("--dry-run", f"like={runs.GPU[1]},memory={memory}")
        start = ("--plan", plans) if plans else ()
        levers = ("env", f"STALLOC_FIT={told}") if told else ()
        try:
            said = runs.told(self.ran("run", *start, *card, "--", *levers, *self.child(under)).stdout)
        except runs.Failed as failure:
            print(under, *[line for line in str(failure).splitlines() if "Error" in line][-1:], flush=True)
            return {}
        return {"peak": said["peak"], "step": sorted(said["steps"][-5:])[2], "steps": said["steps"]}  # by then the arena has learned its plan

    def checkpointed(self) -> dict | None:
        """The job with each block checkpointed; none where that is refused."""
        if not any(one["name"] == "checkpoint" and not one["why_not"] for one in self.notes["levers"]):
            return None
        return self.job(json.dumps({"levers": ["checkpoint"], "models": self.notes["models"], "peak": 0, "spill": None}))

    def under(self, rival: str) -> dict:
        """The job under a rival that is entered once; where that fails, or what it holds grows, anew at each step."""
        once = self.job(under=rival)
        if once and once["peak"] <= self.peak:
            return once
        return min((one for one in (self.job(under=f"{rival}-steps"), once) if one), key=lambda one: one["peak"], default={})


def rows(name: str, parts: list[float]) -> list[str]:
    """A row for each part of the peak of a script."""
    made = []
    with tempfile.TemporaryDirectory() as place:
        script = Script(FITTED.get(name, name), Path(place))
        as_it_is = script.job()
        others = [script.checkpointed(), *(script.under(one) for one in RIVALS)]
        peaks = ", ".join(f"{one['peak'] / 2**20:.1f}" if one else "-" for one in others)
        print(f"{name}: {script.peak / 2**20:.1f} MiB; the others' peaks: {peaks}", flush=True)
        for part in parts:
            goal, allowed = int(script.needed - (1 - part) * script.peak), part * script.peak
            began = script.ran("run", f"--fit={goal}B", *runs.GPU, "--only-say", "--", *script.child("none"), answers=None)
            cells = [f"{one['step']:.2f}{'' if one['peak'] <= allowed else ', does not fit'}" if one else "refused" if one is None else "fails" for one in others]
            head, tail, plain = f"| {name} | {part}", f"{' | '.join(cells)} |", f"{as_it_is['step']:.2f}"
            if began.returncode or not began.stdout.strip():
                made.append(f"{head} | none fits | | | {plain} | | | {tail}")
                print(made[-1], began.stderr[-400:], flush=True)
                continue
            told, _, plans = began.stdout.strip().partition("\n")
            said = next((line.split("a step takes ")[1].split(" ms")[0] for line in began.stderr.splitlines() if "a step takes " in line), "")
            job, chosen = script.job(told, goal, plans=plans), json.loads(told)
            seen = f"{job['peak'] / 2**20:.1f} | {100 * abs(job['peak'] / chosen['peak'] - 1):.4f} %" if job else "does not finish |"
            step = f"{job['step']:.2f}" if job else ""
            made.append(f"{head} | {' + '.join(chosen['levers'])} | {seen} | {plain} | {said} | {step} | {tail}")
            print(made[-1], flush=True)
            if job and said and job["step"] > 1.05 * float(said):
                print("  its steps:", *(f"{one:.1f}" for one in job["steps"]), flush=True)
    return made


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:])
    parser = runs.parser("levers.md")
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="all of FITTED where there is none")
    parser.add_argument("--parts", default="0.9,0.75,0.6", help="of each script's peak")
    options = parser.parse_args()
    for name in options.scripts or FITTED:
        made = rows(name, [float(part) for part in options.parts.split(",")])
        if options.write:
            pages.put("fits", HEAD, made, "levers.md", named_by=2)


if __name__ == "__main__":
    main()
