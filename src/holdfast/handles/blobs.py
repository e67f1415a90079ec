"""The blobs of a plugin, as Python calls.

Law: a handle is bound to one namespace. It turns calls into commands and rows into blobs, and decides
nothing. A blob's entry is an entry of its namespace, so the verbs of keys serve everything that is not about
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from holdfast.blobs import fields as of
from holdfast.blobs.commands import CopyBlob
from holdfast.blobs.manifest import manifest_of
from holdfast.commands import Got, Restore, Reveal, Stored
from holdfast.cursors import cursor_after
from holdfast.declare import DECLARED
from holdfast.handles.blob_pieces import parts_of
from holdfast.handles.blob_reader import BlobReader
from holdfast.handles.blob_upload import blob_command, store_blob
from holdfast.handles.kv import KV, listed
from holdfast.model import Blob, BlobPage
from holdfast.stored import entry_of

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Mapping

    from holdfast.blobs.manifest import Manifest
    from holdfast.commands import Command
    from holdfast.handles.blob_pieces import Content
    from holdfast.model import Change, Changes, Keep
    from holdfast.pipeline.pipeline import Pipeline
    from holdfast.rows import Row
    from holdfast.verbs.fields import Provenance, Viewing
    from holdfast.verbs.keys import Verbs


class Blobs:
    """The blobs of a plugin: bytes of any size under names, with versions and deadlines like entries.

    Get it from `store.blobs`. Every verb that writes also takes `request_id`, `writer`, `spec_ref`, `fence`
    and `timeout`; see `KV`.
    """

    def __init__(self, store: Pipeline, verbs: Verbs) -> None:
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
        wanted = blob_command(
            self._verbs,
            name,
            content_type=content_type,
            metadata=metadata,
            ttl=ttl,
            expected_version=expected_version,
            **provenance,
        )
        stored = await store_blob(self.store, self._verbs, wanted, parts_of(data))
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
        found = await listed(self._keys, prefix, limit=limit, cursor=cursor, values=True)
        return BlobPage(
            blobs=[*map(_blob, found.keys, found.rows)],
            truncated=found.last is not None,
            cursor=None if found.last is None else cursor_after(found.last),
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
