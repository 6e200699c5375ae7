"""A notebook records cells, with a GPU and without, and shows why they ran out of memory."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import COMMAND, PROGRAMS

ROOT = Path(__file__).parents[2]
GPU = {"STALLOC_DRYRUN_TOTAL_MIB": "1024", "STALLOC_DRYRUN_CONTEXT_MIB": "200"}
LEAK = (PROGRAMS / "why" / "leak_by_list.py").read_text()
LINE = next(number for number, line in enumerate(LEAK.splitlines(), 1) if "# named" in line)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a kernel: the packages that notebooks run on, and a kernel that is this Python."""
    packages = subprocess.run([ROOT / "scripts" / "notebook-packages"], check=True, text=True, capture_output=True).stdout.strip()
    folder = tmp_path_factory.mktemp("jupyter")
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python", "language": "python"}))
    path = os.pathsep.join([str(COMMAND.parents[2]), packages])
    return {"PYTHONPATH": path, "JUPYTER_PATH": str(folder), "IPYTHONDIR": str(folder), "JUPYTER_PLATFORM_DIRS": "1"}


def execute(env: dict[str, str], *cells: str, before: tuple[str, ...] = ()) -> list[list[dict]]:
    command = [*before, sys.executable, str(PROGRAMS / "run_notebook.py")]
    done = subprocess.run(command, input=json.dumps(cells), env=os.environ | GPU | env, text=True, capture_output=True)
    # Where it runs under `stalloc trace` only for the stand-in GPU, nothing is recorded and that command says so by its status.
    assert "[[" in done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout[done.stdout.index("[[") :])


def printed(outputs: list[dict]) -> str:
    return "".join(one["text"] for one in outputs if one["output_type"] == "stream" and one["name"] == "stdout")


def shown(outputs: list[dict], kind: str) -> str:
    return next((one["data"][kind] for one in outputs if kind in one.get("data", {})), "")


def is_the_page(outputs: list[dict]) -> bool:
    page = html.unescape(shown(outputs, "text/html"))
    return page.startswith("<iframe srcdoc=") and '<script type="text/plain" id="data">' in page


def test_a_cell_without_a_gpu_runs_alone_on_a_stand_in_and_shows_its_report(kernel, tmp_path):
    outputs = execute(
        kernel,
        "import stalloc",
        f"%%stalloc\n{LEAK}",
        "stalloc.report()",
        "stalloc.report().figures['inputs'][0]['name'], repr(stalloc.report())",
        "stalloc.read_trace(next(stalloc._report._last.glob('*.trace')))",
        "with stalloc.record():\n    pass",
    )
    for cell in (outputs[1], outputs[2]):
        assert is_the_page(cell), cell
        assert "memory grows" in printed(cell) and f"cell.py:{LINE} <module>" in printed(cell), printed(cell)
    assert "No GPU here" in printed(outputs[1])
    assert len(shown(outputs[3], "text/plain")) < 400, shown(outputs[3], "text/plain")
    assert shown(outputs[4], "text/plain").startswith("<recording of 1 devices: <trace of device 0, ")
    assert "%%stalloc" in outputs[5][0]["evalue"], outputs[5]


def test_a_cell_or_a_block_with_a_gpu_is_recorded_where_it_runs(kernel, tmp_path):
    on_gpu = (str(COMMAND), "trace", "--dry-run", "rtx4090", "-o", str(tmp_path), "--", "env", "-u", "STALLOC_TRACE_DIR")
    outputs = execute(
        kernel,
        "import stalloc, torch\nkept = torch.zeros(100, 1 << 20, device='cuda')",
        "%%stalloc\nx = torch.zeros(50, 1 << 20, device='cuda')  # of the notebook\ndel x",
        "with stalloc.record() as recorded:\n    y = torch.zeros(1 << 20, device='cuda')",
        "recorded.report().device['peak_allocated'], recorded",
        before=on_gpu,
    )
    assert is_the_page(outputs[1]), outputs[1]
    assert "200 MiB" in printed(outputs[1]) and "<module>" in printed(outputs[1]), printed(outputs[1])
    assert shown(outputs[3], "text/plain").startswith(f"({400 * 2**20 + 4 * 2**20}, <stalloc recording: "), outputs[3]
