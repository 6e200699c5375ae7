"""Puts tables into pages of docs/."""

from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def read(mark: str, page: str = "evaluation.md") -> str:
    """The table that follows a mark, a comment of the page."""
    _, after = (DOCS / page).read_text().split(f"<!-- {mark} -->")
    return after.lstrip("\n").partition("\n\n")[0]


def write(mark: str, table: str, page: str = "evaluation.md") -> None:
    """Replace the table that follows a mark, a comment of the page; the text around it stays."""
    before, after = (DOCS / page).read_text().split(f"<!-- {mark} -->")
    _, separator, rest = after.lstrip("\n").partition("\n\n")
    (DOCS / page).write_text(f"{before}<!-- {mark} -->\n\n{table}\n{separator[1:]}{rest}")
