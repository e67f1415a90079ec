"""The tables of recorded runs of the simulation, for the page about trust."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RECORDS: Final = Path(__file__).resolve().parents[2] / "tests" / "simulation"


def _nights() -> Iterator[str]:
    yield "| day | target | seeds | operations | faults | virtual minutes | replayed, equal | with findings |"
    yield "|---|---|---|---|---|---|---|---|"
    for run in _lines("nights"):
        yield (
            f"| {run['at'][:10]} | {run['target']} | {run['seeds']:,} | {run['ops']:,} "
            f"| {sum(run['faults'].values()):,} | {run['virtual'] / 60:,.1f} "
            f"| {run.get('replayed', 0)}, {run.get('equal', 0)} | {run['findings']} |"
        )


def _hunts() -> Iterator[str]:
    latest: dict[str, dict[str, Any]] = {}
    for one in _lines("hunts"):
        before = latest.get(one["bug"], {})
        tried = 0 if "kind" in before else before.get("seeds", 0)
        latest[one["bug"]] = {**one, "seeds": tried + one.get("seeds", 0)}
    found = sorted((one for one in latest.values() if "kind" in one), key=lambda one: one["seeds"])
    missed = [one for one in latest.values() if "kind" not in one and "target" in one]
    absent = [one for one in latest.values() if "target" not in one]
    median = statistics.median(one["seeds"] for one in found)
    yield f"Of {len(found) + len(missed)} bugs, {len(found)} were found, the median after {median:g} seeds."
    yield f"{len(absent)} more are about what is not simulated."
    yield ""
    yield "| found | target | seeds | in seed | as |"
    yield "|---|---|---|---|---|"
    for one in found:
        seed = " ".join(filter(None, [str(one["seed"]), one.get("plan")]))
        yield f"| `{one['bug']}` | {one['target']} | {one['seeds']} | {seed} | {one['kind']} |"
    yield ""
    yield "| not found | target | seeds | what the search has shown |"
    yield "|---|---|---|---|"
    for one in missed:
        yield f"| `{one['bug']}` | {one['target']} | {one['seeds']} | {one.get('gap', 'its code ran')} |"
    yield ""
    yield "| not simulated | bugs |"
    yield "|---|---|"
    for gap in sorted({one["gap"] for one in absent}):
        bugs = ", ".join(f"`{one['bug']}`" for one in absent if one["gap"] == gap)
        yield f"| {gap} | {bugs} |"


def _lines(name: str) -> Iterator[dict[str, Any]]:
    for line in (RECORDS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


BLOCKS: Final[dict[str, Callable[[], Iterable[str]]]] = {"nights": _nights, "hunts": _hunts}
