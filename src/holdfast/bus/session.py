"""One connection to one server, from its greeting to its end.

| state | what has happened | what is accepted |
|---|---|---|
| `GREETING` | there is a connection, with `tls_first` an encrypted one | `INFO`, `-ERR` |
| `SECURING` | `INFO` has come, and TLS is next | nothing: any byte ends the session |
| `LOGIN` | all that can be encrypted is; `CONNECT` and `PING` go out | `INFO`, `-ERR`, `PING`, `PONG` |
| `OPEN` | the `PONG` has come: the server has let this user in | every line of the protocol |
| `OVER` | it was ended | nothing, and nothing is answered |

A line that its state does not accept ends the session. Messages are delivered in `OPEN` alone; before that
not even their bytes are gathered. What a server says before the connection is encrypted may be anybody's
word: only the nonce and the largest payload are kept of it.

Law: what was written to a session is sent on it or nowhere. Nothing here waits but the handshake. Reading
takes one bounded piece in a turn of the loop, so that a flood leaves turns to others. Of small messages that
is little, since each takes time. Of a large one it is what is there: a server cuts off who reads too slowly.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, cast

from holdfast.bus.errors import BusError, Lost, ProtocolError, ServerComplaint, refusal
from holdfast.bus.login import Login
from holdfast.bus.outgoing import Outgoing
from holdfast.bus.protocol import (
    LONGEST_LINE,
    PING,
    PONG,
    Control,
    Info,
    Message,
    Reader,
    connect,
    control_of,
    info_of,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from typing import Protocol, TypeAlias

    from holdfast.bus.login import Server

    Take: TypeAlias = Callable[[Message], None]

    class Owner(Protocol):
        """Who has a session, and is told what becomes of it."""

        def complain(self, error: Exception) -> None:
            """Something is wrong that does not end the session by itself."""

        def informed(self, session: Session) -> None:
            """The server that has let this user in has introduced itself anew."""

        def ended(self, session: Session) -> None:
            """It is over."""


class State(Enum):
    """How far a session has come; see the module."""

    GREETING = auto()
    SECURING = auto()
    LOGIN = auto()
    OPEN = auto()
    OVER = auto()


_OPEN: Final = State.OPEN

ACCEPTED: Final = {
    State.GREETING: frozenset({"INFO", "-ERR"}),
    State.SECURING: frozenset[str](),
    State.LOGIN: frozenset({"INFO", "-ERR", "PING", "PONG"}),
    State.OPEN: frozenset({"INFO", "-ERR", "PING", "PONG", "+OK", "MSG", "HMSG"}),
    State.OVER: frozenset[str](),
}
"""The lines that each state accepts."""
_LOST: Final = {
    State.GREETING: "it ended the connection before it said anything; "
    "a server that begins with TLS (handshake_first) needs tls_first",
    State.LOGIN: "it ended the connection while this user was logging in",
}
READ_BYTES: Final = 32_768
"""How much is read in a turn of the loop."""
BULK_BYTES: Final = 1024 * 1024
"""How much is read in a turn of a single message that is larger."""
PING_SECONDS: Final = 5.0
MOST_SILENT: Final = 2
"""How many pings in a row may have been followed by nothing at all."""
MOST_PINGS: Final = 256
"""How many pings may wait for their pong, on either side."""
LONGEST_COMPLAINT: Final = 500
"""How many characters of a server's complaint are passed on."""
CLOSE_SECONDS: Final = 1.0
"""For how long the end of a connection is waited for."""


class Session(Outgoing, asyncio.BufferedProtocol):
    """See the module.

    Args:
        server: Who is at the other end.
        takers: Who takes the messages of each subscription.
        owner: Who is told of the rest.
        login: How to be let in.
        encrypted: Whether the connection has been encrypted before it was handed over.
        rest: For how many times as long as a full piece took nothing more is read, so that whoever sends more
            than can be taken in leaves time to other connections.
    """

    def __init__(
        self,
        server: Server,
        takers: Mapping[str, Take],
        owner: Owner,
        *,
        login: Login | None = None,
        encrypted: bool = False,
        rest: float = 0.0,
    ) -> None:
        super().__init__(asyncio.get_running_loop())
        self.server = server
        self._takers = takers
        self._owner = owner
        self._login = login or Login()
        self._context: ssl.SSLContext | None = None
        self._heard = b""
        self._buffer = self._piece = memoryview(bytearray(READ_BYTES))
        self._bulk: memoryview | None = None
        self._rest = rest
        self._reader = Reader()
        self._silent = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._pongs: deque[asyncio.Future[bool] | None] = deque()
        self._greeted = self._loop.create_future()
        self._closed = self._loop.create_future()
        self._error: Exception = Lost("the connection is gone")
        self.state = State.GREETING
        self.encrypted = encrypted
        self.info = Info()

    @property
    def unreadable(self) -> int:
        """How many messages could not be read."""
        return self._reader.unreadable

    async def begin(self, name: str) -> None:
        """Introduce oneself, and wait to be let in.

        Raises:
            BusError: The server does not let this user in, is none, or has gone.
            OSError: The connection can't be encrypted, or a file not be read.
        """
        await self._greeted
        self._require_life()
        if self._context is not None:
            await self._encrypt(self._context)
        fields = {"verbose": False, "pedantic": False, "lang": "python", "version": "", "protocol": 1}
        fields |= {"headers": True, "no_responders": True, "echo": True, "name": name}
        fields |= self._login.shown(self.server, self.info, encrypted=self.encrypted)
        self.write(connect(fields))
        if not await self.ping():
            raise self._error
        self._alarm = self._loop.call_later(PING_SECONDS, self._watch)

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        assert self._transport is not None
        # Nothing was read since INFO came, and from here on what is read has been decrypted. What is to be
        # sent waits until it can be encrypted.
        self.state = State.LOGIN
        self._paused = True
        self.encrypted = True
        self.info = Info(nonce=self.info.nonce, max_payload=self.info.max_payload)
        transport = await self._loop.start_tls(
            self._transport, self, context, server_hostname=self.server.name
        )
        assert transport is not None
        self._transport = transport
        self._paused = False
        self._require_life()

    def _require_life(self) -> None:
        if self.over:
            raise self._error

    def ping(self) -> asyncio.Future[bool]:
        """True when the server has seen all that was written so far, False if it was gone before that."""
        answered: asyncio.Future[bool] = self._loop.create_future()
        if self.over:
            answered.set_result(False)
        else:
            self._ask(answered)
        return answered

    def _ask(self, answered: asyncio.Future[bool] | None) -> None:
        self._pongs.append(answered)
        if len(self._pongs) > MOST_PINGS:
            self._fail(Lost("the server does not answer pings"))
        else:
            self.write(PING)

    async def close(self) -> None:
        """Send what waits, and end; soon, whatever the server does."""
        if self._transport is not None and not self.over:
            if self._alarm is not None:
                self._alarm.cancel()
            self._paused = False
            self._send(sys.maxsize)
            self._transport.close()
            await asyncio.wait([self._closed], timeout=CLOSE_SECONDS)
        self.abort()

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a connection."""
        self._transport = cast("asyncio.Transport", transport)  # that of another loop need not be one

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next piece goes."""
        missing = self._reader.missing
        if missing <= READ_BYTES:
            self._piece, self._bulk = self._buffer, None
        else:
            size = min(missing, BULK_BYTES)
            if self._bulk is None or len(self._bulk) < size:
                self._bulk = memoryview(bytearray(size))
            self._piece = self._bulk[:size]
        return self._piece

    def buffer_updated(self, nbytes: int) -> None:
        """A piece has come: its messages are taken, in order."""
        self._silent = 0
        full = nbytes == len(self._piece)
        began = time.perf_counter() if full else 0.0
        data = bytes(self._piece[:nbytes])
        if self.state is not _OPEN:
            data = self._hear(data)
            if not data:
                return
        takers = self._takers
        for event in self._reader.feed(data):
            if isinstance(event, Message):
                take = takers.get(event.sid)
                if take is not None:
                    try:
                        take(event)
                    except Exception as defect:  # reading must go on
                        self._owner.complain(defect)
            elif isinstance(event, Control):
                self._obey(event)
                if self.over:
                    return
            else:
                self._fail(event)
                return
        if full:
            self._pause(began)
        if not self._pushing:
            # Whoever was woken by these messages comes before this, so that what they say goes out with it.
            self._pushing = True
            self._loop.call_soon(self._push)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if not self._closed.done():
            self._closed.set_result(None)
        if (words := _LOST.get(self.state)) is not None:
            self._error = Lost(words if exc is None else f"{words}: {exc}")
        self._end()

    # What that leads to.

    def _pause(self, began: float) -> None:
        """Read on in another turn, though there is more; some loops would read on many times in this one."""
        assert self._transport is not None
        self._transport.pause_reading()
        if self._rest:
            self._loop.call_later(self._rest * (time.perf_counter() - began), self._resume)
        else:
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._transport is not None and not self.over and not self._transport.is_closing():
            self._transport.resume_reading()

    def _hear(self, data: bytes) -> bytes:
        """Obey what comes before this user is let in; returns what came behind the line that does so."""
        self._heard += data
        while self.state is not _OPEN:
            if self.over:
                return b""
            if self.state is State.SECURING:
                if self._heard:
                    self._fail(ProtocolError("the server said something that should have been encrypted"))
                return b""
            line, ended, rest = self._heard.partition(b"\r\n")
            if not ended:
                if len(line) > LONGEST_LINE:
                    self._fail(ProtocolError("the server sent a line without an end"))
                return b""
            self._heard = rest
            self._hear_line(line)
        rest, self._heard = self._heard, b""
        return rest

    def _hear_line(self, line: bytes) -> None:
        try:
            control = control_of(line)
            if control.verb not in ACCEPTED[self.state]:
                raise ProtocolError(f"the server sent {control.verb} before it had let this user in")
        except ProtocolError as error:
            self._fail(error)
        else:
            self._obey(control)

    def _obey(self, control: Control) -> None:
        if control.verb == "PING":
            self._owed += 1
            if self._owed > MOST_PINGS:
                self._fail(ProtocolError("the server sends pings and does not take the pongs"))
            else:
                self.write(PONG)
        elif control.verb == "PONG":
            if self._pongs:
                self._answered(self._pongs.popleft())
        elif control.verb == "INFO":
            self._introduced(control)
        elif control.verb == "-ERR":
            text = control.rest[: 4 * LONGEST_COMPLAINT].decode(errors="replace")
            self._complained(text.strip(" '")[:LONGEST_COMPLAINT])

    def _answered(self, answered: asyncio.Future[bool] | None) -> None:
        if self.state is State.LOGIN:  # the first ping is that which follows CONNECT
            self.state = State.OPEN
        if answered is not None and not answered.done():
            answered.set_result(True)

    def _introduced(self, control: Control) -> None:
        try:
            self.info = info_of(control)
            if self.state is State.GREETING:
                self._greet()
        except BusError as error:
            self._fail(error)
            return
        if self.state is State.OPEN:
            self._owner.informed(self)

    def _greet(self) -> None:
        """Go on as the server's first words demand, before anything that is behind them is read."""
        if not self.encrypted:
            self._context = self._login.context(self.server, self.info)
        if self._context is None:
            self.state = State.LOGIN
        else:
            assert self._transport is not None
            self._transport.pause_reading()
            self.state = State.SECURING
        self._greeted.set_result(None)

    def _complained(self, text: str) -> None:
        if self.state is State.OPEN:
            self._owner.complain(ServerComplaint(text))
        elif self.state is State.GREETING:  # nobody has been refused who was not yet introduced
            self._fail(ServerComplaint(text))
        else:
            self._fail(refusal(text))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self.state is State.OPEN:
            self._owner.complain(error)
        self.abort()

    def _watch(self) -> None:
        if self._silent >= MOST_SILENT:
            self._fail(Lost("the server has fallen silent"))
            return
        self._silent += 1
        self._alarm = self._loop.call_later(PING_SECONDS, self._watch)
        self._ask(None)

    def _end(self) -> None:
        if self.over:
            return
        self.over = True
        self.state = State.OVER
        self._heard = b""
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._greeted.done():
            self._greeted.set_result(None)
        for answered in self._pongs:
            if answered is not None and not answered.done():
                answered.set_result(False)
        self._pongs.clear()
        self._unsent.clear()
        self._owner.ended(self)
