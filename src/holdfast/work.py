"""How much a request may look at, counted while it looks.

Law: work is counted in steps of about 20 nanoseconds, by what is looked at and never by the clock, so that
the same request on the same data is always answered or always refused. Whatever is counted at once takes a
few milliseconds at the most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.errors import TooExpensive

if TYPE_CHECKING:
    from holdfast.rows import Row

TEST: Final = 50
"""What a comparison costs, whatever it compares."""
STEP: Final = 8
"""What a step of a path costs."""
NODE: Final = 8
"""What it costs to compare two values in Python, or to visit one."""
CONTAINER: Final = 15
"""What it costs to make a list or an object of its text, beside its bytes."""
TEXT: Final = 512
"""How many characters are compared in a step."""
NAMED: Final = 1_000
"""From how many steps on it is noted what they were for: what costs less is counted with what follows."""
SLICE: Final = 50_000
"""After how many steps whoever reads on the event loop lets others have a turn."""


class Work:
    """What has been looked at for one request.

    Args:
        most: How many steps the request may take.
    """

    __slots__ = ("_costs", "_name", "_paused", "_since", "most", "spent")

    def __init__(self, most: int = rules.MAX_WORK) -> None:
        self.most = most
        self.spent = 0
        self._paused = 0
        self._name: object = "what it names"
        self._since = 0
        self._costs: dict[str, int] = {}

    def begin(self, name: object) -> None:
        """Count what follows under a name, which a refusal shows if it costs most."""
        if self.spent - self._since > NAMED:
            self._sum_up()
        self._name = name

    def spend(self, steps: int) -> None:
        """Count so many steps.

        Raises:
            TooExpensive: That is more than the request may take.
        """
        self.spent += steps
        if self.spent > self.most:
            self._sum_up()
            cost, name = max((cost, name) for name, cost in self._costs.items())
            raise TooExpensive(
                f"the request takes more than {self.most} steps of work, {cost} of them for {name}. "
                "Nothing was written; do not retry it, but ask for less at a time"
            )

    def look(self, name: object, steps: int) -> None:
        """Begin something and count its first steps, which is what most of it comes to."""
        if self.spent - self._since > NAMED:
            self._sum_up()
        self._name = name
        self.spent += steps
        if self.spent > self.most:
            self.spend(0)

    def count_on(self, other: Work) -> None:
        """Go on from what has been counted elsewhere."""
        self.spent, self._paused = other.spent, other._paused
        self._name, self._since, self._costs = other._name, other._since, dict(other._costs)

    def _sum_up(self) -> None:
        """Add what was spent since to the costs of the last name."""
        name = str(self._name)
        self._costs[name] = self._costs.get(name, 0) + self.spent - self._since
        self._since = self.spent

    def read(self, row: Row) -> None:
        """Count the reading of a row, which is dearer the more lists and objects its value has."""
        self.look("reading what is stored", reading(row))

    def pausing(self) -> bool:
        """Whether a slice of work is over, and others may have a turn."""
        if self.spent - self._paused < SLICE:
            return False
        self._paused = self.spent
        return True


def reading(row: Row) -> int:
    """How many steps it takes to make a value of a row's text."""
    text = row.value or ""
    return row.size // 4 + CONTAINER * (text.count("[") + text.count("{"))


def searching(text: str, wanted: str) -> int:
    """How many steps it may take to look for a text in another.

    Short ones are searched for in a way that may look at the same characters again and again.
    """
    again = min(len(wanted), 100) if len(text) < 30_000 else 8
    return len(text) * again // 64


def too_much_loaded() -> TooExpensive:
    """The refusal of a write that would have to look at too much of what is stored."""
    return TooExpensive(
        f"the request would have to look at more than {rules.MAX_LOADED_BYTES} bytes of what is stored under "
        "its keys. Nothing was written; do not retry it, but write fewer keys at a time"
    )
