"""What README and docs tell people to type works, and what they point to is there.

Every ```sh block is run, line by line, in a folder with a small `train.py` and a `snapshot.pickle`, unless the comment
`<!-- not run: WHY -->` follows it; README's and the tutorial's in one shell, in order. `stalloc run` and `stalloc trace` get a stand-in GPU where the line has none. Run or not, each
option of `stalloc` in any block is one that the command has.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from runs import COMMAND

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/results/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n?<!-- not run: (.*?) -->)?", re.M | re.S)

#: Why a block is run with the first hour alone.
RUNS_OUT = "it has to run out of memory"

TRAIN = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def blocks(page: Path):
    return [(language, code, reason) for language, code, reason in BLOCK.findall(page.read_text())]


def commands(code: str) -> list[str]:
    """The commands of a block, each on one line."""
    joined = code.replace("\\\n", " ")
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines()) if line]


@functools.cache
def options(*subcommand: str) -> frozenset[str]:
    said = subprocess.run([COMMAND, *subcommand, "--help"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return frozenset(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", said.stdout))


@pytest.mark.parametrize("name", NAMES)
def test_each_option_of_the_command_that_a_page_names_exists(name):
    for language, code, _ in blocks(ROOT / name):
        if language not in ("", "sh", "console"):
            continue
        for line in commands(code):
            found = re.search(r"(?:^|[\s/(])stalloc ([a-z]+)((?: .*)?)$", line)
            if not found or (language == "" and not line.lstrip("$ ").startswith("stalloc ")):
                continue
            own = f"{found[2]} ".split(" -- ")[0]
            for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", own):
                assert option in options(found[1]), f"{line}: `stalloc {found[1]}` has no {option}"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_points_to_is_there(name):
    page = ROOT / name
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"a link to {target}"
    if name == "CHANGELOG.md":
        return  # it speaks of what was
    for path in re.findall(r"(?<![\w./-])((?:scripts|bench|tests|crates|examples|python|fuzz)/[\w./-]*\w)", text):
        stands_for_something = re.search(r"/[A-Z]+$", path)
        assert stands_for_something or (ROOT / path).exists(), f"{path} is named"


#: Figures of memory, which pages show as commands print them, to half a per cent: the arena's tuning changes; times differ from run to run.
MEMORY = re.compile(r"(\d+\.\d\d) GiB")


def memory(text: str) -> set[float]:
    return {float(figure) for figure in MEMORY.findall(text)}


def shown() -> dict[str, set[float]]:
    """The figures of memory in the output that the tutorial shows below a block, by the block's last command; of what learns on the way, none."""
    below: dict[str, set[float]] = {}
    last = ""
    for language, code, _ in blocks(ROOT / "docs/tutorial.md"):
        if language == "sh":
            last = with_a_gpu(commands(code)[-1])
        elif last and "stalloc: dev0" not in code:
            below[last] = memory(code)
    return below


#: What a newcomer types first, page after page.
FIRST_HOUR = ("README.md", "docs/tutorial.md")


def a_users_folder(folder: Path) -> dict[str, str]:
    """A folder with what the pages speak of; the environment of a shell in it."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "crates/trace/tests/data/unsplit.pickle", folder / "snapshot.pickle")
    path = f"{COMMAND.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {key: value for key, value in os.environ.items() if not key.startswith("STALLOC")} | {"PATH": path}


def with_a_gpu(line: str) -> str:
    """The line, with a stand-in GPU if it has none."""
    return line if "--dry-run" in line else re.sub(r"^stalloc (run|trace) ", r"stalloc \1 --dry-run h100-80gb ", line)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIRST_HOUR])
def test_each_block_is_run_or_says_why_not(name, tmp_path):
    wanted = [code for language, code, reason in blocks(ROOT / name) if language == "sh" and not reason]
    if not wanted:
        return
    clean = a_users_folder(tmp_path)
    for code in wanted:
        environment = dict(clean)
        for line in commands(code):
            if set_ := re.fullmatch(r"export (\w+)=(\S+)", line):
                environment[set_[1]] = set_[2]
            done = subprocess.run(["bash", "-ec", with_a_gpu(line)], cwd=tmp_path, env=environment, text=True, capture_output=True)
            assert done.returncode == 0, f"{name}: {line}\n{done.stdout}{done.stderr}"


def test_the_first_hour_can_be_typed_into_one_shell(tmp_path):
    """In order, so that what a command leaves behind, in the folder or in the shell, is there for the next."""
    lines = [
        with_a_gpu(line)
        for name in FIRST_HOUR
        for language, code, reason in blocks(ROOT / name)
        if language == "sh" and (not reason or reason == RUNS_OUT)
        for line in commands(code)
    ]
    typed = "".join(f"{line} </dev/null\necho \"typed {number}: $?\"\n" for number, line in enumerate(lines))
    shell = subprocess.run(["bash"], input=typed, cwd=tmp_path, env=a_users_folder(tmp_path), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    answers = re.split(r"typed \d+: (\d+)\n", shell.stdout)
    assert len(answers) == 2 * len(lines) + 1, shell.stdout
    assert len(lines) > 6
    assert any(shown().values())
    for line, figures in shown().items():
        said = "".join(said for typed, said in zip(lines, answers[::2]) if typed == line)
        unlike = {figure for figure in figures if not any(abs(figure - now) <= 0.005 * figure for now in memory(said))}
        assert not unlike, f"the tutorial shows {unlike} GiB of {line}\n{said}"
    for line, said, status in zip(lines, answers[::2], answers[1::2]):
        if line.startswith("STALLOC_DRYRUN_TOTAL_MIB") and " trace " in line:
            assert status != "0" and "OutOfMemoryError: CUDA out of memory" in said, said
        else:
            assert status == "0", f"{line}\n{said}"


def test_the_page_of_the_paper_is_what_its_script_makes_of_what_is_kept(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    spec = importlib.util.spec_from_file_location("paper", ROOT / "bench/paper.py")
    paper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(paper)
    claims, kept = tomllib.loads(paper.CLAIMS.read_text()), json.loads(paper.KEPT.read_text())
    assert paper.PAGE.read_text() == paper.text_of(claims, kept), "python bench/paper.py"
    assert all(run["command"] == " ".join(paper.command(claims["runs"][name])) for name, run in kept.items())
    rows = [line.split(" | ") for line in paper.PAGE.read_text().splitlines() if re.match(r"\| \d", line)]
    assert len(rows) >= 40
    assert all(len(row) == 8 and row[1] and row[7].strip(" |") for row in rows), "a row without its claim or its command"


def sources() -> str:
    files = [path for folder in ("python", "crates") for ending in ("py", "rs", "cpp", "h") for path in (ROOT / folder).rglob(f"*.{ending}")]
    # Strings that go on in the next line, as C++, Python and Rust have them.
    return re.sub(r'"\s*\n\s*f?"|\\\n\s*', "", "\n".join(path.read_text() for path in files))


def test_troubleshooting_has_messages_that_the_code_has():
    code = re.sub(r"\{[^{}]*\}", "N", sources())
    rows = re.findall(r"^\| `([^`]+)`", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
    assert len(rows) > 15
    for message in rows:
        assert message in code, f"nothing says {message!r}"


def test_each_variable_that_the_environment_page_has_is_one_that_the_code_has():
    code = sources()
    for name in re.findall(r"`(STALLOC_\w+)`", (ROOT / "docs/environment.md").read_text()):
        assert name in code, name


def test_the_table_of_versions_has_every_pair_that_is_tried():
    checked = subprocess.run([ROOT / "scripts/test-matrix", "--check"], text=True, capture_output=True)
    assert checked.returncode == 0, checked.stdout
