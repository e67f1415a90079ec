"""One connection to one server, from its greeting to its end.

A session is always in one of these states. A line that its state does not accept ends it.

| state | what has happened | what is accepted |
|---|---|---|
| `GREETING` | the connection is made, encrypted with `tls_first` | `INFO`, `-ERR` |
| `SECURING` | `INFO` has arrived, and TLS is next | nothing: any byte ends the session |
| `LOGIN` | TLS, if used, is active; `CONNECT` and `PING` go out | `INFO`, `-ERR`, `PING`, `PONG` |
| `OPEN` | the `PONG` has arrived: the server has accepted the login | every line of the protocol |
| `OVER` | the session has ended | nothing, and nothing is answered |

Messages are delivered only in `OPEN`; before that not even their bytes are buffered. What a server sends
before the connection is encrypted may be forged: only the nonce and the largest payload are kept of it.

Reading takes one bounded piece per turn of the loop, so that a flood of messages leaves turns to other tasks.
A piece of small messages is short, since each message takes time. A session that rests delivers it in several
turns, with a rest after each if there is more to read. A piece of a large message is as long as what has
arrived, since a server disconnects slow readers. Messages are delivered in order.

Sending never waits: the commands of one turn of the loop are written together at its end, and unsent data is
bounded. What was written to a session is sent on it or not at all, never on another. Only the handshake
waits.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from holdfast import seams
from holdfast.bus.errors import BusError, Lost, ProtocolError, ServerComplaint, refusal
from holdfast.bus.login import Login, Server
from holdfast.bus.protocol import (
    LONGEST_LINE,
    PING,
    PONG,
    Control,
    Event,
    Info,
    Message,
    Reader,
    connect,
    control_of,
    info_of,
)
from holdfast.pace import PATIENT_TURNS

Take: TypeAlias = Callable[[Message], None]


class SessionOwner(Protocol):
    """The owner of a session, which receives its events."""

    def complain(self, error: Exception) -> None:
        """Handle an error that does not by itself end the session."""

    def informed(self, session: Session) -> None:
        """Handle a new INFO from the server after the login."""

    def ended(self, session: Session) -> None:
        """Handle the end of the session."""


PING_SECONDS: Final = 5.0
MOST_SILENT: Final = 2
"""The maximum number of pings in a row after which nothing at all has arrived."""
MOST_PINGS: Final = 256
"""The maximum number of pings that wait for their pong, on either side."""
LONGEST_COMPLAINT: Final = 500
"""The maximum number of characters of a server's error that are passed on."""
CLOSE_SECONDS: Final = 1.0
"""Timeout for the end of a connection."""
READ_BYTES: Final = 32_768
"""The number of bytes to read in a turn of the loop."""
BULK_BYTES: Final = 1024 * 1024
"""The number of bytes to read in a turn of a single message that is larger than `READ_BYTES`."""
MESSAGES: Final = 32
FEW: Final = 4
LONGEST: Final = 0.0005
"""The number of messages that a session with a rest delivers in a turn, a few at a time until they have taken
this many seconds. To refuse one takes 10 to 70 µs, so that a whole piece of 300 would hold up other tasks for
10 ms."""
MOST_UNSENT: Final = 16 * 1024 * 1024
"""The maximum number of bytes pending for a server that does not read them."""
AT_ONCE: Final = 512 * 1024
"""The approximate number of bytes to write per turn of the loop: joining all pending data would take long."""


class State(Enum):
    """The state of a session; see the table above."""

    GREETING = auto()
    SECURING = auto()
    LOGIN = auto()
    OPEN = auto()
    OVER = auto()


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
_OPEN: Final = State.OPEN  # looked up for every piece that is read


class Session(asyncio.BufferedProtocol):
    """One connection to one server; see the module.

    Args:
        server: The server at the other end.
        takers: The functions that take the messages of each subscription.
        owner: The owner, which receives all other events.
        login: The login to use.
        encrypted: Whether the connection is already encrypted.
        rest: The length of the pause after a full piece or a part of one, as a multiple of the time that it
            took. So a sender that floods this connection leaves time to the others.
    """

    def __init__(
        self,
        server: Server,
        takers: Mapping[str, Take],
        owner: SessionOwner,
        *,
        login: Login | None = None,
        encrypted: bool = False,
        rest: float = 0.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.server = server
        self._owner = owner
        self._login = login or Login()
        self._context: ssl.SSLContext | None = None
        self._heard = b""
        self._silent = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._pongs: deque[asyncio.Future[bool] | None] = deque()
        self._greeted = self._loop.create_future()
        self._closed = self._loop.create_future()
        self._error: Exception = Lost("the connection is gone")
        self.state: State = State.GREETING
        self.encrypted: bool = encrypted
        self.info: Info = Info()
        self.over = False
        # Reading.
        self._takers = takers
        self._rest = rest
        self._buffer = self._piece = memoryview(bytearray(READ_BYTES))
        self._bulk: memoryview | None = None
        self._reader = Reader()
        self._undelivered: list[Event] = []
        # Sending.
        self._unsent: list[bytes] = []
        self.dropped: list[bytes] = []
        """What was still to be sent when the session ended. It was not sent and never will be."""
        self._unsent_bytes = 0
        self._pushing = False
        self._hurry = False
        self._waited = 0
        self._paused = False
        self._owed = 0

    @property
    def unreadable(self) -> int:
        """The number of messages that could not be read."""
        return self._reader.unreadable

    async def begin(self, name: str) -> None:
        """Log in and wait for the server to accept.

        Raises:
            BusError: The server refuses the login, is not a NATS server, or is gone.
            OSError: The connection can't be encrypted, or a file can't be read.
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
        # Nothing was read since INFO, and everything read from here on has been decrypted. Pending data waits
        # until it can be encrypted.
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
        """Ping. The result is true once the server has processed all earlier writes, false if it is lost."""
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
        """Send what is pending and end the session soon, whatever the server does."""
        if self._transport is not None and not self.over:
            if self._alarm is not None:
                self._alarm.cancel()
            self._paused = False
            self._send(sys.maxsize)
            self._transport.close()
            await asyncio.wait([self._closed], timeout=CLOSE_SECONDS)
        self.abort()

    def abort(self) -> None:
        """End the session at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)  # another loop's need not be a subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session: the connection is gone."""
        if not self._closed.done():
            self._closed.set_result(None)
        if (words := _LOST.get(self.state)) is not None:
            self._error = Lost(words if exc is None else f"{words}: {exc}")
        self._end()

    def _watch(self) -> None:
        if self._silent >= MOST_SILENT:
            self._fail(Lost("the server has stopped responding"))
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
        self.dropped, self._unsent = self._unsent, []
        self._owner.ended(self)

    # Sending.

    def write(self, command: bytes) -> None:
        """Send a command, however much is pending."""
        self.offer(command, most=sys.maxsize)

    def offer(self, command: bytes, most: int = MOST_UNSENT, *, patient: bool = False) -> bool:
        """Send a command. Return False if more than `most` bytes would be pending or the session is over.

        A patient command is sent with the next one that is not patient, or after a few turns of the loop.
        """
        unsent = self._unsent_bytes + len(command)
        if unsent > most or self.over:
            return False
        self._unsent.append(command)
        self._unsent_bytes = unsent
        if not patient:
            self._hurry = True
        if not self._pushing:
            self._pushing = True
            self._loop.call_soon(self._push)
        return True

    def pause_writing(self) -> None:
        """Stop sending: the transport's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send again: the transport's buffer has room."""
        self._paused = False
        self._send()

    def _push(self) -> None:
        if self._unsent and not self._hurry and self._waited < PATIENT_TURNS:
            self._waited += 1
            self._loop.call_soon(self._push)
        else:
            self._send()

    def _send(self, most: int = AT_ONCE) -> None:
        self._pushing = self._hurry = False
        self._waited = 0
        unsent, transport = self._unsent, self._transport
        if not unsent or self._paused or self.over or transport is None or transport.is_closing():
            return
        self._owed = 0
        if self._unsent_bytes > most and len(unsent) > 1:
            self._send_first(transport, most)
            return
        self._unsent = []
        transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))
        self._unsent_bytes = transport.get_write_buffer_size()

    def _send_first(self, transport: asyncio.Transport, most: int) -> None:
        """Write the first commands, of about `most` bytes, and the others in the next turn."""
        unsent, size, number = self._unsent, 0, 0
        while size < most and number < len(unsent):
            size += len(unsent[number])
            number += 1
        self._unsent = unsent[number:]
        transport.write(b"".join(unsent[:number]))
        self._unsent_bytes = transport.get_write_buffer_size() + sum(map(len, self._unsent))
        if self._unsent and not self._paused:
            self._pushing = self._hurry = True
            self._loop.call_soon(self._push)

    # Reading.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next piece."""
        if self._reader.needed > READ_BYTES or self._bulk is not None:
            self._piece = self._chosen()
        return self._piece

    def _chosen(self) -> memoryview:
        """Return a buffer as large as the missing part of a large message, or the usual buffer."""
        missing = self._reader.missing
        if missing <= READ_BYTES:
            self._bulk = None
            return self._buffer
        size = min(missing, BULK_BYTES)
        if self._bulk is None or len(self._bulk) < size:
            self._bulk = memoryview(bytearray(size))
        return self._bulk[:size]

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the messages of a piece, in order."""
        self._silent = 0
        data = bytes(self._piece[:nbytes])
        if self.state is not _OPEN:
            data = self._hear(data)
            if not data:
                return
        self._receive(data, full=nbytes == len(self._piece))

    def _receive(self, data: bytes, *, full: bool) -> None:
        """Deliver the messages of a piece. If the piece is full, there may be more to read."""
        began = seams.monotonic() if full else 0.0
        events = self._reader.feed(data)
        if self._rest and len(events) > MESSAGES:
            self._deliver_slowly(events, full=full)
            return
        self._deliver(events)
        if full and not self.over:
            self._pause(seams.monotonic() - began)
        if not self._pushing:
            # Tasks that these messages wake run before this callback, so that it sends their output, too.
            self._pushing = True
            self._loop.call_soon(self._push)

    def _deliver(self, events: Iterable[Event]) -> None:
        takers = self._takers
        for event in events:
            if isinstance(event, Message):
                take = takers.get(event.sid)
                if take is not None:
                    try:
                        take(event)
                    except Exception as defect:  # reading must continue
                        self._owner.complain(defect)
            elif isinstance(event, Control):
                self._obey(event)
                if self.over:
                    return
            else:
                self._fail(event)
                return

    def _deliver_slowly(self, events: list[Event], *, full: bool) -> None:
        """Deliver a few messages in each turn, and read nothing meanwhile."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._undelivered = events
        self._deliver_next(self._rest if full else 0.0)

    def _deliver_next(self, rest: float) -> None:
        """Deliver the next messages, and after a rest those that follow."""
        if self.over:
            self._undelivered = []
            return
        began, took, count = seams.monotonic(), 0.0, 0
        events = self._undelivered
        while count < MESSAGES and took < LONGEST and not self.over:
            self._deliver(events[count : count + FEW])
            count += FEW
            took = seams.monotonic() - began
        self._undelivered = events[count:]
        pause = rest * took
        if self._undelivered:
            self._after(pause, partial(self._deliver_next, rest))
        else:
            self._after(pause, self._resume)
        if not self._pushing:
            self._pushing = True
            self._loop.call_soon(self._push)

    def _pause(self, took: float) -> None:
        """Continue reading in a later turn. Some loops would otherwise read many times in this one."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._after(self._rest * took, self._resume)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        if seconds:
            self._loop.call_later(seconds, call)
        else:
            self._loop.call_soon(call)

    def _resume(self) -> None:
        if self._transport is not None and not self.over and not self._transport.is_closing():
            self._transport.resume_reading()

    # The lines of the protocol that are not messages.

    def _hear(self, data: bytes) -> bytes:
        """Handle the lines before the login is accepted. Return the data after the line that accepts it."""
        self._heard += data
        while self.state is not _OPEN:
            if self.over:
                return b""
            if self.state is State.SECURING:
                if self._heard:
                    self._fail(ProtocolError("the server sent data that should have been encrypted"))
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
                self._fail(ProtocolError("the server sends pings but does not read the pongs"))
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
        if self.state is State.LOGIN:  # the first ping follows CONNECT
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
        """Choose the next state by the server's first INFO, before anything after it is read."""
        if not self.encrypted:
            self._context = self._login.context(self.server, self.info)
        if self._context is None:
            self.state = State.LOGIN
        else:
            assert self._transport is not None
            self._transport.pause_reading()
            self.state = State.SECURING
        if not self._greeted.done():  # the login may have timed out just now
            self._greeted.set_result(None)

    def _complained(self, text: str) -> None:
        if self.state is State.OPEN:
            self._owner.complain(ServerComplaint(text))
        elif self.state is State.GREETING:  # no login was sent, so none was refused
            self._fail(ServerComplaint(text))
        else:
            self._fail(refusal(text))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self.state is State.OPEN:
            self._owner.complain(error)
        self.abort()
