"""The NATS door: subscribes to subjects, turns messages into requests, and sends replies and events.

One subscription serves a prefix and family, so that the requests of a connection are accepted in the order in
which they were sent. The door decides who is asking and where the reply may go. `RequestService` does the
rest.

Nothing here waits for the connection to send. A message that the connection cannot accept is dropped and
counted: the caller times out, and a watcher reads the changes itself.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from holdfast import families, seams
from holdfast.bounded import Bounded
from holdfast.bus.errors import Lost
from holdfast.bus.protocol import Message, block
from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.intake.requests import Endpoint, Request
from holdfast.edges.intake.service import KNOWN_NAMES, RequestService, RequestSettings
from holdfast.edges.nats.discovery import ServiceDiscovery
from holdfast.errors import HoldfastError, InvalidSubject, ValueTooLarge
from holdfast.pipeline.change_feed import ChangeFeed
from holdfast.rows import Record
from holdfast.store import Store
from holdfast.tracing import of_head
from holdfast.wire import subjects
from holdfast.wire.blobs import FIELDS, HEADER, fields_text
from holdfast.wire.dialects import PAYLOAD, PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import NUMBERS
from holdfast.wire.replies import record_fields
from holdfast.wire.tables import change_fields as item_change_fields

if TYPE_CHECKING:
    from holdfast.bus.connection import Connection, Subscription

GRACE: Final = 5.0
"""Seconds for which a stopping service continues to read requests that were already sent."""
USER_HEADER: Final = "Nats-Request-Info"
LONGEST_USER: Final = 100

HEADROOM: Final = 4096
"""Bytes reserved for the headers and the protocol overhead of a reply."""
MODES: Final = ("open", "permissions", "accounts")
"""The ways in which a NATS server tells callers apart."""
KNOWN_INBOXES: Final = 4_096
"""Number of inbox names whose check is cached."""
_TOKENS: Final = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_RESERVED: Final = (f"{subjects.SERVICE_INBOX}.", f"_INBOX.{subjects.OPERATOR}.")
"""Inboxes that belong to no plugin, trusted or not."""

_log = logging.getLogger("holdfast.service")


class Settings(RequestSettings, frozen=True, kw_only=True):
    """The settings of a service. With `plugin` it serves that plugin alone and publishes no events."""

    plugin: str | None = None
    prefixes: tuple[str, ...] = ("db", "rosey.db")
    reply_mode: str = "open"
    payload_dialect: bool = True
    request_users: bool = False
    events: bool = True


class Listener(msgspec.Struct, frozen=True, eq=False):
    """What listens: the connection, the prefix of its subjects, and the endpoint of each family."""

    client: Connection
    prefix: str
    endpoints: dict[str, Endpoint]


class NatsRequest(Request, gc=False, kw_only=True):
    """A request over NATS. `client` is the connection that it came over and is answered over.

    A server may permit the reply on that connection alone.
    """

    reply: str
    client: Connection


class ServiceSubjects:
    """The subjects that a service subscribes to, and the endpoints that count its requests.

    Args:
        prefixes: Prefixes of the subjects.
        plugin: The only plugin to serve; None for all. The server sends the requests of a plugin with its own
            connection behind a token of their own, so that no other connection receives them.
        payload_dialect: Whether callers may name the plugin in the payload.
        anybody: Whether the server lets every client publish to every subject.
    """

    def __init__(
        self, prefixes: Sequence[str], *, plugin: str | None, payload_dialect: bool, anybody: bool
    ) -> None:
        self.prefixes = [*prefixes] if plugin is None else [f"{prefix}.{subjects.OWN}" for prefix in prefixes]
        self._families = dict(subjects.FAMILIES)
        self._heard: Sequence[str] = subjects.HEARD if anybody else subjects.GRANTED
        if plugin is not None:
            self._families = {family: f"{family}.{plugin}.>" for family in families.OF_PLUGINS}
            self._heard = [*self._families.values()]
        elif not payload_dialect:
            del self._families["payload"]
        self.endpoints = {prefix: dict(self._endpoints(prefix)) for prefix in self.prefixes}

    def patterns(self, prefix: str) -> list[str]:
        """Return the patterns to subscribe to under a prefix."""
        return [f"{prefix}.{pattern}" for pattern in self._heard]

    def common(self, client: Connection) -> Iterator[tuple[str, Listener]]:
        """Yield the subscriptions of the common connection, which also match malformed subjects."""
        for prefix in self.prefixes:
            listener = Listener(client, prefix, self.endpoints[prefix])
            yield from ((pattern, listener) for pattern in self.patterns(prefix))

    def links(self, client: Connection, numbers: Iterable[int]) -> Iterator[tuple[str, Listener]]:
        """Yield the subscriptions of a connection that serves some of the links.

        Requests on a link are counted at the same endpoints as on the common connection. The server sends no
        requests of operators and of the payload dialect there.
        """
        for prefix in self.prefixes:
            endpoints = {
                family: endpoint
                for family, endpoint in self.endpoints[prefix].items()
                if family in (*families.OF_PLUGINS, families.SEMANTIC)
            }
            for number in numbers:
                listener = Listener(client, f"{prefix}.{subjects.LINK}.{number}", endpoints)
                yield f"{listener.prefix}.>", listener

    def _endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        for name, pattern in self._families.items():
            subject = f"{prefix}.{pattern}"
            yield name, Endpoint(name=name, subject=subject, queue_group=subjects.QUEUE)


class NatsService:
    """Serves a store over a connection.

    Args:
        store: An open store.
        client: A connected client; its owner closes it.
        settings: The settings.
        request_log: Logs and counts every operation, if `requests` is not given.
        requests: Starts and finishes the requests of all doors of this process, and is stopped by the service
            that serves all plugins. If not given, this service has one of its own.
    """

    def __init__(
        self,
        store: Store,
        client: Connection,
        settings: Settings,
        request_log: RequestLog | None = None,
        *,
        requests: RequestService | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._settings = settings
        self.requests = requests or RequestService(store, settings, request_log, mode=settings.reply_mode)
        self._now = self.requests.now
        self._guard = reply_guard(settings.reply_mode, settings.prefixes)
        self._replies = Replies(self.requests, client, prefix=settings.prefixes[0])
        self._answer = self._replies.answer
        self._over = self._replies.over
        self._subjects = ServiceSubjects(
            settings.prefixes,
            plugin=settings.plugin,
            payload_dialect=settings.payload_dialect,
            anybody=settings.reply_mode == "open",
        )
        self._discovery = ServiceDiscovery(
            [one for endpoints in self._subjects.endpoints.values() for one in endpoints.values()],
            self.requests.id if settings.plugin is None else seams.token(8),
        )
        self._subscriptions: defaultdict[Connection, list[Subscription]] = defaultdict(list)
        self._clients = [client]
        self._feed: ChangeFeed | None = None

    async def start(self) -> None:
        """Start answering requests; if the connection is lost meanwhile, as soon as it is back."""
        _log.info("the service is starting")
        self._listen(self._subjects.common(self._client))
        for subject in self._discovery.subjects():
            self._subscriptions[self._client].append(self._client.listen(subject, self._introduce))
        if self._settings.events and self._settings.plugin is None:
            self._feed = ChangeFeed(
                self._store.pipeline, self._replies.publish_changes, lambda: self._client.bus
            )
            self._feed.start()
        try:
            await self._client.flush()
        except Lost:
            _log.warning("NATS dropped the connection while the service was starting; reconnecting")
        _log.info("subjects registered: %s", ", ".join(one.subject for one in self._discovery.endpoints))

    def serve_links(self, client: Connection, numbers: Iterable[int]) -> None:
        """Serve the links with these numbers over an additional connection."""
        if client not in self._clients:
            self._clients.append(client)
        self._listen(self._subjects.links(client, numbers))

    def _listen(self, patterns: Iterable[tuple[str, Listener]]) -> None:
        for pattern, listener in patterns:
            subscription = listener.client.listen(
                pattern, partial(self._take, listener), queue=subjects.QUEUE
            )
            self._subscriptions[listener.client].append(subscription)

    async def stop(self) -> None:
        """Accept no more requests, answer those already accepted, and stop.

        In a flood, what can't be read within the grace period is not read, and requests that still wait after
        some more seconds are refused, so that a service which is being flooded ends in time.
        """
        flooded = await _drain(self._subscriptions)
        self._subscriptions.clear()
        if self._settings.plugin is None:
            await self.requests.stop()
        await _flush(self._clients)  # the event of a last write may come after its answer
        if self._feed is not None:
            await self._feed.stop()
        await _flush(client for client in self._clients if client not in flooded)
        _log.info("the service has stopped")

    @property
    def unsent(self) -> int:
        """The number of replies and events that could not be sent."""
        return self._replies.unsent

    @property
    def events(self) -> int:
        """The number of published changes."""
        return self._replies.events

    def _take(self, listener: Listener, message: Message) -> None:
        """Queue a message. This does no other work, so that reading from the connection continues."""
        try:
            route = subjects.route(message.subject, listener.prefix)
        except HoldfastError as error:
            self._refuse_unrouted(
                listener, message, subjects.dialect_of(message.subject, listener.prefix), error=error
            )
            return
        reply, client = message.reply, listener.client
        if reply and not self._guard(reply, route.owner):
            self.requests.request_log.dropped("reply_subject", message.subject)
            return
        endpoint = listener.endpoints.get(route.family)
        if endpoint is None:
            refusal = InvalidSubject(f"requests of the kind {route.family!r} are not accepted here")
            self._refuse_unrouted(listener, message, route.dialect, error=refusal)
            return
        if client is not self._client and self._over.get(route.namespace) is not client:
            self._over.keep(route.namespace, client)
        if route.dialect is PAYLOAD:
            route = subjects.presumed(route, message.data)
        verb = FAMILIES[route.family].get(route.verb)
        self.requests.accept(
            NatsRequest(
                queue=route.owner,
                route=route,
                payload=message.data,
                received=self._now(),
                began=seams.monotonic(),
                endpoint=endpoint,
                verb=verb,
                writes=verb is not None and verb.in_order,
                user=user_of(message) if self._settings.request_users else "",
                back=self._answer if reply else None,
                head=message.head if route.family == "blob" and HEADER in message.head else b"",
                trace=of_head(message.head) if message.head else UNSET,
                reply=reply,
                client=client,
            )
        )

    def _refuse_unrouted(
        self, listener: Listener, message: Message, dialect: Dialect, *, error: HoldfastError
    ) -> None:
        self.requests.refused(message.subject, error)
        if message.reply and self._guard(message.reply, ""):
            self._replies.refuse(listener.client, message.reply, dialect, error=error)

    def _introduce(self, message: Message) -> None:
        if message.reply and self._guard(message.reply, subjects.OPERATOR):
            self._replies.send(message.reply, self._discovery.answer(message.subject))


class Replies:
    """Encodes replies and events and sends them.

    Args:
        requests: Starts and finishes the requests.
        client: The common connection. A reply goes over the connection that its request came from.
        prefix: The prefix of event subjects.
    """

    def __init__(self, requests: RequestService, client: Connection, *, prefix: str) -> None:
        self._requests = requests
        self._now = requests.now
        self._client = client
        self._prefix = prefix
        self._head_time = -1
        self._head = b""
        self.over: Bounded[str, Connection] = Bounded(KNOWN_NAMES)
        """The connections for events of namespaces that do not use the common connection. A plugin that does
        not read its events then delays only its own requests."""
        self.events = 0
        self.unsent = 0

    def refuse(self, client: Connection, reply: str, dialect: Dialect, *, error: HoldfastError) -> None:
        """Answer a message that is not a valid request."""
        self._send(client, reply, dialect.refusal(error), error, dialect)

    def send(self, subject: str, payload: bytes) -> None:
        """Send a message over the common connection; count it as unsent if that fails."""
        if not self._client.send(subject, payload):
            self.unsent += 1

    def publish_changes(self, journal: list[Record]) -> None:
        """Publish the events of these journal records."""
        self.events += len(journal)
        common, prefix, over = self._client, self._prefix, self.over
        send = common.send
        for record in journal:
            if over:
                send = over.get(record.namespace, common).send
            if not send(subjects.event_subject(prefix, record.namespace, record.op), _event(record)):
                self.unsent += 1

    def answer(
        self, request: NatsRequest, fields: dict[str, Any], error: HoldfastError | None
    ) -> HoldfastError | None:
        """Reply with fields or an error. Returns the error that the caller receives.

        This is the `back` of a request, so the request log sees the same result as the caller, even when the
        reply turns out to be too large.
        """
        if "data" in fields and request.route.family == "blob":
            return self._reply_bytes(request, fields)
        client, dialect = request.client, request.route.dialect
        most = client.max_payload - HEADROOM
        payload = dialect.reply(fields) if error is None else dialect.refusal(error)
        if len(payload) > most:
            if request.writes and "results" in fields:
                # The writes have been committed. The caller must learn that, even if the details do not fit.
                payload = dialect.reply({"results": [_bare(result) for result in fields["results"]]})
            if len(payload) > most:
                error = error or ValueTooLarge(
                    f"the reply has {len(payload)} bytes, more than the NATS server accepts"
                )
                payload = dialect.refusal(error, bare=True)
        if error is not None or request.warning:
            self._send(client, request.reply, payload, error, dialect, warning=request.warning)
            return error
        now = self._now()
        if now != self._head_time:  # replies within one millisecond share a header
            self._head_time, self._head = now, b"NATS/1.0\r\nHoldfast-Time: %d\r\n\r\n" % now
        if not client.send(request.reply, payload, head=self._head, patient=self._requests.patient):
            self.unsent += 1
        return None

    def _reply_bytes(self, request: NatsRequest, fields: dict[str, Any]) -> HoldfastError | None:
        """Reply with the bytes of a blob as the payload, and the other fields in a header.

        A server ends the connection that sends it more than it accepts, so the caller is refused instead.
        """
        data = fields["data"]
        head = block(
            _time(self._now())
            | _warning(request.warning)
            | {FIELDS: fields_text({"success": True, **fields})}
        )
        client, dialect = request.client, request.route.dialect
        if len(head) + len(data) > client.max_payload:
            error = ValueTooLarge(
                f"this part of the blob has {len(data)} bytes, more than the NATS server accepts: raise its "
                "max_payload, or read the blob over HTTP"
            )
            payload = dialect.refusal(error, bare=True)
            self._send(client, request.reply, payload, error, dialect, warning=request.warning)
            return error
        if not client.send(request.reply, data, head=head):
            self.unsent += 1
        return None

    def _send(
        self,
        client: Connection,
        reply: str,
        payload: bytes,
        error: HoldfastError | None,
        dialect: Dialect,
        *,
        warning: str = "",
    ) -> None:
        head = block(_time(self._now()) | _warning(warning) | _complaint(error, dialect))
        if not client.send(reply, payload, head=head, patient=self._requests.patient):
            self.unsent += 1


def _time(now: int) -> dict[str, str]:
    return {"Holdfast-Time": str(now)}


def _warning(warning: str) -> dict[str, str]:
    return {"Holdfast-Warning": warning} if warning else {}


def _complaint(error: HoldfastError | None, dialect: Dialect) -> dict[str, str]:
    if error is None:
        return {}
    return {
        "Nats-Service-Error-Code": str(NUMBERS[error.code]),
        "Nats-Service-Error": _one_line(dialect.message(error)),
        "Holdfast-Error-Code": error.code,
    }


def _bare(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one of several writes, without its items or entries."""
    return {name: field for name, field in result.items() if name not in ("current", "item")}


def _event(record: Record) -> bytes:
    """Encode a change as an event in the dialect of its family, without values."""
    if families.has_tables(record.namespace):
        return PLUGIN.event(item_change_fields(record, "keys"))
    dialect = SEMANTIC if families.is_semantic(record.namespace) else PLUGIN
    return dialect.event(record_fields(record))


def _one_line(message: str) -> str:
    """Return a message as valid text for a header."""
    return message.encode("ascii", "backslashreplace").decode().replace("\r", " ").replace("\n", " ")


def reply_guard(mode: str, prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a check of whether a reply subject belongs to an owner. The NATS server does not check it.

    A reply goes only to a subject on which its caller could have listened. Otherwise a caller could make the
    service publish its answer to another plugin's subject, as if that plugin had asked. The owner is a plugin
    or `tenant/project`; it is empty if unknown.

    Args:
        mode: `accounts`: the server has replaced the caller's reply subject with its own; `permissions`: the
            reply must go to the owner's inbox; `open`: anywhere except our own subjects and the system's.
        prefixes: Prefixes of our own subjects.
    """
    if mode == "accounts":
        mapped = re.compile(rf"_R_\.{_TOKENS}")
        return lambda reply, owner: mapped.fullmatch(reply) is not None
    if mode == "permissions":
        inbox = re.compile(_TOKENS)
        return lambda reply, owner: _in_inbox(reply, _inbox_of(owner), inbox)
    return _anywhere_else(prefixes)


def _anywhere_else(prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a check that accepts any valid subject that is neither ours nor the system's.

    A caller's replies share one inbox, so the check of the inbox's name is cached.
    """
    never = ("$", *(f"{prefix}." for prefix in prefixes))
    subject = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")

    @lru_cache(maxsize=KNOWN_INBOXES)
    def inbox(name: str) -> bool:
        return subject.fullmatch(name) is not None and not f"{name}.".startswith(never)

    def allowed(reply: str, owner: str) -> bool:
        name, _, last = reply.rpartition(".")
        if last.isalnum() and inbox(name):
            return reply not in prefixes
        return subject.fullmatch(reply) is not None and not reply.startswith(never) and reply not in prefixes

    return allowed


def _inbox_of(owner: str) -> str:
    """Return the prefix of an owner's inbox.

    Trusted callers name a plugin in the payload and have inboxes of their own: any inbox but ours is allowed.
    """
    return f"_INBOX.{owner.replace('/', '.')}." if owner else "_INBOX."


def _in_inbox(reply: str, inbox: str, rest: re.Pattern[str]) -> bool:
    if inbox == "_INBOX." and reply.startswith(_RESERVED):
        return False
    return reply.startswith(inbox) and rest.fullmatch(reply[len(inbox) :]) is not None


class _RequestInfo(msgspec.Struct):
    user: str = ""


_REQUEST_INFO: Final = msgspec.json.Decoder(_RequestInfo)


def user_of(message: Message) -> str:
    """Return the NATS user behind a request as a suffix for a principal, such as `:alice`; empty if unknown.

    A server that imports a service with `share: true` writes the user into a header and overwrites any header
    that the caller sent. Without `share` the caller controls the header. So the service reads it only where
    the settings allow it. The name is truncated, and unprintable characters are removed.
    """
    header = message.header(USER_HEADER) if message.head else None
    try:
        user = _REQUEST_INFO.decode(header).user if header else ""
    except (msgspec.DecodeError, RecursionError):
        return ""
    printable = "".join(one for one in user[:LONGEST_USER] if one.isprintable())
    return f":{printable}" if printable else ""


async def _drain(subscriptions: Mapping[Connection, list[Subscription]]) -> set[Connection]:
    """Unsubscribe and read the requests already sent; in a flood, as many as the grace period allows.

    What was subscribed to last goes first: the subject at which callers ask whether a service runs. A caller
    that is told so takes a request without an answer for one that the server does not let it send.

    Returns:
        The connections on which more requests have been sent than could be read.
    """
    drains = {
        asyncio.create_task(client.drain(*reversed(some))): client for client, some in subscriptions.items()
    }
    _, late = await asyncio.wait(drains, timeout=GRACE) if drains else ((), ())
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    if late:
        _log.warning(
            "stopping before reading every request of %d connections that are flooding the service",
            len(late),
        )
    for subscription in (one for some in subscriptions.values() for one in some):
        subscription.cancel()
    return {drains[task] for task in late}


async def _flush(clients: Iterable[Connection]) -> None:
    """Wait until all replies are sent, except on connections that are lost or time out."""
    for failure in await asyncio.gather(*map(_flushed, clients), return_exceptions=True):
        if isinstance(failure, BaseException) and not isinstance(failure, (Lost, TimeoutError)):
            raise failure


async def _flushed(client: Connection) -> None:
    async with asyncio.timeout(GRACE):
        await client.flush()
