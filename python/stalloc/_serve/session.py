"""Serving in one process: from PyTorch's import to the process's end."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import Any, Callable

from stalloc import _dry_run, _native
from stalloc._common import endings
from stalloc._common.output import say
from stalloc._serve import departure, job_summary, report, sharing, shim
from stalloc._serve.settings import Mode, Settings
from stalloc._steps import marks
from stalloc._steps.step_detection import StepDetector

# As many as the core has places for.
MOST_GPUS = 64
#: What drivers make: NVIDIA's, AMD's, Windows' for Linux, and those of boards.
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvmap")


class Steps:
    """The steps of this process, told to the core."""

    def __init__(self, after: Any) -> None:
        self.is_open = False
        self._after = after

    def begin(self) -> None:
        """A step begins."""
        self.end()
        self.is_open = True
        _native.serve_step()

    def end(self) -> None:
        """A step ends."""
        if self.is_open:
            self.is_open = False
            self._after()

    def extend(self) -> None:
        """The core is told of beginnings only."""


class Marks(marks.Listener):
    """Marks of the script go to the core."""

    def __init__(self, steps: Steps, detector: StepDetector) -> None:
        self._steps = steps
        self._detector = detector

    def step_begin(self) -> None:
        self._detector.stop()
        self._steps.begin()

    def step_end(self) -> None:
        self._steps.end()


def prepare(torch: Any, settings: Settings) -> None:
    """PyTorch has been imported, CUDA is still asleep."""
    _dry_run.prepare()
    serves = settings.mode.serves
    if serves and not settings.quiet and "STALLOC_DRYRUN_GPU" not in os.environ and not any(map(os.path.exists, DRIVERS)):
        say("no GPU is visible here: there is nothing to serve. `stalloc run --dry-run h100-80gb -- COMMAND` runs a program without one")
    try:
        if serves and not _serve(torch, settings):
            return
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever is wrong with us, the program runs: a panic of Rust's is no Exception
        say(f"this process runs with PyTorch's allocator: {error}")
        return
    if serves:
        departure.listen()
    steps = Steps(lambda: None if serves or settings.quiet else report.per_step(torch))
    marks.listen(Marks(steps, StepDetector(torch, steps)))
    if serves:
        process = _Process(torch, settings, steps)
        process.begin(settings)
        torch.cuda._lazy_call(process.cuda_begins)


class _Process:
    """This process or, from where it uses CUDA on, a child that was forked before: then the launcher has said which rank the child is."""

    def __init__(self, torch: Any, settings: Settings, steps: Steps) -> None:
        self._torch = torch
        self._steps = steps
        self._settings = settings

    def begin(self, settings: Settings) -> None:
        """The process is served as the settings say."""
        self._number = os.getpid()
        self._settings = settings
        self._meeting = job_summary.Meeting(settings)
        _begin(self._meeting)
        endings.at_end(lambda: _end(self._torch, self._settings, self._meeting, self._steps))

    def cuda_begins(self) -> None:
        """The process uses CUDA from now on: it forks no more processes like itself."""
        try:
            if os.getpid() != self._number:
                self._begin_again()
            settings = self._settings
            if settings.mode is Mode.AUTO and settings.path is not None:
                _native.serve_keep_in(settings.path.absolute(), settings.rank)
        except Exception as error:  # whatever is wrong with us, the program runs
            say(f"this process starts without a plan: {error}")

    def _begin_again(self) -> None:
        self.begin(self._settings.in_child(os.environ))
        _native.serve_unprepare()
        _followed.clear()
        settings = self._settings
        plans = {} if settings.path is None else _native.serve_plans(settings.path, settings.rank)
        _tell_core(self._torch, settings, plans)


def _begin(meeting: job_summary.Meeting) -> None:
    try:
        meeting.begin()
    except OSError:  # then the summary says who told nothing
        pass


def _end(torch: Any, settings: Settings, meeting: job_summary.Meeting, steps: Steps) -> None:
    try:
        if not settings.quiet and job_summary.is_told(settings):
            # What begins with the optimizer's last step is none.
            report.at_exit(torch, settings, begun=int(steps.is_open))
        if settings.mode is Mode.AUTO and settings.path is not None:
            _keep(settings.path, settings)
        job_summary.at_exit(meeting, report.of_all(torch, _followed), settings.quiet)
    except BaseException as error:  # the last lines are not worth a traceback
        say(f"no figures at the end: {error}")


def _keep(folder: Path, settings: Settings) -> None:
    kept = _native.serve_keep(folder, settings.rank)
    if kept and not settings.quiet and settings.rank == 0:
        say(f"what was learned is kept in {folder}: the next run starts with it")


def _serve(torch: Any, settings: Settings) -> bool:
    if (reason := _not_wanted(torch)) is not None:
        say(f"this process runs with PyTorch's allocator: {reason}")
        return False
    plans = {} if settings.path is None else _plans(settings.path, settings)
    learns = settings.mode is Mode.AUTO
    if not plans and not learns:
        say(f"neither a plan nor a trace for rank {settings.rank} in {settings.path}: STALLOC_MODE=Trace records one there")
        return False
    if not plans and settings.path is not None and (others := _other_ranks(settings.path)):
        say(f"{settings.path} holds plans of rank {others}; this is rank {settings.rank}, which starts without a plan")
    global _front
    _front = front = shim.load("front")
    _tell_core(torch, settings, plans)
    if (problem := _install(front, settings)) is not None:
        say(f"this process runs with PyTorch's allocator: {problem}")
        return False
    _watch_for_another(torch)
    if not settings.quiet:
        _say_if_it_rounds_up(torch)
    if settings.solid is None:
        _register_no_pages(settings)
        sharing.install(torch)
    if _saves_memory() and not settings.quiet:
        say("torch_memory_saver is loaded: what its regions allocate is left to PyTorch's allocator, so that it can be paused")
    return True


def _tell_core(torch: Any, settings: Settings, plans: dict[int, Path]) -> None:
    """What the arenas of this process are to do once they are opened."""
    if settings.is_one_of_several and os.environ.get("WORLD_SIZE") != "1":
        # A wait that the program did not ask for could complete a cycle with collectives of other ranks.
        _native.serve_forbid_waits()
    if settings.solid is not None:
        _native.serve_solid(settings.solid)
    for device, file in _placed(torch, plans, settings.local_rank).items():
        if device >= torch.cuda.device_count():
            say(f"{file.name} is for GPU {device}, and this process has {torch.cuda.device_count()}: it is not used")
            continue
        _follow(torch, device, file, settings.mode is Mode.AUTO)
    if settings.mode is Mode.AUTO:
        for device in range(min(torch.cuda.device_count(), MOST_GPUS)):
            _native.serve_learn(device)


def _plans(folder: Path, settings: Settings) -> dict[int, Path]:
    """The plans of this process's rank, made first of the traces that are there: as the artifact lays out its folder, or all in it."""
    own = settings.rank if settings.is_one_of_several else None
    plans: dict[int, Path] = _native.serve_plans(folder, settings.rank)
    if os.environ.get("STALLOC_PLANNED") == str(folder):  # `stalloc run` has planned what there is, and said what is not used
        return plans
    if settings.traces.is_dir():
        _plan(settings.traces, folder / "output" / "plan", own, settings)
    elif not plans and folder.is_dir():
        _plan(folder, folder, own, settings)
    else:
        return plans
    return _native.serve_plans(folder, settings.rank)


def _plan(traces: Path, out: Path, rank: int | None, settings: Settings) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        planned, notes = _native.plan_folder(traces, out, rank)
    except (OSError, ValueError) as error:
        say(f"{traces} is not planned: {error}")
        return
    for note in notes:
        say(note)
    if not settings.quiet:
        for plan, summary in planned:
            say(f"{plan}: planned from the recording, {summary}")


#: Variables that have every request served by the device itself, for tools that check accesses.
_NO_CACHING = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")


def _not_wanted(torch: Any) -> str | None:
    """Why the program's allocator is not to be ours, if it says so."""
    for name in _NO_CACHING:
        if name in os.environ:
            return f"{name} is set, so every request is the device's own"
    backend = torch.cuda.get_allocator_backend()
    if backend == "pluggable":
        return "the program has installed an allocator of its own"
    if backend != "native":
        return f"the program's settings choose another allocator ({backend}); leave backend: out of PYTORCH_ALLOC_CONF"
    return None


#: Variables that have NCCL's communicators register all memory of PyTorch's allocator.
_REGISTER_ALL = ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")


def _register_no_pages(settings: Settings) -> None:
    """NCCL cannot register what is mapped by pages: do what PyTorch does with expandable segments. In captured graphs NCCL registers
    buffers of its own accord, and then hangs or fails."""
    if settings.is_one_of_several and "NCCL_GRAPH_REGISTER" not in os.environ:
        os.environ["NCCL_GRAPH_REGISTER"] = "0"
        if not settings.quiet:
            say("NCCL_GRAPH_REGISTER=0 is set: NCCL cannot register memory that is mapped by pages in captured graphs; set it to keep it")
    for name in _REGISTER_ALL:
        if os.environ.get(name, "").lower() in ("1", "y", "yes", "t", "true"):
            os.environ[name] = "0"
            say(f"{name} is switched off: NCCL cannot register an arena that is mapped by pages; with --solid it registers it as a whole")


def _say_if_it_rounds_up(torch: Any) -> None:
    """Whether the program's settings ask PyTorch's allocator for classes of sizes, now or while it runs."""

    @functools.cache
    def said() -> None:
        say("roundup_power2_divisions is left to PyTorch's allocator: the arena rounds to 512 bytes, and needs no classes of sizes")

    def looked_at(change: Any) -> Any:
        @functools.wraps(change)
        def changed(options: str) -> Any:
            if "roundup_power2_divisions" in str(options):
                said()
            return change(options)

        return changed

    if any("roundup_power2_divisions" in os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")):
        said()
    for name in ("_cuda_cudaCachingAllocator_set_allocator_settings", "_accelerator_setAllocatorSettings"):
        if (change := getattr(torch._C, name, None)) is not None:
            setattr(torch._C, name, looked_at(change))


def _saves_memory() -> bool:
    """Whether torch_memory_saver is loaded before everything else (LD_PRELOAD)."""
    return hasattr(ctypes.CDLL(None), "tms_get_interesting_region")


def _watch_for_another(torch: Any) -> None:
    """Say so when the program puts an allocator of its own in our place."""
    change = torch._C._cuda_changeCurrentAllocator

    def changed(allocator: Any) -> None:
        change(allocator)
        say("the program installs an allocator of its own: stalloc serves nothing more")

    torch._C._cuda_changeCurrentAllocator = changed


def _other_ranks(folder: Path) -> str:
    """The ranks that there are plans of."""
    names = (re.fullmatch(r"rank(\d+)_dev\d+\.plan", path.name) for path in Path(folder).glob("*.plan"))
    return ", ".join(map(str, sorted({int(name[1]) for name in names if name})))


#: The plan that each device follows, by a name that ranks which share one have in common.
_followed: dict[int, str] = {}


def _number_of(file: Path) -> str:
    about = file.stat()
    return f"{about.st_dev}:{about.st_ino}"


def _follow(torch: Any, device: int, file: Path, learns: bool) -> None:
    try:
        about = _native.serve_prepare(device, file)
    except ValueError as error:
        if not learns:
            raise
        say(f"{error}; device {device} starts without a plan")
        return
    _followed[device] = _number_of(file)
    made_for = about.get("torch")
    if made_for and made_for != str(torch.__version__):
        say(f"{file.name} was recorded with PyTorch {made_for}, this is {torch.__version__}: it may not fit")


def _placed(torch: Any, plans: dict[int, Path], local_rank: int | None) -> dict[int, Path]:
    """Plans by the devices that they are for here.

    A rank that was recorded alone, or elsewhere, was on another of the GPUs: its only plan is for the GPU of this
    process, which is the one of the same number as its rank on the machine, unless it sees no other.
    """
    if len(plans) == 1 and local_rank is not None and local_rank < torch.cuda.device_count():
        return {local_rank: next(iter(plans.values()))}
    return plans


#: What serves this process, and what it calls when memory runs out.
_front: ctypes.CDLL | None = None
_relieving: list[Any] = []


def when_full(relieve: Callable[[int], bool]) -> bool:
    """Have a request that is about to fail begin anew where ``relieve``, told of the device, frees something; false if we serve nothing here."""
    if _front is None:
        return False
    _relieving.append(ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int)(relieve))
    _front.stalloc_front_on_full(_relieving[-1])
    return True


def _install(front: ctypes.CDLL, settings: Settings) -> str | None:
    table = _native.serve_table()
    install = front.stalloc_front_install
    install.restype = ctypes.c_char_p
    install.argtypes = [ctypes.c_void_p, ctypes.c_int]
    problem: bytes | None = install(table, MOST_GPUS)
    if problem is not None:
        return problem.decode()
    if settings.pinned:
        install_pinned = front.stalloc_pinned_install
        install_pinned.restype = ctypes.c_char_p
        install_pinned.argtypes = [ctypes.c_void_p]
        problem = install_pinned(table)
        if problem is not None:
            say(f"pinned memory is PyTorch's own: {problem.decode()}")
    return None
