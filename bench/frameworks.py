"""Quick-start scripts of real frameworks under stalloc, on the stand-in GPU: recorded, planned, served, learned and by the environment.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env frameworks) bench/frameworks.py [NAME...] [--write]

Each script of bench/frameworks/ makes six steps with a model that is made of its configuration alone. `recorded` is what
`stalloc trace` found, `plan` what `stalloc plan` made of it; E is peak allocated / peak reserved, of PyTorch's allocator and its
expandable segments by `stalloc simulate` on that recording, and of ours as the program ran: `run` follows the plan (`stalloc run
--plan --frozen`), `auto` learns (`stalloc run`), `environment` is `STALLOC_MODE=Alloc` alone, in an environment where the package
is installed, with a folder of traces that it plans itself. `said` names every line of ours that is not one of those that each run
ends with. --write puts the table into bench/results/frameworks.md; what was not run again keeps its row. --rotate N runs the N whose turn
it is by the day of the year.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lib import pages, runs

SCRIPTS = runs.BENCH / "frameworks"
STEPS = 6


@dataclass(frozen=True)
class Job:
    """A script with its options, alone or one rank of so many, in an environment of scripts/python-env."""

    script: str
    options: tuple[str, ...] = ()
    world_size: int = 1
    environment: str = "frameworks"

    @property
    def ranks(self) -> tuple[str, ...]:
        return ("--world-size", str(self.world_size), "--rank", "0") if self.world_size > 1 else ()


JOBS = {
    "transformers Trainer": Job("hf_trainer.py"),
    "Accelerate": Job("accelerate_loop.py"),
    "TRL SFT": Job("trl_sft.py"),
    "TRL DPO": Job("trl_dpo.py"),
    "TRL GRPO": Job("trl_grpo.py"),
    "PEFT LoRA": Job("peft_lora.py"),
    "PEFT QLoRA, bitsandbytes": Job("qlora.py"),
    "Lightning": Job("lightning_fit.py"),
    "DeepSpeed ZeRO-2": Job("deepspeed_zero.py", ("--stage", "2"), 8),
    "DeepSpeed ZeRO-3": Job("deepspeed_zero.py", ("--stage", "3"), 8),
    "FSDP2": Job("fsdp2.py", (), 8),
    "torchtitan": Job("torchtitan_train.py", (), 8),
    "torchtune": Job("torchtune_loop.py"),
    "timm": Job("timm_loop.py"),
    "diffusers": Job("diffusers_unet.py"),
    "Megatron-core": Job(
        "../../examples/megatron_gpt.py", ("--layers", "4", "--micro-batches", "4", "--data", "8", "--steps", str(STEPS)), 8
    ),
    "torch.compile (nanoGPT's loop)": Job("nanogpt.py"),
    "Colossal-AI ZeRO-2": Job("colossal_booster.py", ("--plugin", "zero-2"), 8, "colossal"),
    "Colossal-AI tensor parallel": Job("colossal_booster.py", ("--plugin", "tensor-parallel"), 8, "colossal"),
    "Colossal-AI Gemini": Job("colossal_booster.py", ("--plugin", "gemini"), 8, "colossal"),
}

#: Those that --rotate takes turns with: they have been seen to work in every way.
STEADY = ("transformers Trainer", "Accelerate", "FSDP2")

#: Lines that a run ends with, or that say what a stand-in means: nothing that a user must act on.
USUAL = (
    r"(rank\d+ )?dev\d+: [\d.]+ % of [\d,]+ requests at planned offsets",
    r"(rank\d+ )?dev\d+: [\d,]+ steps[;:]",
    r"(rank\d+ )?dev\d+: requests that were not at planned offsets: ",
    r"\S+\.plan: [\d,]+ planned into",
    r"\S+\.plan: planned from",
    r"recording is kept in",
    r"what was learned is kept in",
)


class Trial:
    """One framework, tried in every way."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.folder = folder
        self.python = interpreter(job.environment)
        self.said: list[str] = []

    def stalloc(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Runs our command in a folder of its own; what it says that is not usual is kept."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        settings = {**runs.OFFLINE, "STEPS": str(STEPS), "PYTHONPATH": str(SCRIPTS)}
        done = runs.stalloc(*words, answers=None, env=runs.environment(**settings), cwd=place)
        lines = [line.partition("stalloc: ")[2] for line in done.stderr.splitlines() if line.startswith("stalloc: ")]
        self.said += [line for line in lines if not any(re.match(usual, line) for usual in USUAL)]
        if done.returncode:
            raise runs.Failed(last_line(done.stderr))
        return done

    def program(self, python: Path) -> tuple[str, ...]:
        return (str(python), str((SCRIPTS / self.job.script).resolve()), *self.job.options)

    def all(self) -> dict[str, object]:
        """The figures of a row."""
        traces = self.folder / "job" / "trace"
        program = ("--", *self.program(self.python))
        recorded = json.loads(self.stalloc("trace", *runs.GPU, "--json", "-o", traces, *self.job.ranks, *program).stdout)
        (trace,) = recorded["traces"]
        row: dict[str, object] = {name: trace[name] for name in ("requests", "steps", "peak_allocated")}
        plans = self.folder / "plans"
        plans.mkdir()
        (plan,) = json.loads(self.stalloc("plan", traces, "-o", plans, "--json").stdout)["plans"]
        row["planned"] = plan["summary"]["static"]["requests"] / max(trace["requests"], 1)
        row["promised"] = plan["summary"]["efficiency"]
        rivals = ("--allocator", "pytorch", "--allocator", "pytorch-expandable")
        replayed = json.loads(self.stalloc("simulate", traces, *rivals, "--json").stdout)
        row["simulated"] = {one["allocator"]: one["efficiency"] for one in replayed["results"]}
        row["run"] = served(self.stalloc("run", *runs.GPU, "--plan", plans, "--frozen", *self.job.ranks, *program))
        row["auto"] = served(self.stalloc("run", *runs.GPU, *self.job.ranks, *program))
        # The command is here for its stand-in GPU alone: its own ways of saying things are taken away again.
        alone = ("--", "env", "-u", "PYTHONPATH", "STALLOC_MODE=Alloc", f"STALLOC_MODEL_INFO_PATH={traces.parent}")
        environment = (*alone, f"PYTHONPATH={SCRIPTS}", *self.program(installed(self.folder / "venv", self.python)))
        row["environment"] = served(self.stalloc("run", *runs.GPU, *self.job.ranks, *environment))
        row["said"] = sorted(set(self.said))
        return row


def last_line(text: str) -> str:
    """What a failed command said last of an error."""
    lines = [line for line in text.splitlines() if re.search(r"Error|error", line)] or text.splitlines() or ["it failed"]
    return lines[-1][:200]


def served(process: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """The figures of the line that a served run ends with."""
    pattern = r"([\d.]+) % of [\d,]+ requests at planned offsets.*?([\d,]+) remaps, .*efficiency ([\d.]+) %"
    found = re.search(pattern, process.stderr)
    if found is None:
        raise runs.Failed("nothing was served: " + last_line(process.stderr))
    planned, remaps, efficiency = found.groups()
    return {"planned": float(planned), "remaps": int(remaps.replace(",", "")), "efficiency": float(efficiency)}


@functools.cache
def interpreter(environment: str) -> Path:
    """The one of an environment, which is made if it is not there."""
    return Path(subprocess.check_output([runs.ROOT / "scripts" / "python-env", environment], text=True).strip())


def installed(folder: Path, python: Path) -> Path:
    """An interpreter whose site-packages is as the installed package leaves it, over that of an environment."""
    import stalloc

    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    packages = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in ("stalloc.pth", "_stalloc_startup.py"):
        shutil.copy(runs.ROOT / "python" / name, site)
    (site / "packages.pth").write_text(f"{Path(stalloc.__file__).parents[1]}\n{packages}")
    return folder / "bin" / "python"


def shown(name: str, row: dict) -> str:
    """A row of the table."""
    if "failed" in row:
        return f"| {name} | failed: {row['failed']} |" + " |" * 8
    percent = lambda part: f"{100 * part:.1f} %"  # noqa: E731
    ran = lambda one: f"{one['planned']:.1f} %, E {one['efficiency']:.1f} %, {one['remaps']}"  # noqa: E731
    simulated = row["simulated"]
    steps = f"{row['steps']}" if row["steps"] == STEPS else f"**{row['steps']}** for {STEPS}"
    return (
        f"| {name} | {row['requests']:,} | {steps} | {row['peak_allocated'] / 2**20:,.0f} MiB | {percent(simulated['pytorch'])} | "
        f"{percent(simulated['pytorch-expandable'])} | {percent(row['promised'])} | {ran(row['run'])} | {ran(row['auto'])} | "
        f"{ran(row['environment'])} |"
    )


HEAD = (
    "| framework | requests | steps | peak allocated | E PyTorch | E expandable | E planned | run | auto | environment |\n"
    "|---|---:|---:|---:|---:|---:|---:|---|---|---|"
)


def main() -> None:
    parser = runs.parser("frameworks.md")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--rotate", type=int, metavar="N", help="the N whose turn it is today, of those that work in every way")
    options = parser.parse_args()
    names = options.names or list(JOBS)
    if unknown := [name for name in names if name not in JOBS]:
        parser.error(f"{', '.join(unknown)}: none of {', '.join(JOBS)}")
    if options.rotate:
        first = datetime.date.today().timetuple().tm_yday * options.rotate
        names = [STEADY[(first + number) % len(STEADY)] for number in range(min(options.rotate, len(STEADY)))]
    is_good = True
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(names):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            trial = Trial(JOBS[name], folder)
            try:
                row = trial.all()
            except runs.Failed as failure:
                row = {"failed": str(failure), "said": trial.said}
            print(shown(name, row), flush=True)
            for line in row["said"]:
                print(f"{name} said: {line}", file=sys.stderr)
            is_good &= row.get("steps") == STEPS
            if options.write:
                pages.put("frameworks", HEAD, [shown(name, row)], "frameworks.md")
            shutil.rmtree(folder)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
