"""Holds the set of levers that `--goal` finds against all sets of up to three levers, and what `run --fit` says against the job.

    PYTHONPATH=$(scripts/python-package --release) $(scripts/python-env frameworks) bench/lever_sets.py --fits [SCRIPT...] [--parts 0.9,0.75,0.6] [--write]

A SCRIPT is a name of FITTED, which are all run where none is given, or a command in quotes: "path/to/train.py --batch 8". With --fits `run --fit`
is held against what others offer: each block checkpointed, save_on_cpu, and the offloads of TRL and torchtune, with their files as they are installed.
Without --fits all sets are tried too.

Every set is a trial of `stalloc fit`. Left out are sets that cannot be the cheapest: those with a lever that alone takes 10 % longer than
the cheapest so far, and what faster ones save (levers of one set are about different things; --all tries these too), and a plan to spill, which only adds copies,
with levers that fit without it or take as long by themselves. With --write rows go into the two tables of bench/results/levers.md.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import page
import stalloc

ROOT = Path(__file__).resolve().parents[1]
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
    **{path.stem: f"bench/fits/{path.name}" for path in sorted((ROOT / "bench/fits").glob("*.py"))},
}

COMMAND = Path(stalloc.__file__).parent / "_bin" / "stalloc"
GPU = "h100-80gb"
#: Bytes of the link in a second that copies are planned with, and how often a plan is made anew with less: those of crates/jobs/src/levers.
LINK, MORE_TRIALS = 64e9 * 0.7, 4
#: Of a step: what levers of one set may spare each other at most.
MARGIN = 1.1
#: Levers that change the numbers or take more GPUs come after all others: they are left out.
OTHERS = ("autocast_bf16", "weights_bf16", "accumulate", "without_own", "fsdp2_over_2", "fsdp2_over_4", "fsdp2_over_8")
SETS = "| script | part of its peak | found | a step, ms | cheapest of all tried | a step, ms | found / cheapest | sets tried |\n|---|---:|---|---:|---|---:|---:|---:|"
#: What others offer, by what `--child` calls it.
RIVALS = {"save_on_cpu": "`save_on_cpu`", "trl": "TRL", "torchtune": "torchtune"}
FITS = (
    f"| script | part of its peak | chosen | peak, MiB | off by | step, ms: as it is | said | seen | each block checkpointed | {' | '.join(RIVALS.values())} |\n"
    "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)
#: Of imports that try what a GPU can, so that a trial's process can be forked; no network.
SETTINGS = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def ran(*words: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, cwd=folder, env=os.environ | SETTINGS | environment)
    if not done.stdout:
        print(f"{' '.join(map(str, words))[:400]} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
    return done.stdout


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
    print(json.dumps({"peak": torch.cuda.max_memory_allocated(), "steps": steps}))


class Script:
    """One script, and the trials of sets of levers on it."""

    def __init__(self, script: str, folder: Path) -> None:
        path, *arguments = shlex.split(script)
        self.child = lambda name: [sys.executable, __file__, "--child", name, str(ROOT / path), *arguments]
        self.command = self.child("none")
        self.folder = folder
        (folder / "meet").mkdir(mode=0o700)
        (folder / "one.sh").write_text(
            f'export STALLOC_LEVERS=$(echo $1 | tr + ,); set=$1; shift; "$@" || exit $?; cp $STALLOC_TRIAL_NOTES/*.levers {folder}/$set.levers'
        )
        self.tried: dict[str, dict] = {}
        self.base = self.try_sets(["none"])["none"]
        self.levers = {one["name"]: one["group"].split() for one in self.notes("none")["levers"] if not one["why_not"] and one["name"] not in OTHERS}

    def notes(self, name: str) -> dict:
        path = self.folder / f"{name}.levers"
        return json.loads(path.read_text()) if path.exists() else {}

    def try_sets(self, sets: list[str]) -> dict[str, dict]:
        """What each set comes to; those that do not run are left out."""
        new = [name for name in dict.fromkeys(sets) if name not in self.tried]
        if new:
            shared = f"{os.getpid()}:{self.folder / 'meet'}"
            out = ran("fit", "--dry-run", GPU, "--vary", f"SET={','.join(new)}", "--json", "--steps", "3", "--no-cache", "--", "sh", self.folder / "one.sh", "{SET}", *self.command, folder=self.folder, STALLOC_LEVERS_SHARED=shared)  # fmt: skip
            self.tried |= {name: {} for name in new}
            for one in json.loads(out or '{"candidates": []}')["candidates"]:
                name, ours = one["values"]["SET"], one.get("allocators", {}).get("stalloc", {})
                applied = self.notes(name).get("applied", [])
                if ours.get("step_ms") and (name == "none" or all(lever.partition(":")[0] in applied for lever in name.split("+"))):
                    self.tried[name] = {"peak": one["peak_allocated"], "needed": ours["needed"], "step": ours["step_ms"]}
        return {name: self.tried[name] for name in sets if self.tried.get(name)}

    def sets(self, most: int) -> list[tuple[str, ...]]:
        """Sets of levers but for the plan to spill, none in place of another."""
        names = [name for name in self.levers if name != "spill"]
        alike = lambda one, other: set(self.levers[one]) & set(self.levers[other])  # noqa: E731
        found = (one for size in range(1, most + 1) for one in itertools.combinations(names, size))
        return [one for one in found if not any(alike(*pair) for pair in itertools.combinations(one, 2))]

    def spilled(self, goal: int, others: list[str]) -> dict[str, dict]:
        """Sets with a plan to spill that makes them fit, each with less allowed until it does."""
        missing = self.base["needed"] - goal
        aims = {other: int(self.base["peak"] - missing - goal // 256) for other in others}
        fitting = {}
        for _ in range(1 + MORE_TRIALS):
            name = {other: f"{other}+spill:{aim}:{LINK:.0f}".removeprefix("none+") for other, aim in aims.items() if aim > 0}
            found = self.try_sets(list(name.values()))
            for other, one in [(other, found[name[other]]) for other in name if name[other] in found]:
                aims[other] -= max(one["needed"] - goal, 0)
                if one["needed"] <= goal:
                    fitting[f"{other} + spill".removeprefix("none + ").replace("+", " + ").replace("  ", " ")] = one
            # Of a plan that fell far short no other will do.
            aims = {other: aim for other, aim in aims.items() if name.get(other) in found and goal < found[name[other]]["needed"] < goal * 1.1}
        return fitting

    def cheapest(self, goal: int, bound: float) -> tuple[str, float, int]:
        """The cheapest set that fits, where it takes less than a bound; its step, and how many were tried."""
        self.try_sets(list(self.levers))
        alone = {name: one["step"] for name, one in self.tried.items() if name in self.levers and one}
        spared = sum(max(self.base["step"] - step, 0) for step in alone.values())
        sets = [one for one in self.sets(3) if max(alone.get(name, float("inf")) for name in one) - spared <= bound * MARGIN]
        plain = self.try_sets(["none", *("+".join(one) for one in sets)])
        fitting = {name: one["step"] for name, one in plain.items() if one["needed"] <= goal}
        best = min(fitting.items(), key=lambda one: one[1], default=("none fits", float("inf")))
        count = len(plain) - 1
        if "spill" not in self.levers:
            return *best, count
        few = sorted(("none", *("+".join(one) for one in self.sets(2) if "copies" not in sum((self.levers[name] for name in one), []))), key=lambda name: plain.get(name, {}).get("step", 1e9))  # fmt: skip
        few = [name for name in few if name in plain and plain[name]["needed"] > goal]
        while few and plain[few[0]]["step"] < min(best[1], bound):
            group, few = few[:6], few[6:]
            count += len(group)
            for name, one in self.spilled(goal, group).items():
                best = min(best, (name, one["step"]), key=lambda one: one[1])
        return *best, count

    def job(self, told: str = "", memory: int | None = None, under: str = "none", plans: str = "") -> dict:
        """The job with levers or a rival, on a card of its own size and with a folder of plans; empty where it does not finish."""
        card = GPU if memory is None else f"like={GPU},memory={memory}"
        start = ("--plan", plans) if plans else ()
        words = [COMMAND, "run", *start, "--dry-run", card, "--", *(("env", f"STALLOC_FIT={told}") if told else ()), *self.child(under)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, env=os.environ | SETTINGS)
        if done.returncode:
            print(under, *[line for line in done.stderr.splitlines() if "Error" in line][-1:], flush=True)
            return {}
        said = json.loads(done.stdout.splitlines()[-1])
        return {"peak": said["peak"], "step": sorted(said["steps"][-5:])[2], "steps": said["steps"]}  # by then the arena has learned its plan

    def under(self, rival: str) -> dict:
        """The job under a rival that is entered once; where that fails, or what it holds grows, anew at each step."""
        once = self.job(under=rival)
        if once and once["peak"] <= self.base["peak"]:
            return once
        return min((one for one in (self.job(under=f"{rival}-steps"), once) if one), key=lambda one: one["peak"], default={})


def rows(name: str, parts: list[float], is_searched: bool, is_all: bool) -> tuple[list[str], list[str]]:
    sets, fits = [], []
    with tempfile.TemporaryDirectory() as place:
        script = Script(FITTED.get(name, name), Path(place))
        base = script.base
        as_it_is = script.job()
        told = json.dumps({"levers": ["checkpoint"], "models": script.notes("none")["models"], "peak": 0, "spill": None})
        others = [script.job(told) if "checkpoint" in script.levers else None]
        others += [script.under(one) for one in RIVALS]
        peaks = ", ".join(f"{one['peak'] / 2**20:.1f}" if one else "-" for one in others)
        print(f"{name}: {base['peak'] / 2**20:.1f} MiB; the others' peaks: {peaks}", flush=True)
        for part in parts:
            goal = int(base["needed"] - (1 - part) * base["peak"])
            if is_searched:
                out = ran("levers", "--dry-run", GPU, "--goal", f"{goal}B", "--only", ",".join(script.levers), "--json", "--", *script.command, folder=script.folder)
                found = json.loads(out)["combination"] or {"levers": ["none"], "step_ms": 0, "fits": False}
                name, step, count = script.cheapest(goal, found["step_ms"] if found["fits"] and not is_all else float("inf"))
                names = " + ".join(found["levers"]) if found["fits"] else "none fits"
                is_known = step < float("inf")
                said = (f"{found['step_ms']:.2f}", f"{step:.2f}" if is_known else "", f"{found['step_ms'] / step:.3f}" if is_known else "1.000")
                if not found["fits"]:
                    said = ("", said[1], "missed" if is_known else "")
                name = name if is_known else "none cheaper" if found["fits"] else "none fits"
                sets.append(f"| {name} | {part} | {names} | {said[0]} | {name.replace('+', ' + ').replace('  ', ' ')} | {said[1]} | {said[2]} | {count} |")
                print(sets[-1], flush=True)
            began = subprocess.run(
                [COMMAND, "run", f"--fit={goal}B", "--dry-run", GPU, "--only-say", "--", *script.command],
                capture_output=True, text=True, cwd=script.folder, env=os.environ | SETTINGS,
            )  # fmt: skip
            allowed = part * base["peak"]
            cells = [f"{one['step']:.2f}{'' if one['peak'] <= allowed else ', does not fit'}" if one else "refused" if one is None else "fails" for one in others]
            head, tail = f"| {name} | {part}", f"{' | '.join(cells)} |"
            if began.returncode or not began.stdout.strip():
                fits.append(f"{head} | none fits | | | {as_it_is['step']:.2f} | | | {tail}")
                print(fits[-1], began.stderr[-400:], flush=True)
                continue
            told, _, plans = began.stdout.strip().partition("\n")
            said = next((line.split("a step takes ")[1].split(" ms")[0] for line in began.stderr.splitlines() if "a step takes " in line), "")
            job, chosen = script.job(told, goal, plans=plans), json.loads(told)
            names = " + ".join(chosen["levers"])
            seen = f"{job['peak'] / 2**20:.1f} | {100 * abs(job['peak'] / chosen['peak'] - 1):.4f} %" if job else "does not finish |"
            step = f"{job['step']:.2f}" if job else ""
            fits.append(f"{head} | {names} | {seen} | {as_it_is['step']:.2f} | {said} | {step} | {tail}")
            print(fits[-1], flush=True)
            if job and said and job["step"] > 1.05 * float(said):
                print("  its steps:", *(f"{one:.1f}" for one in job["steps"]), flush=True)
    return sets, fits


def written(mark: str, head: str, new: list[str]) -> None:
    def key(row: str) -> tuple[str, ...]:
        return tuple(cell.strip() for cell in row.split("|")[1:3])

    old = {key(row): row for row in page.read(mark, "levers.md").splitlines()[2:]}
    page.write(mark, "\n".join([head, *(old | {key(row): row for row in new}).values()]), "levers.md")


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="all of FITTED where there is none")
    parser.add_argument("--parts", default="0.9,0.75,0.6", help="of each script's peak")
    parser.add_argument("--fits", action="store_true", help="`run --fit` alone: not all sets are tried")
    parser.add_argument("--all", action="store_true", help="sets with a dear lever too")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for name in options.scripts or FITTED:
        sets, fits = rows(name, [float(part) for part in options.parts.split(",")], not options.fits, options.all)
        if options.write:
            if sets:
                written("sets", SETS, sets)
            written("fits", FITS, fits)


if __name__ == "__main__":
    main()
