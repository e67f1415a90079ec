"""Links: plugins that the server tells apart are served over connections of their own, by themselves."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import holdfast
from holdfast.edges.nats import links as links_module
from holdfast.edges.nats.links import Links
from holdfast.edges.nats.server_config import SERVICE, Credentials, Mode, Permissions, new_credentials
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.wire.subjects import LINKS_TOLD, MOST_LINKS
from tests.edges.nats.ground import PATIENCE
from tests.nats import connection, library_client, nats_server
from tests.security.responders import Opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.bus.connection import Connection
    from holdfast.edges.nats.server import NatsServer
    from holdfast.store import Store

TIMES = 200


class Heard(NamedTuple):
    """Which of an instance's connections were sent requests, by the number of the connection; 0 is common."""

    connections: list[Any]
    keeper: Links

    def counts(self) -> list[int]:
        """How many requests came over each."""
        return [one.client.taken for one in self.connections]


class Counting:
    """Counts the requests that a connection brings."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self.taken = 0

    def listen(self, subject: str, take: Any, *, queue: str = "") -> Any:
        """See `Connection.listen`."""

        def counted(message: Any) -> None:
            self.taken += not message.subject.startswith("$")
            take(message)

        return self._client.listen(subject, counted, queue=queue)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextlib.asynccontextmanager
async def instance(
    url: str, store: Store, known: dict[str, Credentials], *, mode: Mode = "accounts", most: int = MOST_LINKS
) -> AsyncIterator[Heard]:
    """An instance of the service over a store, with as many connections as the server has links for."""

    @contextlib.asynccontextmanager
    async def opened(name: str = "") -> AsyncIterator[Opened]:
        async with connection(url, known[SERVICE]) as client:
            counting: Any = Counting(client)
            yield Opened(counting)

    making: Any = opened
    async with opened() as common:
        service = NatsService(store, common.client, Settings(reply_mode=mode, deadline_ms=60_000))
        every: list[Any] = [common]
        async with Links(every, service, making, most=most, prefix="db") as keeper:
            await service.start()
            await keeper.serve()
            yield Heard(every, keeper)
            await service.stop()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store that keeps nothing."""
    async with holdfast.open("memory://", reap=False) as opened:
        yield opened


def credentials(permissions: Permissions) -> dict[str, Credentials]:
    """Credentials for all who are on the bus."""
    return {user: new_credentials(user, "passwords") for user in permissions.users}


async def count(server: NatsServer, known: dict[str, Credentials], plugin: str) -> list[int]:
    """Have a plugin increment many times in a pipeline; what came back, in the order of asking."""
    shown = known[plugin]
    url = f"{server.url.replace('//', f'//{shown.user}:{shown.secret}@')}?inbox={shown.inbox}&timeout=600"
    async with holdfast.open(url) as remote, asyncio.timeout(PATIENCE):
        kv = remote.kv(plugin)
        return [entry.value for entry in await asyncio.gather(*(kv.incr("n") for _ in range(TIMES)))]


@pytest.mark.parametrize("mode", ["accounts", "permissions"])
async def test_each_plugin_comes_over_its_own_connection(mode: Mode, store: Store) -> None:
    """Without a setting every plugin has a connection, where its requests are done once and in order."""
    permissions = Permissions(("trivia", "quotes"), mode=mode)
    known = credentials(permissions)
    async with (
        nats_server(permissions.configuration(known)) as server,
        instance(server.url, store, known, mode=mode) as heard,
    ):
        assert await count(server, known, "trivia") == list(range(1, TIMES + 1))
        assert heard.counts() == [0, TIMES, 0]
        assert await count(server, known, "quotes") == list(range(1, TIMES + 1))
        assert heard.counts() == [0, TIMES, TIMES]


@pytest.mark.parametrize(("most", "expected"), [(2, [0, 2, 1]), (1, [0, 3]), (0, [3])])
async def test_connections_are_shared_where_there_are_few(
    most: int, expected: list[int], store: Store
) -> None:
    """With fewer connections than links several plugins share one; with none they have the common one."""
    permissions = Permissions(("a", "b", "c"))
    known = credentials(permissions)
    async with (
        nats_server(permissions.configuration(known)) as server,
        instance(server.url, store, known, most=most) as heard,
    ):
        for plugin in permissions.plugins:
            assert await count(server, known, plugin) == list(range(1, TIMES + 1))
        assert heard.counts() == [TIMES * one for one in expected]


async def test_instances_do_each_request_once(store: Store) -> None:
    """Several instances, with any number of connections each, share the requests, and do each once."""
    permissions = Permissions(("trivia", "quotes"))
    known = credentials(permissions)
    async with (
        nats_server(permissions.configuration(known)) as server,
        instance(server.url, store, known) as one,
        instance(server.url, store, known, most=0) as other,
    ):
        assert sorted(await count(server, known, "trivia")) == list(range(1, TIMES + 1))
        shares = [sum(one.counts()), sum(other.counts())]
        assert sum(shares) == TIMES
        assert min(shares) > 0


async def test_a_plugin_that_is_added_is_served_soon(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server's configuration has one more plugin, its connection is opened without a restart."""
    monkeypatch.setattr(links_module, "ASK_SECONDS", 0.01)
    before, after = Permissions(("a",)), Permissions(("a", "b"))
    known = credentials(after)
    async with (
        nats_server(before.configuration(known)) as server,
        instance(server.url, store, known) as heard,
    ):
        keeping = asyncio.create_task(heard.keeper.keep())
        assert await count(server, known, "a") == list(range(1, TIMES + 1))
        await server.stop()
        server._config = after.configuration(known)
        await server.start()
        async with asyncio.timeout(PATIENCE):
            while len(heard.connections) < 3:  # noqa: ASYNC110 - the keeper has no event for it
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert await count(server, known, "b") == list(range(1, TIMES + 1))
        assert heard.counts() == [0, TIMES, TIMES]


async def test_a_server_that_tells_nobody_apart_has_no_links(nats_server: NatsServer, store: Store) -> None:
    """A configuration from before links, or one of one's own, leaves everybody on the common connection."""
    known = {SERVICE: Credentials(user=SERVICE, secret="")}
    async with instance(nats_server.url, store, known) as heard:
        assert len(heard.connections) == 1


@pytest.mark.parametrize("told", ["", "x", "129", "99999999999999999999", "-1", "1.5", "²"])
async def test_nonsense_about_links_is_not_believed(nats_server: NatsServer, store: Store, told: str) -> None:
    """Only a possible number of links is taken for one."""
    known = {SERVICE: Credentials(user=SERVICE, secret="")}
    async with instance(nats_server.url, store, known) as heard, connection(nats_server.url) as client:
        client.send(f"{LINKS_TOLD}.{told or '_'}", b"")
        await client.flush()
        await heard.keeper.serve()
        assert len(heard.connections) == 1


async def test_events_go_over_the_connection_of_their_plugin(store: Store) -> None:
    """A plugin hears of its changes also when the common connection sends none of them."""
    permissions = Permissions(("trivia",), ("acme/web",))
    known = credentials(permissions)
    async with (
        nats_server(permissions.configuration(known)) as server,
        instance(server.url, store, known) as heard,
        library_client(server.url, known["trivia"]) as client,
    ):
        sent: list[str] = []

        def send(subject: str, *rest: Any, **more: Any) -> bool:
            sent.append(subject)
            return True

        heard.connections[0].client.send = send
        events = await client.subscribe("db.event.kv.trivia.>")
        await client.request("db.kv.trivia.set", b'{"key": "k", "value": 1}', timeout=PATIENCE)
        message = await events.next_msg(timeout=PATIENCE)
        assert (message.subject, sent) == ("db.event.kv.trivia.set", [])


async def test_a_link_takes_no_operators_and_no_payload_requests(store: Store) -> None:
    """Behind a link there are plugins and projects: nothing else is answered there, whoever sends it."""
    permissions = Permissions(("trivia",), mode="permissions")
    known = credentials(permissions)
    text = permissions.configuration(known)
    text = text.replace('\n              "db.link.0.kv.trivia.>"', '\n              "db.link.>"')
    assert text.count('"db.link.>"') == 1
    async with (
        nats_server(text) as server,
        instance(server.url, store, known, mode="permissions") as heard,
        library_client(server.url, known["trivia"]) as client,
    ):
        for subject in ("db.link.0.admin.sweep", "db.link.0.kv.set", "db.link.0.ready"):
            await client.publish(subject, b'{"plugin_name": "quotes", "key": "k", "value": 1}')
        await client.flush()
        assert await count(server, known, "trivia") == list(range(1, TIMES + 1))
        assert heard.counts() == [0, TIMES + 3]
        assert [stats.namespace for stats in await store.namespaces()] == ["kv/trivia"]
