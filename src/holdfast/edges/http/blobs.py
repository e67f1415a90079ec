"""Blobs over HTTP: bodies of any size, in both directions, with ranges.

A transfer holds a bounded number of parts, whatever the size of the blob. A client has 30 seconds for
each part; a few bytes now and then gain it no time. A body that can't be sent to its end is cut off, so that
no client takes it for the whole. Nothing that is stored is ever run as a page of this service.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.blobs.commands import StoreBlob
from holdfast.blobs.manifest import MAX_BLOB_BYTES, PART_BYTES, Manifest, manifest_of
from holdfast.commands import Result, WriteCommand
from holdfast.edges.calls import FAMILIES, Verb
from holdfast.edges.http import responses
from holdfast.edges.http.connections import STREAM, BoundedConnection
from holdfast.edges.http.requests import HttpDialect, PathOwner, expected_version, header_fields, tagged
from holdfast.edges.http.responses import ALWAYS, Header, Response, Unsatisfiable
from holdfast.errors import (
    Busy,
    HoldfastError,
    KeyNotFound,
    Transient,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.handles.blob_upload import blob_command, parts_of, store_blob
from holdfast.handles.blobs import BlobReader, described
from holdfast.rows import Address, Row
from holdfast.verbs.fields import ttl_field
from holdfast.verbs.keys import Verbs
from holdfast.wire.blobs import in_ascii, part_fields, part_of
from holdfast.wire.payload import decode
from holdfast.wire.replies import row_of, stored_fields
from holdfast.wire.subjects import Route
from holdfast.wire.writes import message_of, result_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


MOST: Final = 64
MOST_OF_ONE: Final = 16
"""Maximum number of transfers of more than one part, of all callers and of one plugin."""
IN_FLIGHT: Final = 4
AHEAD: Final = 2
"""Number of parts of a body that are being stored, and of groups of parts of one that are being read."""
ATTEMPTS: Final = 5
"""Number of times that a step of a transfer is taken before the transfer fails."""
PAUSE: Final = 0.2
"""Seconds before a step is taken again if the refusal names no time."""
_STORING: Final = frozenset({"put", "commit"})
_DEADLINES: Final = ("deadline", "deadline_ms")
_RANGE: Final = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")
_END: Final[dict[str, Any]] = {"type": "http.response.body", "body": b""}
_SANDBOX: Final[Header] = (b"content-security-policy", b"sandbox; default-src 'none'")
"""Bytes of a caller must not become a page of this origin, whatever their content type says."""


class ClientGone(Exception):
    """The client has gone in the middle of a body."""


class BlobSteps:
    """The requests that a transfer is made of, each in the queue of its plugin.

    A transfer over HTTP takes the steps that a client over NATS takes: `head` and `get_part`, or `begin`,
    `put_part` and `commit`. So it shares queues, turns, rates and budgets with all other requests, part by
    part. A step that is refused because the plugin is busy or asks too often is taken again after a while,
    since the client can't continue in the middle of a body.

    Args:
        place: Whose blobs they are.
        ask: Queues a request of this door and returns the fields of its answer.
        deadline: The fields of the caller's deadline, which holds for the step that stores the blob.
    """

    def __init__(
        self,
        place: PathOwner,
        ask: Callable[[Route, bytes, Verb], Awaitable[dict[str, Any]]],
        deadline: Mapping[str, Any],
    ) -> None:
        self._place = place
        self._queue = ask
        self._deadline = deadline
        self.taken = False
        """True once a step was queued: a refusal is recorded already."""

    async def call(self, command: WriteCommand) -> Result:
        """Execute a command on blobs."""
        verb, fields = message_of(command)
        if verb in _STORING:
            fields |= self._deadline
        result: Result = result_of(command, await self._ask(verb, fields))
        return result

    async def head(self, key: str) -> dict[str, Any]:
        """Return the reply that describes a blob."""
        return await self._ask("head", {"key": key, **self._deadline})

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """Return the row of a blob's entry; see `Pipeline.get_at`."""
        fields = await self._ask("head", {"key": key})
        return (row_of(fields), 0) if fields["exists"] else (None, 0)

    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Return parts of a blob; see `Pipeline.parts`."""
        return await asyncio.gather(*map(self._part, addresses))

    async def _part(self, address: Address) -> Row | None:
        fields = await self._ask("get_part", part_fields(address))
        return part_of(fields) if fields["exists"] else None

    async def _ask(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Take a step. The first one is refused at once, as any other request would be."""
        data = fields.pop("data", None)
        attempts = ATTEMPTS if self.taken else 1
        self.taken = True
        while True:
            attempts -= 1
            try:
                return await self._once(name, fields, data)
            except Transient as refusal:
                if not attempts:
                    raise
                # Parts are read several at a time, and the others may take what there is meanwhile.
                await asyncio.sleep(max(PAUSE, refusal.retry_after or 0.0))

    async def _once(self, name: str, fields: dict[str, Any], data: bytes | None) -> dict[str, Any]:
        place = self._place
        dialect = HttpDialect(name="http", outside=fields, header=None if data is None else b"{}")
        route = Route(dialect, name, place.namespace, place.owner, place.root, family=place.family)
        return await self._queue(route, data or b"", FAMILIES[place.family][name])


class Transfer(NamedTuple):
    """One request for a blob: what is said outside its body, and the steps to take."""

    scope: Scope
    key: str
    fields: dict[str, Any]
    steps: BlobSteps
    verbs: Verbs

    @property
    def connection(self) -> BoundedConnection:
        """The connection of the client."""
        connection: BoundedConnection = self.scope[STREAM]
        return connection

    def header(self, name: bytes) -> bytes | None:
        """Return a header that must not occur twice."""
        values = [value for header, value in self.scope["headers"] if header == name]
        if len(values) > 1:
            raise ValidationError(f"the header {name.decode()} occurs twice", field=name.decode())
        return values[0] if values else None


class OpenedBlob(NamedTuple):
    """A blob that is about to be sent, and the range of it."""

    manifest: Manifest
    fields: dict[str, Any]
    start: int
    end: int
    partial: bool


class BlobTransfers:
    """The transfers of a service."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    async def put(self, transfer: Transfer, receive: Receive) -> Response:
        """Store the body of a request.

        Raises:
            ClientGone: The client has gone. Nothing was stored.
            ValueTooLarge: The body is too large.
        """
        length = _length(transfer)
        command = _command(transfer)
        whole = _text(transfer, b"holdfast-checksum")
        pieces = parts_of(_received(transfer.connection, receive))
        with self._room(transfer, many=length is None or length > PART_BYTES):
            try:
                stored = await store_blob(
                    transfer.steps, transfer.verbs, command, pieces, in_flight=IN_FLIGHT, checksum=whole
                )
            except VersionConflict as conflict:
                return responses.problem(conflict, conditional=command.expected is not None)
        return responses.whole(stored_fields(stored.row))

    async def get(self, transfer: Transfer, receive: Receive, send: Send) -> Response | None:
        """Send a blob, or a range of it. Returns another response if that is refused."""
        fields = await transfer.steps.head(transfer.key)
        if not fields["exists"]:
            return responses.problem(KeyNotFound("there is no such blob", field="key"))
        refused = _precondition(transfer, fields)
        if refused is not None:
            return refused
        opened = _opened(transfer, fields)
        if transfer.scope["method"] == "HEAD":
            await send(_start(opened))
            await send(_END)
            return None
        with self._room(transfer, many=opened.end - opened.start > PART_BYTES):
            # Sent before the first part is read, since it waits for earlier responses of the connection.
            await send(_start(opened))
            await self._send(transfer, _reader(transfer, opened), receive, send)
        return None

    async def _send(self, transfer: Transfer, reader: BlobReader, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_gone(receive))
        try:
            async with contextlib.aclosing(reader.pieces()) as pieces:
                async for piece in pieces:
                    if gone.done():
                        return
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    transfer.connection.moved()
            await send(_END)
        except HoldfastError:  # it is in the log; the response has begun, so that only its end can tell
            transfer.connection.cut()
        finally:
            gone.cancel()

    @contextlib.contextmanager
    def _room(self, transfer: Transfer, *, many: bool) -> Iterator[None]:
        """Count a transfer of many parts within a `with` block.

        Raises:
            Busy: There are too many.
        """
        owner = transfer.verbs.namespace
        if not many:
            yield
            return
        if self._of[owner] >= MOST_OF_ONE or self._of.total() >= MOST:
            raise Busy("too many large blobs are being transferred", retry_after=1.0)
        self._of[owner] += 1
        try:
            yield
        finally:
            self._of[owner] -= 1
            if not self._of[owner]:
                del self._of[owner]


def transfer_of(scope: Scope, key: str, steps: BlobSteps, verbs: Verbs) -> Transfer:
    """Return the transfer that a request asks for.

    Raises:
        ValidationError: A header is illegal.
    """
    return Transfer(scope, key, header_fields(scope["headers"]), steps, verbs)


def deadline_fields(scope: Scope) -> dict[str, Any]:
    """Return the fields of a request's deadline."""
    fields = header_fields(scope["headers"])
    return {name: fields[name] for name in _DEADLINES if name in fields}


async def _received(connection: BoundedConnection, receive: Receive) -> AsyncIterator[bytes]:
    """Yield the pieces of a body. A client that has sent a part gets the time for another."""
    taken = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        taken += len(piece)
        if taken >= PART_BYTES:
            taken -= PART_BYTES
            connection.moved()
        yield piece
        if not message.get("more_body"):
            connection.moved()
            return


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _command(transfer: Transfer) -> StoreBlob:
    """Return the command that stores the blob, without its bytes."""
    fields = transfer.fields
    return blob_command(
        transfer.verbs,
        transfer.key,
        content_type=_text(transfer, b"content-type"),
        metadata=_metadata(transfer),
        ttl=ttl_field(fields),
        expected_version=expected_version(fields),
        request_id=fields.get("request_id"),
        once=fields.get("once"),
        fence=fields.get("fence"),
        writer=fields.get("last_writer"),
        spec_ref=fields.get("spec_ref"),
    )


def _precondition(transfer: Transfer, fields: dict[str, Any]) -> Response | None:
    """Return the response to a caller that knows this version, or that wants another one."""
    tag = tagged(fields["version"])
    known, match = transfer.fields.get("if_none_match"), transfer.fields.get("if_match")
    if match is not None and match not in ("*", tag):
        return responses.problem(VersionConflict("the blob has another version"), conditional=True)
    return responses.unchanged(fields) if known is not None and known in ("*", tag) else None


def _reader(transfer: Transfer, opened: OpenedBlob) -> BlobReader:
    blob = described(transfer.key, row_of(opened.fields), opened.manifest)
    namespace, start, end = transfer.verbs.namespace, opened.start, opened.end
    return BlobReader(transfer.steps, namespace, blob, opened.manifest, start=start, end=end, ahead=AHEAD)


def _opened(transfer: Transfer, fields: dict[str, Any]) -> OpenedBlob:
    tag = tagged(fields["version"])
    manifest = manifest_of(transfer.key, bytes(fields["value"]).decode())
    span, condition = transfer.header(b"range"), transfer.header(b"if-range")
    chosen = None if span is None else _range(span, manifest.size)
    if chosen is None or (condition is not None and condition != tag.encode()):
        return OpenedBlob(manifest, fields, 0, manifest.size, partial=False)
    return OpenedBlob(manifest, fields, *chosen, partial=True)


def _range(span: bytes, size: int) -> tuple[int, int] | None:
    """Return the first position of a range and the one after the last; None for what is not one range.

    Raises:
        Unsatisfiable: The blob has no such bytes.
    """
    match = _RANGE.fullmatch(span.strip())
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if start >= size or start >= end:
        refusal = Unsatisfiable(f"the blob has {size} bytes", field="range")
        refusal.size = size
        raise refusal
    return start, end


def _start(opened: OpenedBlob) -> dict[str, Any]:
    """Return the beginning of the response that sends a blob."""
    headers = [*_about(opened.manifest), *responses.about(opened.fields), *ALWAYS]
    headers.append((b"content-length", str(opened.end - opened.start).encode()))
    if opened.partial:
        part = f"bytes {opened.start}-{opened.end - 1}/{opened.manifest.size}"
        headers.append((b"content-range", part.encode()))
    return {"type": "http.response.start", "status": 206 if opened.partial else 200, "headers": headers}


def _about(manifest: Manifest) -> Iterator[Header]:
    yield b"content-type", manifest.content_type.encode()
    yield b"accept-ranges", b"bytes"
    yield b"holdfast-checksum", manifest.checksum.encode()
    yield _SANDBOX
    if manifest.metadata:
        yield b"holdfast-metadata", in_ascii(responses.encode(manifest.metadata).decode()).encode()


def _length(transfer: Transfer) -> int | None:
    """Return the length of the body, if the client says it.

    Raises:
        ValueTooLarge: It is larger than a blob may be.
    """
    said = transfer.header(b"content-length")
    length = int(said) if said is not None and said.isdigit() else None
    if length is not None and length > MAX_BLOB_BYTES:
        raise ValueTooLarge(f"a blob has at most {MAX_BLOB_BYTES} bytes", field="size")
    return length


def _text(transfer: Transfer, name: bytes) -> str | None:
    said = transfer.header(name)
    return None if said is None else said.decode("latin-1")


def _metadata(transfer: Transfer) -> Any:
    said = transfer.header(b"holdfast-metadata")
    if said is None:
        return None
    try:
        return decode(said)
    except HoldfastError as error:
        raise ValidationError(f"Holdfast-Metadata: {error.message}", field="metadata") from None
