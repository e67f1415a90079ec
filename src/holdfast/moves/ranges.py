"""Hashes of ranges of a shelf, by which two stores are compared.

A range ends where the hash of a mark says so. So equal contents fall into equal ranges, and something added
or removed changes one range, not all that follow.

Law: a pure function of what a snapshot returns, the same for every engine.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.moving import Mark
from holdfast.moves.walking import packed, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.moving import Marked, RawSnapshot, Shelf

USUAL: Final = 512
"""The average number of things in a range."""

_encode: Final = msgspec.msgpack.Encoder().encode


class HashedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The hash of a part of a shelf: everything after one mark, up to and including another.

    None stands for the beginning or the end of the shelf.
    """

    after: Mark | None
    upto: Mark | None
    count: int
    hash: str


class _Sum:
    """A range under construction."""

    def __init__(self, after: Mark | None) -> None:
        self._after = after
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, held: Marked) -> None:
        self._count += 1
        self._hash.update(packed(held))

    def range(self, upto: Mark | None) -> HashedRange:
        return HashedRange(after=self._after, upto=upto, count=self._count, hash=self._hash.hexdigest())


async def ranges(
    snapshot: RawSnapshot,
    namespace: str,
    shelf: Shelf,
    *,
    after: Mark | None = None,
    upto: Mark | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> list[HashedRange]:
    """Return the ranges of a shelf, or of the part between two marks, in order. The last reaches its end."""
    found: list[HashedRange] = []
    current = _Sum(after)
    async for page in walk(snapshot, namespace, shelf, after=after, upto=upto):
        for held in page:
            current.add(held)
            if zlib.crc32(_encode(held.mark)) % USUAL == 0:
                found.append(current.range(held.mark))
                current = _Sum(held.mark)
        advance(len(page))
    return [*found, current.range(upto)]
