"""One connection to one server, from its greeting to its end.

Law: what was written to a session is sent on it or nowhere. Nothing here waits but the handshake; reading
takes a bounded piece in a turn of the loop, so that a flood leaves turns to others.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.bus.errors import Lost, ProtocolError, ServerComplaint, refusal
from holdfast.bus.protocol import PING, PONG, Control, Message, Reader, connect, info_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol, TypeAlias

    from holdfast.bus.login import Login, Server

    Take: TypeAlias = Callable[[Message], None]

    class Owner(Protocol):
        """Who has a session, and is told what becomes of it."""

        def complain(self, error: Exception) -> None:
            """Something is wrong that does not end the session by itself."""

        def informed(self, session: Session) -> None:
            """The server has introduced itself, perhaps not for the first time."""

        def ended(self, session: Session) -> None:
            """It is over."""


READ_BYTES: Final = 32_768
"""How much is read in a turn of the loop."""
MOST_UNSENT: Final = 16 * 1024 * 1024
"""How many bytes may wait for a server that does not take them."""
PATIENCE: Final = 4
"""How many turns of the loop what is patient waits for company."""
PING_SECONDS: Final = 5.0
MOST_SILENT: Final = 2
"""How many pings in a row may have been followed by nothing at all."""
CLOSE_SECONDS: Final = 1.0
"""For how long the end of a connection is waited for."""


class Session(asyncio.BufferedProtocol):
    """See the module.

    Args:
        server: Who is at the other end.
        takers: Who takes the messages of each subscription.
        owner: Who is told of the rest.
    """

    def __init__(self, server: Server, takers: Mapping[str, Take], owner: Owner) -> None:
        self._loop = asyncio.get_running_loop()
        self.server = server
        self._takers = takers
        self._owner = owner
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._reader = Reader()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._pushing = False
        self._hurry = False
        self._waited = 0
        self._paused = False
        self._silent = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._pongs: deque[asyncio.Future[bool] | None] = deque()
        self._greeted = self._loop.create_future()
        self._closed = self._loop.create_future()
        self._let_in = False
        self._error: Exception = Lost("the connection is gone")
        self.over = False
        self.encrypted = False
        self.info: dict[str, Any] = {}

    @property
    def unreadable(self) -> int:
        """How many messages could not be read."""
        return self._reader.unreadable

    async def begin(self, login: Login, name: str) -> None:
        """Introduce oneself, and wait to be let in.

        Raises:
            BusError: The server does not let this user in, is none, or has gone.
            OSError: The connection can't be encrypted, or a file not be read.
        """
        await self._greeted
        self._require_life()
        context = login.context(self.server, self.info)
        if context is not None:
            await self._encrypt(context)
        fields = {"verbose": False, "pedantic": False, "lang": "python", "version": "", "protocol": 1}
        fields |= {"headers": True, "no_responders": True, "echo": True, "name": name}
        fields |= login.shown(self.server, self.info)
        self.write(connect(fields))
        if not await self.ping():
            raise self._error
        self._let_in = True
        self._alarm = self._loop.call_later(PING_SECONDS, self._watch)

    async def _encrypt(self, context: Any) -> None:
        if self._reader.held:
            raise ProtocolError("the server said something that should have been encrypted")
        assert self._transport is not None
        transport = await self._loop.start_tls(
            self._transport, self, context, server_hostname=self.server.name
        )
        assert transport is not None
        self._transport = transport
        self.encrypted = True
        self._require_life()

    def _require_life(self) -> None:
        if self.over:
            raise self._error

    def write(self, command: bytes) -> None:
        """Have a command sent, however much is waiting."""
        self.offer(command, most=sys.maxsize)

    def offer(self, command: bytes, most: int = MOST_UNSENT, *, patient: bool = False) -> bool:
        """Have a command sent; False if then more than so many bytes would wait, or the session is over.

        One that is patient goes with the next that is not, or after a few turns of the loop.
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

    def ping(self) -> asyncio.Future[bool]:
        """True when the server has seen all that was written so far, False if it was gone before that."""
        answered: asyncio.Future[bool] = self._loop.create_future()
        if self.over:
            answered.set_result(False)
        else:
            self._pongs.append(answered)
            self.write(PING)
        return answered

    async def close(self) -> None:
        """Send what waits, and end; soon, whatever the server does."""
        if self._transport is not None and not self.over:
            if self._alarm is not None:
                self._alarm.cancel()
            self._paused = False
            self._send()
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
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """A piece has come: its messages are taken, in order."""
        self._silent = 0
        takers = self._takers
        for event in self._reader.feed(bytes(self._buffer[:nbytes])):
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
        if not self._pushing:
            # Whoever was woken by these messages comes before this, so that what they say goes out with it.
            self._pushing = True
            self._loop.call_soon(self._push)

    def pause_writing(self) -> None:
        """The server does not take what was sent."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if not self._closed.done():
            self._closed.set_result(None)
        self._end()

    # What that leads to.

    def _push(self) -> None:
        if self._unsent and not self._hurry and self._waited < PATIENCE:
            self._waited += 1
            self._loop.call_soon(self._push)
        else:
            self._send()

    def _send(self) -> None:
        self._pushing = self._hurry = False
        self._waited = 0
        if self._paused or self.over or not self._unsent:
            return
        assert self._transport is not None
        if self._transport.is_closing():
            return
        unsent, self._unsent = self._unsent, []
        self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))
        self._unsent_bytes = self._transport.get_write_buffer_size()

    def _obey(self, control: Control) -> None:
        if control.verb == "PING":
            self.write(PONG)
        elif control.verb == "PONG":
            if self._pongs and (answered := self._pongs.popleft()) and not answered.done():
                answered.set_result(True)
        elif control.verb == "INFO":
            self._introduced(control)
        elif control.verb == "-ERR":
            self._complained(control.rest.decode(errors="replace").strip(" '"))

    def _introduced(self, control: Control) -> None:
        try:
            self.info |= info_of(control)
        except ProtocolError as error:
            self._fail(error)
            return
        self._owner.informed(self)
        if not self._greeted.done():
            self._greeted.set_result(None)

    def _complained(self, text: str) -> None:
        if self._let_in:
            self._owner.complain(ServerComplaint(text))
        else:
            self._fail(refusal(text))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self._let_in:
            self._owner.complain(error)
        self.abort()

    def _watch(self) -> None:
        if self._silent >= MOST_SILENT:
            self._fail(Lost("the server has fallen silent"))
            return
        self._silent += 1
        self._pongs.append(None)
        self.write(PING)
        self._alarm = self._loop.call_later(PING_SECONDS, self._watch)

    def _end(self) -> None:
        if self.over:
            return
        self.over = True
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
