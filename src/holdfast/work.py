"""Accounting of the work that a request does.

Work is counted in steps of about 20 nanoseconds, by the data examined and never by the clock. The same
request on the same data is therefore always answered or always refused. Work that is counted at once takes a
few milliseconds at most.
"""

from __future__ import annotations

from typing import Final

from holdfast import rules
from holdfast.errors import TooExpensive
from holdfast.rows import Row

TEST: Final = 50
"""Steps of a comparison, whatever it compares."""
STEP: Final = 8
"""Steps of following one component of a path."""
NODE: Final = 8
"""Steps of comparing two values in Python, or of visiting one."""
CONTAINER: Final = 15
"""Steps of decoding a list or an object, in addition to its bytes."""
TEXT: Final = 512
"""Number of characters compared in one step."""
NAMED: Final = 1_000
"""Number of steps above which their cause is recorded. Cheaper work is counted with what follows."""
SLICE: Final = 50_000
"""Number of steps after which a reader on the event loop yields to others."""


class Work:
    """The work done so far for one request.

    Args:
        most: Maximum number of steps for the request.
    """

    __slots__ = ("_costs", "_name", "_paused", "_since", "most", "spent")

    def __init__(self, most: int = rules.MAX_WORK) -> None:
        self.most: int = most
        self.spent: int = 0
        self._paused = 0
        self._name: object = "what it names"
        self._since = 0
        self._costs: dict[str, int] = {}

    def begin(self, name: object) -> None:
        """Count the following work under a name, which a refusal shows if it cost the most."""
        if self.spent - self._since > NAMED:
            self._sum_up()
        self._name = name

    def spend(self, steps: int) -> None:
        """Count a number of steps.

        Raises:
            TooExpensive: The request has exceeded its limit.
        """
        self.spent += steps
        if self.spent > self.most:
            self._sum_up()
            cost, name = max((cost, name) for name, cost in self._costs.items())
            raise TooExpensive(
                f"the request takes more than {self.most} steps of work, {cost} of them for {name}. "
                "Nothing was written; do not retry it. Ask for less at a time"
            )

    def look(self, name: object, steps: int) -> None:
        """Begin new work and count its first steps, which are usually all of it."""
        if self.spent - self._since > NAMED:
            self._sum_up()
        self._name = name
        self.spent += steps
        if self.spent > self.most:
            self.spend(0)

    def count_on(self, other: Work) -> None:
        """Continue from the count of another object."""
        self.spent, self._paused = other.spent, other._paused
        self._name, self._since, self._costs = other._name, other._since, dict(other._costs)

    def _sum_up(self) -> None:
        """Add the steps since the last sum to the costs of the current name."""
        name = str(self._name)
        self._costs[name] = self._costs.get(name, 0) + self.spent - self._since
        self._since = self.spent

    def read(self, row: Row) -> None:
        """Count the reading of a row. Each list and object in its value adds to the cost."""
        self.look("reading what is stored", reading(row))

    def pausing(self) -> bool:
        """Return whether a slice of work is done, so that others may have a turn."""
        if self.spent - self._paused < SLICE:
            return False
        self._paused = self.spent
        return True


def reading(row: Row) -> int:
    """Return the number of steps to decode a row's value."""
    text = row.value or ""
    return row.size // 4 + CONTAINER * (text.count("[") + text.count("{"))


def searching(text: str, wanted: str) -> int:
    """Return the maximum number of steps to search for a text in another.

    The search for a short text may examine the same characters repeatedly.
    """
    again = min(len(wanted), 100) if len(text) < 30_000 else 8
    return len(text) * again // 64


def too_much_loaded() -> TooExpensive:
    """Return the error for a write that would have to read too much stored data."""
    return TooExpensive(
        f"the request would have to read more than {rules.MAX_LOADED_BYTES} bytes that are stored under "
        "its keys. Nothing was written; do not retry it. Write fewer keys at a time"
    )
