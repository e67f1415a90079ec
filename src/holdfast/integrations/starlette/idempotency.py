"""The middleware that runs a request with an idempotency key once, and answers its repetitions.

Law: of all workers, one at a time runs the request of a key. What is run again, and when, depends on the
stored claim alone, never on what a worker remembers.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.requests import HTTPConnection

from holdfast.errors import HoldfastError, OutcomeUnknown, Transient
from holdfast.integrations.lifetimes import whole_seconds
from holdfast.integrations.names import Names
from holdfast.integrations.starlette.answers import Answer, plain_scope, send_again, stored_body
from holdfast.integrations.starlette.bodies import Body
from holdfast.integrations.starlette.claims import Claim
from holdfast.integrations.starlette.problems import TRY_AGAIN_AFTER, refuse, refuse_while_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.handles.blobs import Blobs
    from holdfast.handles.kv import KV

_KEYS: Final = Names("request", parts=2)
_DAY: Final = 24 * 60 * 60
_MINUTE: Final = 60
_LARGEST: Final = 64 * 1_048_576
_PASSING: Final = {408, 425, 429}
"""Refusals that a caller overcomes by sending the same request later."""
_PAUSES: Final = (0.1, 0.4, 1.6)
"""Seconds to wait before an answer that could not be stored is stored again."""

_log: Final = logging.getLogger("holdfast.integrations.starlette")


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
        self._largest = largest_request

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
            if body.size + len(message.get("body", b"")) > self._largest:
                detail = f"The body of a request with {self._header} may have {self._largest:,} bytes."
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
