"""A connection to NATS that comes back by itself, and that no message can derail.

A server that is about to stop says so. Then another one is looked for while the first still serves, and the
first is left only when that has taken over.

Law: as long as it is open and was there once, it is looked for again. Nothing is kept for a later session:
what can't be sent now is refused. Nobody waits but for `reach`, `flush`, `drain` and `close`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import BusError, LoginRefused, Lost, Untrusted
from holdfast.bus.login import Login
from holdfast.bus.protocol import USUAL_PAYLOAD, pub, sub, unsub
from holdfast.bus.servers import Servers, patience, pause
from holdfast.bus.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.bus.login import Server
    from holdfast.bus.session import Take

OVERLAP_SECONDS: Final = 1.0
"""For how long a server that is about to stop is listened to beside the one that has taken over: the servers
of a cluster need a moment to tell each other who listens where."""

_log = logging.getLogger("holdfast.bus")


def _note(error: Exception) -> None:
    _log.warning("the NATS connection reports: %s", error)


def _nothing() -> None:
    """Take note of nothing."""


class Subscription:
    """Messages at a subject, which somebody takes."""

    def __init__(self, connection: Connection, subject: str, queue: str, sid: str) -> None:
        self._connection = connection
        self.subject = subject
        self.queue = queue
        self.sid = sid

    def cancel(self) -> None:
        """Take no more, from now on."""
        self._connection.unlisten(self)

    async def drain(self) -> None:
        """Have no more sent; return when all that was sent before has been taken."""
        await self._connection.drain(self)


class Connection:
    """A connection for those who listen where others may send whatever they like.

    Args:
        name: What the connection is called in the server's lists.
        inbox: What the subjects of `new_inbox` begin with.
        on_error: Is told what goes wrong.
        on_disconnected: Is told that the connection is gone.
        on_reconnected: Is told that it is back.
        rest: See `Session`.
    """

    def __init__(
        self,
        *,
        name: str = "holdfast",
        inbox: str = "_INBOX",
        on_error: Callable[[Exception], None] = _note,
        on_disconnected: Callable[[], None] = _nothing,
        on_reconnected: Callable[[], None] = _nothing,
        rest: float = 0.0,
    ) -> None:
        self._name = name
        self._inbox = inbox
        self._on_error = on_error
        self._on_disconnected = on_disconnected
        self._on_reconnected = on_reconnected
        self._rest = rest
        self._login = Login()
        self._servers = Servers([])
        self._session: Session | None = None
        self._takers: dict[str, Take] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._number = 0
        self._began = float("-inf")
        self._unreadable = 0
        self._search: asyncio.Task[None] | None = None
        self._left: dict[Session, asyncio.Task[None]] = {}
        self.reconnects = 0
        self.max_payload = USUAL_PAYLOAD
        self.is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether something can be sent."""
        return self._session is not None

    @property
    def unreadable(self) -> int:
        """How many messages could not be read, and were dropped."""
        return self._unreadable + sum(one.unreadable for one in self._sessions())

    async def reach(self, servers: str | Sequence[str], login: Login | None = None) -> None:
        """Connect, or fail soon. Once connected, every later loss of the connection is mended by itself.

        Args:
            servers: Where to try; the first that answers is taken.
            login: How to be let in.

        Raises:
            LoginRefused: A server does not let this user in.
            Untrusted: A server's certificate is not trusted.
            BusError: What answers is no such server, or the login can't be used.
            OSError: No server can be reached; `TimeoutError` is one, too.
        """
        self._login = login or Login()
        self._servers = Servers([servers] if isinstance(servers, str) else servers)
        errors: list[Exception] = []
        for server in self._servers.named:
            try:
                self._use(await self._attempt(server))
            except (BusError, OSError) as error:
                errors.append(error)
            else:
                return
        raise min(errors, key=_worth)

    def listen(self, subject: str, take: Take, *, queue: str = "") -> Subscription:
        """Have each message at a subject taken as soon as it is read, in the order of the connection.

        Args:
            subject: Where to listen; it may hold wildcards.
            take: Is given each message. It must put it away rather than deal with it.
            queue: The group whose members share the messages.
        """
        self._number += 1
        sid = str(self._number)
        subscription = self._subscriptions[sid] = Subscription(self, subject, queue, sid)
        self._takers[sid] = take
        if self._session is not None:
            self._session.write(sub(subject, queue, sid))
        return subscription

    def unlisten(self, subscription: Subscription) -> None:
        """See `Subscription.cancel`."""
        self._takers.pop(subscription.sid, None)
        if self._subscriptions.pop(subscription.sid, None):
            for session in self._sessions():
                session.write(unsub(subscription.sid))

    async def drain(self, subscription: Subscription) -> None:
        """See `Subscription.drain`."""
        if self._subscriptions.pop(subscription.sid, None):
            for session in self._sessions():
                session.write(unsub(subscription.sid))
                await session.ping()
        self._takers.pop(subscription.sid, None)

    def send(
        self, subject: str, payload: bytes, *, reply: str = "", head: bytes = b"", patient: bool = False
    ) -> bool:
        """Have a message sent, without waiting; False if it can't be and is dropped.

        Args:
            subject: Where to; that it is one is the caller's business.
            payload: No more than the server takes.
            reply: Where the answer should go.
            head: Its headers, see `protocol.block`.
            patient: Whether it may wait for others a little, so that they go together.
        """
        session = self._session
        if session is None:
            return False
        return session.offer(pub(subject, payload, reply=reply, head=head), patient=patient)

    async def flush(self) -> None:
        """Return when the server has seen all that was sent, and what it had sent before was taken.

        Raises:
            Lost: The connection is gone.
        """
        for session in self._left:
            await session.ping()
        if self._session is None or not await self._session.ping():
            raise Lost("the connection is gone")

    def new_inbox(self) -> str:
        """A subject for replies that nobody else uses."""
        return f"{self._inbox}.{secrets.token_hex(11)}"

    async def close(self) -> None:
        """Send what waits, and disconnect; soon, also when the server is gone."""
        self.is_closed = True
        tasks = [*self._left.values()] if self._search is None else [self._search, *self._left.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sessions = self._sessions()
        self._session = None
        self._left.clear()
        for session in sessions:
            await session.close()
            self._unreadable += session.unreadable

    # What sessions tell their owner.

    def complain(self, error: Exception) -> None:
        """See `Owner.complain`."""
        self._on_error(error)

    def informed(self, session: Session) -> None:
        """See `Owner.informed`."""
        if session is not self._session:
            return
        info = session.info
        self.max_payload = info.max_payload
        self._servers.hear(session.server, info.connect_urls or (), encrypted=session.encrypted)
        if info.ldm:
            self._seek()

    def ended(self, session: Session) -> None:
        """See `Owner.ended`."""
        if session is not self._session:
            return
        self._unreadable += session.unreadable
        self._session = None
        if not self.is_closed:
            self._on_disconnected()
            self._seek()

    def _sessions(self) -> list[Session]:
        """Those over which something may come."""
        return [*self._left] if self._session is None else [*self._left, self._session]

    async def _attempt(self, server: Server) -> Session:
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        context = self._login.trust() if self._login.tls_first else None
        encrypted = context is not None
        session = Session(server, self._takers, self, login=self._login, encrypted=encrypted, rest=self._rest)
        try:
            async with asyncio.timeout(patience(server)):
                await loop.create_connection(
                    lambda: session,
                    server.host,
                    server.port,
                    ssl=context,
                    server_hostname=None if context is None else server.name,
                )
                await session.begin(self._name)
        except ssl.SSLError as error:
            session.abort()
            raise _tls_error(error, first=context is not None) from error
        except BaseException:
            session.abort()
            raise
        return session

    def _use(self, session: Session) -> None:
        """Go on with this session. One that still serves is left soon."""
        if session.over:
            raise Lost("the connection was gone at once")
        old, self._session = self._session, session
        self._servers.latest = session.server
        for one in self._subscriptions.values():
            session.write(sub(one.subject, one.queue, one.sid))
        if old is not None:
            self._left[old] = asyncio.create_task(self._leave(old), name=f"{self._name}: leaving a server")
        self.informed(session)

    async def _leave(self, session: Session) -> None:
        """Take what a server that is about to stop still has, then hang up."""
        await asyncio.sleep(OVERLAP_SECONDS)
        for sid in self._subscriptions:
            session.write(unsub(sid))
        await session.ping()
        self._unreadable += session.unreadable
        del self._left[session]
        await session.close()

    def _seek(self) -> None:
        """Look for a server, unless that is being done."""
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._look(), name=f"{self._name}: looking for NATS")

    async def _look(self) -> None:
        """Try all servers until one answers, as long as there is none or this one is about to stop."""
        loop = asyncio.get_running_loop()
        while self._session is None or self._session.info.ldm:
            await asyncio.sleep(pause(loop.time() - self._began))
            self._began = loop.time()
            leaving = None if self._session is None else self._session.server
            for server in self._servers.round(but=leaving):
                try:
                    session = await self._attempt(server)
                    if moved := self._session is not None:
                        _require_lasting(session)
                    self._use(session)
                except Exception as error:  # whatever it is, the next attempt may do better
                    self._on_error(error)
                    continue
                if moved:
                    _log.info(
                        "moved to %s:%d from a NATS server that is shutting down", server.host, server.port
                    )
                else:
                    self.reconnects += 1
                    self._on_reconnected()
                break


def _require_lasting(session: Session) -> None:
    """Make sure that whoever goes over to a server does not have to leave it again at once."""
    if session.info.ldm:
        session.abort()
        raise Lost("that server is about to stop, too")


def _tls_error(error: ssl.SSLError, *, first: bool) -> BusError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(f"its certificate is not trusted: {error.verify_message}")
    if first and error.reason == "WRONG_VERSION_NUMBER":
        return BusError("it does not begin with TLS, which tls_first requires")
    return BusError(f"the TLS handshake failed: {error.reason or error}")


def _worth(error: Exception) -> int:
    """How much an error tells: that a server does not let one in is more than that another is not there."""
    for worth, kind in enumerate((LoginRefused, Untrusted, BusError)):
        if isinstance(error, kind):
            return worth
    return 3
