"""The book of what was measured: scenarios, their sides, a value for every round, and the ratios of them.

What is compared stands in one scenario and was measured in turn, so that round n of one side belongs to
round n of another. A ratio is told as the median of the rounds' ratios, with the least and the greatest.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

HOLDFAST = "holdfast"
OWN_CLIENT = "holdfast's client"
"""Holdfast once more, asked through its own client."""


@dataclass(frozen=True)
class Spread:
    """A median, and between what the rounds were."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """The spread of what the rounds found."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def as_dict(self) -> dict[str, float]:
        """For a file."""
        return {"median": self.median, "low": self.low, "high": self.high, "rounds": self.rounds}

    def __str__(self) -> str:
        return f"{figure(self.median)} ({figure(self.low)} to {figure(self.high)})"


@dataclass
class Scenario:
    """One thing that was measured, of one or more sides."""

    name: str
    unit: str
    sides: dict[str, list[float]] = field(default_factory=dict)

    @property
    def measure(self) -> str:
        """The unit, and which way is better."""
        better = {"/s": ", more is better", "%": ""}.get(self.unit, ", less is better")
        return f"({self.unit or 'share'}{better})"

    def ratio(self, side: str, over: str) -> Spread:
        """One side over another, round by round."""
        pairs = zip(self.sides[side], self.sides[over], strict=True)
        return Spread.of([one / other if other else float("inf") for one, other in pairs])

    @property
    def compared(self) -> list[tuple[str, str]]:
        """Who is told against whom: Holdfast against each peer, or else each side against the first.

        Percentages are shares of one whole: they are not compared.
        """
        if self.unit == "%":
            return []
        if HOLDFAST not in self.sides:
            first, *others = self.sides
            return [(other, first) for other in others]
        ours = [side for side in (HOLDFAST, OWN_CLIENT) if side in self.sides]
        peers = [side for side in self.sides if side not in ours]
        return [(own, peer) for peer in peers for own in ours] + [(own, HOLDFAST) for own in ours[1:]]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {
            "scenario": self.name,
            "unit": self.unit,
            "sides": {
                side: {"values": values} | Spread.of(values).as_dict() for side, values in self.sides.items()
            },
            "ratios": [
                {"side": side, "over": over} | self.ratio(side, over).as_dict()
                for side, over in self.compared
            ],
        }


class Book:
    """Every scenario by its name, what was left out and why, and how each side keeps what it is given."""

    def __init__(self) -> None:
        self.scenarios: dict[str, Scenario] = {}
        self.left_out: dict[str, str] = {}
        self.durability: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.notes: list[str] = []
        self.failed: list[str] = []

    def add(self, scenario: str, side: str, value: float, *, unit: str) -> None:
        """Write down what one round of one side found."""
        entry = self.scenarios.setdefault(scenario, Scenario(scenario, unit))
        entry.sides.setdefault(side, []).append(value)

    def note(self, text: str) -> None:
        """Write down what a reader must know, once."""
        if text not in self.notes:
            self.notes.append(text)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {
            "versions": self.versions,
            "durability": self.durability,
            "left_out": self.left_out,
            "notes": self.notes,
            "failed": self.failed,
            "scenarios": [scenario.as_dict() for scenario in self.scenarios.values()],
        }


def figure(value: float) -> str:
    """A figure with as many digits as mean something."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"
