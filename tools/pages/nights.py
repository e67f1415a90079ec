"""The table of recorded runs of the simulation, for the page about trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RECORD: Final = Path(__file__).resolve().parents[2] / "tests" / "simulation" / "nights.jsonl"


def _nights() -> Iterator[str]:
    yield "| day | target | seeds | operations | faults | virtual minutes | replayed, equal | with findings |"
    yield "|---|---|---|---|---|---|---|---|"
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        yield (
            f"| {run['at'][:10]} | {run['target']} | {run['seeds']:,} | {run['ops']:,} "
            f"| {sum(run['faults'].values()):,} | {run['virtual'] / 60:,.1f} "
            f"| {run.get('replayed', 0)}, {run.get('equal', 0)} | {run['findings']} |"
        )


BLOCKS: Final[dict[str, Callable[[], Iterable[str]]]] = {"nights": _nights}
