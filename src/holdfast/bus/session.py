"""One connection to one server, from its greeting to its end.

`holdfast.bus.states` has the states of a session. A line that the state does not accept ends the session.
Messages are delivered only in `OPEN`; before that not even their bytes are buffered. What a server sends
before the connection is encrypted may be forged: only the nonce and the largest payload are kept of it.

Law: what was written to a session is sent on it or not at all. Only the handshake waits. `incoming` reads
and delivers, and `outgoing` sends.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from holdfast.bus.errors import BusError, Lost, ProtocolError, ServerComplaint, refusal
from holdfast.bus.incoming import Incoming
from holdfast.bus.login import Login
from holdfast.bus.protocol import (
    LONGEST_LINE,
    PING,
    PONG,
    Control,
    Info,
    connect,
    control_of,
    info_of,
)
from holdfast.bus.states import ACCEPTED, State

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from typing import Protocol

    from holdfast.bus.incoming import Take
    from holdfast.bus.login import Server

    class SessionOwner(Protocol):
        """The owner of a session, which receives its events."""

        def complain(self, error: Exception) -> None:
            """Handle an error that does not by itself end the session."""

        def informed(self, session: Session) -> None:
            """Handle a new INFO from the server after the login."""

        def ended(self, session: Session) -> None:
            """Handle the end of the session."""


_OPEN: Final = State.OPEN

_LOST: Final = {
    State.GREETING: "it ended the connection before it said anything; "
    "a server that begins with TLS (handshake_first) needs tls_first",
    State.LOGIN: "it ended the connection while this user was logging in",
}
PING_SECONDS: Final = 5.0
MOST_SILENT: Final = 2
"""The maximum number of pings in a row after which nothing at all has arrived."""
MOST_PINGS: Final = 256
"""The maximum number of pings that wait for their pong, on either side."""
LONGEST_COMPLAINT: Final = 500
"""The maximum number of characters of a server's error that are passed on."""
CLOSE_SECONDS: Final = 1.0
"""Timeout for the end of a connection."""


class Session(Incoming, asyncio.BufferedProtocol):
    """One connection to one server; see the module.

    Args:
        server: The server at the other end.
        takers: The functions that take the messages of each subscription.
        owner: The owner, which receives all other events.
        login: The login to use.
        encrypted: Whether the connection is already encrypted.
        rest: See `Incoming`.
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
        super().__init__(asyncio.get_running_loop(), takers, rest=rest)
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

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)  # another loop's need not be a subclass

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the messages of a piece, in order."""
        self._silent = 0
        data = bytes(self._piece[:nbytes])
        if self.state is not _OPEN:
            data = self._hear(data)
            if not data:
                return
        self._receive(data, full=nbytes == len(self._piece))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session: the connection is gone."""
        if not self._closed.done():
            self._closed.set_result(None)
        if (words := _LOST.get(self.state)) is not None:
            self._error = Lost(words if exc is None else f"{words}: {exc}")
        self._end()

    # The handling of what arrives.

    def _complain(self, defect: Exception) -> None:
        self._owner.complain(defect)

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
        self._unsent.clear()
        self._owner.ended(self)
