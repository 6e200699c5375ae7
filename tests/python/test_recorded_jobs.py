"""Jobs that ran on real GPUs, written anew: on the stand-in they ask for exactly what was recorded there, event for event.

The recordings are other people's and no part of this repository. What is compared is a digest of each that is kept here; where the recordings
lie next to the checkout, the digest is held against them, and a difference is shown.
"""

import hashlib
import json
import pickle
import sys
import warnings
from pathlib import Path

import pytest
import zstandard
from runs import PROGRAMS, run

RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "snapshots"
GPUS = {"cs336_ctx128_fp32_train": "h100-80gb", "cs336_medium_1024_train": "a100-80gb", "octree_nca_small": "a100-80gb"}
KEPT = json.loads((Path(__file__).parent / "data" / "recorded_jobs.json").read_text())


def digest(snapshot: dict) -> dict[str, object]:
    """What a snapshot's device was asked for: sizes in order, and which request each release is of (before the start: of what size)."""
    requests: dict[int, int] = {}
    lines = []
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            requests[event["addr"]] = len(lines)
            lines.append(f"+{event['size']}")
        elif event["action"] == "free_requested":
            lines.append(f"-{requests.pop(event['addr'], 'before')} {event['size']}")
    return {"events": len(lines), "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


@pytest.mark.parametrize("name", GPUS)
def test_a_recorded_job_written_anew_asks_for_what_was_recorded_on_a_real_gpu(name, tmp_path):
    written = tmp_path / "snapshot.pickle"
    # PyTorch asked for cuBLAS's workspaces once, then; 2.15 asks at each call unless told so.
    ran = run(
        *("trace", "--dry-run", GPUS[name], "-o", tmp_path / "traces", "--"),
        *(sys.executable, PROGRAMS / "recorded_jobs.py", name, written),
        env={"TORCH_CUBLAS_WORKSPACE_CACHE": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert digest(pickle.loads(written.read_bytes())) == KEPT[name], difference(name, written)


def difference(name: str, written: Path) -> str:
    """The first differences from the recording, if it is there."""
    recording = RECORDINGS / f"{name}.pickle.zst"
    return run("info", "--compare", recording, written).stdout if recording.exists() else "the recording is not here to compare with"


@pytest.mark.parametrize("name", GPUS)
def test_what_is_kept_of_a_recording_is_what_it_holds(name):
    recording = RECORDINGS / f"{name}.pickle.zst"
    if not recording.exists():
        warnings.warn(f"SKIPPED: no real snapshot {recording.name} in {RECORDINGS}", stacklevel=1)
        pytest.skip(f"the recording is not in {RECORDINGS}")
    with zstandard.open(recording) as file:
        assert digest(pickle.load(file)) == KEPT[name]
