"""What the kit measures, most valuable first: is stalloc true to a GPU, what does it cost, what does it gain."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Callable

from harness import HERE, Kit, OutOfTime

sys.path.insert(0, str(HERE / "bench"))

#: The models whose recordings are compared, with their micro-batches.
TRACED = {"llama-1b": 8, "gpt2": 16, "moe": 8, "conv": 64, "compiled": 8}
RECORDED_STEPS = 4
#: Steps of each job of bench/jobs whose recordings are compared.
JOB_STEPS = 3
#: The model whose losses are compared to the bit, and its micro-batch.
COMPARED, COMPARED_BATCH, COMPARED_STEPS = "llama-small", 4, 12
LOSSES = ("native", "auto", "planned", "native again", "expandable")
#: Whose blocks on several streams are read again; natively, --careless has to be found.
STREAMS = ("native", "auto", "planned", "expandable", "native careless")
#: `open`: the arena with no plan, which learns none.
SPEEDS = ("native", "planned", "open", "auto", "expandable")
#: Steps before times count; steps that are timed; how often each allocator has its turn.
WARM_UP, TIMED, TURNS = 3, 10, 2
#: Jobs whose steps are timed by turns, and the steps that warm each up: functions of bench/jobs/unseen.py, jobs and programs of bench/jobs.
TIMED_JOBS = {
    **{"two_way_offload": 10, "ppo_control": 60, "sharded": 20, "prefetch": 60, "unet": 30, "sampled_graphs": 40, "yolo": 30, "sac": 80},
    **{"detection": 20, "any-length": 10, "lora-packed": 10, "nanochat": 12, "convnet": 20, "trees": 8, "speech": 15, "conformer": 20},
}
#: `native again` says what of a difference is chance.
TIMED_WAYS = ("native", "expandable", "auto", "native again")
#: Jobs of several streams or of many small requests: what learning does to them is timed too.
ON_STREAMS = ("ppo_control", "sharded", "prefetch")
#: Of these no more than three processes fit on a GPU of 80 GB.
LARGE = ("two_way_offload", "any-length")
#: Steps that no timed job comes to: its leader ends it before.
MANY_STEPS = 100_000
#: Jobs whose kernels are timed, what the clock of a dry run is furthest from; and models with their micro-batches.
PROFILED = ("unet", "detection", "yolo", "sampled_graphs", "ppo_control")
PROFILED_MODELS = {"moe": 8, "lengths": 4, "gpt2": 16, "conv": 64, "compiled": 8, "llama-small": 16}
#: The searched jobs: memory that each may take, in MiB, and where the search begins. Less than the GPU, so that a step is short and four searches go on at once.
SEARCHED = {"lengths": (24 << 10, 12), "moe": (24 << 10, 12), "llama-1b": (24 << 10, 32), "llama-3b": (32 << 10, 16)}
SEARCHED_ALLOCATORS = ("native", "expandable", "auto")
#: What `stalloc fit` calls the same allocators, and the largest micro-batch that it tries, as a multiple of where the search begins.
FIT_ALLOCATORS = {"native": "pytorch", "expandable": "pytorch-expandable", "auto": "stalloc"}
FIT_RANGE = 4
#: In a rehearsal at a tiny size: one, and a limit that some sequences reach.
TINY_SEARCHED = {"lengths": (96, 32)}
STAND_IN = "h200-141gb"
#: Jobs that do not fit into what is left of the GPU: micro-batch, and MiB that are left.
TIGHT = {"llama-small": (16, 7200), "moe": (8, 9500), "conv": (1024, 7000)}
TIGHT_STEPS = 10
#: One of them, which is timed with what a lever alone makes of it, and MiB to fit into; none: with all of the memory.
PAID, PAID_WAYS, PAID_TURNS = "llama-small", (("nothing", None), ("checkpoint", 7200), ("spill", 7200), ("spill", 8600)), 2


def training(kit: Kit, model: str, micro_batch: Any, steps: int, *more: Any) -> Callable[[Path], list[Any]]:
    """The command that trains a model, for the path of its figures."""
    return lambda output: kit.python("train.py", "--model", model, "--micro-batch", micro_batch, "--steps", steps, *more, "--output", output)


def traced(kit: Kit) -> dict[str, int]:
    """The models that are recorded, with their micro-batches."""
    return {model: min(size, 4) if kit.tiny else size for model, size in TRACED.items()}


def shell(*lines: str) -> list[str]:
    return ["sh", "-c", "\n".join(lines)]


def time(kit: Kit) -> list[Callable[[], Any]]:
    """Steps of the bench's jobs under each allocator, by turns. Processes wait for their turn with all that they import."""

    def once(name: str) -> None:
        led = lambda way: [sys.executable, HERE / "program.py", "led", *(["--one-step"] if way == "open" else []), "LEADER", "WAY", *program(name)]
        ways = (*TIMED_WAYS, "open") if name in ON_STREAMS else TIMED_WAYS[: 3 if name in LARGE else None]
        under = {way: kit.under(way.removesuffix(" again"), led(way)) for way in ways}
        commands = kit.logs / f"commands-{name}.json"
        commands.write_text(json.dumps({way: {"command": list(map(str, command)), "environment": more} for way, (command, more) in under.items()}))
        shorter = ["--warm-up", 3, "--rounds", 2, "--seconds", 0.01] if kit.tiny else ["--warm-up", TIMED_JOBS[name]]
        leader = [sys.executable, HERE / "by_turns.py", "--turn", kit.work / "turn", *shorter]
        kit.measure(f"turns/{name}", 240, lambda output, _: [*leader, "--output", output, commands])

    return [lambda name=name: once(name) for name in (list(TIMED_JOBS)[1:3] if kit.tiny else TIMED_JOBS)]


def program(name: str, root: Path = HERE) -> list[Any]:
    """The program of a timed job in a folder, with what makes it run until it is ended."""
    sys.path.insert(1, str(root / "bench"))
    from jobs import JOBS

    if name in JOBS:
        return [root / JOBS[name].script, *JOBS[name].options, "--seed", "1", "--steps", MANY_STEPS]
    script = root / "bench" / "jobs" / f"{name}.py"
    return [script, "--steps", MANY_STEPS] if script.exists() else [f"{script.with_name('unseen.py')}:{name}", MANY_STEPS]


def profile(kit: Kit) -> list[Callable[[], Any]]:
    """How long the kernels of a step take, for the clock of a dry run."""

    def once(name: str, what: list[Any]) -> None:
        command = lambda output: [sys.executable, HERE / "program.py", "profile", output, kit.work / "turn", *what]
        run_under(kit, f"profile/{name}", "native", command, 120)

    def model(name: str, size: int) -> list[Any]:
        return training(kit, name, size, 9)(kit.logs / f"profiled-{name}.json")[1:]

    parts = [(name, program(name)) for name in PROFILED] + [(name, model(name, size)) for name, size in PROFILED_MODELS.items()]
    return [lambda part=part: once(*part) for part in parts]


def tight(kit: Kit, model: str, output: Path | None = None) -> list[Any]:
    """A job that does not fit into what is left. Its figures are in the same file each time, since what was tried is kept for the same command."""
    micro_batch = min(TIGHT[model][0], 4) if kit.tiny else TIGHT[model][0]
    return training(kit, model, micro_batch, TIGHT_STEPS, "--deterministic")(output or kit.logs / f"tight-{model}.json")


def fitted(kit: Kit, model: str, *more: str, mib: int | None = None) -> list[Any]:
    """The job by `stalloc run --fit`, into what is left."""
    dry = ["--dry-run", kit.dry_run] if kit.dry_run else []
    return [kit.stalloc, "run", f"--fit={mib or TIGHT[model][1]}MiB", *more, *dry, "--", *tight(kit, model)]


def crowded(model: str, command: list[Any]) -> list[Any]:
    """A command for which only so much is left."""
    return [sys.executable, HERE / "crowded.py", "--leave-mib", TIGHT[model][1], "--", *command]


def moved(kit: Kit, model: str, command: list[Any], output: Path) -> list[str]:
    """A command whose figures are moved to where they are looked for."""
    figures = quoted(kit.logs / f"tight-{model}.json")
    return shell(f"rm -f {figures}", quoted(*command), "status=$?", f"mv {figures} {quoted(output)}", "exit $status")


def room(kit: Kit) -> list[Callable[[], Any]]:
    """Before `pay`, several at a time: what makes jobs fit, their values with all of the memory, and a job that gives the GPU away."""

    def chosen(model: str, lever: str = "", mib: int | None = None) -> None:
        # 1: nothing makes it fit, which is an answer.
        asked = quoted(*fitted(kit, model, "--only-say", *(["--only", lever] if lever else []), mib=mib))
        make = lambda output, _: shell(f"said=$({asked})", "[ $? -le 1 ] || exit 1", f"printf %s \"$said\" > {quoted(output)}", f"[ -s {quoted(output)} ] || echo {{}} > {quoted(output)}")
        kit.measure(f"room/chosen/{model} {lever} {mib}" if lever else f"room/chosen/{model}", 240, make)

    sleeping = lambda output: kit.python("sleeping.py", "--output", output)
    parts: list[Callable[[], Any]] = [lambda model=model: chosen(model) for model in TIGHT]
    parts += [lambda way=way: chosen(PAID, *way) for way in PAID_WAYS[1:]]
    parts += [lambda way=way: run_under(kit, f"room/asleep/{way}", way, sleeping, 120) for way in ("native", "auto")]
    parts += [lambda way=way: kept(kit, *way) for way in PAID_WAYS[1:]]
    native = lambda model: run_under(kit, f"room/values/{model}", "native", lambda output: tight(kit, model, output), 120)
    return parts + [lambda model=model: native(model) for model in TIGHT]


def kept(kit: Kit, lever: str, mib: int) -> None:
    """The values of a job with a lever."""
    output = kit.logs / f"kept-{lever}-{mib}.json"
    dry = ["--dry-run", kit.dry_run] if kit.dry_run else []
    command = [kit.stalloc, "run", f"--fit={mib}MiB", "--only", lever, *dry, "--", *tight(kit, PAID, output)]
    kit.measure(f"room/kept/{lever} {mib}", 200, lambda found, _: shell(quoted(*command), f"cp {quoted(output)} {quoted(found)}"))


def pay(kit: Kit) -> list[Callable[[], Any]]:
    """With the GPU for itself: copies, what a step costs with levers, and jobs in what is left of the GPU."""
    parts: list[Callable[[], Any]] = [lambda: run_under(kit, "pay/copies", "native", lambda output: kit.python("copies.py", "--output", output), 90)]

    def paid(lever: str, mib: int | None, turn: int) -> None:
        command = fitted(kit, PAID, "--only", lever, mib=mib) if mib else [*kit.under("auto", [])[0], *tight(kit, PAID)]
        kit.measure(f"pay/speed/{lever} {mib or ''}/{turn}", 120, lambda output, _: moved(kit, PAID, command, output))

    turns = range(1, 1 + (1 if kit.tiny else PAID_TURNS))
    parts += [lambda way=way, turn=turn: paid(*way, turn) for turn in turns for way in PAID_WAYS]

    def squeezed(model: str, way: str) -> None:
        command = fitted(kit, model) if way == "fit" else tight(kit, model)
        run_under(kit, f"pay/{way}/{model}", "native", lambda output: moved(kit, model, crowded(model, command), output), 180)

    return parts + [lambda model=model, way=way: squeezed(model, way) for model in TIGHT for way in ("native", "fit")]


def job_options(job: Any) -> list[str]:
    """What a job of bench/jobs is recorded with."""
    return [*job.options, "--seed", "1", "--steps", str(JOB_STEPS)]


def jobs() -> dict[str, Callable[[Path], list[Any]]]:
    """The commands of the jobs of bench/jobs that need PyTorch alone and one GPU, where the kit brings them."""
    try:
        from jobs import JOBS
    except ImportError:
        return {}
    command = lambda job: [sys.executable, HERE / job.script, *job_options(job)]
    wanted = {name: job for name, job in JOBS.items() if not job.launch and "megatron" not in job.script}
    return {name: lambda output, job=job: shell(quoted(*command(job)), f"echo {{}} > {quoted(output)}") for name, job in wanted.items()}


def quoted(*words: Any) -> str:
    return shlex.join(map(str, words))


def run_under(kit: Kit, name: str, allocator: str, make: Callable[[Path], list[Any]], seconds: float, plan: Path | None = None) -> dict[str, Any]:
    """One measurement of a program under an allocator."""
    way = allocator.removesuffix(" again")
    environment = kit.under(way, [], plan)[1] if name not in kit.done else {}
    return kit.measure(name, seconds, lambda output, _: kit.under(way, make(output), plan)[0], **environment)


def recorded(kit: Kit, name: str, make: Callable[[Path], list[Any]]) -> Path:
    """A folder with a recording of a program on the stand-in: the kit's own where it was made with these versions, else made now."""
    folder = kit.work / "recorded" / name
    kit.measure(f"recording/{name}", 150, lambda output, _: kit.recorded(make(output), folder, kit.dry_run or STAND_IN))
    return folder


def recording(kit: Kit, model: str, micro_batch: int, *more: Any, steps: int = RECORDED_STEPS) -> Path:
    """A folder with a recording of a model on the stand-in."""
    return recorded(kit, model, training(kit, model, micro_batch, steps, *more))


def fit(kit: Kit, name: str, gpu: str, model: str, micro_batch: Any, steps: int, *vary: str) -> dict[str, Any]:
    """What `stalloc fit` says."""
    program = training(kit, model, micro_batch, steps)

    def make(output: Path, _: float) -> list[Any]:
        asked = [kit.stalloc, "fit", "--dry-run", gpu, "--steps", steps, *vary, "--json", "--", *program(Path("/dev/null"))]
        # 1: nothing fits, which is an answer.
        return shell(f"{quoted(*asked)} > {quoted(output)}", "[ $? -le 1 ]")

    return kit.measure(name, 240, make)


def fit_peak(kit: Kit, model: str, micro_batch: int) -> None:
    fit(kit, f"fit/peak/{model}", kit.dry_run or STAND_IN, model, micro_batch, RECORDED_STEPS)


def fit_largest(kit: Kit, model: str) -> dict[str, int]:
    """The largest micro-batch that `stalloc fit` finds for each allocator, on a GPU of the limit's size; what it does not say is left out."""
    limit, start = searched(kit)[model]
    gpu = f"like={STAND_IN},memory={limit}MiB,context=0MiB,name=limit"
    entry = fit(kit, f"fit/largest/{model}", gpu, model, "{MB}", steps_to_fit(kit, model), "--vary", f"MB=1..{FIT_RANGE * start}")
    (found,) = (entry["figures"] or {}).get("largest", {}).values() or [{}]
    return {way: found[name]["MB"] for way, name in FIT_ALLOCATORS.items() if found.get(name)}


def searched(kit: Kit) -> dict[str, tuple[int, int]]:
    return TINY_SEARCHED if kit.tiny else SEARCHED


def steps_to_fit(kit: Kit, model: str) -> int:
    """Steps until a job's peak has been seen."""
    return 2 if kit.tiny else 6 if model in ("lengths", "moe") else 3


def record(kit: Kit) -> list[Callable[[], Any]]:
    """All that is asked of the stand-in alone, for `pack`."""
    parts = [lambda model=model: plan_of(kit, model) for model in [COMPARED, *TRACED]]
    parts.append(lambda: plan_of_streams(kit))
    parts += [lambda name=name, make=make: recorded(kit, name, make) for name, make in ({} if kit.tiny else jobs()).items()]
    parts += [lambda model=model, size=size: fit_peak(kit, model, size) for model, size in traced(kit).items()]
    return parts + [lambda model=model: fit_largest(kit, model) for model in searched(kit)]


def plan_of(kit: Kit, model: str) -> Path:
    """A folder with the recording alone, for runs that plan it."""
    more = ("--deterministic",) if model == COMPARED else ()
    folder = recording(kit, model, traced(kit).get(model, COMPARED_BATCH), *more)
    if not (folder / "rank0_dev0.trace").exists():
        raise FileNotFoundError(f"there is no recording of {model}")
    return folder


def plan_of_streams(kit: Kit) -> Path:
    """A folder with a recording of the blocks on several streams."""
    return recorded(kit, "streams", lambda output: kit.python("streams.py", "--steps", "8", "--output", output))


def streams(kit: Kit, way: str) -> None:
    """Blocks on several streams that are read again, with an allocator."""
    allocator, _, careless = way.partition(" ")
    program = lambda output: kit.python("streams.py", *(["--careless"] if careless else []), "--output", output)
    run_under(kit, f"truth/streams/{way}", allocator, program, 90, plan_of_streams(kit) if way == "planned" else None)


def truth(kit: Kit) -> list[Callable[[], Any]]:
    small = training(kit, COMPARED, COMPARED_BATCH, 4 if kit.tiny else COMPARED_STEPS, "--deterministic")
    parts: list[Callable[[], Any]] = [
        # With nothing in the cache: its seconds are those of a first run, the shim's compilation included.
        lambda: run_under(kit, "truth/install", "auto", training(kit, COMPARED, COMPARED_BATCH, 2), 240)
    ]
    for way in LOSSES:
        parts.append(lambda way=way: run_under(kit, f"truth/losses/{way}", way, small, 90, plan_of(kit, COMPARED) if way == "planned" else None))
    parts += [lambda way=way: streams(kit, way) for way in STREAMS]
    for model, micro_batch in traced(kit).items():
        program = training(kit, model, micro_batch, RECORDED_STEPS)
        parts.append(lambda model=model, program=program: compare(kit, model, program))
    parts.append(lambda: run_under(kit, "truth/outside", "native", lambda output: kit.python("outside.py", "--output", output), 90))
    for way in ("native", "expandable"):
        parts.append(lambda way=way: addresses(kit, way))
    parts += [lambda name=name, make=make: compare(kit, name, make) for name, make in ({} if kit.tiny else jobs()).items()]
    return parts + [lambda model=model, size=size: fit_peak(kit, model, size) for model, size in traced(kit).items()]


def compare(kit: Kit, name: str, make: Callable[[Path], list[Any]]) -> None:
    """The recording of a program on the GPU against that on the stand-in, event for event."""
    stand_in = recorded(kit, name, make)
    there = kit.work / "recorded-on-gpu" / name
    kit.measure(f"truth/recorded/{name}", 120, lambda output, _: kit.recorded(make(output), there, kit.dry_run))
    files = [folder / "rank0_dev0.trace" for folder in (stand_in, there)]

    def info(output: Path, _: float) -> list[Any]:
        # 1: they differ, which is an answer.
        return shell(f"{quoted(kit.stalloc, 'info', '--compare', *files, '--json')} > {quoted(output)}", "[ $? -le 1 ]")

    kit.measure(f"truth/trace/{name}", 60, info)


def addresses(kit: Kit, way: str) -> None:
    """PyTorch's allocator on the GPU against the code that stalloc has of it."""
    snapshot = kit.work / f"snapshot-{way}.pickle"
    program = training(kit, "lengths", 4, 6, "--snapshot", snapshot)
    run_under(kit, f"truth/snapshot/{way}", way, program, 90)
    check = lambda output, _: [sys.executable, HERE / "address_check.py", HERE / "bin" / "fidelity", snapshot, "--output", output]
    kit.measure(f"truth/addresses/{way}", 60, check)


def cost(kit: Kit) -> list[Callable[[], Any]]:
    parts: list[Callable[[], Any]] = []

    def driver(name: str, *arguments: str) -> None:
        parts.append(lambda: run_under(kit, f"cost/{name}", "native", lambda output: kit.python("driver.py", *arguments, "--output", output), 90))

    driver("driver idle", "calls")
    driver("driver busy", "calls", "--busy")
    driver("driver at once", "ranges")
    driver("remaps", "remaps")
    model = "llama-1b"
    steps = 2 if kit.tiny else WARM_UP + TIMED
    program = lambda way: training(
        kit, model, traced(kit)[model], steps, "--warm-up", 1 if kit.tiny else WARM_UP, *(["--one-step"] if way == "open" else [])
    )
    for turn in range(1 if kit.tiny else TURNS):
        for way in SPEEDS:
            parts.append(
                lambda way=way, turn=turn: run_under(
                    kit, f"cost/speed/{way}/{turn + 1}", way, program(way), 75, plan_of(kit, model) if way == "planned" else None
                )
            )
    parts.insert(4 + len(SPEEDS), lambda: pairs(kit))
    return parts


def pairs(kit: Kit) -> None:
    """Host time of a malloc and its free."""
    options = ["--rounds", "2" if kit.tiny else "30", "--json", *([] if kit.dry_run else ["--on-gpu"])]
    small = ["--", sys.executable, HERE / "examples" / "gpt.py", "--steps", "8"]
    small += ["--layers", "1", "--width", "64", "--length", "32", "--batch", "2"] if kit.tiny else []
    command = quoted(sys.executable, HERE / "bench" / "pairs.py", *options, *small)
    kit.measure("cost/pairs", 150, lambda output, _: shell(f"{command} > {quoted(output)}"))


def gain(kit: Kit) -> list[Callable[[], Any]]:
    parts: list[Callable[[], Any]] = []
    for way in SEARCHED_ALLOCATORS:
        program = lambda output: kit.python("fragment.py", "--output", output)
        parts.append(lambda way=way, program=program: run_under(kit, f"gain/fragmentation/{way}", way, program, 60))
    for way in ("native", "auto"):
        program = lambda output: kit.python("graphs.py", "--output", output)
        parts.append(lambda way=way, program=program: run_under(kit, f"gain/graphs/{way}", way, program, 60))
    for model in searched(kit):
        for way in SEARCHED_ALLOCATORS:
            parts.append(lambda model=model, way=way: search(kit, model, way))
    return parts


def search(kit: Kit, model: str, way: str) -> None:
    """The largest micro-batch, beginning with what `stalloc fit` says."""
    limit, start = searched(kit)[model]
    start = fit_largest(kit, model).get(way, start)
    largest(lambda size: fits(kit, f"gain/largest/{model}/{way}/{size}", model, way, size, limit), start)


def fits(kit: Kit, name: str, model: str, way: str, size: int, limit: int) -> bool:
    """Whether a micro-batch fits; one that fails otherwise than for memory does not."""
    entry = run_under(kit, name, way, training(kit, model, size, steps_to_fit(kit, model), "--limit-mib", limit), 100)
    return entry["state"] == "done" and not entry["figures"]["oom"]


def largest(fits: Callable[[int], bool], start: int, tries: int | None = None) -> tuple[int, bool]:
    """The largest size that fits, to one part in sixteen; and false if the search ended early.

    It looks next to its start first, since that is a prediction, and takes longer steps the further away it gets.
    """
    good, bad, size, step = 0, None, start, max(start // 16, 1)
    while bad is None or bad - good > max(good // 16, 1):
        if tries is not None and tries <= 0:
            return good, False
        tries = None if tries is None else tries - 1
        try:
            found = fits(size)
        except OutOfTime:
            return good, False
        if found:
            good = size
        else:
            bad = size
        if bad is None:
            size = good + step
        elif good == 0:
            size = max(bad - step, 1)
            if bad == 1:
                break
        else:
            size = (good + bad) // 2
        step *= 2
    return good, True
