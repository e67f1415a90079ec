"""What one command of a group looks at and shows.

Law: what a command may do is counted for itself alone, so that it does not depend on its company in a group.
What is read for one of its parts is not counted again for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from holdfast import rules
from holdfast.stored import SeenEntry, SeenItem, attributes_of
from holdfast.work import Work

if TYPE_CHECKING:
    from holdfast.commands import Command
    from holdfast.rows import Row

ENVELOPE: Final = 256
"""What an entry or an item in an answer counts for beside its value."""
KEPT: Final = 1_048_576
"""How many bytes of text the items may have that are kept in mind for a group."""


class Account(Work):
    """The work of one command, and what its refusals show of what is stored.

    Args:
        command: Each of its writes adds to what it may do.
    """

    __slots__ = ("_read", "_room", "_seen")

    def __init__(self, command: Command) -> None:
        super().__init__(rules.MAX_WORK + rules.MAX_WORK_PER_WRITE * command.rows)
        self._room = rules.MAX_TRANSFER_BYTES
        self._read: set[int] = set()
        self._seen: dict[int, SeenEntry | SeenItem] = {}

    def follow(self, other: Account) -> None:
        """Count on from where another account has come."""
        self.count_on(other)
        self._read = set(other._read)

    def read(self, row: Row) -> None:
        """Count the reading of a row, once."""
        if id(row) not in self._read:
            self._read.add(id(row))
            super().read(row)

    def entry(self, key: str, row: Row) -> SeenEntry:
        """What a refusal shows of an entry: its value too, as long as the answer has room for it."""
        if not self._fits(row):
            return SeenEntry(row, key=key, value=False)
        seen = self._seen.get(id(row))
        if seen is None:
            seen = self._seen[id(row)] = SeenEntry(row, key=key)
        return cast("SeenEntry", seen)

    def item(self, row: Row) -> SeenItem:
        """What a refusal shows of an item; see `entry`."""
        if not self._fits(row):
            return SeenItem(row, value=False)
        seen = self._seen.get(id(row))
        if seen is None:
            seen = self._seen[id(row)] = SeenItem(row)
        return cast("SeenItem", seen)

    def _fits(self, row: Row) -> bool:
        self._room -= row.size + ENVELOPE
        return self._room >= 0 and row.value is not None


class Items:
    """The items that a group has read, so that those who ask for the same one read it once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Row, dict[str, Any]]] = {}
        self._bytes = 0

    def attributes(self, row: Row) -> dict[str, Any]:
        """What the item is that a row stands for; not to be changed.

        Raises:
            DatabaseError: It can't be read.
        """
        known = self._known.get(id(row))
        if known is not None:
            return known[1]
        attributes = attributes_of(row)
        self._bytes += row.size
        if self._bytes > KEPT:
            self._known.clear()
            self._bytes = row.size
        self._known[id(row)] = row, attributes
        return attributes
