"""Raw access to everything that a store keeps, for backups, copies, comparisons and checks.

A store is a set of shelves. Each namespace has four of them: its entries, its other rows, the parts of its
blobs, and its journal. What stands on a shelf has a mark, and a shelf is ordered by marks, in every engine
alike. Beside the shelves there are the rows of the namespaces themselves and a few facts about the store.

Nothing here interprets a row, and a deadline hides nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from holdfast.engine.contract import Engine
from holdfast.rows import KV, PARTS, Address, Record, Row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast.rows import Namespace

Mark: TypeAlias = "tuple[str | bytes | int, ...]"
"""The place of something on its shelf: the key of an entry, the space and the key of any other row, the
version of a record. Marks of one shelf compare as their engine orders them."""

UNFINISHED: Final = "a copy into this store is not complete"
"""The beginning of the reason for which a store is closed that can't be used yet."""

CHANGED: Final = "another process has closed or opened this store meanwhile"
"""The message of an error: the store is no longer closed, or open, as it was."""


class Shelf(StrEnum):
    """A kind of contents of a namespace."""

    ENTRIES = "entries"
    ROWS = "rows"
    PARTS = "parts"
    JOURNAL = "journal"


class Marked(NamedTuple):
    """Something on a shelf, with its mark."""

    mark: Mark
    content: Row | Record


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a store remembers about itself: its epoch, its latest time, and its audit's keys by name.

    `closed` is the reason why it accepts no writes, if it is closed.
    """

    epoch: str = ""
    clock: int = 0
    audit_key: str | None = None
    closed: str | None = None


class RawSnapshot(Protocol):
    """Everything that a store keeps, at one instant."""

    async def facts(self) -> Facts:
        """Return what the store remembers about itself."""
        ...

    async def namespaces(self) -> list[Namespace]:
        """Return the rows of all namespaces, by name."""
        ...

    async def names(self) -> list[str]:
        """Return the names of all namespaces that keep anything, in order, also of those without a row."""
        ...

    async def count(self) -> int:
        """Return how many things are on all shelves of all namespaces."""
        ...

    async def page(self, namespace: str, shelf: Shelf, *, after: Mark | None, limit: int) -> list[Marked]:
        """Return at most `limit` things after a mark. Fewer are returned only at the end of the shelf."""
        ...

    async def find(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> list[Marked]:
        """Return what is at these marks, in any order."""
        ...


class RawLoader(Protocol):
    """Changes of a store's raw contents, all in one transaction."""

    async def facts(self) -> Facts:
        """Return what the store remembers about itself."""
        ...

    async def put(self, namespace: str, shelf: Shelf, held: Sequence[Marked]) -> None:
        """Put things on a shelf, in place of those with the same marks."""
        ...

    async def drop(self, namespace: str, shelf: Shelf, marks: Sequence[Mark]) -> None:
        """Remove what is at these marks."""
        ...

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """Put the rows of namespaces."""
        ...

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """Remove namespaces: their rows and everything on their shelves."""
        ...

    async def remember(self, facts: Facts) -> None:
        """Replace what the store remembers about itself. It becomes closed or open as the facts say."""
        ...


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check of the storage: its scope, the problems found, and whether it was complete."""

    checked: str
    troubles: list[str] = []
    complete: bool = True


@runtime_checkable
class Movable(Engine, Protocol):
    """An optional interface for engines whose whole contents an operator can read and load as they are."""

    def open_read_only(self) -> None:
        """Make `start` open the storage for reading: it then creates no files and changes nothing."""
        ...

    def open_unfinished(self) -> None:
        """Let `start` open a store into which a copy is under way. Otherwise `start` refuses it."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[RawSnapshot]:
        """Read everything at one instant, while others write."""
        ...

    def loading(self) -> AbstractAsyncContextManager[RawLoader]:
        """Change raw contents in one transaction, which is committed when the block ends without an error.

        A store that is closed can be loaded. A cluster commits in pieces: it must first be closed, with a
        reason that begins with `UNFINISHED`, and all changes between two calls of `RawLoader.remember` may
        be kept in part.
        """
        ...

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """Refuse all writes of all processes from now on, with this reason; None allows them again.

        When it returns, every write that was accepted before is visible to a new snapshot, and no write is
        accepted any more. Other processes may have the store open, even for writing.

        Args:
            reason: The reason that writers are given.
            instead_of: The reason for which the store is closed so far; None if it is open.

        Raises:
            Busy: Another process has closed or opened the store in between. Nothing was changed.
        """
        ...

    async def examine(self, *, seconds: float | None = None) -> Checkup | None:
        """Check the storage for corruption: thoroughly, or as far as a quick check gets in so many seconds.

        Returns None if this storage can't be examined.
        """
        ...


def address_of(namespace: str, shelf: Shelf, mark: Mark) -> Address:
    """Return the address of a row that stands on a shelf."""
    space, key = (KV, mark[0]) if shelf is Shelf.ENTRIES else mark
    assert isinstance(space, str)
    assert not isinstance(key, int)
    return Address(namespace, space, key)


def shelf_of(space: str) -> Shelf:
    """Return the shelf on which the rows of a space stand."""
    if space == KV:
        return Shelf.ENTRIES
    return Shelf.PARTS if space.startswith(PARTS) else Shelf.ROWS
