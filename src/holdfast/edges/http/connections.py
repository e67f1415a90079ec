"""Limits on the time, number and heads of connections, so that slow clients cannot keep others out.

Law: a new connection is always accepted. When there are too many, the one that has waited longest for its
client is closed; if all are being answered, the one with the oldest request. Sending a few bytes now and then
gains a client no time. The requests of a connection are begun in the order in which they were sent, and
answered in it.
"""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.edges.http.turns import InTurn

if TYPE_CHECKING:
    from holdfast.edges.http.bodies import Bodies
    from holdfast.edges.http.limits import HttpLimits
    from holdfast.edges.http.turns import ReadingTurns

MOST_AHEAD: Final = 32
"""Number of requests of a connection under way from which on no more are read."""
PIECE: Final = 2_048
BODY_PIECE: Final = 65_536
"""Bytes that are parsed at once, if more have arrived: of anything, and of a body of known length. The former
may hold fifty requests."""
STREAM_BUFFER: Final = 65_536
"""Bytes of an endless response that the kernel may keep for a client. It doubles the number."""
STREAM: Final = "holdfast.stream"
"""The name in an ASGI scope of the connection, whose `stream` lifts the time limit of an endless response."""

_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class QuickRequest(Protocol):
    """A request that is answered without the application. `reply` is its response, once there is one."""

    body: bytes
    reply: bytes | None

    def begin(self) -> None:
        """Begin the request, which has arrived."""
        ...


class QuickWay(Protocol):
    """The choice of requests that are answered without the application."""

    def take(self, connection: BoundedConnection) -> QuickRequest | None:
        """Return the request whose head a connection has received, if it is one of them."""
        ...


class _Flow(FlowControl):
    """uvicorn's flow control, but nothing is read from a client while data of it waits to be parsed."""

    def __init__(self, transport: asyncio.Transport, connection: BoundedConnection) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Read on, since the application takes what it was sent."""
        if not self._connection.parse_soon():
            super().resume_reading()


class BoundedConnection(HttpToolsProtocol):
    """A connection that is closed if its client is too slow or if there are too many connections.

    Args:
        limits: The limits that operators set.
        turns: The turns of all connections.
        bodies: The bodies that are held for all connections.
        shortcut: Answers requests without the application, where it can.
        more: The arguments of uvicorn's connection.
    """

    def __init__(
        self,
        *,
        limits: HttpLimits,
        turns: ReadingTurns,
        bodies: Bodies,
        shortcut: QuickWay | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._limits = limits
        self._turns = turns
        self._bodies = bodies
        self.standing = (False, 0.0)
        """True while a request is answered, and the time of the last change. The least is closed first."""
        self._until = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0
        self._in_head = True
        self._idle = False
        self._shortcut = shortcut
        self._quick: QuickRequest | None = None
        """The request whose body is being received, if it takes the shortcut."""
        self._asked: deque[QuickRequest | InTurn] = deque()
        self._unread = b""
        self._parsed = 0  # of the unread bytes: to cut off each parsed piece would copy the rest
        self._body_left = 0
        self._held_back = False
        self._last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, and close another if there are too many."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        self._allow(self._limits.request_seconds)
        most = min(self._limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        if len(self.connections) > most:
            others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
            if len(others) >= most:
                min(others, key=_standing).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and let requests that wait for their turn to answer find out."""
        for one in self._asked:
            if isinstance(one, InTurn):
                one.cycle.disconnected = True
                one.come()
        if self._timer is not None:
            self._timer.cancel()
        self._unread = b""
        self._bodies.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, at once if it is little. A head that is too long or too slow is refused."""
        if self._unread or len(data) > PIECE:
            self._unread, self._parsed = self._unread[self._parsed :] + data, 0
            self._read_on()
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        began, self._idle = self._idle, False
        self._head += len(data)
        super().data_received(data)
        if began and self._head > 0:  # else the head is whole, and the request has the time of a response
            self._allow(self._limits.request_seconds)
        if self._head > self._limits.head_bytes and not self.transport.is_closing():
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def parse_piece(self) -> None:
        """Parse the next piece of what has been received. Of a body, which costs little, a piece is large."""
        size = max(PIECE, min(BODY_PIECE, self._body_left))
        piece = self._unread[self._parsed : self._parsed + size]
        if not piece:
            return  # the connection has been lost
        self._parsed += len(piece)
        if self._parsed == len(self._unread):
            self._unread, self._parsed = b"", 0
        self._parse(piece)
        if self.transport.is_closing():
            self._unread = b""
        self._read_on()

    def _read_on(self) -> None:
        """Go on with what has been received while there is room for more requests, then with the rest."""
        if self.transport.is_closing():
            return
        room = len(self._asked) < MOST_AHEAD and not self.flow.write_paused and not self._body_waits()
        room = room and not self._bodies.crowd_out(self)
        if self._unread and room:
            self._turns.wait(self)
        self._hold_back(bool(self._unread) or not room)

    def parse_soon(self) -> bool:
        """Go on with what has been received. Returns False if the client may send more."""
        if not self._unread and not self._bodies.crowd_out(self):
            return False
        self._held_back = True
        self.read_soon()
        return True

    def read_soon(self) -> None:
        """Go on in the next turn of the loop."""
        self.loop.call_soon(self._read_on)

    def _body_waits(self) -> bool:
        """Return whether the application has yet to take much of a body."""
        cycle = self.cycle
        return bool(cycle) and not cycle.response_complete and len(cycle.body) > HIGH_WATER_LIMIT

    def _hold_back(self, full: bool) -> None:
        """Read no more from the client, or go on."""
        if full:
            self.flow.pause_reading()
        elif self._held_back:
            self.flow.resume_reading()
        self._held_back = full

    def resume_writing(self) -> None:
        """Go on with what the client has sent, now that it reads."""
        super().resume_writing()
        if self._held_back:
            self._read_on()

    def on_message_begin(self) -> None:
        """Forget the request before. Only one that the application answers gets a scope; see `_pass_on`."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. What follows a body in chunks looks like one and says nothing about the request."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the time of the response."""
        self._head = -self._limits.head_bytes  # the rest of the data is a body or another request
        self._in_head = False
        quick = self._quick = self._taken()
        if quick is None:
            self._pass_on()
        else:
            self._asked.append(quick)
            if len(self._asked) >= MOST_AHEAD:
                self._hold_back(True)
        self._allow(self._limits.answer_seconds, answering=True)

    def _taken(self) -> QuickRequest | None:
        """Return the request if it may take the shortcut. It must not overtake one that can't."""
        if self._shortcut is None or self.flow.write_paused:
            return None
        if self._asked and isinstance(self._asked[-1], InTurn):
            return None
        return self._shortcut.take(self)

    def _pass_on(self) -> None:
        """Let the application answer the request."""
        url, expects = self.url, self.expect_100_continue
        headers = self.headers if url.startswith(b"/") else _renamed(url, self.headers)
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        self.scope[STREAM] = self  # type: ignore[typeddict-unknown-key]
        self._body_left = next((int(said) for name, said in self.headers if name == b"content-length"), 0)
        super().on_headers_complete()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            self._held_back = True  # uvicorn does so for every request that is sent ahead
            self._read_on()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body, which has a limit of its own."""
        self._head = -self._limits.head_bytes
        if self._quick is None:
            self._body_left -= len(body)
            super().on_body(body)
            self._hold(len(body))
        else:
            self._quick.body += body

    def _hold(self, size: int) -> None:
        """Count a piece of the body of the latest request, unless that has been answered already."""
        turn = self._asked[-1] if self._asked else None
        if isinstance(turn, InTurn) and turn.cycle is self.cycle and not self.cycle.response_complete:
            turn.held += size
            self._bodies.hold(self, size)
            if self._bodies.crowd_out(self):
                self._hold_back(True)

    def on_message_complete(self) -> None:
        """Begin a request that takes the shortcut, now that all of it is there."""
        quick = self._quick
        if quick is None:
            super().on_message_complete()
        else:
            self._quick = None
            quick.begin()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Start a request, even while earlier ones of this connection are being answered."""
        turn = InTurn(cycle)
        if self._asked:
            app = turn.await_in(app)
        self._asked.append(turn)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have arrived already."""
        super().on_response_complete()
        answered = self._asked.popleft()
        if isinstance(answered, InTurn):
            self._bodies.release(self, answered.held)
        self.go_on()

    def go_on(self) -> None:
        """Send the responses whose turn has come, and wait for the next request."""
        asked = self._asked
        while asked:
            first = asked[0]
            if isinstance(first, InTurn):
                first.come()
                break
            if first.reply is None:
                break
            asked.popleft()
            self.transport.write(first.reply)
        if self._held_back:
            self._read_on()
        if not asked:
            self._idle = True
            self._head = 0
            self._allow(self._limits.idle_seconds)
            if self._last:
                self.transport.close()

    def shutdown(self) -> None:
        """Answer the requests that have arrived, and close the connection."""
        self._last = True
        if not self._asked or isinstance(self._asked[-1], InTurn):
            super().shutdown()

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
        self._bodies.release(self)
        wire = self.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)

    def moved(self) -> None:
        """Give the client the time of a response again: it has taken or sent a whole part of a large body."""
        self._until = self.loop.time() + self._limits.answer_seconds
        self._bodies.release(self)

    def cut(self) -> None:
        """End the connection at once. Closing would wait for a client that does not read."""
        self.transport.abort()

    def cut_unread(self) -> None:
        """End the connection at once if its client has left much unread."""
        if self.flow.write_paused:
            self.cut()


def _renamed(url: bytes, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request whose target is a URL: the name there counts, not that in `Host`."""
    if [name for name, _ in headers].count(b"host") != 1:
        return headers  # the door refuses it
    scheme, _, rest = url.partition(b"://")
    host = re.split(rb"[/?#]", rest, maxsplit=1)[0] if scheme.lower() in (b"http", b"https") else b""
    return [(name, host if name == b"host" else said) for name, said in headers]


def _standing(connection: Any) -> tuple[bool, float]:
    standing: tuple[bool, float] = connection.standing
    return standing
