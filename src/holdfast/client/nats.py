"""A client over NATS, and the one connection over which its requests and their replies travel.

A request that was not sent raises `Unavailable`. A request that the server refused raises
`PermissionDenied`, even if the server only reports no responders although a service answers other users. A
request whose reply does not arrive in time raises the error that its caller chose. When the connection is
lost, a sent write raises `OutcomeUnknown` at once and is never resent, and one that was still to be sent
raises `Unavailable`; a read is resent after reconnecting, within its own timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from msgspec import UNSET, UnsetType

from holdfast import seams
from holdfast.bus.address import NatsAddress, nats_address
from holdfast.bus.connection import Connection, Subscription
from holdfast.bus.errors import BusError, LoginRefused, Untrusted, violation
from holdfast.bus.protocol import Message, block
from holdfast.client.client import Client
from holdfast.client.transport import Late, ServiceTime
from holdfast.errors import OutcomeUnknown, PermissionDenied, Unavailable, ValueTooLarge
from holdfast.families import is_semantic
from holdfast.tracing import Trace
from holdfast.wire.blobs import FIELDS
from holdfast.wire.dialects import ADMIN, PLUGIN, SEMANTIC, Dialect
from holdfast.wire.subjects import asked_at, event_pattern, ready_subject

AGAIN_SECONDS: Final = 0.1
"""The interval between retries of a read while the service is reconnecting."""

_WARNING: Final = b"\r\nHoldfast-Warning:"

_DENIED: Final = (
    "the NATS server does not let this user send to {}: a Holdfast service is running, but this user may not "
    "call it there; log in as a user with permission for this subject"
)

_log = logging.getLogger("holdfast.remote")


class _Unheard(Exception):
    """A request had no responders: no service is running, or the server drops this user's requests."""


class _Pending:
    """A pending request. `again` is the payload to resend after reconnecting; a write has none.

    `refusals` counts the messages to its subject that the server has refused since it was sent.
    """

    __slots__ = ("again", "head", "late", "refusals", "repeated", "reply", "sent", "subject")

    def __init__(
        self, subject: str, late: Late, reply: asyncio.Future[Message], again: bytes | None, head: bytes
    ) -> None:
        self.subject = subject
        self.head = head
        self.late = late
        self.reply = reply
        self.again = again
        self.repeated = False
        self.refusals = 0
        self.sent = seams.ticks()


class NatsTransport(ServiceTime):
    """Sends requests and delivers their replies.

    Args:
        address: The servers and the login.
    """

    def __init__(self, address: NatsAddress) -> None:
        super().__init__()
        self._address = address
        self._client = Connection(
            name="holdfast client",
            inbox=address.inbox,
            on_error=self._on_error,
            on_disconnected=self._on_disconnected,
            on_reconnected=self._on_reconnected,
        )
        self._inbox = self._client.new_inbox()
        self._client.listen(f"{self._inbox}.*", self._on_reply)
        self._number = 0
        self._pending: dict[str, _Pending] = {}
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._denied: str | None = None
        self._refused: Untrusted | LoginRefused | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: No server can be reached, or none is trusted.
            PermissionDenied: The server refuses this user's login.
        """
        address = self._address
        try:
            await self._client.reach(address.servers, address.login())
            await self._client.flush()
        except LoginRefused:
            raise PermissionDenied(f"the NATS server at {address.shown} does not admit this user") from None
        except (OSError, BusError) as error:
            await self._client.close()
            raise Unavailable(_unreached(address.shown, error)) from error

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        seconds: float,
        late: Late,
        repeat: bool = False,
        fields: str | None = None,
        trace: Trace | UnsetType = UNSET,
    ) -> Message:
        """Send a request and wait for the reply.

        A request that was not delivered is sent once more if a service answers elsewhere, since one may have
        started meanwhile. The second time it goes between two questions whether a service is there. If both
        are answered, a service was there for the request as well, and the server keeps this user from it.

        Args:
            subject: The subject of the request.
            payload: The body of the request.
            seconds: The timeout.
            late: Makes the error to raise if the reply does not arrive in time.
            repeat: Whether the request may be resent after a lost connection. Never set it for a write.
            fields: The fields of the request, if its body is bytes.
            trace: The trace that the request belongs to.

        Raises:
            PermissionDenied: The server does not let this user send to the subject.
            Unavailable: There is no connection, or no service.
            ValueTooLarge: The payload is larger than the server accepts.
            OutcomeUnknown: The connection was lost before the reply to a write arrived.
        """
        attempt = partial(
            self._attempt, subject, payload, seconds, late=late, repeat=repeat, fields=fields, trace=trace
        )
        look = partial(self._require_service, subject, seconds)
        self._under_way += 1
        try:
            return await self._heard(subject, attempt, look)
        finally:
            self._under_way -= 1
            self._quiet.set()

    async def _heard(
        self,
        subject: str,
        attempt: Callable[[], Coroutine[Any, Any, Message]],
        look: Callable[[], Coroutine[Any, Any, None]],
    ) -> Message:
        """Attempt a request, and once more if nobody heard it although a service is there; see `ask`."""
        try:
            return await attempt()
        except _Unheard:
            await look()
        # They are sent in this order, one right after the other.
        before = asyncio.create_task(look())
        request = asyncio.create_task(attempt())
        after = asyncio.create_task(look())
        try:
            return await request
        except _Unheard:
            await before
            await after
        finally:
            for task in (before, request, after):
                task.cancel()
            await asyncio.gather(before, request, after, return_exceptions=True)
        raise PermissionDenied(_DENIED.format(subject))

    async def _attempt(
        self,
        subject: str,
        payload: bytes,
        seconds: float,
        *,
        late: Late,
        repeat: bool = False,
        fields: str | None = None,
        trace: Trace | UnsetType = UNSET,
    ) -> Message:
        """Send a request once and wait for the reply; see `ask`.

        Raises:
            _Unheard: It was not delivered to anyone.
        """
        if self._denied is not None:
            raise PermissionDenied(self._denied)
        if not self._client.is_connected:
            self._client.look_on()
            reason = "" if self._refused is None else f": {self._refused}"
            raise Unavailable(f"there is no connection to the NATS server at {self._address.shown}{reason}")
        head = b""
        if fields is not None or not isinstance(trace, UnsetType):
            headers = {} if isinstance(trace, UnsetType) else trace.headers
            head = block(headers if fields is None else {FIELDS: fields, **headers})
        if len(head) + len(payload) > self._client.max_payload:
            size = len(head) + len(payload)
            raise ValueTooLarge(f"the request has {size} bytes, more than the NATS server accepts")
        loop = asyncio.get_running_loop()
        self._number += 1
        token = str(self._number)
        again = payload if repeat else None
        pending = self._pending[token] = _Pending(subject, late, loop.create_future(), again, head)
        alarm = loop.call_later(seconds, self._give_up, pending)
        try:
            if not self._client.send(subject, payload, reply=f"{self._inbox}.{token}", head=head):
                raise Unavailable(f"the request could not be sent to {self._address.shown}")
            return await pending.reply
        finally:
            alarm.cancel()
            del self._pending[token]

    async def _require_service(self, subject: str, seconds: float) -> None:
        """Make sure that a service answers at a subject that this user may certainly use.

        Raises:
            Unavailable: No service answers. Otherwise the server denies this user the other subject.
        """
        nobody = partial(Unavailable, f"no Holdfast service answers at {subject}")
        _, sure = ready_subject(self._address.prefix, self._address.inbox)
        if subject == sure:
            raise nobody()
        try:
            await self._attempt(sure, b"", seconds, late=nobody)
        except (_Unheard, OutcomeUnknown, PermissionDenied, Unavailable):
            raise nobody() from None

    def listen(self, subject: str, heard: Callable[[Message], None]) -> Subscription:
        """Subscribe to a subject."""
        return self._client.listen(subject, heard)

    async def close(self) -> None:
        """Wait until every pending request has ended, then disconnect."""
        while self._under_way:
            self._quiet.clear()
            await self._quiet.wait()
        await self._client.close()

    def _give_up(self, pending: _Pending) -> None:
        if not pending.reply.done():
            pending.reply.set_exception(pending.late())

    def _on_reply(self, message: Message) -> None:
        token = message.subject.rpartition(".")[2]
        pending = self._pending.get(token)
        if pending is None or pending.reply.done():
            return
        if message.status == "503":
            if pending.repeated:  # the service is reconnecting too
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._repeat, token, pending)
                return
            pending.reply.set_exception(_Unheard())
            return
        if _WARNING in message.head:
            self._warn(pending.subject, message.header("Holdfast-Warning"))
        self._learn_time(message.header("Holdfast-Time"), pending.sent)
        pending.reply.set_result(message)

    def _on_disconnected(self) -> None:
        for token, pending in self._pending.items():
            if pending.again is None and not pending.reply.done():
                lost = "the connection to NATS was lost before"
                pending.reply.set_exception(
                    Unavailable(f"{lost} a request to {pending.subject} was sent: nothing was done")
                    if f"{self._inbox}.{token}" in self._client.unsent
                    else OutcomeUnknown(
                        f"{lost} a reply from {pending.subject} came: it may or may not have been done"
                    )
                )

    def _on_reconnected(self) -> None:
        self._refused = self._denied = None  # the server tells again what it does not allow
        for token, pending in self._pending.items():
            self._repeat(token, pending)

    def _repeat(self, token: str, pending: _Pending) -> None:
        """Resend a read, unless it has ended."""
        if pending.again is not None and not pending.reply.done():
            pending.repeated = True
            pending.sent = seams.ticks()
            reply = f"{self._inbox}.{token}"
            self._client.send(pending.subject, pending.again, reply=reply, head=pending.head)

    def _on_error(self, error: Exception) -> None:
        if isinstance(error, (Untrusted, LoginRefused)):
            self._refused = error
        forbidden = violation(error)
        if forbidden is None:
            level = logging.WARNING if self._client.is_connected else logging.DEBUG
            _log.log(level, "the NATS connection reports: %s", error)
            return
        kind, subject = forbidden.kind, asked_at(forbidden.subject, self._address.prefix).lower()
        if kind == "subscription" and subject.startswith(self._inbox.lower()):
            self._denied = (
                f"the NATS server does not let this user listen at {self._inbox}: "
                "name its inbox in the URL, as ?inbox=_INBOX.<plugin>"
            )
            self._lose_replies(self._denied)
        elif kind == "publish":
            self._deny(subject)

    def _lose_replies(self, denied: str) -> None:
        """End every pending request: no reply can come. A write may have been done all the same."""
        for pending in self._pending.values():
            if not pending.reply.done():
                pending.reply.set_exception(
                    OutcomeUnknown(f"{denied}; {pending.subject} may or may not have been done")
                    if pending.again is None
                    else PermissionDenied(denied)
                )

    def _deny(self, subject: str) -> None:
        """End the requests to a subject once the server has refused as many messages as there are requests.

        It does not say which one it refuses. One that was sent before the user lost the permission may have
        been done.
        """
        same = [
            pending
            for pending in self._pending.values()
            if pending.subject.lower() == subject and not pending.reply.done()
        ]
        for pending in same:
            pending.refusals += 1
        if all(pending.refusals >= len(same) for pending in same):
            for pending in same:
                message = f"the NATS server does not let this user send to {pending.subject}"
                pending.reply.set_exception(PermissionDenied(message))


class NatsClient(Client):
    """A client of a service over NATS.

    Args:
        url: The address of the service and the login.

    Raises:
        ValidationError: The URL is not one of a service over NATS.
    """

    def __init__(self, url: str) -> None:
        address = nats_address(url)
        super().__init__(NatsTransport(address), address.timeout)
        self._address = address

    def _place(self, namespace: str, verb: str) -> tuple[Dialect, str]:
        dialect = SEMANTIC if is_semantic(namespace) else PLUGIN
        return dialect, f"{self._address.prefix}.{namespace.replace('/', '.')}.{verb}"

    def _operators_place(self, verb: str) -> tuple[Dialect, str]:
        return ADMIN, f"{self._address.prefix}.admin.{verb}"

    async def ready(self) -> None:
        """Ask the service whether its store is ready.

        The inbox tells which plugin this client belongs to, and so which subject it may use. The server may
        deny it all other subjects.
        """
        dialect, subject = ready_subject(self._address.prefix, self._address.inbox)
        late = partial(Unavailable, f"no Holdfast service answers at {subject}")
        await self._exchange((dialect, subject), {}, late, repeat=True)

    def _hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call a function whenever the service publishes a change. Returns the function that ends this."""
        pattern = event_pattern(self._address.prefix, namespace)
        return self.transport.listen(pattern, lambda message: ring()).cancel


def _unreached(where: str, error: Exception) -> str:
    if isinstance(error, BusError):
        advice = (
            "; name the authority that signed it in the URL, as ?tls_ca=<file>"
            if isinstance(error, Untrusted)
            else ""
        )
        return f"the NATS server at {where} can't be used: {error}{advice}"
    return f"no NATS server can be reached at {where}"
