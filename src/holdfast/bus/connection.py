"""A connection to NATS that reconnects by itself and survives malformed messages.

A server that is shutting down announces it. The connection then finds another server while the first one
still serves, and leaves the first only when the other has taken over.

Once established, a connection keeps reconnecting until it is closed. Nothing is queued for a later session:
what can't be sent now is refused. Only `reach`, `flush`, `drain` and `close` wait.

`Servers` says which servers it tries, and `Requester` sends requests over it and delivers their replies.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from holdfast import seams
from holdfast.bus.errors import BusError, LoginRefused, Lost, NoResponders, Untrusted
from holdfast.bus.login import Login, Server, server_at, servers_beside
from holdfast.bus.protocol import USUAL_PAYLOAD, Message, pub, reply_of, sub, unsub
from holdfast.bus.session import Session, Take

OVERLAP_SECONDS: Final = 1.0
"""The time for which the connection still listens to a server that is shutting down, beside the new one. The
servers of a cluster need a moment to exchange their subscriptions."""

MOST_ANNOUNCED: Final = 32
"""The maximum number of announced servers that are remembered."""
ANNOUNCED_IN_A_ROUND: Final = 4
"""The number of announced servers to try before the named ones are tried again."""
ATTEMPT_SECONDS: Final = 5.0
"""Timeout for a server that the user named."""
ANNOUNCED_SECONDS: Final = 1.0
"""Timeout for an announced server."""
PAUSE_SECONDS: Final = 1.0
"""The average interval between attempts at the same server."""
SPREAD_SECONDS: Final = 0.1
"""The time over which clients that lost their server together spread their first attempts."""

_log = logging.getLogger("holdfast.bus")


def _note(error: Exception) -> None:
    _log.warning("the NATS connection reports: %s", error)


def _nothing() -> None:
    """Do nothing."""


class Servers:
    """The servers that a connection tries, in their order.

    The servers that the user named come first. Those that another server announces are bounded, and can't
    keep a client from the named ones.

    Args:
        named: The addresses that the user gave.

    Raises:
        BusError: One of them is not an address.
    """

    def __init__(self, named: Sequence[str]) -> None:
        self.named: list[Server] = [server_at(one) for one in named]
        self._announced: deque[Server] = deque(maxlen=MOST_ANNOUNCED)
        self.latest: Server | None = None

    def hear(self, server: Server, announced: Sequence[str], *, encrypted: bool) -> None:
        """Replace the announced servers by those that a server announces now."""
        known = {(one.host, one.port) for one in self.named}
        self._announced.clear()
        for one in servers_beside(server, announced[:MOST_ANNOUNCED], encrypted=encrypted):
            if (one.host, one.port) not in known:
                self._announced.append(one)

    def round(self, *, but: Server | None = None) -> list[Server]:
        """Return the servers to try now: all named ones, then a few of the announced ones, in rotation.

        Of the named ones, the server that was used last comes last.

        Args:
            but: A server to leave out.
        """
        named = sorted(self.named, key=lambda one: one == self.latest)
        announced = list(self._announced)[:ANNOUNCED_IN_A_ROUND]
        self._announced.rotate(-ANNOUNCED_IN_A_ROUND)
        return [
            one for one in (*named, *announced) if but is None or (one.host, one.port) != (but.host, but.port)
        ]


def patience(server: Server) -> float:
    """Return the timeout for a server."""
    return ANNOUNCED_SECONDS if server.announced else ATTEMPT_SECONDS


def pause(since: float) -> float:
    """Return the delay before the next round, given the seconds since the last attempt.

    The delay is random, so that clients that lost their server together don't reconnect together.
    """
    soonest = SPREAD_SECONDS * seams.uniform()
    return max(soonest, PAUSE_SECONDS * (0.5 + seams.uniform()) - since)


class Subscription:
    """A subscription to a subject."""

    def __init__(self, connection: Connection, subject: str, queue: str, sid: str) -> None:
        self._connection = connection
        self.subject = subject
        self.queue = queue
        self.sid = sid

    def cancel(self) -> None:
        """Unsubscribe at once. Messages on their way are dropped."""
        self._connection.unlisten(self)

    async def drain(self) -> None:
        """Unsubscribe, and return when every message sent before that has been taken."""
        await self._connection.drain(self)


class Connection:
    """A connection for subscribers that can't trust what others send.

    Args:
        name: The name of the connection in the server's lists.
        inbox: The prefix of the subjects of `new_inbox`.
        on_error: Called with every error.
        on_disconnected: Called when the connection is lost.
        on_reconnected: Called when the connection is back.
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
        self.reconnects: int = 0
        self.max_payload: int = USUAL_PAYLOAD
        self.bus: str = ""
        """The name of the last cluster that was connected, or else the id of the server; empty if unknown."""
        self.unsent: set[str] = set()
        """The subjects for replies of what was still to be sent when the connection was lost."""
        self.is_closed: bool = False

    @property
    def is_connected(self) -> bool:
        """True if messages can be sent."""
        return self._session is not None

    @property
    def server_version(self) -> str:
        """The version of the server that is connected; empty if there is none."""
        return "" if self._session is None else self._session.info.version

    @property
    def unreadable(self) -> int:
        """The number of messages that could not be read and were dropped."""
        return self._unreadable + sum(one.unreadable for one in self._sessions())

    async def reach(self, servers: str | Sequence[str], login: Login | None = None) -> None:
        """Connect, or fail soon. Once connected, the connection reconnects by itself after every loss.

        Args:
            servers: The servers to try. The first that answers is used.
            login: The login to use.

        Raises:
            LoginRefused: A server refuses this user's login.
            Untrusted: A server's certificate is not trusted.
            BusError: The other side is not a NATS server, or the login can't be used.
            OSError: No server can be reached. This includes `TimeoutError`.
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
        """Subscribe. Each message is delivered as soon as it is read, in the order of the connection.

        Args:
            subject: The subject, which may hold wildcards.
            take: Called with each message. It must queue the message rather than process it.
            queue: The queue group whose members share the messages.
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

    async def drain(self, *subscriptions: Subscription) -> None:
        """Unsubscribe in this order, at once; return when each message sent before that has been taken."""
        known = [one.sid for one in subscriptions if self._subscriptions.pop(one.sid, None)]
        if known:
            for session in self._sessions():
                for sid in known:
                    session.write(unsub(sid))
                await session.ping()
        for one in subscriptions:
            self._takers.pop(one.sid, None)

    def send(
        self, subject: str, payload: bytes, *, reply: str = "", head: bytes = b"", patient: bool = False
    ) -> bool:
        """Send a message without waiting. Return False if it can't be sent and is dropped.

        Args:
            subject: The subject. The caller must make sure that it is legal.
            payload: The payload, no larger than the server accepts.
            reply: The subject for the reply.
            head: The headers; see `protocol.block`.
            patient: Whether the message may wait briefly, to be sent together with others.
        """
        session = self._session
        if session is None:
            return False
        return session.offer(pub(subject, payload, reply=reply, head=head), patient=patient)

    def look_on(self) -> None:
        """Look for a server again if a program that cancelled all its tasks has ended the search."""
        if self._session is None and self._search is not None and not self.is_closed:
            self._seek()

    async def flush(self) -> None:
        """Return when the server has processed everything sent, and what it sent before that has been taken.

        Raises:
            Lost: The connection is gone.
        """
        for session in [*self._left]:  # one may be gone before its answer comes
            await session.ping()
        if self._session is None or not await self._session.ping():
            raise Lost("the connection is gone")

    def new_inbox(self) -> str:
        """Return a unique subject for replies."""
        return f"{self._inbox}.{seams.token(11)}"

    async def close(self) -> None:
        """Send what is pending and disconnect, soon even if the server is gone."""
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

    # Callbacks of the sessions.

    def complain(self, error: Exception) -> None:
        """See `SessionOwner.complain`."""
        self._on_error(error)

    def informed(self, session: Session) -> None:
        """See `SessionOwner.informed`."""
        if session is not self._session:
            return
        info = session.info
        self.max_payload = info.max_payload
        self.bus = info.cluster or info.server_id or self.bus
        self._servers.hear(session.server, info.connect_urls or (), encrypted=session.encrypted)
        if info.ldm:
            self._seek()

    def ended(self, session: Session) -> None:
        """See `SessionOwner.ended`."""
        if session is not self._session:
            return
        self._unreadable += session.unreadable
        self._session = None
        if not self.is_closed:
            self.unsent = {reply_of(command) for command in session.dropped}
            self._on_disconnected()
            self._seek()

    def _sessions(self) -> list[Session]:
        """Return the sessions that may still receive messages."""
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
        """Switch to this session. A session that still serves is left after a delay."""
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
        """Take the remaining messages of a server that is shutting down, then disconnect."""
        await asyncio.sleep(OVERLAP_SECONDS)
        for sid in self._subscriptions:
            session.write(unsub(sid))
        await session.ping()
        self._unreadable += session.unreadable
        del self._left[session]
        await session.close()

    def _seek(self) -> None:
        """Start looking for a server, unless a search is running."""
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._look(), name=f"{self._name}: looking for NATS")

    async def _look(self) -> None:
        """Try all servers until one answers, while there is none or the current one is shutting down."""
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
                except Exception as error:  # whatever it is, the next attempt may succeed
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


class Requester:
    """Sends requests over one connection and delivers the replies.

    A request is sent once. What to do about one that was not sent, or that got no reply, is its sender's
    decision, so the two raise different errors.

    Args:
        connection: The connection. It must not be closed before the last request has ended.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = connection.new_inbox()
        self._number = 0
        self._pending: dict[str, asyncio.Future[Message]] = {}
        connection.listen(f"{self._inbox}.*", self._take)

    async def ask(self, subject: str, payload: bytes = b"", *, seconds: float, head: bytes = b"") -> Message:
        """Send a request and wait for the reply.

        Args:
            subject: The subject, which must be legal.
            payload: The body, no larger than the server accepts.
            seconds: The timeout.
            head: The headers; see `protocol.block`.

        Raises:
            Lost: There is no connection: nothing was sent.
            NoResponders: The server says that no one listens to the subject.
            TimeoutError: No reply came in time. The request may have been received.
        """
        self._number += 1
        token = str(self._number)
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[token] = reply
        try:
            if not self._connection.send(subject, payload, reply=f"{self._inbox}.{token}", head=head):
                raise Lost("there is no connection, or it is congested")
            async with asyncio.timeout(seconds):
                message = await reply
        finally:
            del self._pending[token]
        if message.status == "503":
            raise NoResponders(f"no one listens to {subject}")
        return message

    def _take(self, message: Message) -> None:
        reply = self._pending.get(message.subject.rpartition(".")[2])
        if reply is not None and not reply.done():
            reply.set_result(message)


def _require_lasting(session: Session) -> None:
    """Refuse to move to a server that is itself shutting down.

    Raises:
        Lost: The server is shutting down.
    """
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
    """Rank an error by how much it tells, lowest first: a refused login tells more than a missing server."""
    for worth, kind in enumerate((LoginRefused, Untrusted, BusError)):
        if isinstance(error, kind):
            return worth
    return 3
