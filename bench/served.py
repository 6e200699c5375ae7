"""What a user gets: real training loops served by real PyTorch on the stand-in GPU, with room, under plain `STALLOC_MODE=Auto`.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env frameworks) bench/served.py [JOB...] [--simulate] [--write]

Each job runs twice, each time in a process of its own: recorded, over PyTorch's allocator, and served. Both figures are those of
`torch.cuda.max_memory_reserved()` and `max_memory_allocated()`; those of expandable segments, and of ours as `stalloc simulate` has
them (with --simulate: reserved and remaps should be those served), are replays of the recording. Recordings are kept in --cache,
and made again when a script has changed. A job passes when ours holds at most what the better rival holds or 1.03 times its peak
allocated, a 256th of the GPU more where remapping takes time. With --simulate a step's time is judged, too: by the dry run's clock
with the driver's calls and the waits of each allocator, at most 1.005 times the better rival's. The driver's time, by the prices of
`DriverWork` (crates/device/src/work.rs), is shown in all, and of a step in the mean, the first two aside. Jobs whose packages are not
there are named and left out.
--write puts the table into bench/results/evaluation.md.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import runpy
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lib import pages, runs

STEPS = 30
#: Most that may be held next to a rival that holds less, as a multiple of the peak.
MOST = 1.03
#: What the arena may hold more where remapping takes time, bytes.
FLOOR = (80 << 30) // 256
#: Most that a step may take, as a multiple of what it takes under the better rival.
MOST_TIME = 1.005
#: Steps whose driver time does not count: in them memory is mapped for the first time, and optimizer states are made.
FIRST_STEPS = 2
#: Memory of the GPU of replays.
ROOM = ("--capacity", 80 << 30)


@dataclass(frozen=True)
class Job:
    """A script of bench/ with its options, or a function of bench/jobs/unseen.py."""

    script: str
    options: tuple[str, ...] = ()
    world_size: int = 1
    needs: tuple[str, ...] = ()  # packages

    @property
    def is_unseen(self) -> bool:
        return not self.script.endswith(".py")

    @property
    def missing(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    @property
    def content(self) -> str:
        """What its figures depend on, hashed."""
        script = runs.BENCH / ("jobs/unseen.py" if self.is_unseen else self.script)
        shared = [path.read_bytes() for path in (script, script.with_name("tiny.py"), runs.BENCH / "jobs" / "training.py") if path.exists()]
        return hashlib.sha256(repr((self.options, self.world_size, STEPS)).encode() + b"".join(shared)).hexdigest()[:16]


def bench(script: str, *options: str) -> Job:
    return Job(f"jobs/{script}.py", ("--steps", str(STEPS), *options))


def framework(script: str, *needs: str, world_size: int = 1) -> Job:
    return Job(f"frameworks/{script}.py", (), world_size, needs)


JOBS = {
    "translation": bench("translation"),
    "detection": bench("detection"),
    "gan": bench("gan"),
    "lora-packed": bench("lora"),
    "change-optimizer": bench("change_optimizer"),
    "replay": bench("replay"),
    "evaluation": bench("evaluation"),
    "preference": bench("preference"),
    "convnet": bench("convnet", "--epoch", "10"),
    "gpt-recompute": bench("gpt", "--recompute", "1", "--batch", "16"),
    "speech": bench("speech"),
    "video": bench("video"),
    "transformers Trainer": framework("hf_trainer", "transformers", "accelerate"),
    "FSDP2, 2 ranks": framework("fsdp2", "transformers", world_size=2),
    "TRL SFT": framework("trl_sft", "trl"),
    "PEFT LoRA": framework("peft_lora", "peft"),
    "Lightning": framework("lightning_fit", "lightning"),
    "timm": framework("timm_loop", "timm"),
    "diffusers": framework("diffusers_unet", "diffusers", "accelerate"),
    "Megatron-core": Job(
        "../examples/megatron_gpt.py", ("--layers", "4", "--micro-batches", "4", "--data", "8", "--steps", str(STEPS)), 8, ("megatron",)
    ),
    "conformer": Job("conformer"),
    "tree-LSTM": Job("trees"),
    "PPO": Job("ppo_control"),
    "SAC": Job("sac"),
    "YOLO-like": Job("yolo"),
    "nanochat-like": Job("nanochat"),
    "U-Net": Job("unet"),
    "prefetching": Job("prefetch"),
    "norms": Job("norms"),
    "Shampoo": Job("shampoo"),
    "memory bank": Job("bank"),
    "written answers": Job("write"),
    "graph network": Job("sampled_graphs"),
}


def stalloc(*words: object, **options: Path) -> str:
    """What the command prints."""
    settings = {**runs.OFFLINE, "STEPS": str(STEPS), "EVALUATE": "10", "PYTHONPATH": str(runs.BENCH / "frameworks")}
    return runs.stalloc(*words, env=runs.environment(**settings), **options).stdout


def child(job: Job) -> None:
    """Runs a job in this process, and tells its figures."""
    import torch

    if job.is_unseen:
        from jobs import unseen

        assert (unseen.STEPS, unseen.EVERY) == (STEPS, 10)
        getattr(unseen, job.script)()
    else:
        script = (runs.BENCH / job.script).resolve()
        sys.path.insert(0, str(script.parent))
        sys.argv = [str(script), *job.options]
        runpy.run_path(str(script), run_name="__main__")
    torch.cuda.synchronize()
    figures: dict[str, object] = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    if os.environ.get("STALLOC_MODE") == "Auto":
        import stalloc

        kept = ("requests", "planned", "plans", "steps", "remaps")
        ours = stalloc.memory_stats()
        figures |= {name: ours[name] for name in kept if name in ours}
    runs.tell(figures)


def run(name: str, act: str, *options: object) -> dict:
    """The figures of a job's process under `stalloc ACT`."""
    size = JOBS[name].world_size
    ranks = ("--world-size", size, "--rank", 0) if size > 1 else ()
    with tempfile.TemporaryDirectory() as scratch:
        return runs.told(stalloc(act, *options, *runs.GPU, *ranks, "--", *runs.own("--child", name), cwd=Path(scratch)))


def recorded(name: str, cache: Path) -> Path:
    """The folder of a job's recording and of PyTorch's figures, made now unless it is kept."""
    folder = cache / f"{name.replace(' ', '-')}-{JOBS[name].content}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        figures = run(name, "trace", "--stacks", 0, "-o", part)
        (part / "pytorch.json").write_text(json.dumps(figures))
        part.rename(folder)
    return folder


def simulated(folder: Path, allocator: str, *options: object) -> dict:
    """What a recording would have held under another allocator."""
    (trace,) = folder.glob("*_dev0.trace")
    (found,) = json.loads(stalloc("simulate", trace, "--allocator", allocator, *options, "--json"))["results"]
    return found


def rivals(folder: Path) -> dict[str, dict]:
    """The figures of the other allocators."""
    pytorch = json.loads((folder / "pytorch.json").read_text())
    expandable = simulated(folder, "pytorch-expandable", *ROOM)
    pytorch["step_ms"] = simulated(folder, "pytorch", *ROOM)["step_ms"]
    return {"PyTorch": pytorch, "expandable": expandable | {"allocated": pytorch["allocated"], "reserved": expandable["peak_reserved"]}}


def judged(job: Job, ours: dict, others: dict[str, dict]) -> str:
    """What is wrong with what ours holds; nothing if nothing is."""
    best = min(one["reserved"] for one in others.values())
    faults = ["over a rival"] if ours["reserved"] > max(best, MOST * ours["allocated"], ours["allocated"] + FLOOR) else []
    if ours.get("step_ms") and ours["step_ms"] > MOST_TIME * best_step(others):
        faults.append("time")
    return ", ".join(faults)


def best_step(others: dict[str, dict]) -> float:
    """Milliseconds of a step under the better rival."""
    return min(one["step_ms"] for one in others.values())


def a_step(found: dict) -> float:
    """Milliseconds in the driver of a step in the mean, the first ones aside."""
    return statistics.fmean(found["driver_ms_by_step"][FIRST_STEPS:] or [0])


def row(name: str, ours: dict, others: dict[str, dict], replayed: dict | None) -> str:
    """A row of the table."""
    job = JOBS[name]
    times = lambda one: f"{one['reserved'] / one['allocated']:.3f}"
    cells = [name + (", unseen" if job.is_unseen else ""), f"{ours['allocated'] / 2**20:,.0f}"]
    cells += [*map(times, others.values()), times(ours), f"{100 * ours['planned'] / max(ours['requests'], 1):.0f} %", f"{ours['remaps']:,}"]
    if replayed is not None:
        cells += [f"{one['driver_ms']:.0f} · {a_step(one):.2f}" for one in (others["expandable"], replayed)]
        cells.append(f"{ours['step_ms']:.1f} · {ours['step_ms'] / best_step(others):.3f}" if ours["step_ms"] else "not known")
        cells.append(f"{(ours['reserved'] - replayed['peak_reserved']) / (2 << 20):+.0f} · {ours['remaps'] - replayed['remaps']:+,}")
    return pages.line([*cells, judged(job, ours, others) or "yes"])


def main() -> None:
    parser = runs.parser("evaluation.md")
    parser.add_argument("names", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--cache", type=Path, default=runs.ROOT / "target" / "served", help="where recordings are kept")
    parser.add_argument("--simulate", action="store_true", help="compare with `stalloc simulate`, too")
    parser.add_argument("--child", choices=JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(JOBS[options.child])
        return
    if unknown := set(options.names) - set(JOBS):
        parser.error(f"{', '.join(unknown)}: none of {', '.join(JOBS)}")
    options.cache.mkdir(parents=True, exist_ok=True)
    cache = options.cache.absolute()
    simulated_heads = ["driver, ms in all · in a step: expandable", "ours", "a step, ms · by the better rival's", "pages, remaps beyond simulated"]
    columns = ["job", "peak, MiB", "PyTorch", "expandable", "ours", "planned", "remaps", *simulated_heads * options.simulate, "passes"]
    lines = [pages.head(columns)]
    print(*lines, flush=True)
    found: dict[str, tuple[dict, dict]] = {}
    for name in options.names or JOBS:
        if missing := JOBS[name].missing:
            print(f"{name}: left out, as {', '.join(missing)} is not installed", file=sys.stderr)
            continue
        try:
            folder = recorded(name, cache)
            ours, others = run(name, "run"), rivals(folder)
            replayed = simulated(folder, "stalloc-auto", *ROOM) if options.simulate else None
            ours |= {"step_ms": replayed["step_ms"]} if replayed else {}
        except runs.Failed as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        found[name] = ours, others
        lines.append(row(name, ours, others, replayed))
        print(lines[-1], flush=True)
    passed = sum(not judged(JOBS[name], *both) for name, both in found.items())
    middle = statistics.median(ours["reserved"] / ours["allocated"] for ours, _ in found.values())
    lines.append(f"| **median · passed** | | | | {middle:.3f} {'| ' * (len(columns) - 5)}| {passed} of {len(found)} |")
    print(lines[-1])
    if options.write:
        pages.write("served, written by bench/served.py", "\n".join(lines), "evaluation.md")
    sys.exit(0 if passed == len(found) else 1)


if __name__ == "__main__":
    main()
