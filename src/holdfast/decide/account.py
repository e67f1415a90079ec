"""Accounting of what one command of a group reads and shows.

Law: the work of a command is counted separately, so that its limit does not depend on the rest of its group.
A row that is read for several parts of a command is counted once.
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
"""Bytes that an entry or an item in a reply counts for, in addition to its value."""
KEPT: Final = 1_048_576
"""Maximum bytes of text of the decoded items that are kept for a group."""


class Account(Work):
    """The work of one command, and the stored data that its refusals show.

    Args:
        command: The command. Each of its writes raises the limit.
    """

    __slots__ = ("_read", "_room", "_seen")

    def __init__(self, command: Command) -> None:
        super().__init__(rules.MAX_WORK + rules.MAX_WORK_PER_WRITE * command.rows)
        self._room = rules.MAX_TRANSFER_BYTES
        self._read: set[int] = set()
        self._seen: dict[int, SeenEntry | SeenItem] = {}

    def follow(self, other: Account) -> None:
        """Continue from the count of another account."""
        self.count_on(other)
        self._read = set(other._read)

    def read(self, row: Row) -> None:
        """Count the reading of a row, once."""
        if id(row) not in self._read:
            self._read.add(id(row))
            super().read(row)

    def entry(self, key: str, row: Row) -> SeenEntry:
        """Return an entry for a refusal, with its value as long as the reply has room for it."""
        if not self._fits(row):
            return SeenEntry(row, key=key, value=False)
        seen = self._seen.get(id(row))
        if seen is None:
            seen = self._seen[id(row)] = SeenEntry(row, key=key)
        return cast("SeenEntry", seen)

    def item(self, row: Row) -> SeenItem:
        """Return an item for a refusal; see `entry`."""
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
    """The decoded items of a group, so that each one is decoded once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Row, dict[str, Any]]] = {}
        self._bytes = 0

    def attributes(self, row: Row) -> dict[str, Any]:
        """Return the attributes of the item in a row. Do not modify them.

        Raises:
            DatabaseError: The item can't be read.
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
