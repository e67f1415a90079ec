"""Raw access to everything that a store keeps, for backups, copies, comparisons and checks.

A store is a set of sections. Each namespace has four of them: its entries, its other rows, the parts of its
blobs, and its journal. What is in a section has a position, and a section is ordered by positions, in every
engine alike. Beside the sections there are the rows of the namespaces and a few facts about the store.

Nothing here interprets a row, and a deadline hides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from holdfast.rows import KV, PARTS, Address, Namespace, Record, Row

Position: TypeAlias = "tuple[str | bytes | int, ...]"
"""The place of something in its section: the key of an entry, the space and the key of any other row, the
version of a record. Positions of one section compare as their engine orders them."""

UNFINISHED: Final = "a copy into this store is not complete"
"""The beginning of the reason for which a store is closed that can't be used yet."""

CHANGED: Final = "another process has closed or opened this store meanwhile"
"""The message of an error: the store is no longer closed, or open, as it was."""


class Section(StrEnum):
    """A kind of contents of a namespace."""

    ENTRIES = "entries"
    ROWS = "rows"
    PARTS = "parts"
    JOURNAL = "journal"


class Positioned(NamedTuple):
    """Something in a section, with its position."""

    position: Position
    content: Row | Record


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a store remembers about itself: its epoch, its latest time, and its audit's keys by name.

    `closed` is the reason why it accepts no writes, if it is closed.
    """

    epoch: str = ""
    clock: int = 0
    audit_key: str | None = None
    closed: str | None = None


class RawSnapshot(Protocol):
    """Everything that a store keeps, at one instant."""

    async def facts(self) -> StoreInfo:
        """Return what the store remembers about itself."""
        ...

    async def namespaces(self) -> list[Namespace]:
        """Return the rows of all namespaces, by name."""
        ...

    async def names(self) -> list[str]:
        """Return the names of all namespaces that keep anything, in order, also of those without a row."""
        ...

    async def count(self) -> int:
        """Return how many things are in all sections of all namespaces."""
        ...

    async def page(
        self, namespace: str, section: Section, *, after: Position | None, limit: int
    ) -> list[Positioned]:
        """Return at most `limit` things after a position. There are fewer only at the end of the section."""
        ...

    async def find(self, namespace: str, section: Section, positions: Sequence[Position]) -> list[Positioned]:
        """Return what is at these positions, in any order."""
        ...


class RawLoader(Protocol):
    """Changes of a store's raw contents, all in one transaction."""

    async def facts(self) -> StoreInfo:
        """Return what the store remembers about itself."""
        ...

    async def put(self, namespace: str, section: Section, held: Sequence[Positioned]) -> None:
        """Put things in a section, in place of those with the same positions."""
        ...

    async def drop(self, namespace: str, section: Section, positions: Sequence[Position]) -> None:
        """Remove what is at these positions."""
        ...

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """Put the rows of namespaces."""
        ...

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """Remove namespaces: their rows and everything in their sections."""
        ...

    async def remember(self, facts: StoreInfo) -> None:
        """Replace what the store remembers about itself. It becomes closed or open as the facts say."""
        ...


def address_of(namespace: str, section: Section, position: Position) -> Address:
    """Return the address of a row that is in a section."""
    space, key = (KV, position[0]) if section is Section.ENTRIES else position
    assert isinstance(space, str)
    assert not isinstance(key, int)
    return Address(namespace, space, key)


def section_of(space: str) -> Section:
    """Return the section that holds the rows of a space."""
    if space == KV:
        return Section.ENTRIES
    return Section.PARTS if space.startswith(PARTS) else Section.ROWS
