"""A connection that speaks HTTP/1.1 as a client.

Requests are sent at once, without waiting for the answers to earlier ones. The service begins them in this
order and answers in this order, so one connection keeps the order of its calls, as one to NATS does.

Law: only what a Holdfast service answers is understood: a status, headers, and a body of a given length or in
chunks. Everything is bounded. A connection on which anything went wrong is not used again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.clock import TICKS

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from holdfast.engines.http.address import HttpAddress

MOST_HEAD: Final = 65_536
MOST_BODY: Final = 64 * 1024 * 1024
"""Maximum number of bytes of the head and of the body of a response."""
IDLE_SECONDS: Final = 30.0
"""Seconds after which an idle connection is not used again. The service ends it after 60."""
JSON: Final = "Content-Type: application/json"


class Broken(Exception):
    """The connection ended, or what came over it is not HTTP."""


class HttpAsked(NamedTuple):
    """A request. `told` is the header line for a body that is not JSON but bytes."""

    method: str
    path: str
    body: bytes | None = None
    told: str = ""


class HttpReply(NamedTuple):
    """A response. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpLine:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head
        self._pending: deque[asyncio.Future[HttpReply]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._used = TICKS()

    @classmethod
    async def to(cls, address: HttpAddress, tls: ssl.SSLContext | None) -> HttpLine:
        """Connect.

        Raises:
            OSError: The host can't be reached, or is not trusted.
        """
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls, limit=MOST_HEAD)
        token = f"Authorization: Bearer {address.token}\r\n" if address.token else ""
        return cls(reader, writer, f"Host: {address.netloc}\r\n{token}")

    @property
    def usable(self) -> bool:
        """Whether requests may be sent: the other side has not ended the connection, and is not about to."""
        if self._writer.is_closing() or self._reader.at_eof():
            return False
        return bool(self._pending) or self._used > TICKS() - IDLE_SECONDS

    @property
    def idle(self) -> bool:
        """Whether no answer is awaited."""
        return not self._pending

    def ask(self, asked: HttpAsked) -> asyncio.Future[HttpReply]:
        """Send a request. Returns the response to come, or `Broken`."""
        answer: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
        self._pending.append(answer)
        self._send(asked)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="holdfast http line")
        return answer

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was sent."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def _read(self) -> None:
        """Read responses while some are awaited."""
        try:
            while self._pending:
                reply = await self._one()
                self._used = TICKS()
                answer = self._pending.popleft()
                if not answer.done():  # its caller may have given up
                    answer.set_result(reply)
                if reply.headers.get("connection", "").lower() == "close":
                    raise Broken
        except Broken:
            self.end()
        finally:
            for answer in self._pending:
                if not answer.done():
                    answer.set_exception(Broken())
            self._pending.clear()

    async def _one(self) -> HttpReply:
        status, headers = await self._answered()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b"".join([piece async for piece in self._chunks()])
        else:
            body = await self._exactly(_length(headers))
        return HttpReply(status, headers, body)

    async def follow(self, path: str) -> AsyncIterator[bytes]:
        """Send a request and yield the pieces of a response without end.

        Raises:
            Broken: The connection ended, or the response is no stream.
        """
        self._send(HttpAsked("GET", path))
        status, headers = await self._answered()
        if status != 200 or headers.get("transfer-encoding", "").lower() != "chunked":
            raise Broken
        async for piece in self._chunks():
            yield piece

    def end(self) -> None:
        """End the connection at once. What was not answered is `Broken`."""
        self._writer.transport.abort()

    def _send(self, asked: HttpAsked) -> None:
        body = asked.body
        head = f"{asked.method} {asked.path} HTTP/1.1\r\n{self._head}"
        if body is not None:
            kind = asked.told + "Content-Type: application/octet-stream" if asked.told else JSON
            head += f"{kind}\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}\r\n".encode() + (body or b""))

    async def _answered(self) -> tuple[int, dict[str, str]]:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            raise Broken from None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        parts = first.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
            raise Broken
        headers = {}
        for line in lines:
            name, _, said = line.partition(":")
            headers[name.strip().lower()] = said.strip()
        return int(parts[1]), headers

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            try:
                size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
            except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                raise Broken from None
            piece = (await self._exactly(size + 2))[:-2]
            if not size:
                return
            yield piece

    async def _exactly(self, size: int) -> bytes:
        if size > MOST_BODY:
            raise Broken
        try:
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise Broken from None


def _length(headers: dict[str, str]) -> int:
    said = headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 12:
        raise Broken
    return int(said)
