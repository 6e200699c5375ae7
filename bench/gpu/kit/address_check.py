"""Whether the code of PyTorch's allocator that stalloc carries decides as the real one did, address for address: a row of `fidelity` as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

COLUMNS = ("file", "device", "rules", "segments", "starts", "requests", "segment_events", "empty_cache", "peak_reserved", "result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    done = subprocess.run([options.program, options.snapshot], capture_output=True, text=True, check=False)
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in done.stdout.splitlines()[2:]]
    found = [dict(zip(COLUMNS, row)) for row in rows if len(row) == len(COLUMNS)]
    if not found:
        sys.exit(f"nothing was compared: {done.stdout}{done.stderr}")
    options.output.write_text(json.dumps({"devices": found, "exact": done.returncode == 0}))


if __name__ == "__main__":
    main()
