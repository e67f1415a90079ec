"""Reading the bytes of a blob.

Law: a reader reads the blob that it has opened, or fails: parts never change, and another blob of the same
name has others. Every part is verified before any of it is handed out. A bounded number of parts is read
ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.blobs.manifest import (
    EMPTY,
    checksum_after,
    checksum_of,
    manifest_of,
    part_key,
    part_space,
)
from holdfast.errors import Busy, DatabaseError
from holdfast.rows import Address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from holdfast.blobs.manifest import Manifest
    from holdfast.model import Blob
    from holdfast.rows import Row

AT_ONCE: Final = 4
"""Number of parts that are read with one query."""
AHEAD: Final = 4
"""Number of queries whose parts are held: one is handed out, two are verified in threads, and one is read."""


class PartStore(Protocol):
    """The part of a store that a reader uses."""

    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read parts of blobs with their bytes."""
        ...

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """Read the row of an entry, and the time."""
        ...


class BlobReader:
    """An open blob, or a range of it. Iterate over it, or `read` it.

    Attributes:
        blob: The blob.
        start: The position of the first byte that is read.
        end: The position after the last byte that is read.
    """

    def __init__(
        self,
        store: PartStore,
        namespace: str,
        blob: Blob,
        manifest: Manifest,
        *,
        start: int,
        end: int,
        ahead: int = AHEAD,
    ) -> None:
        self.blob = blob
        self.start: int = min(start, end)
        self.end = end
        self._store = store
        self._ahead = ahead
        self._namespace = namespace
        self._manifest = manifest

    async def read(self) -> bytes:
        """Read all bytes, which must fit into memory.

        Returns:
            The bytes.

        Raises:
            Busy: The blob was replaced or deleted some time ago, and its bytes are gone: get it again.
            DatabaseError: The bytes are not those that were put.
        """
        return b"".join([piece async for piece in self])

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces of at most 262,144."""
        return self.pieces()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the bytes in pieces of at most 262,144, for a caller that closes the generator."""
        size = self._manifest.part_bytes
        if self.start == self.end:
            return
        first, last = self.start // size, (self.end - 1) // size
        whole = (self.start, self.end) == (0, self._manifest.size)
        chain, number = EMPTY, first
        async with aclosing(self._parts(first, last)) as parts:
            async for data, checksum in parts:
                if whole:
                    chain = checksum_after(chain, checksum, number)
                    if number == last and chain != self._manifest.checksum:
                        raise DatabaseError(f"{self._what} does not match its checksum", field="key")
                low, high = max(self.start - number * size, 0), min(self.end - number * size, len(data))
                yield data if (low, high) == (0, len(data)) else data[low:high]
                number += 1

    async def _parts(self, first: int, last: int) -> AsyncGenerator[tuple[bytes, str]]:
        """Yield the verified parts with their checksums, reading some ahead."""
        reading: deque[asyncio.Task[list[tuple[Row | None, str]]]] = deque()
        following = number = first
        try:
            while reading or following <= last:
                while following <= last and len(reading) < self._ahead:
                    some = range(following, min(following + AT_ONCE, last + 1))
                    reading.append(asyncio.create_task(self._read(some)))
                    following = some.stop
                rows = await reading[0]
                reading.popleft()
                for row, checksum in rows:
                    yield await self._verified(number, row, checksum), checksum
                    number += 1
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, numbers: range) -> list[tuple[Row | None, str]]:
        """Read parts and compute their checksums, which takes longer than reading: in a thread."""
        space = part_space(self._manifest.upload)
        rows = await self._store.parts(
            [Address(self._namespace, space, part_key(number)) for number in numbers]
        )
        if len(numbers) == 1:
            return _summed(rows)
        return await asyncio.to_thread(_summed, rows)

    async def _verified(self, number: int, row: Row | None, checksum: str) -> bytes:
        if row is None or row.data is None:
            raise await self._loss(number)
        if checksum != row.value or len(row.data) != self._size_of(number):
            raise DatabaseError(
                f"part {number} of {self._what} does not match its checksum: it was changed outside "
                "Holdfast, or the disk is faulty",
                field="key",
            )
        return row.data

    def _size_of(self, number: int) -> int:
        manifest = self._manifest
        return min(manifest.part_bytes, manifest.size - number * manifest.part_bytes)

    async def _loss(self, number: int) -> Busy | DatabaseError:
        """Return the error for a part that is gone: the blob is gone too, or the storage has lost it."""
        row, _ = await self._store.get_at(self._namespace, self.blob.name)
        if row is not None and manifest_of(self.blob.name, row.value).upload == self._manifest.upload:
            return DatabaseError(f"part {number} of {self._what} is missing", field="key")
        return Busy(f"{self._what} was replaced or deleted while it was being read: read it again")

    @property
    def _what(self) -> str:
        return f"version {self.blob.version} of blob {self.blob.name!r}"


def _summed(rows: Sequence[Row | None]) -> list[tuple[Row | None, str]]:
    """Return parts with the checksums of their bytes."""
    return [(row, "" if row is None or row.data is None else checksum_of(row.data)) for row in rows]
