"""Limits on the time, number and heads of connections, so that slow clients cannot keep others out.

Law: a new connection is always accepted. When there are too many, the one that has waited longest for its
client is closed; if all are being answered, the one with the oldest request. Sending a few bytes now and then
gains a client no time.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import deque
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST: Final = 1_024
"""Maximum number of connections. A process that may open few files has fewer and leaves most to the store."""
MOST_HEAD: Final = 32_768
"""Maximum number of bytes of the head of a request: its first line and its headers."""
MOST_AHEAD: Final = 128
"""Number of requests of a connection under way from which on no more are read."""
REQUEST_SECONDS: Final = 5.0
"""Seconds that a client may take to send the head of a request, the first or the next one."""
IDLE_SECONDS: Final = 60.0
"""Seconds after a response during which a client may begin its next request."""
ANSWER_SECONDS: Final = 30.0
"""Seconds that a response may take until the client has received all of it."""
STREAM_BUFFER: Final = 65_536
"""Bytes of an endless response that the kernel may keep for a client. It doubles the number."""
STREAM: Final = "holdfast.stream"
"""The name in an ASGI scope of the connection, whose `stream` lifts the time limit of an endless response."""

_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedConnection(HttpToolsProtocol):
    """A connection that is closed if its client is too slow or if there are too many connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.standing = (False, 0.0)
        """True while a request is answered, and the time of the last change. The least is closed first."""
        self._until = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0
        self._idle = False
        self._turns: deque[tuple[Any, asyncio.Future[None]]] = deque()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, and close another if there are too many."""
        super().connection_made(transport)
        self._allow(REQUEST_SECONDS)
        most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        if len(self.connections) > most:
            others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
            if len(others) >= most:
                min(others, key=_standing).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and let requests that wait for their turn to answer find out."""
        for cycle, turn in self._turns:
            cycle.disconnected = True
            if not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data. A head that is too long or too slow ends the connection."""
        if self._idle:
            self._idle = False
            self._allow(REQUEST_SECONDS)
        self._head += len(data)
        super().data_received(data)
        if self._head > MOST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Begin the time of the response."""
        self.scope[STREAM] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        if self.pipeline:
            self._start_ahead(*self.pipeline.pop())
        self._allow(ANSWER_SECONDS, answering=True)
        self._head = -MOST_HEAD  # the rest of the data is a body or another request

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body, which has a limit of its own."""
        self._head = -MOST_HEAD
        super().on_body(body)

    def _start_ahead(self, cycle: Any, app: Any) -> None:
        """Start a request while earlier ones of this connection are being answered.

        Requests of one connection are begun in the order in which they were sent, and answered in it.
        """
        turn: asyncio.Future[None] = self.loop.create_future()
        self._turns.append((cycle, turn))
        if len(self._turns) < MOST_AHEAD:
            self.flow.resume_reading()

        async def in_turn(scope: Any, receive: Any, send: Any) -> None:
            async def send_in_turn(message: Any) -> None:
                if not turn.done():
                    await turn
                await send(message)

            await app(scope, receive, send_in_turn)

        self._start_asgi_task(cycle, in_turn)

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have arrived already."""
        super().on_response_complete()
        if self._turns:
            _, turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
        if self.cycle.response_complete:
            self._idle = True
            self._head = 0
            self._allow(IDLE_SECONDS)

    def _allow(self, seconds: float, *, answering: bool = False) -> None:
        now = self.loop.time()
        self.standing = (answering, now)
        self._until = now + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._arm(self._until)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._look)

    def _look(self) -> None:
        """Close the connection if its time is over. Otherwise it got more time since the timer was set."""
        self._timer = None
        if self._until <= self.loop.time():
            # Not close(): that would wait for a client that does not read.
            self.transport.abort()
        elif self._until < float("inf"):
            self._arm(self._until)

    def stream(self) -> None:
        """Lift the time limit of this response. The application then cuts off a client that does not read.

        The kernel would keep megabytes for such a client, so its buffer is bounded too.
        """
        self._until = float("inf")
        wire = self.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)

    def moved(self) -> None:
        """Give the client the time of a response again: it has taken or sent a whole part of a large body."""
        self._until = self.loop.time() + ANSWER_SECONDS

    def cut(self) -> None:
        """End the connection at once. Closing would wait for a client that does not read."""
        self.transport.abort()


def _standing(connection: Any) -> tuple[bool, float]:
    standing: tuple[bool, float] = connection.standing
    return standing
