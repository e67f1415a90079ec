"""The turns of nodes: for a while one of them is busy alone, then all of them are.

Only a node that is busy alone holds the lease of a shard for longer than a moment. When its turn is over, its
clients go on reading, since a node that does not know that its lease is over would answer with what was.

It says who may do what, and when.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

TURN_SECONDS: Final = 3.0
READS_ON: Final = 0.4
"""For how many seconds the clients of a node read after its turn."""


class Turns(Protocol):
    """Tells which nodes may do what at this moment."""

    def writes(self, number: int) -> bool:
        """Return whether the clients of a node may write."""
        ...

    def reads(self, number: int) -> bool:
        """Return whether the clients of a node may read."""
        ...

    def left(self) -> float:
        """Return the seconds that are left of this turn."""
        ...


class TimedTurns:
    """Every node alone in turn, then all of them together. A node reads on for a moment after its turn.

    Args:
        nodes: The number of nodes.
        start: The instant at which the first turn begins.
    """

    def __init__(self, nodes: int, start: int) -> None:
        self._nodes = nodes
        self._start = start

    def writes(self, number: int) -> bool:
        """See `Turns.writes`."""
        return self._whose(0.0) in (self._nodes, number)

    def reads(self, number: int) -> bool:
        """See `Turns.reads`."""
        return self.writes(number) or self._whose(READS_ON) == number

    def left(self) -> float:
        """See `Turns.left`."""
        return TURN_SECONDS - (time.monotonic_ns() - self._start) / 1e9 % TURN_SECONDS

    def _whose(self, ago: float) -> int:
        since = (time.monotonic_ns() - self._start) / 1e9 - ago
        return int(since / TURN_SECONDS) % (self._nodes + 1)
