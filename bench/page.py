"""Puts tables into pages of bench/results/."""

from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def read(mark: str, page: str = "evaluation.md") -> str:
    """The table that follows a mark, a comment of the page."""
    _, after = (RESULTS / page).read_text().split(f"<!-- {mark} -->")
    return after.lstrip("\n").partition("\n\n")[0]


def write(mark: str, table: str, page: str = "evaluation.md") -> None:
    """Replace the table that follows a mark, a comment of the page; the text around it stays."""
    before, after = (RESULTS / page).read_text().split(f"<!-- {mark} -->")
    _, separator, rest = after.lstrip("\n").partition("\n\n")
    (RESULTS / page).write_text(f"{before}<!-- {mark} -->\n\n{table}\n{separator[1:]}{rest}")
