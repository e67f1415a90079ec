"""What this process wrote last: rows and namespaces that need not be read back to be written again.

Law: for what is about to be decided, never for a reader. It holds only as long as nobody else writes to the
file, which every commit makes sure of; when it is refused as stale, everything here is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.decide import Outcome
    from holdfast.rows import Address, Namespace, Row

MOST: Final = 4_096
"""How many rows, and how many namespaces, are kept in mind."""
LARGEST: Final = 2_048
"""How large a value may be that is kept in mind."""


class Recent:
    """Rows by address and namespaces by name, as the last commit left them."""

    def __init__(self) -> None:
        self._rows: dict[Address, Row] = {}
        self._namespaces: dict[str, Namespace] = {}

    def rows(self, wanted: Iterable[Address]) -> dict[Address, Row]:
        """Those of the rows that are known."""
        known = self._rows
        return {address: known[address] for address in wanted if address in known}

    def namespaces(self, wanted: Iterable[str]) -> dict[str, Namespace]:
        """Those of the namespaces that are known."""
        known = self._namespaces
        return {name: known[name] for name in wanted if name in known}

    def learn(self, outcome: Outcome) -> None:
        """Keep in mind what a commit has left."""
        if outcome.runs:  # which entries went is known to the storage alone
            self._rows.clear()
        for address, row in outcome.rows.items():
            self._rows.pop(address, None)
            if row is not None and row.size <= LARGEST:
                self._rows[address] = row
        for namespace in outcome.namespaces:
            self._namespaces[namespace.name] = namespace
        while len(self._rows) > MOST:
            del self._rows[next(iter(self._rows))]
        if len(self._namespaces) > MOST:
            self._namespaces.clear()

    def forget(self) -> None:
        """Somebody else has written, or nobody knows what was kept."""
        self._rows.clear()
        self._namespaces.clear()
