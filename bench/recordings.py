"""Judge the allocators on recordings of real jobs, each planned from itself, and write bench/results/evaluation.md.

    python bench/recordings.py --stalloc target/release/stalloc FOLDER... --write
"""

import argparse
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import page
from allocators import ALLOCATORS

MIB = 1 << 20
#: Commands at the same time.
PROCESSES = 2


def simulate(command: str, recording: Path, device: int) -> dict:
    """What `stalloc simulate` says of one device."""
    arguments = [command, "simulate", recording, "--device", str(device), "--smallest", "--json"]
    return json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def row(command: str, recording: Path, device: int) -> str:
    """A row of the table."""
    said = simulate(command, recording, device)
    peak = said["peak_allocated"]
    results = {result["allocator"]: result for result in said["results"]}
    cells = [recording.name.removesuffix(".zst").removesuffix(".pickle"), str(device), f"{said['requests']:,}", f"{peak / MIB:,.0f}"]
    reserved = said["actual_peak_reserved"]
    cells.append(f"{peak / reserved:.3f}" if reserved else "-")
    for name in ALLOCATORS:
        capacity = results[name]["smallest_capacity"]
        cells.append(f"{results[name]['efficiency']:.3f} · {1000 * capacity / peak:.0f}" if capacity else "-")
    cells.append(f"{100 * results['stalloc']['planned'] / said['requests']:.0f} %")
    return "| " + " | ".join(cells) + " |"


def devices(command: str, recording: Path) -> list[int]:
    """The devices of a recording that asked for anything."""
    arguments = [command, "info", recording, "--json"]
    info = json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    return [device["device"] for device in info["devices"] if device["requests"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="recordings: snapshots or traces")
    parser.add_argument("--stalloc", default="stalloc", help="the command")
    parser.add_argument("--write", action="store_true", help="write bench/results/evaluation.md")
    arguments = parser.parse_args()
    files = [path for folder in arguments.folders for path in sorted(folder.iterdir()) if path.is_file()]
    wanted = [(path, device) for path in files for device in devices(arguments.stalloc, path)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        rows = list(pool.map(lambda each: row(arguments.stalloc, *each), wanted))
    columns = ["recording", "device", "requests", "peak allocated, MiB", "recorded E"]
    columns += [f"{title}: E · capacity" for title in ALLOCATORS.values()] + ["planned"]
    table = "\n".join(["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1), *rows])
    print(table)
    if arguments.write:
        page.write("recordings, written by bench/recordings.py", table)


if __name__ == "__main__":
    main()
