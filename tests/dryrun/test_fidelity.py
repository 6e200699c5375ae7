"""The model of PyTorch's allocator against the allocator of the PyTorch that is installed, address for address."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def compared(files):
    """Rows of the comparison of snapshots with the model: name to all columns."""
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "examples" / "fidelity"
    done = subprocess.run([built, *map(str, files)], capture_output=True, text=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert rows, done.stderr
    return {row[0]: row for row in rows}


def test_every_setting_places_every_block_where_pytorch_does(answer, tmp_path):
    limits = answer("churn", tmp_path)
    files = []
    for name, limit in sorted(limits.items(), key=lambda item: item[1] or 0):
        files += ["--memory-limit", "none" if limit is None else limit, tmp_path / f"{name}.pickle"]
    rows = compared(files)
    assert rows.keys() == limits.keys()
    assert {name: row[-1] for name, row in rows.items()} == dict.fromkeys(limits, "exact")
    # The settings matter: most make the allocator take other segments than the rest.
    segments = {name: int(row[6]) for name, row in rows.items()}
    assert all(count > 80 for count in segments.values()), segments
    assert len(set(segments.values())) > len(segments) // 2, segments
