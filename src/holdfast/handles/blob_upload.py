"""Sending the parts of a blob.

Law: a bounded number of parts is in flight, so that the memory that a put takes does not depend on the size
of the blob. A part is stored once however often it is sent, so it may be sent again after any failure. An
upload that fails leaves nothing behind; one whose process dies is swept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast.blobs import fields as of
from holdfast.blobs.commands import VERBS, AbortUpload, BeginUpload, Begun, PutPart, StoreBlob
from holdfast.blobs.manifest import EMPTY, MAX_BLOB_BYTES, checksum_after, checksum_of, manifest_of
from holdfast.commands import Stored
from holdfast.errors import HoldfastError, OutcomeUnknown, Transient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.commands import Result, WriteCommand
    from holdfast.verbs.caller import NamespaceCaller

IN_FLIGHT: Final = 16
"""Number of parts that are sent before the first of them must have arrived."""
ATTEMPTS: Final = 5
"""Number of times that a part is sent before the put fails."""
PAUSE: Final = 0.1
"""Seconds before a part is sent again if the refusal names no time; twice as long each time."""
_AGAIN: Final = (Transient, OutcomeUnknown)


class BlobWriter(Protocol):
    """The part of a store that an upload uses."""

    async def call(self, command: WriteCommand) -> Result:
        """Execute a command."""
        ...


def blob_command(caller: NamespaceCaller, key: object, **about: Any) -> StoreBlob:
    """Make the command that stores a blob, without its bytes. `about` is what `put` takes beside them."""
    command: StoreBlob = VERBS["put"].call(caller, key=key, data=b"", **about)
    return msgspec.structs.replace(command, data=None, checksum=EMPTY)


async def store_blob(
    store: BlobWriter,
    caller: NamespaceCaller,
    wanted: StoreBlob,
    parts: AsyncIterator[bytes],
    *,
    in_flight: int = IN_FLIGHT,
    checksum: str | None = None,
) -> Stored:
    """Send a blob and store it. `wanted` says everything about it but its size, checksum and bytes.

    A blob of one part takes a single command. `checksum` is that of the whole blob, if the caller knows it.
    """
    first = await anext(parts, b"")
    second = await anext(parts, None) if first else None
    if second is None:
        found = checksum_of(first)
        of.require_checksum(found, checksum)
        command = msgspec.structs.replace(wanted, data=first, size=len(first), checksum=found)
        return await _executed(store, command)
    upload = _Upload(store, caller, in_flight)
    return await upload.store(wanted, [first, second], parts, checksum)


async def _executed(store: BlobWriter, command: StoreBlob) -> Stored:
    result = await store.call(command)
    assert isinstance(result, Stored)
    return result


class _Upload:
    """An upload in progress."""

    def __init__(self, store: BlobWriter, caller: NamespaceCaller, in_flight: int) -> None:
        self._in_flight = in_flight
        self._store = store
        self._caller = caller
        self._number = 0
        self._chain = EMPTY
        self._size = 0
        self._sent: deque[asyncio.Task[str]] = deque()
        self._arrived = 0

    async def store(
        self, wanted: StoreBlob, begun: list[bytes], rest: AsyncIterator[bytes], checksum: str | None
    ) -> Stored:
        """Send the parts, then store the blob."""
        result = await self._store.call(self._caller.command(BeginUpload))
        assert isinstance(result, Begun)
        upload = result.upload
        try:
            await self._send_all(upload, begun, rest)
            of.require_checksum(self._chain, checksum)
            stored = await _executed(
                self._store,
                msgspec.structs.replace(wanted, upload=upload, size=self._size, checksum=self._chain),
            )
        except OutcomeUnknown:
            raise  # the parts may be those of a blob by now
        except Exception:
            await self._abort(upload)
            raise
        if manifest_of(stored.key, stored.row.value).upload != upload:  # the answer of an earlier request
            await self._abort(upload)
        return stored

    async def _abort(self, upload: int) -> None:
        with contextlib.suppress(HoldfastError):  # the sweep removes what is left
            await self._store.call(self._caller.command(AbortUpload, upload=upload))

    async def _send_all(self, upload: int, begun: list[bytes], rest: AsyncIterator[bytes]) -> None:
        try:
            for part in begun:
                await self._send(upload, part)
            async for part in rest:
                await self._send(upload, part)
            while self._sent:
                await self._next_arrival()
        finally:
            for task in self._sent:
                task.cancel()
            await asyncio.gather(*self._sent, return_exceptions=True)

    async def _send(self, upload: int, part: bytes) -> None:
        """Send a part, once there is room for it."""
        if len(self._sent) == self._in_flight:
            await self._next_arrival()
        self._size += len(part)
        if self._size > MAX_BLOB_BYTES:
            of.size(self._size)
        self._sent.append(asyncio.create_task(self._deliver(upload, self._number, part)))
        self._number += 1

    async def _next_arrival(self) -> None:
        """Wait until the oldest part has arrived."""
        checksum = await self._sent[0]
        self._sent.popleft()
        self._chain = checksum_after(self._chain, checksum, self._arrived)
        self._arrived += 1

    async def _deliver(self, upload: int, number: int, part: bytes) -> str:
        """Send a part until it has arrived. Returns its checksum."""
        checksum = checksum_of(part)
        for attempt in range(ATTEMPTS):
            command = PutPart(  # not by its declaration, which would sum up the bytes again
                namespace=self._caller.namespace,
                origin=self._caller.origin(),
                upload=upload,
                number=number,
                checksum=checksum,
                data=part,
            )
            try:
                await self._store.call(command)
                break
            except _AGAIN as refusal:
                if attempt == ATTEMPTS - 1:
                    raise
                given = refusal.retry_after if isinstance(refusal, Transient) else None
                await asyncio.sleep(PAUSE * 2**attempt if given is None else given)
        return checksum
