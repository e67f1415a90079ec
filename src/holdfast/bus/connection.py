"""A connection to NATS that comes back by itself, and that no message can derail.

Law: as long as it is open and was there once, it is looked for again. Nothing is kept for a later session:
what can't be sent now is refused. Nobody waits but for `reach`, `flush`, `drain` and `close`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import BusError, LoginRefused, Lost
from holdfast.bus.login import Login, server_at, servers_beside
from holdfast.bus.protocol import pub, sub, unsub
from holdfast.bus.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.bus.login import Server
    from holdfast.bus.session import Take

ATTEMPT_SECONDS: Final = 5.0
"""For how long one server is waited for."""
PAUSE_SECONDS: Final = 1.0
"""How far apart attempts at the same server are."""
USUAL_PAYLOAD: Final = 1024 * 1024

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
    """

    def __init__(
        self,
        *,
        name: str = "holdfast",
        inbox: str = "_INBOX",
        on_error: Callable[[Exception], None] = _note,
        on_disconnected: Callable[[], None] = _nothing,
        on_reconnected: Callable[[], None] = _nothing,
    ) -> None:
        self._name = name
        self._inbox = inbox
        self._on_error = on_error
        self._on_disconnected = on_disconnected
        self._on_reconnected = on_reconnected
        self._login = Login()
        self._given: list[Server] = []
        self._beside: list[Server] = []
        self._latest: Server | None = None
        self._session: Session | None = None
        self._takers: dict[str, Take] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._number = 0
        self._began = float("-inf")
        self._unreadable = 0
        self._search: asyncio.Task[None] | None = None
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
        return self._unreadable + (0 if self._session is None else self._session.unreadable)

    async def reach(self, servers: str | Sequence[str], login: Login | None = None) -> None:
        """Connect, or fail soon. Once connected, every later loss of the connection is mended by itself.

        Args:
            servers: Where to try; the first that answers is taken.
            login: How to be let in.

        Raises:
            LoginRefused: A server does not let this user in.
            BusError: What answers is no such server, or the login can't be used.
            OSError: No server can be reached; `TimeoutError` is one, too.
        """
        self._login = login or Login()
        self._given = [server_at(one) for one in ([servers] if isinstance(servers, str) else servers)]
        errors: list[Exception] = []
        for server in self._given:
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
        if self._subscriptions.pop(subscription.sid, None) and self._session is not None:
            self._session.write(unsub(subscription.sid))

    async def drain(self, subscription: Subscription) -> None:
        """See `Subscription.drain`."""
        if self._subscriptions.pop(subscription.sid, None) and self._session is not None:
            self._session.write(unsub(subscription.sid))
            await self._session.ping()
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
        if self._session is None or not await self._session.ping():
            raise Lost("the connection is gone")

    def new_inbox(self) -> str:
        """A subject for replies that nobody else uses."""
        return f"{self._inbox}.{secrets.token_hex(11)}"

    async def close(self) -> None:
        """Send what waits, and disconnect; soon, also when the server is gone."""
        self.is_closed = True
        if self._search is not None:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            self._unreadable += session.unreadable

    # What sessions tell their owner.

    def complain(self, error: Exception) -> None:
        """See `Owner.complain`."""
        self._on_error(error)

    def informed(self, session: Session) -> None:
        """See `Owner.informed`."""
        self.max_payload = session.info.get("max_payload", USUAL_PAYLOAD)
        self._beside = servers_beside(
            session.server, session.info.get("connect_urls"), encrypted=session.encrypted
        )

    def ended(self, session: Session) -> None:
        """See `Owner.ended`."""
        if session is not self._session:
            return
        self._unreadable += session.unreadable
        self._session = None
        if not self.is_closed:
            self._on_disconnected()
            self._search = asyncio.create_task(self._look(), name=f"{self._name}: looking for NATS")

    async def _attempt(self, server: Server) -> Session:
        self._began = asyncio.get_running_loop().time()
        session = Session(server, self._takers, self)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                await asyncio.get_running_loop().create_connection(lambda: session, server.host, server.port)
                await session.begin(self._login, self._name)
        except BaseException:
            session.abort()
            raise
        return session

    def _use(self, session: Session) -> None:
        if session.over:
            raise Lost("the connection was gone at once")
        self._latest = session.server
        self._session = session
        for one in self._subscriptions.values():
            session.write(sub(one.subject, one.queue, one.sid))

    async def _look(self) -> None:
        """Try all servers until one answers."""
        while True:
            pause = self._began + PAUSE_SECONDS - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, pause))
            for server in self._order():
                try:
                    self._use(await self._attempt(server))
                except Exception as error:  # whatever it is, the next attempt may do better
                    self._on_error(error)
                else:
                    self.reconnects += 1
                    self._on_reconnected()
                    return

    def _order(self) -> list[Server]:
        """All servers that are known, that which was there last behind the others."""
        known = {(one.host, one.port): one for one in (*self._beside, *self._given)}
        return sorted(known.values(), key=lambda one: one == self._latest)


def _worth(error: Exception) -> int:
    """How much an error tells: that a server does not let one in is more than that another is not there."""
    return 0 if isinstance(error, LoginRefused) else 1 if isinstance(error, BusError) else 2
