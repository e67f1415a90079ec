"""Hashes of ranges of a section, by which two stores are compared.

A range ends where the hash of a position says so. So equal contents fall into equal ranges, and something
added or removed changes one range, not all that follow.

Law: a pure function of what a snapshot returns, the same for every engine.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.raw import Position
from holdfast.moves.walking import packed, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.raw import Positioned, RawSnapshot, Section

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
    found: list[HashedRange] = []
    current = _Sum(after)
    async for page in walk(snapshot, namespace, section, after=after, upto=upto):
        for held in page:
            current.add(held)
            if zlib.crc32(_encode(held.position)) % USUAL == 0:
                found.append(current.range(held.position))
                current = _Sum(held.position)
        advance(len(page))
    return [*found, current.range(upto)]
