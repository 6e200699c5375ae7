"""The STAlloc paper, claim by claim: bench/results/paper.md, of the rows of bench/paper.toml.

    python bench/paper.py                                                    # the page, from what is kept
    export PYTHONPATH=$(scripts/python-package --release) PATH=$PWD/target/python-release/stalloc/_bin:$PATH
    python bench/paper.py --run micro-batch-16 h200-72b-R                    # those again, then the page
    python bench/paper.py --run                                              # what is not kept yet

A run records examples/megatron_gpt.py with no GPU, plans and simulates it. What came out is kept in bench/results/paper.json, with the command and the
seconds that it took, so that any row can be made again alone.
"""

import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from lib import pages, runs

CLAIMS, KEPT, PAGE = runs.BENCH / "paper.toml", pages.RESULTS / "paper.json", pages.RESULTS / "paper.md"
GIB = 1 << 30
RIVALS = ("pytorch", "pytorch-expandable", "gmlake")
MODELS = ("gpt2-345m", "llama2-7b", "qwen2.5-7b", "qwen2.5-14b", "moe")
SETTINGS = ("None", "R", "V", "VR", "ZR")
SIZES = ("7b", "14b", "32b", "72b")
#: The runs that a row is over, by the second word of its `from`.
SETS = {
    "dense": [f"{model}-{setting}" for model in MODELS[:-1] for setting in SETTINGS],
    "moe": [f"moe-{setting}" for setting in (*SETTINGS, "ZOR")],
    "R": [f"h200-{size}-R" for size in SIZES],
    "V": [f"h200-{size}-V" for size in SIZES],
}
SETS["all"] = SETS["dense"] + SETS["moe"]
#: A set with fewer runs than these has no row.
FEWEST = 3
HEADER = "| # | the paper says | setting | ours | PyTorch | expandable | GMLake | how |\n|---:|---|---|---|---|---|---|---|"


def call(*words, allowed: tuple[int, ...] = (0,)) -> tuple[str, float]:
    """What a command prints, and the seconds that it took."""
    start = time.monotonic()
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, cwd=runs.ROOT)
    if done.returncode not in allowed:
        raise RuntimeError(f"{' '.join(map(str, words))}\n{done.stderr[-3000:]}")
    return done.stdout, round(time.monotonic() - start, 1)


def command(run: dict, folder: str = "DIR") -> list[str]:
    """The command of a run, as it is typed."""
    steps = str(run.get("steps", 3))
    script = ["--", "python", "examples/megatron_gpt.py", *run["options"].split(), "--steps", steps]
    if run.get("ask") == "fit":
        return ["stalloc", "fit", "--dry-run", run["gpu"], "--world-size", str(run["world"]), "--ranks", run["ranks"], "--steps", steps, *script]
    gpu = ["--dry-run", run.get("gpu", "a100-80gb"), "--stacks", "0", "--steps", steps]
    return ["stalloc", "trace", *gpu, "--world-size", str(run.get("world", 1)), "--rank", str(run.get("rank", 0)), "-o", folder, *script]


def measure(run: dict) -> dict:
    """Records, plans and simulates a run, or asks whether it fits."""
    if run.get("ask") == "flops":
        return count_flops(run)
    if run.get("ask") == "fit":
        words = command(run)
        said, seconds = call(*words[:2], "--json", *words[2:], allowed=(0, 1))
        return {"seconds": seconds, **fits(json.loads(said))}
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        _, recorded = call(*command(run, folder))
        spent = [after - then for after, then in zip(os.times(), before)]
        trace = next(Path(folder).glob("*.trace"))
        planned = json.loads(call("stalloc", "plan", trace, "-o", f"{folder}/a.plan", "--json")[0])
        said, simulated = call("stalloc", "simulate", trace, "--json", "--smallest")
    found = json.loads(said)
    keep = ("peak_reserved", "smallest_capacity", "remaps", "driver_ms", "step_ms")
    results = {result["allocator"]: {key: result[key] for key in keep if result.get(key) is not None} for result in found["results"]}
    return {
        "seconds": round(recorded + simulated + planned["seconds"], 1),
        "record_seconds": recorded,
        "record_cpu_seconds": round(spent[2] + spent[3], 1),
        "requests": found["requests"],
        "steps": planned["steps"],
        "peak_allocated": found["peak_allocated"],
        "plan": {key: planned[key] for key in ("seconds", "static", "dynamic", "planned_reserved")},
        "results": results,
    }


def count_flops(run: dict) -> dict:
    """The FLOPs of a step without and with recomputation, as torch.utils.flop_counter counts them in a dry run."""
    counted, spent = [], 0.0
    for more in ("", " --recompute full"):
        with tempfile.TemporaryDirectory() as folder:
            words = command({**run, "ask": "", "options": run["options"] + more, "steps": 1}, folder)
            words[words.index("python") + 1 : words.index("python") + 2] = [__file__, "--flops", "examples/megatron_gpt.py"]
            said, seconds = call(*words)
        counted.append(int(said.rpartition("flops: ")[2].split()[0]))
        spent += seconds
    return {"seconds": round(spent, 1), "flops": counted}


def run_counted(arguments: list[str]) -> None:
    """Runs a script, and prints its FLOPs."""
    from torch.utils.flop_counter import FlopCounterMode

    sys.argv = arguments
    with FlopCounterMode(display=False) as counter:
        runpy.run_path(arguments[0], run_name="__main__")
    print(f"flops: {counter.get_total_flops()}")


def fits(answer: dict) -> dict:
    """What the page shows of `stalloc fit --json`."""
    candidate = answer["candidates"][0]
    keep = ("fits", "edge", "peak_reserved", "needed", "left", "rank")
    allocators = {name: {key: found.get(key) for key in keep} for name, found in candidate["allocators"].items()}
    return {"capacity": candidate["capacity"], "peak_allocated": candidate["peak_allocated"], "allocators": allocators}


def waste(run: dict, name: str) -> int:
    """Fragmentation memory: reserved and not used at the peak."""
    return run["results"][name]["peak_reserved"] - run["peak_allocated"]


def efficiency(run: dict, name: str) -> float:
    return 100 * run["peak_allocated"] / run["results"][name]["peak_reserved"]


def less(runs: list[dict], rival: str, ours: str = "stalloc") -> str:
    """How much less fragmentation memory there is than a rival's, in the sum over runs."""
    change = 100 * (sum(waste(run, ours) for run in runs) / sum(waste(run, rival) for run in runs) - 1)
    return f"{change:+.1f} %".replace("-", "−")


def over_runs(runs: list[dict], kind: str) -> list[str]:
    """The four figures of a row over several runs."""
    names = ("stalloc", *RIVALS)
    shares = {name: [efficiency(run, name) for run in runs] for name in (*names, "stalloc-open")}
    if kind == "efficiency":
        return [f"{min(shares[name]):.1f} to {max(shares[name]):.1f} %" for name in names]
    if kind == "fragmentation":
        shown = [f"{100 - statistics.mean(shares[name]):.1f} %, at most {100 - min(shares[name]):.1f}" for name in names]
        return [f"{shown[0]} (no plan {100 - statistics.mean(shares['stalloc-open']):.1f} %)", *shown[1:]]
    if kind == "less":
        return [f"with no plan {less(runs, 'pytorch', 'stalloc-open')} against PyTorch", *(f"{less(runs, name)} against it" for name in RIVALS)]
    if kind == "saved":
        gains = {name: [(waste(run, name) - waste(run, "stalloc")) / GIB for run in runs] for name in RIVALS}
        return ["held beyond ours by:", *(f"{statistics.mean(gain):+.1f} GiB on average, {max(gain):+.1f} at most".replace("-", "−") for gain in gains.values())]
    if kind == "scale":
        return [f"{shares[name][0] - shares[name][-1]:+.1f} points".replace("-", "−") for name in names]
    if kind == "static":
        held = [100 * run["plan"]["static"]["peak"] / run["peak_allocated"] for run in runs]
        return [f"{min(held):.1f} to {max(held):.1f} %", "", "", ""]
    if kind.startswith("worth"):
        return [f"{less(runs, 'pytorch', kind.partition(':')[2])} of it", "", "", ""]
    raise SystemExit(f"{kind}: not known")


def of_run(run: dict, row: dict) -> list[str]:
    """The four figures of a row that a run gives."""
    results, show = run.get("results", {}), row["show"]
    if show == "efficiency":
        figures = {name: f"{efficiency(run, name):.1f} % · {found['smallest_capacity'] / run['peak_allocated']:.3f}" for name, found in results.items()}
        ours = f"{figures['stalloc']}; no plan {figures['stalloc-open']}; {run['peak_allocated'] / GIB:.1f} GiB of tensors"
        return [ours, *(figures[name] for name in RIVALS)]
    if show == "planning":
        count, theirs = run["requests"], row["theirs"]
        cpu = f", {run['record_cpu_seconds']:.0f} of them CPU" if "record_cpu_seconds" in run else ""
        planned = f"planned in {run['plan']['seconds']:.1f} s: {1e6 * run['plan']['seconds'] / count:,.0f} µs a request, theirs {1e6 * theirs[1] / theirs[0]:,.0f}"
        return [f"{count / run['steps']:,.0f} requests a step; {run['steps']} steps recorded in {run['record_seconds']:.0f} s{cpu}; {planned}", "", "", ""]
    if show == "parts":
        static, dynamic = run["plan"]["static"]["peak"] / GIB, run["plan"]["dynamic"]["peak"] / GIB
        held = [f"{results[name]['peak_reserved'] / GIB:.2f} GiB" for name in ("stalloc", *RIVALS)]
        return [f"{held[0]} for {run['peak_allocated'] / GIB:.2f} of tensors; static {static:.2f}, dynamic {dynamic:.2f}", *held[1:]]
    if show == "verdict":
        found = run["allocators"][row["allocator"]]
        word = "runs" if found["fits"] else "edge" if found.get("edge") else "**out of memory**"
        return [f"{word}: {found['needed'] / GIB:.1f} of {run['capacity'] / GIB:.1f} GiB, rank {found['rank']}", "", "", ""]
    if show == "flops":
        plain, again = run["flops"]
        return [f"full recomputation computes {again / plain:.3f} times the FLOPs, so leaves {100 * plain / again:.1f} % of the throughput (350.4 of 464.3 is 75.5 %)", "", "", ""]
    if show == "regularity":
        static = run["plan"]["static"]["requests"]
        return [f"{run['requests'] / run['steps']:,.0f} requests a step of 4 micro-batches, on one of two ranks; {static:,} of {run['requests']:,} recorded have an offset", "", "", ""]
    raise SystemExit(f"{show}: not known")


def needs(row: dict, kept: dict) -> list[str]:
    """The runs that a row takes: of a set those that are kept."""
    if "from" in row:
        return [name for name in SETS[row["from"].split()[1]] if name in kept]
    return [row["run"]] if "run" in row else []


def is_measured(row: dict, kept: dict) -> bool:
    runs = needs(row, kept)
    return len(runs) >= FEWEST if "from" in row else all(name in kept for name in runs)


def line_of(row: dict, kept: dict) -> list[str]:
    """The cells of a row after its number."""
    runs = [kept[name] for name in needs(row, kept)]
    setting = row.get("setting", "")
    if "from" in row:
        kind, of = row["from"].split()
        figures, how = over_runs(runs, kind), f"`bench/paper.py` of their {len(runs)} runs"
        setting = f"{setting}{', ' if setting else ''}{len(runs)} of {len(SETS[of])} runs"
    elif "run" in row:
        figures, how = of_run(runs[0], row), f"`bench/paper.py --run {row['run']}`, {runs[0]['seconds']:.0f} s"
    else:
        figures, how = [row["text"], row.get("pytorch", ""), row.get("expandable", ""), row.get("gmlake", "")], row["command"]
    if "note" in row:
        figures[0] += f"; {row['note']}"
    return [row["says"], setting, *figures, how]


def text_of(claims: dict, kept: dict) -> str:
    """The page."""
    lines, behind, again, count, missing = [], [], 0, 0, 0
    for section in claims["section"]:
        rows = [row for row in section["rows"] if is_measured(row, kept)]
        missing += len(section["rows"]) - len(rows)
        if rows:
            lines += [f"\n## {section['title']}\n", section["words"].strip(), "", HEADER]
        for row in rows:
            count += 1
            lines.append(pages.line([count, *line_of(row, kept)]))
            again += bool(needs(row, kept))
            if "behind" in row:
                behind.append(f"- Row {count}: {row['behind']}")
    absent = [name for name in claims["runs"] if name not in kept]
    if absent:
        lines += ["\n## Not measured\n", f"{len(absent)} of {len(claims['runs'])} runs: `bench/paper.py --run {' '.join(absent)}`. Their {missing} rows are not on this page."]
    minutes = sum(run["seconds"] for run in kept.values()) / 60
    counted = f"{count} rows{f' ({missing} more are not measured)' if missing else ''}; {again} ({again / count:.0%}) are made again by their command with no GPU."
    counted += f" The {len(kept)} runs took {minutes:.0f} minutes in sum, the longest {max(run['seconds'] for run in kept.values()) / 60:.0f}, up to three at a time on two cores that others used too."
    return "\n".join([claims["head"].strip().replace("COUNTED", counted), "\n## Where ours is behind\n", *behind, *lines]) + "\n"


def main() -> None:
    if sys.argv[1:2] == ["--flops"]:
        return run_counted(sys.argv[2:])
    parser = runs.parser()
    parser.add_argument("--run", nargs="*", help="runs to make again; none named: those that are not kept")
    options = parser.parse_args()
    claims = tomllib.loads(CLAIMS.read_text())
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if options.run is not None:
        for name in options.run or [name for name in claims["runs"] if name not in kept]:
            run = claims["runs"][name]
            print(f"{name}: {' '.join(command(run))}", file=sys.stderr, flush=True)
            try:
                kept[name] = {"command": " ".join(command(run)), **measure(run)}
            except RuntimeError as error:
                print(error, file=sys.stderr, flush=True)
                continue
            kept = {name: kept[name] for name in claims["runs"] if name in kept}
            KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(text_of(claims, kept))


if __name__ == "__main__":
    main()
