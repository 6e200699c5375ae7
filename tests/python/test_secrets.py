"""Secrets of a command line and its environment are in nothing that a command writes or prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from runs import COMMAND, PROGRAMS, run

import stalloc

GPU = "sm=8,memory=1GiB,capability=8.0,context=16MiB,name=small"
HOME = "/tmp/anna.karenina"
#: The secrets alone, each once in a word or a variable.
SECRETS = {
    "option": "b3Fuzzy",
    "joined": "c4Tumble",
    "variable": "d5Marble",
    "hugging": "hf_QwErTyUiOpAsDfGh",
    "openai": "sk-ZxCvBnMaSdFgHjKl",
    "url": "f7Pebble",
    "path": "ghp_PoIuYtReWqLkJhGfDs",
    "bucket": "AKIAABCDEFGHIJKLMNOP",
    "owner": "anna.karenina",
    "token": "h9Walnut",
    "password": "i1Copper",
    "database": "j2Velvet",
}
WORDS = (
    *("--hf-token", SECRETS["option"], f"--api_key={SECRETS['joined']}", f"WANDB_API_KEY={SECRETS['variable']}", SECRETS["hugging"]),
    *(f"--key={SECRETS['openai']}", f"https://me:{SECRETS['url']}@host/data", f"/data/{SECRETS['path']}/x", f"s3://{SECRETS['bucket']}/x", f"{HOME}/data"),
)
ENVIRONMENT = {
    "HF_TOKEN": SECRETS["token"],
    "PGPASSWORD": SECRETS["password"],
    "DATABASE_URL": f"postgres://me:{SECRETS['database']}@host/x",
    "HOME": HOME,
    "STALLOC_COMMAND": str(COMMAND),
}


@pytest.mark.parametrize("kind", ["dumps", "tried"])
def test_no_secret_is_written_or_printed(tmp_path, kind):
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir()
    environment = ENVIRONMENT | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "temporary")}
    printed, program, traces = [], (sys.executable, PROGRAMS / "planted_secrets.py"), tmp_path / "traces"

    def command(*words: str | Path, status: int = 0) -> None:
        done = run(*words, env=environment, cwd=tmp_path)
        assert done.returncode == status, done.stderr
        printed.extend([done.stdout, done.stderr])

    if kind == "dumps":
        own = ("env", "-u", "STALLOC_TRACE_DIR", "STALLOC_MODE=Torch", f"STALLOC_OUT_OF_MEMORY={tmp_path / 'dumps'}")
        command("trace", "--dry-run", GPU, "-o", traces, "--", *own, *program, "die", *WORDS, status=1)
        command("run", "--dry-run", GPU, "--plan", tmp_path / "plans", "--", *program, "top", *WORDS)
        command("trace", "--dry-run", GPU, "-o", traces, "--", *program, "learn", *WORDS)
        command("report", traces, "-o", tmp_path / "report.html")
        command("info", traces)
        (dump,) = (tmp_path / "dumps").glob("*/memory.pickle")
        command("report", dump, "-o", tmp_path / "dump.html", "--json")
        assert "planted_secrets.py top --hf-token ***" in printed[2], printed[2]
    else:
        command("fit", "--dry-run", GPU, "-o", tmp_path / "fit.html", "--", *program, "fit", *WORDS)
        command("levers", "--dry-run", GPU, "--only", "fused", "-o", tmp_path / "levers.html", "--", *program, "levers", *WORDS)
        command("fit", "--dry-run", GPU, "--", *program, "refuse", *WORDS, status=2)
        assert "unrecognized arguments: --hf-token ***" in "".join(printed), printed[-1]
        assert list((tmp_path / "cache" / "stalloc" / "fit").iterdir()), "there is a cache to search"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    contents = {str(path): path.read_bytes() for path in files if path.suffix != ".so"}
    contents |= {f"events of {path}": repr(stalloc.read_trace(path)).encode() for path in files if path.suffix == ".trace"}
    contents |= {f"line {number} that was printed": text.encode() for number, text in enumerate(printed)}
    found = [(name, where) for name, secret in SECRETS.items() for where, content in contents.items() if secret.encode() in content]
    assert found == []
