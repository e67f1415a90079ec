"""The answer to a request: held back until it is whole, then stored and sent, and sent again from the store.

Law: an answer is sent first only after it has been stored, so that a caller who has seen it will never see
another one. Cookies are not stored: they are secrets of the first response.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Busy

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from starlette.types import Message, Send

    from holdfast.handles.blobs import Blobs
    from holdfast.integrations.starlette.bodies import Body

_IN_ENTRY: Final = 32_768
"""Bytes of a body that are stored in the entry of the request. A larger body is a blob."""
_BLOB_LONGER: Final = 3_600
"""Seconds by which a blob outlives the entry that names it."""
_NOT_STORED: Final = {b"connection", b"date", b"keep-alive", b"server", b"set-cookie", b"transfer-encoding"}
_REPLAYED: Final = (b"idempotent-replayed", b"true")
_AROUND_BODIES: Final = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")
"""Extensions of a server that send what is in no message of a body."""


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


async def stored_body(stored: dict[str, Any], blobs: Blobs) -> AsyncIterable[bytes] | None:
    """Return the body of a stored answer; None if there is no answer yet.

    Raises:
        Busy: The answer has just expired.
    """
    if "blob" in stored:
        found = await blobs.get(stored["blob"])
        if found is None:
            raise Busy("the stored answer has just expired")
        return found
    return _one(b64decode(stored["body"])) if "body" in stored else None


async def send_again(stored: dict[str, Any], body: AsyncIterable[bytes], send: Send) -> None:
    """Send a stored answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in stored["headers"]]
    start = {"type": "http.response.start", "status": stored["status"], "headers": [*headers, _REPLAYED]}
    await send(start)
    await _send_body(send, body)


async def _one(body: bytes) -> AsyncIterable[bytes]:
    yield body


async def _send_body(send: Send, pieces: AsyncIterable[bytes]) -> None:
    async for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
