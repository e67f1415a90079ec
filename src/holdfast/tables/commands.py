"""Commands on tables and their results.

Law: as in `holdfast.commands`. Keys, conditions and updates are legal in form. Only `decide`, which has the
schema, knows whether they suit the table.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from holdfast.commands import LEAST_COST, Command, Result, WriteCommand
from holdfast.rows import Row
from holdfast.tables.conditions import Condition
from holdfast.tables.schema import KeyAttribute, TableSchema

Returns: TypeAlias = Literal["none", "old", "new"]


class TableChange(WriteCommand, frozen=True, kw_only=True):
    """A change of a table or of its contents."""

    table: str


class CreateTable(TableChange, frozen=True, kw_only=True):
    """Create a table."""

    schema: TableSchema


class DropTable(TableChange, frozen=True, kw_only=True):
    """Drop a table with its items."""

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class CreateIndex(TableChange, frozen=True, kw_only=True):
    """Begin an index. Every later change of an item updates it; existing items are backfilled."""

    index: str
    key: KeyAttribute


class DropIndex(TableChange, frozen=True, kw_only=True):
    """Drop an index."""

    index: str

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class FillIndex(Command, frozen=True, kw_only=True):
    """Add items that may be missing in an index. With `last`, the index is complete afterwards."""

    table: str
    space: str
    index_id: int
    keys: tuple[bytes, ...]
    last: bool

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.keys) + 1


class Purge(Command, frozen=True, kw_only=True):
    """Remove rows of a dropped space. With `last`, none remain afterwards."""

    space: str
    keys: tuple[bytes, ...]
    last: bool

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.keys) + 1

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class ItemWrite(TableChange, frozen=True, kw_only=True):
    """A change of one item, if it has the expected version and meets the condition."""

    expected: int | None = None
    condition: Condition | None = None
    returns: Returns = "none"


class PutItem(ItemWrite, frozen=True, kw_only=True):
    """Store an item, which is JSON text of `size` bytes, replacing any existing one.

    `binary` names the attributes that the caller gave as bytes. Only keys of that type may be bytes.
    """

    item: str
    size: int
    binary: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


class KeyedWrite(ItemWrite, frozen=True, kw_only=True):
    """A change of the item with a key."""

    partition_key: Any
    sort_key: Any = None


class UpdateItem(KeyedWrite, frozen=True, kw_only=True):
    """Change attributes of an item, which is created if it does not exist."""

    set: Any = None
    remove: Any = None
    add: Any = None
    size: int = 0

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return self.size + LEAST_COST


class DeleteItem(KeyedWrite, frozen=True, kw_only=True):
    """Remove an item."""

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class SetItemTtl(KeyedWrite, frozen=True, kw_only=True):
    """Set the deadline of an item; None removes it."""

    ttl: int | None


class CheckItem(KeyedWrite, frozen=True, kw_only=True):
    """Change nothing: a part of a transaction that only states an expectation."""


class RevealItem(TableChange, frozen=True, kw_only=True):
    """Read an item for a person who gives a reason, and record that in the audit."""

    partition_key: Any
    sort_key: Any = None
    why: str | None = None


class TransactWrite(WriteCommand, frozen=True, kw_only=True):
    """Writes that take effect together if the expectations of all hold; otherwise none does."""

    weighed: ClassVar[bool] = True

    writes: tuple[PutItem | UpdateItem | DeleteItem | CheckItem, ...]

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return sum(write.cost for write in self.writes)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.writes)


class WriteItems(WriteCommand, frozen=True, kw_only=True):
    """Several writes in one call, each of which succeeds or fails on its own."""

    weighed: ClassVar[bool] = True

    writes: tuple[PutItem | DeleteItem, ...]

    @property
    def parts(self) -> tuple[PutItem | DeleteItem, ...]:
        """The writes."""
        return self.writes

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return sum(write.cost for write in self.writes)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.writes)


class ExpireItems(Command, frozen=True, kw_only=True):
    """Expire items that are past their deadline."""

    table: str
    space: str
    keys: tuple[bytes, ...]

    @property
    def rows(self) -> int:
        """Number of rows that this concerns, weighted for index entries and for the size of items."""
        return 4 * len(self.keys)

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class Defined(Result, frozen=True, tag=True):
    """A table after a change; `version` is that of the change."""

    schema: TableSchema
    version: int


class ItemDone(Result, frozen=True, tag=True):
    """The result of a change of an item: its version, and the rows involved.

    `version` is None if nothing was changed. `row` is the item afterwards; `old` is the one before, if the
    command returns it.
    """

    version: int | None
    row: Row | None = None
    old: Row | None = None


class Transacted(Result, frozen=True, tag=True):
    """The results of the writes of a transaction, by position."""

    items: tuple[ItemDone, ...]


class ItemsDone(Result, frozen=True, tag=True):
    """The results of several changes, by position: a result, or the error that refused the change."""

    items: tuple[ItemDone | Exception, ...]
