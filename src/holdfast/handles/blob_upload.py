"""Sending the bytes of a blob: what a caller puts is cut into parts, and these are sent.

At most one part is held while cutting, and all parts but the last have the same size, whatever the caller's
pieces are. A bounded number of parts is in flight, so that the memory that a put takes does not depend on the
size of the blob. A part is stored once however often it is sent, so it may be sent again after any failure.
An upload that fails leaves nothing behind; one whose process dies is swept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from holdfast import rules, seams
from holdfast.blobs import fields as of
from holdfast.blobs.commands import VERBS, AbortUpload, BeginUpload, Begun, PutPart, StoreBlob
from holdfast.blobs.manifest import (
    EMPTY,
    MAX_BLOB_BYTES,
    PART_BYTES,
    checksum_after,
    checksum_of,
    manifest_of,
)
from holdfast.commands import Result, Stored, WriteCommand
from holdfast.errors import HoldfastError, OutcomeUnknown, Transient, ValidationError
from holdfast.verbs.caller import NamespaceCaller


class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> Any:
        """Return at most so many bytes; none at the end."""
        ...


Bytes: TypeAlias = bytes | bytearray | memoryview
Content: TypeAlias = Bytes | Readable | Iterable[Bytes] | AsyncIterable[Bytes]
"""The forms of data that `put` takes: bytes, a file, or an iterator of bytes, synchronous or not."""

_FORMS: Final = "data must be bytes, a file open for reading bytes, or an iterator of bytes"


def parts_of(data: object) -> AsyncIterator[bytes]:
    """Return the parts of what a caller puts."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _of_bytes(memoryview(data).cast("B"))
    if hasattr(data, "read"):
        return _cut(_read(data))
    if isinstance(data, str):
        raise ValidationError(f"{_FORMS}, not text: encode it first", field="data")
    if isinstance(data, AsyncIterable):
        return _cut(data)
    if isinstance(data, Iterable):
        return _cut(_each(data))
    raise ValidationError(f"{_FORMS}, not {rules.kind_of(data)}", field="data")


async def _of_bytes(data: memoryview) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PART_BYTES):
        yield bytes(data[start : start + PART_BYTES])


async def _read(file: Any) -> AsyncIterator[object]:
    """Read a file in a thread, or await its `read` if that is asynchronous."""
    while True:
        if asyncio.iscoroutinefunction(file.read):
            piece = await file.read(PART_BYTES)
        else:
            piece = await seams.aside(file.read, PART_BYTES)
        if not isinstance(piece, bytes):
            raise ValidationError(f"{_FORMS}; this file gives {rules.kind_of(piece)}", field="data")
        if not piece:
            return
        yield piece


async def _each(pieces: Iterable[object]) -> AsyncIterator[object]:
    for piece in pieces:
        yield piece


async def _cut(pieces: AsyncIterable[object]) -> AsyncIterator[bytes]:
    """Join and cut pieces of any size."""
    held = bytearray()
    async for piece in pieces:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ValidationError(f"{_FORMS}; the iterator gave {rules.kind_of(piece)}", field="data")
        if not held and len(piece) == PART_BYTES and isinstance(piece, bytes):
            yield piece
            continue
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PART_BYTES):  # a large piece is taken over bit by bit
            held += view[start : start + PART_BYTES]
            if len(held) >= PART_BYTES:
                yield bytes(held[:PART_BYTES])
                del held[:PART_BYTES]
    if held:
        yield bytes(held)


IN_FLIGHT: Final = 16
"""Number of parts that are sent before the first of them must have arrived."""
ATTEMPTS: Final = 5
"""Number of times that a part is sent before the put fails."""
PAUSE: Final = 0.1
"""Seconds before a part is sent again if the refusal names no time; twice as long each time."""
_AGAIN: Final = (Transient, OutcomeUnknown)


class BlobWriter(Protocol):
    """The part of a store that an upload uses."""

    def call(self, command: WriteCommand) -> Awaitable[Result]:
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
        actual = checksum_of(first)
        of.require_checksum(actual, checksum)
        command = msgspec.structs.replace(wanted, data=first, size=len(first), checksum=actual)
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
                pause = refusal.retry_after if isinstance(refusal, Transient) else None
                await asyncio.sleep(PAUSE * 2**attempt if pause is None else pause)
        return checksum
