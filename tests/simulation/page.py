"""A page that shows what happened on each machine, with one column for each."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.simulation import Result
    from tests.simulation.world import Note

WIDTH: Final = 160
ALWAYS: Final = ("FAULT", "starts", "has stopped", "does not start", "ERROR", "stood still", "over", "fails")


def page(result: Result) -> str:
    """Show the lines of a run that are about its first finding."""
    finding = result.findings[0] if result.findings else None
    about = tuple(filter(None, finding.about)) if finding is not None else ()
    notes = [note for note in result.notes if not about or _matters(note, about)]
    lines = [] if finding is None else [f"{finding.kind}: {finding.text}", ""]
    return "\n".join([*lines, *_columns(notes)])


def _matters(note: Note, about: Sequence[str]) -> bool:
    return note.text.startswith(ALWAYS) or any(word in note.text for word in about)


def _columns(notes: Sequence[Note]) -> list[str]:
    names = list(dict.fromkeys(note.machine for note in notes))
    names.sort(key=lambda name: (not name.startswith("client"), not name.startswith("nats"), name))
    if not names:
        return []
    width = max(20, (WIDTH - 10) // len(names) - 1)
    lines = [" " * 10 + " ".join(name.ljust(width) for name in names)]
    for note in notes:
        left = " " * (names.index(note.machine) * (width + 1))
        for number, part in enumerate(textwrap.wrap(note.text, width)[:4]):
            time = f"{note.time:9.5f} " if number == 0 else " " * 10
            lines.append(time + left + part)
    return lines
