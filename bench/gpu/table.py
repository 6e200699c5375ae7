"""The results of `run.py` as a page of Markdown."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = {"native": "PyTorch", "expandable": "PyTorch, expandable segments", "stalloc": "**stalloc**"}


def page(results: dict[str, Any]) -> str:
    """The whole page; what was not measured has a dash."""
    same, is_dry = results["same"], results["dry_run"] is not None
    if "native" not in same:
        return "# On a GPU\n\nThere was no time for a single run.\n"
    native = same["native"]
    columns = ["allocator", "peak allocated", "peak reserved", "efficiency", "from the plan", "largest micro-batch"]
    if not is_dry:
        columns.insert(4, "tokens per second")
    lines = [
        "# On a GPU" if not is_dry else "# On the stand-in GPU",
        "",
        *heading(results, native),
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
        *(row(allocator, results, is_dry) for allocator in NAMES if allocator in same),
        "",
        *fidelity(results["fidelity"], is_dry),
    ]
    return "\n".join(lines)


def heading(results: dict[str, Any], native: dict[str, Any]) -> list[str]:
    """What ran, and where."""
    size = native.get("parameters", 0) / 1e9
    what = (
        f"A Llama of {size:.2f} billion parameters, bf16, AdamW, activations recomputed, micro-batches of "
        f"{native['micro_batch']} sequences, two in a step."
    )
    if results["dry_run"]:
        note = (
            f"No GPU: PyTorch's and stalloc's own code over a stand-in for {results['dry_run']} that counts memory and computes "
            "nothing. There are no times, and nothing but PyTorch takes memory."
        )
        return [what, "", note, "", machine(native)]
    return [what, "", machine(native)]


def machine(native: dict[str, Any]) -> str:
    """The machine in a line."""
    processor = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"Machine: {native['device']} ({native['total'] / 2**30:.1f} GiB), driver {driver()}, PyTorch {native['torch']} "
        f"(CUDA {native['cuda']}); {processor}, {platform.system()} {platform.release()}, Python {platform.python_version()}."
    )


def driver() -> str:
    """The driver's version, if one can be asked."""
    if shutil.which("nvidia-smi") is None:
        return "none"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


def row(allocator: str, results: dict[str, Any], is_dry: bool) -> str:
    """One allocator's."""
    figures = results["same"][allocator]
    if figures["oom"]:
        cells = ["-", "out of memory", "-", *([] if is_dry else ["-"]), "-"]
    else:
        cells = [
            gib(figures["peak_allocated"]),
            gib(figures["peak_reserved"]),
            f"{100 * figures['peak_allocated'] / max(figures['peak_reserved'], 1):.1f} %",
            *([] if is_dry else [f"{figures['tokens_per_second']:,.0f}"]),
            from_plan(figures.get("stalloc")),
        ]
    most, is_certain = results["largest"].get(allocator, (0, True))
    cells.append("-" if not most else str(most) if is_certain else f"at least {most}")
    return f"| {' | '.join([NAMES[allocator], *cells])} |"


def from_plan(figures: dict[str, Any] | None) -> str:
    """Share of the requests that the plan served."""
    return f"{100 * figures['planned'] / max(figures['requests'], 1):.2f} %" if figures else "-"


def gib(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.2f} GiB"


def fidelity(compared: dict[str, Any] | None, is_dry: bool) -> list[str]:
    """How the recording that was planned compares with another of the same program."""
    if compared is None:
        return []
    there = "on the GPU" if not is_dry else "of the run under PyTorch's allocator"
    lines = []
    for device in compared["devices"]:
        lines.append(
            f"The recording without the GPU has {device['requests_a']:,} requests, the one {there} {device['requests_b']:,}; "
            f"{device['aligned']:,} are the same in size, stream and place, {device['differences']:,} differ."
        )
    return [*lines, ""]
