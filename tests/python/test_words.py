"""One word for one thing: the words that we do not use are found nowhere.

Words whose everyday meaning is needed all the time (part, run, copy, place) cannot be found by a search and are not here.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What is not ours to word: the history, licences, recorded or generated files, and this list.
NOT_READ = re.compile(
    r"^(CHANGELOG\.md|LICENSE|.*\.lock|.*package-lock\.json|crates/report/assets/.*|.*\.(png|trace|pickle|txt|zst|gz|csv)"
    r"|tests/python/test_words\.py)$"
)

#: An old word or phrase, and what to say for it.
OLD = {
    r"beside": "the fallback; next to",
    r"again and again": "repeating, repeatedly",
    r"as it happened|\"what happened\"": "recorded",
    r"asked again, it can": "it is safe to retry",
    r"makes? no sense|make no sense": "say what is wrong with it",
    r"outlives its place": "outlives its planned lifetime",
    r"all that lasts": "the optimizer states; persistent",
    r"shares nothing with": "an independent checker",
    r"recorded whole": "recorded completely",
    r"lost": "position unknown",
    r"extra": "not in the plan",
    r"occupied": "address taken",
    r"utili[sz]ation": "efficiency",
    r"moves": "remaps",
    r"mov(?:e|ed|ing) (?:memory|physical|pages)|memory (?:is |was |that is |that was )?moved": "remap",
    r"homes?": "offset, address",
    r"beats?": "step",
    r"rounds?": "step",
}

#: Where an old word is right, by the word: files, the exact text around it, and why.
EXCEPTIONS: dict[str, list[tuple[str, str, str]]] = {
    "lost": [
        (
            r"crates/(recorder|learning|cli|python|trace|jobs|runtime|allocator|synthesizer)/.*|tests/python/.*|python/.*",
            r"lost_events|\b[Ll]ost\b",
            "events or memory that are gone; a position in the plan is never lost",
        ),
        (r"crates/(planner|plan)/.*|docs/planner\.md|bench/results/planner\.md", r"\b(lost|LOST)\b", "space that nothing can fill any more, in pure mathematics"),
    ],
    "extra": [
        (r"crates/trace/src/format/.*", r"\bextra\b", "a column of the file format"),
        (r"crates/report/web/build\.mjs|tests/browser/.*", r"\bextra\b", "further arguments of a function"),
    ],
    r"utili[sz]ation": [
        (r"python/stalloc/_serve/report\.py|docs/(serving|artifact)\.md", r"utilization:", "the artifact's line, word for word"),
        (r"crates/dryrun-setup/src/nvidia_smi\.rs", r"utilization\.", "NVIDIA's names"),
    ],
    "moves": [
        (r".*", r"moves (it there|at most|bytes as|and destroys)|Moves (what lives|each island|by shares|all boundaries|to the next|over a map)", "things that do move"),
        (r"crates/dryrun/src/libraries/nccl/collectives\.rs", r"\b[Mm]oves\b", "bytes that a collective copies"),
    ],
    "homes?": [
        (r".*", r"/home/|Path\.home|\"home\"|has no home|no home\"|HOME", "a user's folder"),
        (r"docs/report\.md|crates/report/web/.*", r"\bHome\b", "a key"),
        (r"crates/report/src/layout\.rs", r"\bhomes?\b|find_homes", "the island that a block lies in, which is no address"),
    ],
    "rounds?": [
        (r".*", r"\.round\(\)|\bround(s|ed|ing)? (up|down|every|requests|blocks)|rounds (sizes|to)\b|never rounds|round\(|way round", "arithmetic"),
        (r"python/stalloc/_dry_run/known_values\.py", r"ceil floor round trunc", "PyTorch's operation"),
        (r"bench/.*|docs/(recording|serving)\.md", r"\brounds?\b", "one repetition of a measurement"),
        (r"crates/planner/.*|docs/planner\.md", r"(?i)\brounds?\b", "one pass of an improvement, in pure mathematics"),
        (
            r"crates/synthesizer/src/.*",
            r"\b[Rr]ounds?\b",
            "what lies between two occurrences of an anchor, which may turn out not to be a step",
        ),
    ],
}


def files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if not NOT_READ.match(name) and (ROOT / name).is_file()]


def found(word: str) -> list[str]:
    """Where an old word stands, outside of its exceptions."""
    pattern = re.compile(rf"\b(?:{word})\b", re.IGNORECASE)
    lines = []
    for name in files():
        allowed = [re.compile(text) for file, text, _why in EXCEPTIONS.get(word, ()) if re.fullmatch(file, name)]
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1):
            for exception in allowed:
                line = exception.sub("", line)
            if pattern.search(line):
                lines.append(f"{name}:{number}: {line.strip()[:150]}")
    return lines


@pytest.mark.parametrize("word", OLD)
def test_an_old_word_is_found_nowhere(word):
    assert not found(word), f"say instead: {OLD[word]}"


def test_every_exception_is_needed():
    def stands(word: str, file: str, text: str) -> bool:
        names = (name for name in files() if re.fullmatch(file, name))
        return any(re.search(text, (ROOT / name).read_text(errors="replace")) for name in names)

    unneeded = [(word, file, text) for word, all_of in EXCEPTIONS.items() for file, text, _ in all_of if not stands(word, file, text)]
    assert not unneeded


def test_names_of_files_say_what_the_files_hold():
    old = re.compile(r"/_?(beat|alone|known)\.py$|/beside\.rs$")
    assert not [name for name in files() if old.search(name)]
