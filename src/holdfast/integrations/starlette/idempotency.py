"""The middleware that runs a request with an idempotency key once, and answers its repetitions.

Of all workers, one at a time runs the request of a key. What is run again, and when, depends on the stored
claim alone, never on what a worker remembers. An answer is first sent after it has been stored, so that a
caller who has seen it will never see another one.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from contextlib import suppress
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict, TypeVar

from msgspec import UNSET, Meta
from starlette.requests import HTTPConnection

from holdfast import seams
from holdfast.errors import Busy, HoldfastError, OutcomeUnknown, Transient, ValidationError, VersionConflict
from holdfast.integrations.entries import checked, whole_seconds
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.starlette.problems import TRY_AGAIN_AFTER, refuse, refuse_while_away

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.handles.blobs import Blobs
    from holdfast.handles.kv import KV
    from holdfast.model import Entry

T = TypeVar("T")

_IN_MEMORY: Final = 1_048_576
"""Bytes of a body that are held in memory."""
_PIECE: Final = 65_536
"""Bytes of a body that are sent at once."""


_IN_ENTRY: Final = 32_768
"""Bytes of a body that are stored in the entry of the request. A larger body is a blob."""
_BLOB_LONGER: Final = 3_600
"""Seconds by which a blob outlives the entry that names it."""
_NOT_STORED: Final = {b"connection", b"date", b"keep-alive", b"server", b"set-cookie", b"transfer-encoding"}
_REPLAYED: Final = (b"idempotent-replayed", b"true")
_AROUND_BODIES: Final = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")
"""Extensions of a server that send what is in no message of a body."""
_log: Final = logging.getLogger("holdfast.integrations.starlette")
_KEYS: Final = KeyNames("request", parts=2)
_DAY: Final = 24 * 60 * 60
_MINUTE: Final = 60
_LARGEST: Final = 64 * 1_048_576
_PASSING: Final = {408, 425, 429}
"""Refusals that a caller overcomes by sending the same request later."""
_PAUSES: Final = (0.1, 0.4, 1.6)
"""Seconds to wait before an answer that could not be stored is stored again."""


class _Stored(TypedDict):
    """What the entry of a request holds: a claim, and then the answer too."""

    request: str
    worker: str
    status: NotRequired[Annotated[int, Meta(ge=100, le=999)]]
    headers: NotRequired[list[tuple[str, str]]]
    body: NotRequired[str]
    blob: NotRequired[str]


class Body:
    """The bytes of a message, held until they are whole. Use it as a context manager.

    A small body is in memory and a large one in a temporary file, which threads read and write, so that no
    body holds up the event loop or fills the memory.
    """

    def __init__(self) -> None:
        self.size: int = 0
        self.file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile[bytes](max_size=_IN_MEMORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    async def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        self.size += len(data)
        await self._done(partial(self.file.write, data))

    async def whole(self) -> bytes:
        """Return all bytes, which must fit into memory."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes from the beginning, a piece at a time."""
        position = 0
        while position < self.size:
            piece = await self._done(partial(self._read, position))
            position += len(piece)
            yield piece

    def _read(self, position: int) -> bytes:
        self.file.seek(position)
        return self.file.read(_PIECE)

    async def _done(self, work: Callable[[], T]) -> T:
        """Do something with the file, in a thread if it is one on the disk."""
        return work() if self.size <= _IN_MEMORY else await seams.aside(work)


def plain_scope(scope: Any) -> dict[str, Any]:
    """Return a scope in which a response can only be sent as messages of its body."""
    extensions = {
        name: value for name, value in (scope.get("extensions") or {}).items() if name not in _AROUND_BODIES
    }
    return {**scope, "extensions": extensions}


class Answer:
    """Takes the place of `send`: collects a response, and calls `finish` when it is whole.

    Args:
        body: Where to collect the body.
        finish: What to do with the whole answer, before the handler goes on with its background tasks.
    """

    def __init__(self, body: Body, finish: Callable[[Answer], Awaitable[None]]) -> None:
        self.body = body
        self.status: int = 0
        self.is_whole: bool = False
        self._finish = finish
        self._start: Message = {}

    async def __call__(self, message: Message) -> None:
        """Take a message of the response."""
        if message["type"] == "http.response.start":
            self._start, self.status = message, message["status"]
        elif message["type"] == "http.response.body" and not self.is_whole:
            await self.body.write(message.get("body", b""))
            if not message.get("more_body", False):
                self.is_whole = True
                await self._finish(self)

    async def stored(self, blobs: Blobs, name: str, ttl: int) -> dict[str, Any]:
        """Return what to store of this answer. A large body is stored as a blob of that name first."""
        headers = [
            [header.decode("latin-1"), value.decode("latin-1")]
            for header, value in self._start.get("headers", ())
            if header.lower() not in _NOT_STORED
        ]
        outcome = {"status": self.status, "headers": headers}
        if self.body.size <= _IN_ENTRY:
            return {**outcome, "body": b64encode(await self.body.whole()).decode()}
        await blobs.put(name, self.body.pieces(), ttl=ttl + _BLOB_LONGER)
        return {**outcome, "blob": name}

    async def send(self, send: Send) -> None:
        """Send the response as the handler has made it."""
        await send(self._start)
        await _send_body(send, self.body.pieces())


def _checked(entry: Entry) -> dict[str, Any]:
    stored: dict[str, Any] = checked(
        entry.value, _Stored, f"the answer of a request, in the entry {entry.key!r}"
    )
    return stored


async def stored_body(stored: dict[str, Any], blobs: Blobs) -> AsyncIterable[bytes] | None:
    """Return the body of a stored answer; None if there is no answer yet.

    Raises:
        Busy: The answer has just expired.
        ValidationError: It is not what `Answer.stored` returns.
    """
    if stored.keys().isdisjoint(("blob", "body")):
        return None
    if not stored.keys() >= {"status", "headers"}:
        raise ValidationError("what is stored is no answer: it has no status or no headers", field="value")
    if "blob" in stored:
        found = await blobs.get(stored["blob"])
        if found is None:
            raise Busy("the stored answer has just expired")
        return found
    try:
        return _one(b64decode(stored["body"], validate=True))
    except ValueError as error:
        raise ValidationError(f"what is stored is no body of an answer: {error}", field="value") from None


async def send_again(stored: dict[str, Any], body: AsyncIterable[bytes], send: Send) -> None:
    """Send a stored answer."""
    try:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in stored["headers"]]
    except UnicodeEncodeError as error:
        raise ValidationError(f"what is stored is no header of an answer: {error}", field="value") from None
    start = {"type": "http.response.start", "status": stored["status"], "headers": [*headers, _REPLAYED]}
    await send(start)
    await _send_body(send, body)


async def _one(body: bytes) -> AsyncIterable[bytes]:
    yield body


async def _send_body(send: Send, pieces: AsyncIterable[bytes]) -> None:
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Claim:
    """The claim of this worker on a key.

    Args:
        kv: The namespace.
        key: The entry of the request.
        request: The fingerprint of the request.
        lease: Seconds for which a claim lasts unless it is renewed.
    """

    def __init__(self, kv: KV, key: str, request: str, lease: int) -> None:
        self.mark: Final = seams.token(16)
        self._kv = kv
        self._key = key
        self._running = {"request": request, "worker": self.mark}
        self._lease = lease
        self._version = 0
        self._renewing: asyncio.Task[None] | None = None

    async def take(self) -> dict[str, Any] | None:
        """Claim the request, or return what is stored of it if it is claimed or done."""
        while True:
            try:
                entry = await self._kv.set(self._key, self._running, ttl=self._lease, expected_version=0)
            except VersionConflict as conflict:
                current = conflict.current
                if current is not None and current.value is UNSET:
                    current = await self._kv.get(self._key)
                if current is not None:
                    return _checked(current)
            else:
                self._version = entry.version
                return None

    def hold(self) -> None:
        """Begin to renew the claim."""
        self._renewing = asyncio.create_task(self._renew(), name="holdfast idempotency claim")

    async def let_go(self) -> None:
        """Stop renewing the claim."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def finish(self, outcome: dict[str, Any], ttl: int) -> bool:
        """Store what came of the request, and return False if another worker has taken it over."""
        await self.let_go()
        return await self._put({**self._running, **outcome}, ttl)

    async def release(self) -> None:
        """Give the claim up, so that the request can be sent again at once."""
        await self.let_go()
        while True:
            try:
                await self._kv.delete(self._key, expected_version=self._version)
            except VersionConflict:
                if not await self._is_mine() or self._version == 0:
                    return
            else:
                return

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                if not await self._put(self._running, self._lease):
                    _log.warning("another worker has taken over the request of %s", self._key)
                    return
            except (Transient, OutcomeUnknown) as error:
                _log.warning("can't renew the claim on %s: %s", self._key, error.message)

    async def _put(self, value: dict[str, Any], ttl: int) -> bool:
        """Store a value over the claim of this worker, or where a claim of it has expired."""
        while True:
            try:
                entry = await self._kv.set(self._key, value, ttl=ttl, expected_version=self._version)
            except VersionConflict:
                if not await self._is_mine():
                    return False
            else:
                self._version = entry.version
                return True

    async def _is_mine(self) -> bool:
        """Return whether no other worker has the request, and take note of its version."""
        entry = await self._kv.get(self._key)
        self._version = 0 if entry is None else entry.version
        return entry is None or _checked(entry)["worker"] == self.mark


class IdempotencyMiddleware:
    """Runs a request that carries an `Idempotency-Key` once, however often it arrives, at whichever worker.

    A repetition gets the stored answer. A repetition with other content is refused with 422, and one that
    arrives while the first is still being answered with 409 and `Retry-After`. Answers of 500 and above, and
    408, 425 and 429, are not stored: the request can then be sent again with the same key.

    Args:
        app: The application.
        kv: The handle of the namespace for requests and small answers, from `Store.kv`.
        blobs: The handle for large answers, from `Store.blobs`.
        caller: Takes a request and returns who sends it, for example the value of its header `Authorization`.
            Each caller has keys of its own. Only a digest of the text is stored.
        methods: The methods whose requests are covered.
        required: Whether a request of these methods without a key is refused with 400.
        header: The header that carries the key.
        ttl: Seconds for which an answer is kept.
        lease: Seconds after which the request of a worker that has died can be run again. A living worker
            renews its claim for as long as the request takes.
        largest_request: Bytes of a request's body, beyond which it is refused with 413.

    Example:
        `Middleware(IdempotencyMiddleware, kv=store.kv("web"), blobs=store.blobs("web"), caller=user_of)`
    """

    def __init__(
        self,
        app: ASGIApp,
        kv: KV,
        blobs: Blobs,
        *,
        caller: Callable[[HTTPConnection], str],
        methods: Iterable[str] = ("POST", "PATCH"),
        required: bool = False,
        header: str = "Idempotency-Key",
        ttl: float = _DAY,
        lease: float = _MINUTE,
        largest_request: int = _LARGEST,
    ) -> None:
        self.app = app
        self._kv = kv
        self._blobs = blobs
        self._caller = caller
        self._methods = {method.upper() for method in methods}
        self._required = required
        self._header = header
        self._ttl = whole_seconds(ttl)
        self._lease = whole_seconds(lease)
        self._valuesst = largest_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer it from the store."""
        is_covered = scope["type"] == "http" and scope["method"] in self._methods
        keys = set(HTTPConnection(scope).headers.getlist(self._header)) if is_covered else set()
        if not keys and not (is_covered and self._required):
            await self.app(scope, receive, send)
        elif len(keys) != 1 or "" in keys:
            wanted = f"Send one header {self._header}, with a value that no other request has."
            await refuse(send, HTTPStatus.BAD_REQUEST, wanted)
        else:
            await self._once(scope, receive, send, keys.pop())

    async def _once(self, scope: Scope, receive: Receive, send: Send, key: str) -> None:
        """Serve a request that has a key."""
        connection = HTTPConnection(scope)
        caller = sha256(self._caller(connection).encode("utf-8", "surrogatepass")).hexdigest()
        with Body() as body:
            if await self._is_taken_in(receive, send, body):
                await self._serve(scope, _received(body, receive), send, body, _KEYS.key(caller, key))

    async def _is_taken_in(self, receive: Receive, send: Send, body: Body) -> bool:
        """Read the body of a request; False if there is too much of it, or if the caller has gone."""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return False
            if body.size + len(message.get("body", b"")) > self._valuesst:
                detail = f"The body of a request with {self._header} may have {self._valuesst:,} bytes."
                await refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
                return False
            await body.write(message.get("body", b""))
            if not message.get("more_body", False):
                return True

    async def _serve(self, scope: Scope, receive: Receive, send: Send, body: Body, key: str) -> None:
        fingerprint = await _fingerprint(scope, body)
        claim = Claim(self._kv, key, fingerprint, self._lease)
        try:
            found = await claim.take()
            body_again = None if found is None else await stored_body(found, self._blobs)
        except (Transient, OutcomeUnknown):
            return await refuse_while_away(send)
        if found is None:
            await self._run(scope, receive, send, claim)
        elif found["request"] != fingerprint:
            detail = f"This {self._header} was used for another request. Send a new one with a new request."
            await refuse(send, HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        elif body_again is None:
            detail = "The first request with this key is still being answered. Send it again later."
            await refuse(send, HTTPStatus.CONFLICT, detail, retry_after=TRY_AGAIN_AFTER)
        else:
            await send_again(found, body_again, send)
        return None

    async def _run(self, scope: Scope, receive: Receive, send: Send, claim: Claim) -> None:
        """Have the application answer a request that this worker has claimed."""

        async def finish(answer: Answer) -> None:
            if await self._is_settled(answer, claim):
                await answer.send(send)
            else:
                detail = "Another worker has taken over, since this one took too long. Send it again later."
                await refuse(send, HTTPStatus.CONFLICT, detail, retry_after=TRY_AGAIN_AFTER)

        with Body() as body:
            answer = Answer(body, finish)
            claim.hold()
            try:
                await self.app(plain_scope(scope), receive, answer)
            except Exception:
                await self._give_up(answer, claim)
                raise
            finally:
                await claim.let_go()
            await self._give_up(answer, claim)

    async def _is_settled(self, answer: Answer, claim: Claim) -> bool:
        """Store an answer, or give the claim up; False if another worker has taken the request over."""
        if answer.status >= 500 or answer.status in _PASSING:
            await _released(claim)
            return True
        for pause in (*_PAUSES, None):
            try:
                outcome = await answer.stored(self._blobs, f"answer/{claim.mark}", self._ttl)
                is_kept = await claim.finish(outcome, self._ttl)
                if "blob" in outcome and not is_kept:
                    await self._blobs.delete(outcome["blob"])
                return is_kept
            except HoldfastError as error:
                if pause is None or not isinstance(error, Transient | OutcomeUnknown):
                    _log.error("sending an answer that could not be stored: %s", error.message)
                    break
                await asyncio.sleep(pause)
        return True

    async def _give_up(self, answer: Answer, claim: Claim) -> None:
        """Release the claim on a request that the application has not answered."""
        if not answer.is_whole:
            await _released(claim)


async def _released(claim: Claim) -> None:
    """Give a claim up; while the storage is away, it expires by itself."""
    with suppress(Transient, OutcomeUnknown):
        await claim.release()


def _received(body: Body, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read, and then what else the server has to say."""
    pieces = body.pieces()

    async def received() -> Message:
        async for piece in pieces:
            return {"type": "http.request", "body": piece, "more_body": True}
        if not ended:
            ended.append(True)
            return {"type": "http.request", "body": b"", "more_body": False}
        return await receive()

    ended: list[bool] = []
    return received


async def _fingerprint(scope: Scope, body: Body) -> str:
    """Return a digest of all that makes a request this one: method, path, query, type and body."""
    digest = sha256()
    headers = dict(scope["headers"])
    path = scope.get("root_path", "") + "\n" + scope["path"]
    query, kind = scope.get("query_string", b""), headers.get(b"content-type", b"")
    for part in (scope["method"].encode(), path.encode("utf-8", "surrogatepass"), query, kind):
        digest.update(len(part).to_bytes(8) + part)
    async for piece in body.pieces():
        digest.update(piece)
    return digest.hexdigest()
