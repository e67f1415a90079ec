"""Connections over HTTP, with limits on their time, number, heads and bodies: slow clients keep nobody out.

A new connection is always accepted. When there are too many, the one that has waited longest for its client
is closed; if all are being answered, the one with the oldest request. Sending a few bytes now and then gains
a client no time. The requests of a connection are begun in the order in which they were sent, and answered in
it. Connections that have sent much take turns, so that no request waits until all of it is parsed.
"""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast import seams

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


READING_SECONDS: Final = 0.001
"""Seconds for which pieces of what has arrived on all connections are parsed in a turn of the event loop."""
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
_MALFORMED: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)
BODIES: Final = 16
"""Number of bodies of the maximum size that are held at once."""


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what clients send, how long they may take, and how many there are.

    Args:
        body_bytes: Maximum size of a request's body.
        head_bytes: Maximum size of the first line and the headers of a request.
        connections: Maximum number of connections. A process that may open few files has fewer and leaves
            most to the store.
        watches: Maximum number of watches of all callers. One plugin or project has at most a quarter.
        request_seconds: Seconds that a client may take to send the head of a request, the first or the next.
        idle_seconds: Seconds after a response during which a client may begin its next request.
        answer_seconds: Seconds that a request may take from its head until its response has been sent.
    """

    body_bytes: int = 1_048_576
    head_bytes: int = 32_768
    connections: int = 1_024
    watches: int = 256
    request_seconds: float = 5.0
    idle_seconds: float = 60.0
    answer_seconds: float = 30.0

    @property
    def watches_of_one(self) -> int:
        """Maximum number of watches of one plugin or project."""
        return max(1, self.watches // 4)


class Bodies:
    """The bytes of bodies that are held for all connections together, and the connections that wait for room.

    A body is held from the arrival of its first byte until its request is answered, or until the application
    has taken it in parts. While too much is held, no connection that holds a part of it is read, except the
    one that has held its part longest, until its body is whole. So memory is bounded, bodies that arrive
    together all arrive in the end, and a request with a short body waits for none of them.

    Args:
        largest: Maximum size of a body.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._most = BODIES * largest
        self._held = 0
        self._holders: dict[BoundedConnection, int] = {}  # the one that has held its part longest is first
        self._waiting: dict[BoundedConnection, None] = {}

    def hold(self, holder: BoundedConnection, size: int) -> None:
        """Count bytes that have arrived."""
        self._held += size
        self._holders[holder] = self._holders.get(holder, 0) + size

    def release(self, holder: BoundedConnection, size: int | None = None) -> None:
        """Count bytes as gone, all of the holder's if no size is given, and let others read on."""
        held = self._holders.get(holder, 0)
        gone = held if size is None else min(size, held)
        if not gone:
            return
        self._held -= gone
        if held > gone:
            self._holders[holder] = held - gone
        else:
            del self._holders[holder]
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.read_soon()

    def crowd_out(self, holder: BoundedConnection) -> bool:
        """Return whether reading from a connection must pause. It is resumed when there is room."""
        if self._held < self._most:
            return False
        held = self._holders.get(holder, 0)
        if not held or (held < self._largest and next(iter(self._holders)) is holder):
            return False
        self._waiting[holder] = None
        return True


class InTurn:
    """The turn of a request that the application answers while earlier ones are being answered.

    `held` is the number of bytes of its body that are counted.

    Args:
        cycle: The request, as uvicorn has it.
    """

    def __init__(self, cycle: Any) -> None:
        self.cycle = cycle
        self.held = 0
        self._come: asyncio.Future[None] | None = None

    def await_in(self, app: ASGIApp) -> ASGIApp:
        """Return an application that begins at once, and waits for its turn before it answers."""
        come = self._come = asyncio.get_running_loop().create_future()
        cycle = self.cycle

        async def in_turn(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_in_turn(message: Any) -> None:
                if not come.done():
                    await come
                await send(message)

            async def receive_in_turn() -> Any:
                if cycle.waiting_for_100_continue and not come.done():
                    await come  # to receive would send `100 Continue`
                return await receive()

            try:
                await app(scope, receive_in_turn, send_in_turn)
            except Exception:
                if not come.done():
                    await come  # uvicorn answers with 500
                raise

        return in_turn

    def come(self) -> None:
        """Let the application answer."""
        if self._come is not None and not self._come.done():
            self._come.set_result(None)

    def leave(self) -> None:
        """Tell the application, which may wait for its client or for its turn, that the client has gone."""
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.come()


class ReadingTurns:
    """Turns of connections that have sent much, so that no request waits until all of it is parsed.

    Beside eight connections that sent 1,300 requests at a time, 5 % of another client's gets took 7 to 31 ms;
    with everything parsed as it arrived, they took more than a second.
    """

    def __init__(self) -> None:
        self._waiting: dict[BoundedConnection, None] = {}
        self._scheduled = False

    def wait(self, connection: BoundedConnection) -> None:
        """Let a connection parse a piece when its turn comes."""
        self._waiting[connection] = None
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        until = seams.ticks() + READING_SECONDS
        while self._waiting:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.parse_piece()
            if seams.ticks() > until:
                break
        self._scheduled = False
        if self._waiting:
            self.wait(next(iter(self._waiting)))


class FastRequest(Protocol):
    """A request that is answered without the application. `reply` is its response, once there is one."""

    body: bytes
    reply: bytes | None

    def begin(self) -> None:
        """Begin the request, which has arrived."""
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
        fast_path: Returns the request whose head a connection has received, if it can be answered without
            the application.
        more: The arguments of uvicorn's connection.
    """

    def __init__(
        self,
        *,
        limits: HttpLimits,
        turns: ReadingTurns,
        bodies: Bodies,
        fast_path: Callable[[BoundedConnection], FastRequest | None] | None = None,
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
        self._offers = False
        self._idle = False
        self._fast_path = fast_path
        self._fast: FastRequest | None = None
        """The request whose body is being received, if it takes the fast path."""
        self._unanswered: deque[FastRequest | InTurn | bytes] = deque()
        """The requests that wait for their response, or last the refusal of what can't be read."""
        self._unread = b""
        self._parsed = 0  # of the unread bytes: to cut off each parsed piece would copy the rest
        self._body_left = 0
        self._held_back = False
        self._last = False
        self._refused = False

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
        for one in self._unanswered:
            if isinstance(one, InTurn):
                one.leave()
        if self._timer is not None:
            self._timer.cancel()
        self._unread = b""
        self._bodies.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, at once if it is little. A head that is too long or too slow is refused."""
        if self._refused:
            return
        if self._unread or len(data) > PIECE:
            self._unread, self._parsed = self._unread[self._parsed :] + data, 0
            self._read_on()
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        began, self._idle = self._idle, False
        self._head += len(data)
        self._feed(data)
        if began and self._head > 0:  # else the head is whole, and the request has the time of a response
            self._allow(self._limits.request_seconds)
        if self._head > self._limits.head_bytes and not self.transport.is_closing():
            self._refuse(_TOO_LONG)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(_MALFORMED)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read a request anew that offers another protocol: the parser takes its body for that protocol.

        Some clients offer HTTP/2 with every first request.
        """
        if not self._offers:
            return
        head = [
            b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        head += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self._feed(b"\r\n".join([*head, b"", b""]) + rest)

    def _refuse(self, refusal: bytes) -> None:
        """Refuse what can't be read, once all that came before it has been answered, and read no more."""
        if self._refused:
            return
        self._refused = self._last = True
        self._unread = b""
        latest = self._unanswered[-1] if self._unanswered else None
        if isinstance(latest, InTurn) and latest.cycle.more_body:  # it is a part of this request
            if latest.cycle.response_started:
                self.transport.close()
                return
            self._unanswered.pop()
            self._bodies.release(self, latest.held)
            latest.leave()
        self._unanswered.append(refusal)
        self.go_on()

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
        room = len(self._unanswered) < MOST_AHEAD and not self.flow.write_paused and not self._body_waits()
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
        self._offers = False

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
        self._offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._offers:
            return
        self._head = -self._limits.head_bytes  # the rest of the data is a body or another request
        self._in_head = False
        fast = self._fast = self._taken()
        if fast is None:
            self._pass_on()
        else:
            self._unanswered.append(fast)
            if len(self._unanswered) >= MOST_AHEAD:
                self._hold_back(True)
        self._allow(self._limits.answer_seconds, answering=True)

    def _taken(self) -> FastRequest | None:
        """Return the request if it may take the fast path. It must not overtake one that can't."""
        if self._fast_path is None or self.flow.write_paused:
            return None
        if self._unanswered and isinstance(self._unanswered[-1], InTurn):
            return None
        return self._fast_path(self)

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
        if self._fast is None:
            self._body_left -= len(body)
            super().on_body(body)
            self._hold(len(body))
        else:
            self._fast.body += body

    def _hold(self, size: int) -> None:
        """Count a piece of the body of the latest request, unless that has been answered already."""
        turn = self._unanswered[-1] if self._unanswered else None
        if isinstance(turn, InTurn) and turn.cycle is self.cycle and not self.cycle.response_complete:
            turn.held += size
            self._bodies.hold(self, size)
            if self._bodies.crowd_out(self):
                self._hold_back(True)

    def on_message_complete(self) -> None:
        """Begin a request that takes the shortcut, now that all of it is there."""
        fast = self._fast
        if self._offers:
            return
        if fast is None:
            super().on_message_complete()
        else:
            self._fast = None
            fast.begin()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Start a request, even while earlier ones of this connection are being answered."""
        turn = InTurn(cycle)
        if self._unanswered:
            app = turn.await_in(app)
        self._unanswered.append(turn)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have arrived already."""
        super().on_response_complete()
        self._unset_keepalive_if_required()  # it would also end a response that was asked for ahead
        answered = self._unanswered.popleft()
        if isinstance(answered, InTurn):
            self._bodies.release(self, answered.held)
        self.go_on()

    def go_on(self) -> None:
        """Send the responses whose turn has come, and wait for the next request."""
        unanswered = self._unanswered
        while unanswered:
            first = unanswered[0]
            if isinstance(first, InTurn):
                first.come()
                break
            reply = first if isinstance(first, bytes) else first.reply
            if reply is None:
                break
            unanswered.popleft()
            self.transport.write(reply)
        if self._held_back:
            self._read_on()
        if not unanswered:
            self._idle = True
            self._head = 0
            self._allow(self._limits.idle_seconds)
            if self._last:
                self.transport.close()

    def shutdown(self) -> None:
        """Answer the requests that have arrived, and close the connection."""
        self._last = True
        if not self._unanswered or isinstance(self._unanswered[-1], InTurn):
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
