"""Measurements that are each made once: every one in a process of its own, its result written to a file before the next."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).resolve().parent
#: A measurement that is not begun with so much time left is left for another run.
LEAST_SECONDS = 15


class NotWanted(Exception):
    """The measurement was not asked for."""


class OutOfTime(Exception):
    """The command's own time is over."""


@dataclass
class Kit:
    """What is known, and how to find out more."""

    work: Path
    stalloc: Path
    site: Path
    dry_run: str | None
    tiny: bool
    deadline: float
    cache: Path
    at_once: int = 1
    again: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logs = self.work / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.file = self.work / "results.json"
        self.results: dict[str, Any] = {"rehearsal": self.dry_run, "tiny": self.tiny, "machine": None, "measurements": {}}
        if self.file.exists():
            known = json.loads(self.file.read_text())
            if (known["rehearsal"], known["tiny"]) != (self.dry_run, self.tiny):
                sys.exit(f"{self.file} holds another kind of run (rehearsal: {known['rehearsal']}, tiny: {known['tiny']}); choose another --work")
            self.results = known
        for name in [name for name in self.results["measurements"] if name.startswith(self.again)] if self.again else []:
            del self.results["measurements"][name]

    @property
    def done(self) -> dict[str, Any]:
        return self.results["measurements"]

    def keep(self, name: str, entry: dict[str, Any]) -> None:
        """Write a result down, all or nothing."""
        with self.lock:
            self.done[name] = entry
            self.write()

    def take_along(self, packed: Path) -> None:
        """What the stand-in said elsewhere is taken as if it had been asked here, if PyTorch and CUDA are the same."""
        said = json.loads((packed / "results.json").read_text()) if (packed / "results.json").exists() else None
        if said is None or any(said["machine"].get(name) != (self.results["machine"] or {}).get(name) for name in ("torch", "cuda", "cudnn")):
            return
        for name, entry in said["measurements"].items():
            self.done.setdefault(name, entry)
        for folder in filter(Path.is_dir, packed.iterdir()):
            if not (self.work / "recorded" / folder.name).exists():
                shutil.copytree(folder, self.work / "recorded" / folder.name)
        self.write()

    def write(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=1) + "\n")
        part.replace(self.file)

    def measure(self, name: str, seconds: float, make: Callable[[Path, float], list[Any]], **environment: str) -> dict[str, Any]:
        """The entry of one measurement: kept, or made now by the command that `make` returns for the path of its figures.

        The command's end is part of the entry: `done`, `failed` or `timed out`. OutOfTime if there is no time to begin.
        """
        with self.lock:
            alone = self.begun.setdefault(name, threading.Lock())
        with alone:
            return self.done.get(name) or self._measure(name, seconds, make, environment)

    def _measure(self, name: str, seconds: float, make: Callable[[Path, float], list[Any]], environment: dict[str, str]) -> dict[str, Any]:
        if self.only and not name.startswith(self.only):
            raise NotWanted
        left = self.deadline - time.monotonic()
        if left < LEAST_SECONDS:
            raise OutOfTime
        plain = name.replace("/", "-").replace(" ", "-")
        output, log = self.logs / f"{plain}.json", self.logs / f"{plain}.log"
        output.unlink(missing_ok=True)
        start = time.monotonic()
        status = call(make(output, min(left, seconds)), min(left, seconds), log, {**self.environment(), **environment})
        if status is None and left < seconds:
            raise OutOfTime  # cut short by the command's time, not by its own: another run measures it
        text = log.read_text(errors="replace").replace(str(self.work), "results").replace(f"{HERE}/", "")
        entry: dict[str, Any] = {"state": "done", "seconds": round(time.monotonic() - start, 1)}
        lines = [line for line in text.splitlines() if line.startswith("stalloc:")]
        entry["said"] = lines[:12]
        try:
            entry["figures"] = without_places(json.loads(output.read_text()))
        except (OSError, ValueError):
            entry["figures"] = None
        if status != 0 or entry["figures"] is None:
            entry.update(state="timed out" if status is None else "failed", status=status, log=text[-1500:])
        print(f"{name}: {entry['state']}, {entry['seconds']:.0f} s", file=sys.stderr, flush=True)
        self.keep(name, entry)
        return entry

    def environment(self) -> dict[str, str]:
        """Every process finds the kit's package, and its shims where the kit keeps them."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("STALLOC_", "PYTORCH_"))}
        path = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        return {**clean, "PYTHONPATH": path, "XDG_CACHE_HOME": str(self.cache), "PYTHONUNBUFFERED": "1"}

    def python(self, script: str, *arguments: Any) -> list[Any]:
        """The command of one of the kit's programs."""
        return [sys.executable, HERE / script, *arguments, *(["--tiny"] if self.tiny else [])]

    def under(self, allocator: str, command: list[Any], plan: Path | None = None) -> tuple[list[Any], dict[str, str]]:
        """A command under an allocator, and the environment that goes with it."""
        dry = ["--dry-run", self.dry_run] if self.dry_run else []
        if allocator in ("native", "expandable"):
            environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if allocator == "expandable" else {}
            return command, {**environment, **self.stand_in()}
        options = ["--plan", plan, "--frozen"] if plan is not None else []
        return [self.stalloc, "run", *options, *dry, "--", *command], {}

    def stand_in(self) -> dict[str, str]:
        """The environment of a program on the stand-in alone, with nothing of stalloc's in it; on a GPU none."""
        if not self.dry_run:
            return {}
        links = self.work / "links"
        with self.lock:
            links.mkdir(exist_ok=True)
            for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
                if not (links / name).is_symlink():
                    (links / name).symlink_to(self.stalloc.parent / "libstalloc_dryrun.so")
        path = os.pathsep.join(filter(None, [str(links), os.environ.get("LD_LIBRARY_PATH")]))
        names = {"LD_PRELOAD": str(links / "libcuda.so.1"), "LD_LIBRARY_PATH": path, "TRITON_LIBCUDA_PATH": str(links)}
        return {**names, "STALLOC_DRYRUN_GPU": self.dry_run}

    def recorded(self, command: list[Any], folder: Path, gpu: str | None) -> list[Any]:
        """A command under the recorder: on the stand-in for a GPU, else on the real one."""
        return [self.stalloc, "trace", *(["--dry-run", gpu] if gpu else []), "-o", folder, "--", *command]

    def each(self, parts: list[Callable[[], Any]]) -> None:
        """Run parts in their order, some at a time; one that fails stops none of the others. OutOfTime once they have ended."""

        def guarded(part: Callable[[], Any]) -> bool:
            try:
                part()
            except OutOfTime:
                return False
            except NotWanted:
                return True
            except Exception as error:  # what has an entry is kept; the others go on
                print(f"not measured: {error}", file=sys.stderr, flush=True)
            return True

        with ThreadPoolExecutor(self.at_once) as pool:
            if not all(list(pool.map(guarded, parts))):
                raise OutOfTime


def without_places(figures: Any) -> Any:
    """Figures without where a program lies on the machine: what differs in two recordings, and where a plan was left."""
    if isinstance(figures, list):
        return [without_places(each) for each in figures]
    if isinstance(figures, dict):
        return {name: without_places(each) for name, each in figures.items() if name not in ("first", "departure")}
    return figures


def call(command: list[Any], seconds: float, log: Path, environment: dict[str, str]) -> int | None:
    """Run a command to its end (its exit status) or to the time's (None), with all that it started; output goes to a file."""
    with log.open("w") as output:
        output.write(f"$ {' '.join(map(str, command))}\n")
        output.flush()
        try:
            process = subprocess.Popen(
                list(map(str, command)), env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            output.write(f"cannot run {command[0]}: {error}\n")
            return 127
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def describe() -> dict[str, Any]:
    """The machine, as far as it says."""

    def said(*command: str) -> str | None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            return done.stdout.strip() if done.returncode == 0 else None
        except (OSError, subprocess.TimeoutExpired):
            return None

    gpu = "name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.max.memory,power.limit,ecc.mode.current,compute_mode"
    query = said("nvidia-smi", f"--query-gpu={gpu}", "--format=csv,noheader")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    versions = "import json, platform, torch; print(json.dumps(dict(python=platform.python_version(), torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())))"
    found = said(sys.executable, "-c", versions)
    return {
        "gpu": dict(zip(gpu.split(","), [part.strip() for part in query.split(",")])) if query else None,
        "cpu": models[0] if models else None,
        "cores": os.cpu_count(),
        "kernel": os.uname().release.partition("-")[0],
        "compiler": (said("g++", "--version") or "none").splitlines()[0],
        "nvcc": (said("nvcc", "--version") or "none").splitlines()[-1],
        "nvidia_smi": said("nvidia-smi"),
        **(json.loads(found) if found else {}),
    }
