"""Tables on a terminal, fitted to its width.

A value is never broken letter by letter. Only the widest column may be folded, down to a readable width. If
that does not suffice, columns are dropped from the right, and the user is informed which.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.edges.screen import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Cell = str | int | float | None

READABLE: Final = 20
"""Minimum width of a folded column."""
GAP: Final = 3
"""The space between two columns."""
EDGES: Final = 2
"""The space at both sides of a table."""
_MILLISECONDS: Final = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{3}Z$")
"""A time as JSON and pipes have it; a table shows it to the second, so that it fits."""


def draw(columns: Sequence[str], cells: Iterable[Sequence[Cell]]) -> Sequence[str]:
    """Draw a table. Returns the names of the columns that did not fit."""
    console = Console()
    drawn = table(columns, cells, width=console.width)
    console.print(drawn)
    return columns[len(drawn.columns) :]


def table(columns: Sequence[str], cells: Iterable[Sequence[Cell]], *, width: int) -> Table:
    """Return a table of at most this width; columns of numbers are right-aligned."""
    all_rows = [list(row) for row in cells]
    texts = [[_text(cell) for cell in row] for row in all_rows]
    natural = [
        max(cell_len(text) for text in (name, *(row[position] for row in texts)))
        for position, name in enumerate(columns)
    ]
    widths = fitted(natural, width)
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    for position, wide in enumerate(widths):
        numeric = all(not isinstance(row[position], str) for row in all_rows)
        drawn.add_column(
            columns[position], justify="right" if numeric else "left", overflow="fold", width=wide
        )
    for row in texts:
        drawn.add_row(*map(Text, row[: len(widths)]))
    return drawn


def fitted(natural: Sequence[int], width: int) -> list[int]:
    """Return the widths of the leading columns that fit."""
    for kept in range(len(natural), 1, -1):
        wanted = list(natural[:kept])
        widest = wanted.index(max(wanted))
        room = width - EDGES - GAP * (kept - 1) - (sum(wanted) - wanted[widest])
        if room >= min(wanted[widest], READABLE):
            wanted[widest] = min(wanted[widest], room)
            return wanted
    return [min(one, width - EDGES) for one in natural[:1]]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, (int, float)):
        return str(cell)
    return _MILLISECONDS.sub(r"\1Z", harmless(cell))
