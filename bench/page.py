"""Puts tables into docs/evaluation.md."""

from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "evaluation.md"


def read(mark: str) -> str:
    """The table that follows a mark, a comment of the page."""
    _, after = PAGE.read_text().split(f"<!-- {mark} -->")
    return after.lstrip("\n").partition("\n\n")[0]


def write(mark: str, table: str) -> None:
    """Replace the table that follows a mark, a comment of the page; the text around it stays."""
    before, after = PAGE.read_text().split(f"<!-- {mark} -->")
    _, separator, rest = after.lstrip("\n").partition("\n\n")
    PAGE.write_text(f"{before}<!-- {mark} -->\n\n{table}\n{separator[1:]}{rest}")
