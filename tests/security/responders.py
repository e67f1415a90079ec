"""Who answers on the bus while isolation is tried: Holdfast's own service, and a stand-in.

A responder tells which families it serves and counts what it has executed, by namespace; commands for
operators count as `admin`. The stand-in is the least that a service must do: its guard can be taken off, to
show that the attempts would be seen.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import holdfast
from holdfast import rules
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.nats.links import Links
from holdfast.edges.nats.server_config import SERVICE
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.errors import InvalidPluginName
from holdfast.wire.subjects import MOST_LINKS, OPERATOR, QUEUE
from tests.nats import connection, library_client
from tests.security.bus import FORGED, HONEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from typing import TypeAlias

    from nats.aio.msg import Msg

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.edges.intake.request_log import Operation
    from holdfast.edges.nats.server_config import Credentials, Permissions

    Heard: TypeAlias = Message | Msg
    Answering: TypeAlias = Callable[[Heard], Iterator[tuple[str, bytes]]]

READS: Final = frozenset(
    {"get", "list", "get_ttl", "get_many", "changes", "history", "stats", "get_item", "head"}
)
_PATTERNS: Final = ("kv.*.>", "kv.*", "table.*.>", "blob.*.>", "semantic.*.*.>", "admin.*", "link.*.>")


class Responder(Protocol):
    """What the attempts need to know of a service."""

    families: frozenset[str]
    executed: Counter[str]


class StandIn:
    """Executes nothing, counts everything, and answers that it was done."""

    families = frozenset({"kv", "table", "blob", "semantic", "admin"})

    def __init__(self, permissions: Permissions, *, guarded: bool) -> None:
        self.executed: Counter[str] = Counter()
        self._permissions = permissions
        self._guarded = guarded

    def ears(self) -> Iterator[tuple[str, str, Answering]]:
        """Where to listen, in which queue group, and what is to be sent when something is heard there."""
        for prefix in self._permissions.prefixes:
            for pattern in _PATTERNS:
                yield f"{prefix}.{pattern}", QUEUE, partial(self._take, prefix)
        yield "$SRV.>", "", self._introduce

    def _take(self, prefix: str, message: Heard) -> Iterator[tuple[str, bytes]]:
        asked = re.sub(r"^link\.\d+\.", "", message.subject.removeprefix(f"{prefix}."))
        family, *rest = asked.split(".")
        owner, verb = _owner(family, rest)
        if not self._may_answer(owner, message.reply):
            return
        try:
            spoken_for = (
                rules.plugin_name(json.loads(message.data).get("plugin_name")) if owner is None else owner
            )
        except InvalidPluginName:
            return
        namespace = "admin" if owner == OPERATOR else f"{family}/{spoken_for}"
        self.executed[namespace] += 1
        if message.reply:
            yield message.reply, b'{"success": true}'
        if verb not in READS and owner != OPERATOR:
            yield self._event(namespace, message.data)

    def _introduce(self, message: Heard) -> Iterator[tuple[str, bytes]]:
        if message.reply and self._may_answer(OPERATOR, message.reply):
            yield message.reply, b'{"success": true, "name": "holdfast"}'

    def _event(self, namespace: str, payload: bytes) -> tuple[str, bytes]:
        subject = f"{self._permissions.prefixes[0]}.event.{namespace.replace('/', '.')}.set"
        key = json.loads(payload).get("key") if payload.startswith(b"{") else None
        return subject, json.dumps({"op": "set", "key": key}).encode()

    def _may_answer(self, owner: str | None, reply: str) -> bool:
        if not reply or not self._guarded:
            return True
        if self._permissions.mode == "accounts":
            return re.fullmatch(r"_R_\.[A-Za-z0-9.]+", reply) is not None
        inbox = "[a-z0-9_-]+" if owner is None else re.escape(owner.replace("/", "."))
        return re.fullmatch(rf"_INBOX\.{inbox}\.[A-Za-z0-9.]+", reply) is not None


def _owner(family: str, rest: list[str]) -> tuple[str | None, str]:
    """Whose subject it is and the verb; nobody's when the payload is to say."""
    if family == "semantic":
        return "/".join(rest[:2]), rest[2]
    if family == "admin":
        return OPERATOR, rest[0]
    return (None, rest[0]) if len(rest) == 1 else (rest[0], rest[1])


@contextlib.asynccontextmanager
async def stand_in(
    url: str,
    credentials: Mapping[str, Credentials],
    permissions: Permissions,
    *,
    guarded: bool = True,
) -> AsyncIterator[Responder]:
    """The stand-in, with the service's credentials, over a connection of our own."""
    responder = StandIn(permissions, guarded=guarded)
    async with connection(url, credentials[SERVICE]) as bus:

        def answer(what: Answering, message: Message) -> None:
            for subject, payload in what(message):
                bus.send(subject, payload)

        for subject, queue, what in responder.ears():
            bus.listen(subject, partial(answer, what), queue=queue)
        await bus.flush()
        yield responder


@contextlib.asynccontextmanager
async def stand_in_on_the_library(
    url: str, credentials: Mapping[str, Credentials], permissions: Permissions, *, guarded: bool = True
) -> AsyncIterator[Responder]:
    """The same with the client of the library that plugins use."""
    responder = StandIn(permissions, guarded=guarded)
    async with library_client(url, credentials[SERVICE]) as bus:

        async def answer(what: Answering, message: Msg) -> None:
            for subject, payload in what(message):
                await bus.publish(subject, payload)

        for subject, queue, what in responder.ears():
            await bus.subscribe(subject, queue=queue, cb=partial(answer, what))
        await bus.flush()
        yield responder


class Nobody:
    """Serves nothing."""

    families: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()


@contextlib.asynccontextmanager
async def no_service(
    url: str, credentials: Mapping[str, Credentials], permissions: Permissions
) -> AsyncIterator[Responder]:
    """A bus on which the service is missing."""
    yield Nobody()


class Tally:
    """Counts what the service has answered: whatever was answered has been executed."""

    families = frozenset({"kv", "table", "blob", "semantic", "admin"})

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()

    def operation(self, operation: Operation) -> None:
        """A request has been answered."""
        namespace = "admin" if operation.dialect == "admin" else operation.namespace
        if namespace:  # without one it was refused before anybody was known to be meant
            self.executed[namespace] += 1

    def unknown_fields(self, owner: str, count: int) -> None:
        """A request had fields that its verb does not know."""

    def dropped(self, reason: str) -> None:
        """A message was left unexecuted."""


class Opened:
    """A connection of the service as `Link` is one, with credentials that are in no file."""

    def __init__(self, client: Connection) -> None:
        self.client = client

    @classmethod
    @contextlib.asynccontextmanager
    async def another(cls, url: str, credentials: Credentials) -> AsyncIterator[Opened]:
        """One more, for the length of a block."""
        async with connection(url, credentials) as client:
            yield cls(client)

    def require_listening(self) -> None:
        """See `Link.require_listening`; what is not heard is not answered, which tests see."""


@contextlib.asynccontextmanager
async def holdfast_service(
    url: str, credentials: Mapping[str, Credentials], permissions: Permissions, *, most: int = MOST_LINKS
) -> AsyncIterator[Responder]:
    """Holdfast's own service over a store in memory, with the service's credentials.

    Args:
        url: Where the server is.
        credentials: Those of all users.
        permissions: Who is on the bus.
        most: Over how many connections beside the common one plugins and projects are served.
    """
    settings = Settings(prefixes=permissions.prefixes, reply_mode=permissions.mode, deadline_ms=60_000)
    tally = Tally()
    request_log = RequestLog(slow=settings.slow_seconds, slow_walk=settings.slow_walk_seconds, counter=tally)
    async with (
        holdfast.open("memory://") as store,
        connection(url, credentials[SERVICE]) as client,
    ):
        for plugin in permissions.plugins:
            for table in (HONEST, FORGED):
                await store.tables(plugin).create_table(table, partition_key=("name", "string"))
        service = NatsService(store, client, settings, request_log)
        await service.start()
        connections: list[Any] = [Opened(client)]

        def opened(name: str) -> Any:
            return Opened.another(url, credentials[SERVICE])

        links = Links(connections, service, opened, most=most, prefix=permissions.prefixes[0])
        async with links:
            await links.serve()
            assert len(connections) == 1 + min(most, permissions.links)
            try:
                yield tally
            finally:
                await service.stop()
