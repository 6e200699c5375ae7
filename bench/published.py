"""Run strangers' training programs without a GPU, and hold the peaks against those that they measured on real ones and published.

    PYTHONPATH=$(scripts/python-package --release) python bench/published.py [--only TEXT] [--write]

The programs and the figures are listed in bench/published.toml; repositories and environments are those of bench/fidelity.py. With --write the
tables go into bench/results/fidelity.md.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lib import pages, runs, strangers

FIGURES = runs.BENCH / "published.toml"
GIB = 1 << 30
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GB": 10**9, "GiB": GIB}
OUT_OF_MEMORY = "out of memory"
#: What the cards hold, GiB.
CARDS = {"a100-80gb": 79.15, "h100-80gb": 79.19, "b200": 178.35, "rtx4090": 23.65, "sm=188,memory=97249MiB,capability=12.0,name=RTX PRO 6000": 94.97}
HEADER = "| repository | what | peak of | published, GiB | dry run, GiB | off by at most |\n|---|---|---|---|---|---|"


@dataclass
class Peak:
    """A published figure, as it is printed there and in which unit, and what the dry run says, in GiB."""

    source: str
    published: str
    unit: str
    dry: float
    card: float

    @property
    def real(self) -> float:
        return float(self.published) * UNITS[self.unit] / GIB

    @property
    def error(self) -> float:
        """How far off, as a part of what is true."""
        return abs(self.dry - self.real) / self.real

    @property
    def is_low(self) -> bool:
        """Whether the program would not get through with what the dry run says."""
        return self.dry < self.real and not self.same

    @property
    def same(self) -> bool:
        """To the last digit that was published."""
        dry = self.dry * GIB / UNITS[self.unit]
        if "." in self.published:
            return f"{dry:.{len(self.published.partition('.')[2])}f}" == self.published
        return math.floor(dry) == int(self.published)


def measure(program: dict, figure: dict, tree: Path, interpreter: Path) -> str:
    """All that a program prints in a dry run, also where it ends with an error."""
    strangers.check_out(program, figure, tree)
    command, settings = strangers.dry_run(program, figure, tree, interpreter)
    done = subprocess.run(command, text=True, capture_output=True, cwd=tree / program.get("in", "."), env=settings)
    return done.stdout + done.stderr


def table(rows: list[tuple[dict, dict, list[Peak]]]) -> str:
    """A row for each command."""
    lines = [HEADER]
    for program, figure, peaks in rows:
        published = ", ".join(f"{peak.real:.3f}".rstrip("0").rstrip(".") for peak in peaks)
        dry = "the same" if all(peak.same for peak in peaks) else ", ".join(f"{peak.dry:.3f}" for peak in peaks)
        off = "0" if dry == "the same" else f"{max(peak.error for peak in peaks):.2%}"
        lines.append(f"| {program['repository']} | {figure['what']} | {figure['of']} | {published} | {dry} | {off} |")
    return "\n".join(lines)


def summary(peaks: list[Peak], refused: list[bool], fitted: int) -> str:
    """What the tables come to, and the three measures of estimators."""
    sources = len({peak.source for peak in peaks})
    near = sum(peak.error <= 0.01 for peak in peaks)
    low = sum(peak.is_low for peak in peaks)
    saved = statistics.mean(0 if peak.is_low else peak.card - peak.dry for peak in peaks)
    return (
        f"{len(peaks)} published peaks of {sources} repositories: {near} within 1 % ({near / len(peaks):.0%}), {sum(peak.same for peak in peaks)} to the last digit,"
        f" the worst off by {max(peak.error for peak in peaks):.2%}; median error {statistics.median(peak.error for peak in peaks):.4%}, mean"
        f" {statistics.mean(peak.error for peak in peaks):.4%}. Taken as the limit, the dry run's figure would have failed for {low} ({low / len(peaks):.0%}, for want of"
        f" {max((peak.real - peak.dry for peak in peaks if peak.is_low), default=0) * 1024:.0f} MiB at most) and saved {saved:.2f} GiB of a card on average."
        f" {sum(refused)} of {len(refused)} runs that were out of memory are so in the dry run, and {fitted} that were not are not."
    )


def main() -> int:
    """Run what is asked for and print the tables."""
    parser = strangers.arguments()
    parser.add_argument("--only", default="", help="figures whose repository, name or command holds this text")
    parser.add_argument("--keep", type=Path, help="a file that what the programs print is kept in: what is there is not run again")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write takes the whole list")
    programs = strangers.Strangers(options)
    kept = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    rows, refused = [], []
    for program, figure, tree, interpreter in programs.of(FIGURES, "figure", ("what", "command")):
        name = f"{program['repository']}, {figure['what']}, {figure['of']}"
        gpu, wanted = figure.get("gpu", program["gpu"]), figure["published"]
        key = f"{program['repository']} {program['commit']} {figure['command']} {gpu}"
        if edits := figure.get("edits"):
            key += f" {json.dumps(edits)}"
        try:
            said = kept.get(key) or measure(program, figure, tree, interpreter)
        except runs.Failed as error:
            programs.failed(error)
            continue
        values = re.findall(program["found"], said)
        if options.keep and (wanted == OUT_OF_MEMORY or len(values) == len(wanted)):
            kept[key] = said
            options.keep.write_text(json.dumps(kept))
        if wanted == OUT_OF_MEMORY:
            refused.append("CUDA out of memory" in said)
            print(f"{name}: out of memory there, {'here too' if refused[-1] else 'not here'}", flush=True)
            continue
        if len(values) != len(wanted):
            programs.failed(f"{name}: {len(values)} figures in place of {len(wanted)}:\n{strangers.last_lines(said)}")
            continue
        scale, unit = UNITS[program["unit"]] / GIB, program.get("published_in", program["unit"])
        peaks = [Peak(program["repository"], there, unit, float(value) * scale, CARDS[gpu]) for value, there in zip(values, wanted, strict=True)]
        rows.append((program, figure, peaks))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    peaks = [peak for _, _, found in rows for peak in found]
    if peaks:
        print(summary(peaks, refused, len(rows)))
    if options.write and peaks:
        pages.write("published total", summary(peaks, refused, len(rows)), "fidelity.md")
        pages.write("published", table(rows), "fidelity.md")
    return 1 if programs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
