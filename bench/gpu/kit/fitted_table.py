"""The parts of the kit's page on jobs that are made to fit, on sleeping, and on the time of kernels."""

from __future__ import annotations

import statistics
from typing import Any

GIB = 1 << 30


def median_ms(figures: dict[str, Any]) -> float:
    """A step, without those that warm up."""
    return 1e3 * statistics.median(figures["step_seconds"][figures["warm_up"] :])


def gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def fitted(page: Any) -> None:
    """Jobs with levers: what they need, and what a step takes."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for name, entry in page.under("pay/speed/").items():
        if entry["state"] == "done":
            runs.setdefault(name.rsplit("/", 1)[0].strip(), []).append(entry["figures"])
    if not runs:
        return
    plain = statistics.median(map(median_ms, runs["nothing"]))
    page.say("## Made to fit", "", "`stalloc run --fit=SIZE --only LEVER`, by turns; the median step of each turn. Named by lever and MiB to fit into.")
    rows = []
    for way, each in runs.items():
        steps = [median_ms(figures) for figures in each]
        longer = f"{100 * (statistics.median(steps) / plain - 1):+.0f} %"
        rows.append([way, " ".join(f"{step:.1f}" for step in steps), longer, gib(max(figures["peak_allocated"] for figures in each))])
    page.table(["llama-small", "steps, ms", "longer", "peak allocated, GiB"], rows)
    page.say("While another process holds the rest of the GPU:")
    rows = []
    for name in ("native", "fit"):
        for model, entry in page.under(f"pay/{name}/").items():
            figures = entry["figures"] or {}
            end = entry["state"] if entry["state"] != "done" else "out of memory" if figures["oom"] else "all steps"
            rows.append([model, "native" if name == "native" else "`run --fit`", end, gib(figures.get("peak_allocated", 0))])
    page.table(["job", "", "end", "peak allocated, GiB"], rows)
    rows = []
    plain_run = page.figures("room/values/llama-small")
    for name, entry in page.under("room/kept/").items():
        if plain_run and entry["state"] == "done":
            rows.append([name, "yes" if entry["figures"]["losses"] == plain_run["losses"] else "NO"])
    page.table(["lever", "losses of ten steps as natively (bf16)"], rows)


def copies(page: Any) -> None:
    found = page.figures("pay/copies")
    if not found:
        return
    page.say("## Copies between host and GPU", "", f"Page-locking: {found['pinning_gib_per_second']:.1f} GiB/s.")
    page.table(["MiB a copy", "way", "GiB/s"], [[row["mib"], row["way"], f"{row['gib_per_second']:.1f}"] for row in found["alone"]])
    rows = [["nothing", f"{found['products_ms']:.1f}"], *([row["way"], f"{row['ms']:.1f}"] for row in found["kernel_time_ms"])]
    page.table(["copies meanwhile", "matrix products, ms"], rows)


def asleep(page: Any) -> None:
    found, plain = page.figures("room/asleep/auto"), page.figures("room/asleep/native")
    if not found:
        return
    page.say("## The GPU given away and had back", "", "Three times in a training job, with another tensor on the GPU meanwhile; the first time page-locks the host's memory.")
    rows = []
    for cycle in found["cycles"]:
        cells = [f"{cycle[act]['seconds']:.2f} s, {cycle[act]['gib_per_second']:.1f} GiB/s" for act in ("asleep", "awake")]
        rows.append([gib(cycle["asleep"]["bytes"]), gib(cycle["asleep"]["memory"]), *cells])
    page.table(["live, GiB", "held, GiB", "sleep", "wake, another's memory given back included"], rows)
    if plain:
        graph = lambda figures: figures["losses"][2::3]
        page.say(f"A graph replayed after each gives the values of one in a job that never slept, bit for bit: {'yes' if graph(found) == graph(plain) else 'NO'}.")


def kernels(page: Any) -> None:
    rows = []
    for model, entry in page.under("profile/").items():
        if entry["state"] == "done":
            found = entry["figures"]["kernels"]
            wall, busy = 1e3 * found["seconds"] / found["steps"], found["busy_us"] / 1e3 / found["steps"]
            rows.append([model, f"{wall:.1f}", f"{busy:.1f}", f"{100 * busy / wall:.0f} %"])
    if rows:
        page.say("## Time of kernels", "", "Natively, three steps under PyTorch's profiler, of the device's activity alone.")
        page.table(["job", "step, ms", "kernels, ms", "share"], rows)


PARTS = (fitted, copies, asleep, kernels)
