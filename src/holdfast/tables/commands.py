"""What can be asked of tables, and what is answered.

Law: as in `holdfast.commands`. Keys, conditions and updates are legal in form; whether they suit the table is
known to `decide` alone, which has its schema.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from holdfast.commands import LEAST_COST, Change, Command, Result
from holdfast.rows import Row
from holdfast.tables.conditions import Condition
from holdfast.tables.schema import KeyAttribute, TableSchema

Returns: TypeAlias = Literal["none", "old", "new"]


class TableChange(Change, frozen=True, kw_only=True):
    """A change of a table or of what is in it."""

    table: str


class CreateTable(TableChange, frozen=True, kw_only=True):
    """Make a table."""

    schema: TableSchema


class DropTable(TableChange, frozen=True, kw_only=True):
    """Take a table away, with its items."""

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class CreateIndex(TableChange, frozen=True, kw_only=True):
    """Begin an index: from now on every change of an item keeps it; items that are there are filled in."""

    index: str
    key: KeyAttribute


class DropIndex(TableChange, frozen=True, kw_only=True):
    """Take an index away."""

    index: str

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class FillIndex(Command, frozen=True, kw_only=True):
    """Enter items that may not be in an index. With `last` it is whole after that."""

    table: str
    space: str
    index_id: int
    keys: tuple[bytes, ...]
    last: bool

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.keys) + 1


class Purge(Command, frozen=True, kw_only=True):
    """Remove rows of a space that was dropped. With `last` nothing of it is left after that."""

    space: str
    keys: tuple[bytes, ...]
    last: bool

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.keys) + 1

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class ItemChange(TableChange, frozen=True, kw_only=True):
    """A change of one item, if it has the expected version and meets the condition."""

    expected: int | None = None
    condition: Condition | None = None
    returns: Returns = "none"


class PutItem(ItemChange, frozen=True, kw_only=True):
    """Put an item, which is JSON text of `size` bytes, in place of whatever is there.

    `binary` names the attributes that the caller gave as bytes, which only keys of that type may be.
    """

    item: str
    size: int
    binary: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return self.size + LEAST_COST


class KeyedChange(ItemChange, frozen=True, kw_only=True):
    """A change of the item with a key."""

    partition_key: Any
    sort_key: Any = None


class UpdateItem(KeyedChange, frozen=True, kw_only=True):
    """Change attributes of an item; one that is not there is made."""

    set: Any = None
    remove: Any = None
    add: Any = None
    size: int = 0

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return self.size + LEAST_COST


class DeleteItem(KeyedChange, frozen=True, kw_only=True):
    """Remove an item."""

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class SetItemTtl(KeyedChange, frozen=True, kw_only=True):
    """Move the deadline of an item; None takes it away."""

    ttl: int | None


class CheckItem(KeyedChange, frozen=True, kw_only=True):
    """Change nothing: a part of a transaction that only expects something."""


class TransactWrite(Change, frozen=True, kw_only=True):
    """All of these if what each expects holds, else none."""

    weighed: ClassVar[bool] = True

    writes: tuple[PutItem | UpdateItem | DeleteItem | CheckItem, ...]

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return sum(write.cost for write in self.writes)

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.writes)


class WriteItems(Change, frozen=True, kw_only=True):
    """Each of these for itself, in one call."""

    weighed: ClassVar[bool] = True

    writes: tuple[PutItem | DeleteItem, ...]

    @property
    def parts(self) -> tuple[PutItem | DeleteItem, ...]:
        """The writes."""
        return self.writes

    @property
    def cost(self) -> int:
        """About how many bytes this brings along."""
        return sum(write.cost for write in self.writes)

    @property
    def rows(self) -> int:
        """How many rows this is about."""
        return len(self.writes)


class ExpireItems(Command, frozen=True, kw_only=True):
    """Notice that items have passed their deadline."""

    table: str
    space: str
    keys: tuple[bytes, ...]

    @property
    def rows(self) -> int:
        """How many rows this is about: those of the indexes too, and an item is large."""
        return 4 * len(self.keys)

    @property
    def removes(self) -> bool:
        """Whether this only removes."""
        return True


class Defined(Result, frozen=True, tag=True):
    """A table as it is after a change; `version` is that of the change."""

    schema: TableSchema
    version: int


class ItemDone(Result, frozen=True, tag=True):
    """What became of a change of an item: its version, and the rows that it returns or leaves.

    `version` is None where nothing was changed. `row` is the item after it, `old` the one before if the
    command returns it.
    """

    version: int | None
    row: Row | None = None
    old: Row | None = None


class Transacted(Result, frozen=True, tag=True):
    """What became of the writes of a transaction, by position."""

    items: tuple[ItemDone, ...]


class ItemsDone(Result, frozen=True, tag=True):
    """What became of several changes: a result or the error that refused it, by position."""

    items: tuple[ItemDone | Exception, ...]
