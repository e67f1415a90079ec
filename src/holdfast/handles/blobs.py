"""The blobs of a plugin, as Python calls, and the reader of a blob's bytes.

A blob's entry is an entry of its namespace, so the verbs of keys serve everything that is not about bytes.

A reader reads the blob that it has opened, or fails: parts never change, and another blob of the same name
has others. Every part is verified before any of it is handed out. A bounded number of parts is read ahead.
"""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol, Unpack

from holdfast import seams
from holdfast.blobs import fields as of
from holdfast.blobs.commands import CopyBlob
from holdfast.blobs.manifest import (
    EMPTY,
    Manifest,
    checksum_after,
    checksum_of,
    manifest_of,
    part_key,
    part_space,
)
from holdfast.commands import Command, Got, Restore, Reveal, Stored
from holdfast.cursors import cursor_after
from holdfast.declare import DECLARED
from holdfast.errors import Busy, DatabaseError
from holdfast.handles.blob_upload import Content, blob_command, parts_of, store_blob
from holdfast.handles.kv import KV, listed
from holdfast.model import Blob, BlobPage, Change, Changes, Keep
from holdfast.pipeline.caller import Caller
from holdfast.rows import Address, Row
from holdfast.stored import entry_of
from holdfast.verbs.fields import Provenance, Viewing
from holdfast.verbs.keys import Verbs

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
        return await seams.aside(_summed, rows)

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


class Blobs:
    """The blobs of a plugin: bytes of any size under names, with versions and deadlines like entries.

    Get it from `store.blobs`. Every verb that writes also takes `request_id`, `writer`, `spec_ref`, `fence`
    and `timeout`; see `KV`.
    """

    def __init__(self, store: Caller, verbs: Verbs) -> None:
        self.store = store
        self.namespace: str = verbs.namespace
        """The namespace's full name."""
        self._keys = KV(store, verbs)
        self._key = verbs.key
        self._verbs = verbs

    async def put(
        self,
        name: str,
        data: Content,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        ttl: int | Keep | None = None,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Blob:
        """Put a blob, replacing an existing one of that name in one step once all its bytes have arrived.

        Args:
            name: Name of 1 to 255 characters, as a key.
            data: Bytes, a file open for reading bytes, or an iterator of bytes, which may be asynchronous. At
                most 5,368,709,120 bytes. Files and iterators are not read into memory as a whole.
            content_type: Content type; `application/octet-stream` if not given.
            metadata: Texts by name, of at most 8,192 bytes as JSON.
            ttl: Seconds until the blob expires; None for never; `holdfast.KEEP` keeps the deadline it has.
            expected_version: Version that the blob must have; 0 if there must be none, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The new blob, without its bytes.

        Raises:
            ValueTooLarge: There are too many bytes, or too much metadata.
            VersionConflict: The blob does not have the expected version.
            QuotaExceeded: The bytes exceed the quota of the namespace.

        Example:
            `await blobs.put("logo.png", open("logo.png", "rb"), content_type="image/png")`
        """
        command = blob_command(
            self._verbs,
            name,
            content_type=content_type,
            metadata=metadata,
            ttl=ttl,
            expected_version=expected_version,
            **provenance,
        )
        stored = await store_blob(self.store, self._verbs, command, parts_of(data))
        return _blob(stored.key, stored.row)

    async def get(self, name: str, *, start: int = 0, end: int | None = None) -> BlobReader | None:
        """Open a blob for reading.

        The reader reads the blob as it is now, even if it is replaced in the meantime. The bytes of a
        replaced or deleted blob are kept for another minute; after that the reader raises `Busy`.

        Args:
            name: The blob's name.
            start: Position of the first byte to read.
            end: Position after the last byte to read; None for the end of the blob.

        Returns:
            A reader, which is an asynchronous iterator of bytes; None if there is no such blob.

        Example:
            `reader = await blobs.get("logo.png")`
        """
        start = of.offset(start, field="start")
        end = None if end is None else of.offset(end, field="end")
        name = self._key(name)
        row, _ = await self.store.get_at(self.namespace, name)
        if row is None:
            return None
        return self.opened(name, row, start, end)

    def opened(self, name: str, row: Row, start: int, end: int | None) -> BlobReader:
        """Open a blob whose row is known, for an edge that shows the row too.

        Args:
            name: The blob's name.
            row: The row of its entry.
            start: Position of the first byte to read.
            end: Position after the last byte to read; None for the end of the blob.

        Returns:
            The reader.
        """
        manifest = manifest_of(name, row.value)
        stop = manifest.size if end is None else min(end, manifest.size)
        return BlobReader(
            self.store, self.namespace, described(name, row, manifest), manifest, start=start, end=stop
        )

    async def reveal(
        self, name: str, why: str | None = None, **viewing: Unpack[Viewing]
    ) -> BlobReader | None:
        """Open a blob for a person; `KV.reveal` explains when they have to say why.

        Args:
            name: The blob's name.
            why: The reason, with 3 letters or digits, to 500 characters. The policy `open` needs none.
            **viewing: `writer`, the name of the person, and `timeout` in seconds.

        Returns:
            A reader as `get` returns it; None if there is no such blob.

        Raises:
            MissingField: There is no reason, and the policy wants one.
            PermissionDenied: The policy never reveals values.
        """
        command = self._keys.verbs.command(Reveal, key=name, why=why, **viewing)
        result = await self.store.call(command)
        assert isinstance(result, Got)
        return None if result.row is None else self.opened(command.key, result.row, 0, None)

    async def head(self, name: str) -> Blob | None:
        """Get what is known about a blob, without its bytes.

        Args:
            name: The blob's name.

        Returns:
            The blob, or None if there is none or it has expired.
        """
        name = self._key(name)
        row, _ = await self.store.get_at(self.namespace, name)
        return None if row is None else _blob(name, row)

    async def list(
        self, prefix: str = "", *, limit: int | None = None, cursor: str | None = None
    ) -> BlobPage:
        """List the blobs whose names begin with a prefix, in the order of the UTF-8 bytes of the names.

        Args:
            prefix: The beginning of the names; empty for all.
            limit: Largest number of blobs in the page, from 1 to 10,000; 1,000 if not given.
            cursor: The cursor of the page before, which was asked for with the same prefix.

        Returns:
            A page of blobs. It is the last one if its cursor is None.
        """
        page = await listed(self._keys, prefix, limit=limit, cursor=cursor, values=True)
        return BlobPage(
            blobs=[*map(_blob, page.keys, page.rows)],
            truncated=page.last is not None,
            cursor=None if page.last is None else cursor_after(page.last),
        )

    async def delete(
        self, name: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> bool:
        """Remove a blob.

        Args:
            name: The blob's name.
            expected_version: Version that the blob must have; 0 if there must be none, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            True if the blob was there.

        Raises:
            VersionConflict: The blob does not have the expected version.
        """
        return await self._keys.delete(name, expected_version=expected_version, **provenance)

    async def copy(
        self,
        source: str,
        name: str,
        *,
        ttl: int | None = None,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Blob:
        """Copy a blob, with its content type and metadata. Both share their bytes, so this takes one step.

        Args:
            source: Name of the blob to copy.
            name: Name of the copy.
            ttl: Seconds until the copy expires; None for never.
            expected_version: Version that a blob of the copy's name must have; 0 if there must be none.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The copy.

        Raises:
            KeyNotFound: There is no blob to copy.
            VersionConflict: The blob of the copy's name does not have the expected version.
        """
        return await self._stored(
            self._verbs.command(
                CopyBlob, source=source, key=name, ttl=ttl, expected_version=expected_version, **provenance
            )
        )

    async def get_ttl(self, name: str) -> int | None:
        """Get the time that a blob has left.

        Args:
            name: The blob's name.

        Returns:
            Seconds, rounded up; None if the blob never expires; 0 if there is none.
        """
        return await self._keys.get_ttl(name)

    async def set_ttl(
        self,
        name: str,
        ttl_seconds: int,
        *,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Blob:
        """Expire a blob a number of seconds from now.

        Args:
            name: The blob's name.
            ttl_seconds: Whole seconds, from 1.
            expected_version: Version that the blob must have; None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The blob with its new version.

        Raises:
            KeyNotFound: There is no such blob.
        """
        verbs = self._keys.verbs
        return await self._stored(
            DECLARED["set_ttl"].call(
                verbs, key=name, ttl_seconds=ttl_seconds, expected_version=expected_version, **provenance
            )
        )

    async def remove_ttl(
        self, name: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> Blob:
        """Remove a blob's deadline, so that it never expires.

        Args:
            name: The blob's name.
            expected_version: Version that the blob must have; None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The blob with its new version.

        Raises:
            KeyNotFound: There is no such blob.
        """
        verbs = self._keys.verbs
        return await self._stored(
            DECLARED["remove_ttl"].call(verbs, key=name, expected_version=expected_version, **provenance)
        )

    async def restore(self, name: str, *, ttl: int | None = None, **provenance: Unpack[Provenance]) -> Blob:
        """Bring a blob back from the trash, with a new version.

        Args:
            name: The blob's name.
            ttl: Seconds until the blob expires; None for never.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The restored blob.

        Raises:
            VersionConflict: There is a blob of that name.
            KeyNotFound: The blob is not in the trash.
        """
        return await self._stored(self._keys.verbs.command(Restore, key=name, ttl=ttl, **provenance))

    async def changes(self, since: int = 0, *, prefix: str = "", limit: int | None = None) -> Changes:
        """Read the journal of the blobs; see `KV.changes`.

        Args:
            since: The version after which to begin, such as the `next` of an earlier call.
            prefix: The beginning of the names whose changes are wanted.
            limit: Largest number of changes, from 1 to 10,000; 1,000 if not given.

        Returns:
            Changes, the oldest first. `key` is the name of the blob.
        """
        return await self._keys.changes(since, prefix=prefix, limit=limit)

    def watch(self, prefix: str = "", since: int | None = None) -> AsyncIterator[Change]:
        """Follow the changes of blobs; see `KV.watch`.

        Args:
            prefix: The beginning of the names.
            since: The version after which to begin; 0 replays the whole journal, None begins now.

        Returns:
            An asynchronous iterator of changes.
        """
        return self._keys.watch(prefix, since)

    async def history(self, name: str, *, limit: int | None = None) -> builtins.list[Change]:
        """Read the changes of a blob from the journal.

        Args:
            name: The blob's name.
            limit: Largest number of changes, from 1 to 10,000; 1,000 if not given.

        Returns:
            Changes, the newest first.
        """
        return await self._keys.history(name, limit=limit)

    async def _stored(self, command: Command) -> Blob:
        result = await self.store.call(command)
        assert isinstance(result, Stored)
        return _blob(result.key, result.row)


def _blob(name: str, row: Row) -> Blob:
    return described(name, row, manifest_of(name, row.value))


def described(name: str, row: Row, manifest: Manifest) -> Blob:
    """Return the blob that a row and its manifest describe."""
    entry = entry_of(name, row, value=False)
    return Blob(
        name=name,
        size=manifest.size,
        content_type=manifest.content_type,
        metadata=manifest.metadata,
        checksum=manifest.checksum,
        version=entry.version,
        created_at=entry.created_at,
        updated_at=entry.updated_at,
        expires_at=entry.expires_at,
        last_writer=entry.last_writer,
        request_id=entry.request_id,
        spec_ref=entry.spec_ref,
    )
