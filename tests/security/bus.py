"""A bus with credentials, honest parties on it, and the count of what goes wrong.

Honest traffic only. Every honest message holds the word of `HONEST` in its key, an item's in that of
its partition, so that whatever else reaches a party is a breach; what the service has executed beyond the
honest requests is one as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.edges.nats.server_config import Credentials, Permissions, new_credentials
from holdfast.families import OF_PLUGINS
from holdfast.wire.subjects import OPERATOR
from tests.nats import connection, lasting_server, nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.edges.nats.server_config import Kind, Mode
    from tests.security.responders import Responder

PLUGINS: Final = ("trivia", "quote-db", "123")
BOT: Final = "bot"
"""A plugin that may speak for the others."""
TENANTS: Final = ("acme/web", "acme/app", "globex/web")
OWNERS: Final = (*PLUGINS, *TENANTS)
FEW: Final = ("trivia:read", "acme/web:get,list")
"""Users of two owners who may use few verbs."""

_KEYS: Final = (
    "set get delete list incr exists get_ttl set_ttl touch remove_ttl get_many set_many delete_many batch "
    "changes history restore stats put delete_prefix"
)
_TABLES: Final = (
    "create_table drop_table describe_table list_tables put_item get_item update_item delete_item query scan "
    "reveal_item create_index drop_index query_index check_index batch_get_item batch_write_item "
    "transact_write set_ttl remove_ttl get_ttl sweep_expired_ttl changes stats"
)
_BLOBS: Final = (
    "get head get_part put begin put_part commit abort copy list changes history stats get_ttl set_ttl "
    "remove_ttl restore delete delete_many delete_prefix"
)
_ADMIN: Final = "namespaces stats sweep ready policies audit trash deadletters slowlog"
KEY_VERBS: Final = tuple(_KEYS.split())
TABLE_VERBS: Final = tuple(_TABLES.split())
BLOB_VERBS: Final = tuple(_BLOBS.split())
ADMIN_VERBS: Final = tuple(_ADMIN.split())
OPS: Final = ("set", "deleted", "expired", "restored", "escalated")

HONEST: Final = "honest"
FORGED: Final = "forged"
"""The table that attempts are about. Like the honest one each plugin has it, so that they could succeed."""
ROUNDS: Final = 2
"""How often everybody asks before the count: an answer that went astray has then been taken for a request."""
PATIENCE: Final = 60.0


def verb_subjects(pattern: str) -> list[str]:
    """The subjects of every verb below what a user may ask at."""
    if ".admin." in pattern or pattern.startswith("$"):
        verbs = ADMIN_VERBS if ".admin." in pattern else ("PING", "INFO", "STATS")
    else:
        verbs = TABLE_VERBS if ".table." in pattern else BLOB_VERBS if ".blob." in pattern else KEY_VERBS
    return [pattern.removesuffix(">").removesuffix("*") + verb for verb in verbs]


class Party:
    """An honest user: it asks at its own subjects, and keeps what reaches it unasked."""

    def __init__(self, user: str, bus: Bus, client: Connection) -> None:
        self.user = user
        self.events: list[str] = []
        self.unasked: list[str] = []
        self._bus = bus
        self._client = client
        self._number = 0
        self._awaited: dict[str, asyncio.Future[bytes]] = {}

    async def listen(self) -> None:
        """Hear everything that the server lets this user hear."""
        inbox = f"{self._bus.credentials[self.user].inbox}.>"
        own = [inbox, *self._bus.permissions.events(self.user)]
        for subject in [">"] if self._bus.permissions.mode == "accounts" else own:
            self._client.listen(subject, self._hear)
        await self._client.flush()

    async def ask(self, subject: str, **fields: Any) -> dict[str, Any]:
        """Send an honest request and return the reply."""
        self._number += 1
        reply = f"{self._bus.credentials[self.user].inbox}.{HONEST}{self._number}"
        answer = self._awaited[reply] = asyncio.get_running_loop().create_future()
        assert self._client.send(subject, json.dumps({"key": HONEST, **fields}).encode(), reply=reply)
        try:
            async with asyncio.timeout(PATIENCE):
                content = await answer
        except TimeoutError:
            content = b""
        assert content, f"{self.user} got no answer at {subject}"
        decoded: dict[str, Any] = json.loads(content)
        return decoded

    async def ask_everywhere(self) -> None:
        """Read and write through every prefix and family that is served; every answer is a success."""
        patterns = self._bus.permissions.requests(self.user)
        questions = [one for pattern in patterns for one in self._bus.questions(self.user, pattern)]
        self._bus.asked.update(namespace for _, namespace, _ in questions)
        answers = await asyncio.gather(*(self.ask(subject, **fields) for subject, _, fields in questions))
        for question, answer in zip(questions, answers, strict=True):
            assert answer["success"] is True, (question, answer)

    async def settle(self) -> None:
        """Return when everything that the server has sent so far was looked at."""
        await self._client.flush()

    def _hear(self, message: Message) -> None:
        future = self._awaited.get(message.subject)
        if future is not None and not future.done():
            future.set_result(message.data)
        elif not _is_honest(message):
            self.unasked.append(f"{self.user} was sent {message.data[:80]!r} at {message.subject!r}")
        elif ".event." in message.subject:
            self.events.append(message.subject)


@dataclass
class Bus:
    """A server, its users, and what they did."""

    url: str
    permissions: Permissions
    credentials: dict[str, Credentials]
    responder: Responder
    asked: Counter[str] = field(default_factory=Counter)
    parties: dict[str, Party] = field(default_factory=dict)

    def questions(self, user: str, pattern: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Honest requests below a pattern: subject, namespace and fields."""
        if pattern.startswith("$") or family_of(pattern) not in self.responder.families:
            return []
        stem = pattern.removesuffix(">").removesuffix("*")
        value = {"value": 1}
        if pattern.endswith("*"):
            named = {"plugin_name": user}
            return [(f"{stem}set", f"kv/{user}", value | named), (f"{stem}get", f"kv/{user}", named)]
        if ".admin." in pattern:
            return [(f"{stem}namespaces", "admin", {})]
        namespace = namespace_of(user, family_of(pattern))
        if ".table." in pattern:
            item, key = {"item": {"name": HONEST}}, {"partition_key": HONEST}
            table = {"table": HONEST}
            return [(f"{stem}put_item", namespace, table | item), (f"{stem}get_item", namespace, table | key)]
        if ".blob." in pattern:
            return [(f"{stem}put", namespace, {"data": "aGk="}), (f"{stem}head", namespace, {})]
        write = "put" if ".semantic." in pattern else "set"
        return [(f"{stem}{write}", namespace, value), (f"{stem}get", namespace, {})]

    async def everybody_asks(self, *, but: str | None = None, rounds: int = ROUNDS) -> None:
        """Let all honest parties ask everything, so that whatever was sent before has been dealt with."""
        for _ in range(rounds):
            for party in self.parties.values():
                if party.user != but:
                    await party.ask_everywhere()
        for party in self.parties.values():
            await party.settle()

    def breaches(self, *, own: str | None = None) -> list[str]:
        """What was executed unasked or reached somebody unasked; what concerns `own` alone is left out."""
        mine = {namespace_of(own, family) for family in OF_PLUGINS} if own else set()
        executed = [
            f"{times} commands of {namespace} were executed unasked"
            for namespace, times in sorted((self.responder.executed - self.asked).items())
            if namespace not in mine
        ]
        heard = [told for party in self.parties.values() if party.user != own for told in party.unasked]
        return executed + heard


def namespace_of(user: str, family: str) -> str:
    """The namespace of a user's family."""
    return f"semantic/{user}" if "/" in user else f"{family}/{user}"


def family_of(pattern: str) -> str:
    """The family of a pattern of subjects."""
    families = ("kv", "table", "blob", "semantic", "admin", "$SRV")
    return next(one for one in families if one in pattern.split("."))


def permissions(mode: Mode) -> Permissions:
    """Everybody who is on the bus."""
    plugin, project = FEW
    return Permissions((*PLUGINS, BOT, plugin), (*TENANTS, project), mode=mode, trusted=(BOT,))


class Ground(NamedTuple):
    """A server with the generated configuration, and what its users log in with."""

    url: str
    credentials: dict[str, Credentials]


class Grounds:
    """Servers that buses use one after the other: all that was connected to one is gone with its bus."""

    def __init__(self) -> None:
        self._servers = contextlib.ExitStack()
        self._known: dict[Hashable, Ground] = {}

    def of(self, who: Permissions, name: Hashable, *, kind: Kind = "nkeys") -> Ground:
        """The server of these users, by a name. Outside of an event loop, since it may have to be started."""
        if name not in self._known:
            credentials = {user: new_credentials(user, kind) for user in who.users}
            server = self._servers.enter_context(lasting_server(who.configuration(credentials)))
            self._known[name] = Ground(server.url, credentials)
        return self._known[name]

    def close(self) -> None:
        """Stop the servers."""
        self._servers.close()


@contextlib.asynccontextmanager
async def running_bus(
    mode: Mode,
    answering: Callable[..., contextlib.AbstractAsyncContextManager[Responder]],
    *,
    kind: Kind = "nkeys",
    altered: Callable[[str], str] = lambda text: text,
    ground: Ground | None = None,
) -> AsyncIterator[Bus]:
    """A server with a generated configuration, a service that answers, and all honest parties listening.

    Args:
        mode: Accounts or permissions.
        answering: Starts the service with its address, its credentials and who is on the bus.
        kind: What users log in with.
        altered: Changes the configuration, to show what would happen then.
        ground: The server that is used instead of one of the bus's own.
    """
    who = permissions(mode)
    async with contextlib.AsyncExitStack() as stack:
        if ground is None:
            credentials = {user: new_credentials(user, kind) for user in who.users}
            server = await stack.enter_async_context(nats_server(altered(who.configuration(credentials))))
            ground = Ground(server.url, credentials)
        url, credentials = ground
        responder = await stack.enter_async_context(answering(url, credentials, who))
        bus = Bus(url, who, credentials, responder)
        for user in (*OWNERS, BOT, OPERATOR):
            client = await stack.enter_async_context(connection(url, credentials[user]))
            bus.parties[user] = Party(user, bus, client)
            await bus.parties[user].listen()
        yield bus


def _is_honest(message: Message) -> bool:
    try:
        content = json.loads(message.data)
    except ValueError:
        return False
    return isinstance(content, dict) and HONEST in f"{content.get('key')} {content.get('partition_key')}"
