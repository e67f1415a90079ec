"""What this process wrote last: rows and namespaces that need not be read back to be written again.

Law: for what is about to be decided, never for a reader. It holds only as long as nobody else writes to the
file, which every commit makes sure of; when it is refused as stale, everything here is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.bounded import Bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.decide import Outcome
    from holdfast.rows import Address, Namespace, Row

MOST: Final = 2_048
"""How many rows a generation holds. There are two: when one is full, the one before it is forgotten. To
forget one row at a time takes a dictionary microseconds, since it looks for its oldest among the gaps."""
MOST_NAMESPACES: Final = 4_096
LARGEST: Final = 2_048
"""How large a value may be that is kept in mind."""


class Recent:
    """Rows by address and namespaces by name, as the last commit left them."""

    def __init__(self) -> None:
        self._rows: dict[Address, Row] = {}
        self._before: dict[Address, Row] = {}
        self._namespaces: Bounded[str, Namespace] = Bounded(MOST_NAMESPACES)

    def rows(self, wanted: Iterable[Address]) -> dict[Address, Row]:
        """Those of the rows that are known."""
        newer, older = self._rows, self._before
        known = {}
        for address in wanted:
            row = newer.get(address) or older.get(address)
            if row is not None:
                known[address] = row
        return known

    def namespaces(self, wanted: Iterable[str]) -> dict[str, Namespace]:
        """Those of the namespaces that are known."""
        known = self._namespaces
        return {name: known[name] for name in wanted if name in known}

    def learn(self, outcome: Outcome) -> None:
        """Keep in mind what a commit has left."""
        if outcome.runs:  # which entries went is known to the storage alone
            self._rows.clear()
            self._before.clear()
        for address, row in outcome.rows.items():
            if row is not None and row.size <= LARGEST:
                self._rows[address] = row
            else:
                self._rows.pop(address, None)
                self._before.pop(address, None)
        if len(self._rows) > MOST:
            self._rows, self._before = {}, self._rows
        for namespace in outcome.namespaces:
            self._namespaces.keep(namespace.name, namespace)
