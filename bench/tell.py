"""What a run found, for people and for a file.

Every figure has its spread beside it, every bar its verdict, and what was left out is said.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bench.bars import judge, unmeasured
from bench.book import HOLDFAST, OWN_CLIENT, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.bars import Bar
    from bench.book import Book, Scenario


def about(machine: dict[str, str], *, busy: bool) -> str:
    """The machine, line by line."""
    lines = [f"{name:<18} {value}" for name, value in machine.items()]
    if busy:
        lines.append("The machine is busy with other things: latencies and ratios are theirs too.")
    return "\n".join(lines)


def table(scenario: Scenario) -> str:
    """A scenario: each side's median and range, and its ratios."""
    ratios = {pair: scenario.ratio(*pair) for pair in scenario.compared}
    lines = [f"{scenario.name} {scenario.measure}"]
    for side, values in scenario.sides.items():
        told = [f"    {side:<20} {Spread.of(values)!s:<36}"]
        told += [
            f"{one} / {other} = {ratio}"
            for (one, other), ratio in ratios.items()
            if side == _beside(one, other)
        ]
        lines.append("  ".join(told).rstrip())
    return "\n".join(lines)


def _beside(one: str, other: str) -> str:
    """Beside which side a ratio is told: the peer, or the one that is not the first."""
    return other if one in (HOLDFAST, OWN_CLIENT) and other != HOLDFAST else one


def facts(book: Book) -> str:
    """Versions, durability, and what a reader must know."""
    lines = ["versions: " + ", ".join(f"{name} {version}" for name, version in book.versions.items())]
    lines += [f"durability of {side}: {text}" for side, text in book.durability.items()]
    lines += [f"left out: {what}: {why}" for what, why in book.left_out.items()]
    lines += [f"FAILED: {name}, of which nothing is told" for name in book.failed]
    return "\n".join(lines + [f"note: {note}" for note in book.notes])


def verdicts(book: Book, bars: Sequence[Bar]) -> str:
    """Every bar of this run: reached or MISSED."""
    lines = [
        f"  {'reached' if verdict.reached else 'MISSED':<8} bar {verdict.bar.group:<6} {verdict.bar.name:<58}"
        f" {verdict.bar.bound:<9} found {verdict.found}"
        for verdict in judge(book, bars)
    ]
    lines += [f"  not measured: bar {bar.group} {bar.name}" for bar in unmeasured(book, bars)]
    return "\n".join(["bars:", *lines])


def document(book: Book, bars: Sequence[Bar], machine: dict[str, str], *, busy: bool) -> dict[str, Any]:
    """Everything, for a file."""
    found = {
        "machine": machine,
        "busy": busy,
        **book.as_dict(),
        "bars": [verdict.as_dict() for verdict in judge(book, bars)],
        "not_measured": [bar.name for bar in unmeasured(book, bars)],
    }
    return {name: _finite(content) for name, content in found.items()}


def _finite(content: Any) -> Any:
    """JSON has no infinity: a latency of nothing is null."""
    if isinstance(content, dict):
        return {name: _finite(part) for name, part in content.items()}
    if isinstance(content, list):
        return [_finite(part) for part in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
