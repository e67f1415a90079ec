"""A picture of a run: a row of bars for each scenario, with the range of the rounds drawn on each.

Plain SVG, written here. Within a scenario all bars share a scale that begins at 0, since a cut axis
flatters.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

from bench.book import HOLDFAST, Spread, figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.book import Scenario

WIDTH: Final = 900
LABEL: Final = 220
ROOM: Final = 420
ROW: Final = 18
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.name{font-weight:bold}.ours{fill:#2a6f4e}.theirs{fill:#9aa7b1}"
    ".range{stroke:#222;stroke-width:1.5}"
)


def svg(scenarios: Sequence[Scenario]) -> str:
    """The picture."""
    parts: list[str] = []
    top = 10
    for scenario in scenarios:
        if not all(math.isfinite(value) for values in scenario.sides.values() for value in values):
            continue  # where nothing succeeded there is nothing to draw; the tables tell it
        parts.append(_text(10, top + 14, f"{scenario.name} {scenario.measure}", kind="name"))
        top += ROW + 4
        scale = ROOM / (max(max(values) for values in scenario.sides.values()) or 1)
        for side, values in scenario.sides.items():
            parts.append(_bar(side, Spread.of(values), top=top, scale=scale))
            top += ROW
        top += 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">'
    )
    body = f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, body, *parts, "</svg>\n"])


def _bar(side: str, spread: Spread, *, top: int, scale: float) -> str:
    kind = "ours" if side.startswith(HOLDFAST) else "theirs"
    low, high, middle = (LABEL + value * scale for value in (spread.low, spread.high, spread.median))
    height, centre = ROW - 5, top + (ROW - 5) / 2
    return "".join(
        (
            _text(20, top + 11, side),
            f'<rect class="{kind}" x="{LABEL}" y="{top}" width="{middle - LABEL:.1f}" height="{height}"/>',
            f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{centre}" y2="{centre}"/>',
            _text(
                LABEL + ROOM + 10,
                top + 11,
                f"{figure(spread.median)} ({figure(spread.low)} to {figure(spread.high)})",
            ),
        )
    )


def _text(left: int, top: int, text: str, *, kind: str = "side") -> str:
    return f'<text class="{kind}" x="{left}" y="{top}">{escape(text)}</text>'
