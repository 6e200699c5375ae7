"""Puts tables into pages of bench/results/: each follows a mark, a comment of its page, and the text around it stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"


def line(cells: Iterable[object]) -> str:
    """A row of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(columns: Sequence[str], texts: int = 1) -> str:
    """The first lines of a table whose first columns are text, and the others figures."""
    return f"{line(columns)}\n|{'---|' * texts}{'---:|' * (len(columns) - texts)}"


def read(mark: str, page: str) -> str:
    """The table that follows a mark."""
    _, after = (RESULTS / page).read_text().split(f"<!-- {mark} -->")
    return after.lstrip("\n").partition("\n\n")[0]


def write(mark: str, table: str, page: str) -> None:
    """Replace the table that follows a mark."""
    before, after = (RESULTS / page).read_text().split(f"<!-- {mark} -->")
    _, separator, rest = after.lstrip("\n").partition("\n\n")
    (RESULTS / page).write_text(f"{before}<!-- {mark} -->\n\n{table}\n{separator[1:]}{rest}")


def put(mark: str, first: str, rows: Iterable[str], page: str, named_by: int = 1) -> None:
    """Replace or add rows, which are named by their first cells; the table's other rows stay, in their order."""

    def name(row: str) -> tuple[str, ...]:
        return tuple(cell.strip() for cell in row.split("|")[1 : 1 + named_by])

    known = {name(row): row for row in read(mark, page).splitlines()[2:]}
    write(mark, "\n".join([first, *(known | {name(row): row for row in rows}).values()]), page)
