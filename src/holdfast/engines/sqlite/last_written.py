"""A cache of the rows and namespaces that this process wrote last, so that a write need not read them back.

Law: the cache serves decisions, never readers. It is valid only while no other process writes to the file,
which every commit verifies. When a commit is refused as stale, the whole cache is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.bounded import Bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.decide import Outcome
    from holdfast.rows import Address, Namespace, Row

MOST: Final = 2_048
"""The number of rows in a generation. There are two: when one is full, the one before it is dropped. Dropping
rows one at a time would cost microseconds each, since a dictionary skips the gaps to find its oldest key."""
MOST_NAMESPACES: Final = 4_096
LARGEST: Final = 2_048
"""The size of the largest value that is cached, in bytes."""


class Recent:
    """Rows by address and namespaces by name, as the last commit left them."""

    def __init__(self) -> None:
        self._rows: dict[Address, Row] = {}
        self._before: dict[Address, Row] = {}
        self._namespaces: Bounded[str, Namespace] = Bounded(MOST_NAMESPACES)

    def rows(self, wanted: Iterable[Address]) -> dict[Address, Row]:
        """Return the wanted rows that are cached."""
        newer, older = self._rows, self._before
        known = {}
        for address in wanted:
            row = newer.get(address) or older.get(address)
            if row is not None:
                known[address] = row
        return known

    def namespaces(self, wanted: Iterable[str]) -> dict[str, Namespace]:
        """Return the wanted namespaces that are cached."""
        known = self._namespaces
        return {name: known[name] for name in wanted if name in known}

    def learn(self, outcome: Outcome) -> None:
        """Update the cache after a commit."""
        if outcome.runs:  # only the database knows which entries were removed
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
