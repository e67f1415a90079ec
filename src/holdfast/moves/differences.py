"""The differences between two snapshots: which namespaces, which ranges, and which things in them.

A range ends where the hash of a position says so. So equal contents fall into equal ranges, and something
added or removed changes one range, not all that follow. Ranges with equal hashes are not read again. A
difference names what differs and holds both contents, so that a copy can be brought in step by the same means
by which it is proven equal.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from holdfast.engine.raw import Position, Positioned, RawSnapshot, Section
from holdfast.moves.walks import packed, walk
from holdfast.rows import Namespace, Record, Row

USUAL: Final = 512
"""The average number of things in a range."""

_encode: Final = msgspec.msgpack.Encoder().encode


class HashedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The hash of a part of a section: everything after one position, up to and including another.

    None stands for the beginning or the end of the section.
    """

    after: Position | None
    upto: Position | None
    count: int
    hash: str


class _Sum:
    """A range under construction."""

    def __init__(self, after: Position | None) -> None:
        self._after = after
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, held: Positioned) -> None:
        self._count += 1
        self._hash.update(packed(held))

    def range(self, upto: Position | None) -> HashedRange:
        return HashedRange(after=self._after, upto=upto, count=self._count, hash=self._hash.hexdigest())


async def ranges(
    snapshot: RawSnapshot,
    namespace: str,
    section: Section,
    *,
    after: Position | None = None,
    upto: Position | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> list[HashedRange]:
    """Return the ranges of a section, or of the part between two positions, in order, up to its end."""
    hashed: list[HashedRange] = []
    current = _Sum(after)
    async for page in walk(snapshot, namespace, section, after=after, upto=upto):
        for held in page:
            current.add(held)
            if zlib.crc32(_encode(held.position)) % USUAL == 0:
                hashed.append(current.range(held.position))
                current = _Sum(held.position)
        advance(len(page))
    return [*hashed, current.range(upto)]


class Difference(NamedTuple):
    """Something that two stores don't hold alike. None stands for something that a store does not hold."""

    namespace: str
    section: Section
    position: Position
    one: Row | Record | None
    other: Row | Record | None


class Unequal(NamedTuple):
    """A part of a section in which two stores differ, with the numbers of things that each has there."""

    after: Position | None
    upto: Position | None
    counts: tuple[int, int]


def _quiet(count: int) -> None:
    """Report no progress."""


async def unequal_ranges(
    one: RawSnapshot,
    other: RawSnapshot,
    namespace: str,
    section: Section,
    *,
    after: Position | None = None,
    upto: Position | None = None,
    advance: Callable[[int], None] = _quiet,
) -> list[Unequal]:
    """Return the smallest parts of a section, with bounds that both sides share, whose hashes differ.

    Only what is after one position, up to and including another, is compared.
    """
    ours, theirs = await asyncio.gather(
        ranges(one, namespace, section, after=after, upto=upto, advance=advance),
        ranges(other, namespace, section, after=after, upto=upto),
    )
    return _compared(ours, theirs, after)


def _compared(ours: list[HashedRange], theirs: list[HashedRange], after: Position | None) -> list[Unequal]:
    shared = {part.upto for part in ours} & {part.upto for part in theirs}
    part: list[Unequal] = []
    left, right = iter(ours), iter(theirs)
    for upto in (one.upto for one in ours if one.upto in shared):
        mine, yours = _until(left, upto), _until(right, upto)
        if [one.hash for one in mine] != [one.hash for one in yours]:
            counts = sum(one.count for one in mine), sum(one.count for one in yours)
            part.append(Unequal(after, upto, counts))
        after = upto
    return part


def _until(rest: Iterator[HashedRange], upto: Position | None) -> list[HashedRange]:
    ranges: list[HashedRange] = []
    for one in rest:
        ranges.append(one)
        if one.upto == upto:
            return ranges
    return ranges


async def differences(
    one: RawSnapshot, other: RawSnapshot, namespace: str, section: Section, part: Unequal
) -> AsyncIterator[Difference]:
    """Yield everything that differs in a part of a section, in its order."""
    left = _Side(one, namespace, section, part)
    right = _Side(other, namespace, section, part)
    mine, yours = await left.next(), await right.next()
    while mine is not None or yours is not None:
        if yours is None or (mine is not None and mine.position < yours.position):
            assert mine is not None
            yield Difference(namespace, section, mine.position, mine.content, None)
            mine = await left.next()
        elif mine is None or yours.position < mine.position:
            yield Difference(namespace, section, yours.position, None, yours.content)
            yours = await right.next()
        else:
            if mine.content != yours.content:
                yield Difference(namespace, section, mine.position, mine.content, yours.content)
            mine, yours = await left.next(), await right.next()


class _Side:
    """One of the two walks of a comparison, a thing at a time."""

    def __init__(self, snapshot: RawSnapshot, namespace: str, section: Section, part: Unequal) -> None:
        self._pages = walk(snapshot, namespace, section, after=part.after, upto=part.upto)
        self._page: list[Positioned] = []

    async def next(self) -> Positioned | None:
        """Return the next thing; None at the end."""
        if not self._page:
            self._page = (await anext(self._pages, []))[::-1]
        return self._page.pop() if self._page else None


class NamespaceDifference(NamedTuple):
    """The difference between two namespaces: their rows, if those differ, and the parts of their sections."""

    name: str
    rows: tuple[Namespace | None, Namespace | None] | None
    sections: dict[Section, list[Unequal]]


async def compared(
    one: RawSnapshot, other: RawSnapshot, *, advance: Callable[[int], None] = _quiet
) -> AsyncIterator[NamespaceDifference]:
    """Compare two stores and yield the namespaces that differ, by name."""
    ours = {namespace.name: namespace for namespace in await one.namespaces()}
    theirs = {namespace.name: namespace for namespace in await other.namespaces()}
    for name in sorted({*await one.names(), *await other.names()}):
        namespace = {
            section: parts
            for section in Section
            if (parts := await unequal_ranges(one, other, name, section, advance=advance))
        }
        rows = None if ours.get(name) == theirs.get(name) else (ours.get(name), theirs.get(name))
        if namespace or rows:
            yield NamespaceDifference(name, rows, namespace)
