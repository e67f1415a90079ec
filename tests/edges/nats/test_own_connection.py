"""A plugin with a connection of its own: only that one hears it, in order, and each request is done once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.edges.serve import mappings
from holdfast.edges.settings.read import read_config
from holdfast.store import Store
from tests.edges.nats.ground import Recorder, calling
from tests.nats import connection, nats_server

TIMES = 500
SETTINGS = Settings(deadline_ms=60_000)
OWN = Settings(deadline_ms=60_000, plugin="trivia")


class Instance(NamedTuple):
    """What an instance was asked over its common connection, and over that of the plugin."""

    common: Recorder
    own: Recorder


@contextlib.asynccontextmanager
async def instance(url: str, store: Store, *, own: bool = True) -> AsyncIterator[Instance]:
    """An instance of the service over a store, with or without a connection for the plugin."""
    recorders = Instance(Recorder(), Recorder())
    async with contextlib.AsyncExitStack() as stack:
        for recorder, settings in zip(recorders, (SETTINGS, OWN) if own else (SETTINGS,), strict=False):
            client = await stack.enter_async_context(connection(url))
            request_log = RequestLog(slow=9, slow_walk=9, counter=recorder)
            service = NatsService(store, client, settings, request_log)
            await service.start()
            stack.push_async_callback(service.stop)
        yield recorders


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    """The server that `holdfast up` would start for a plugin with a connection of its own."""
    config = read_config(environment={"HOLDFAST_OWN_CONNECTION": "trivia"})
    async with nats_server(mappings(config)) as running:
        yield running


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store that keeps nothing."""
    async with holdfast.open("memory://", clock=ManualClock(), reap=False) as opened:
        yield opened


async def count(url: str, subject: str = "db.kv.trivia.incr") -> list[int]:
    """Increment many times in a pipeline, and return what came back, in the order of asking."""
    async with calling(url) as caller:
        answers = await caller.ask_all([(subject, {"key": "n"})] * TIMES)
    return [answer.fields["value"] for answer in answers]


async def test_only_its_own_connection_hears_a_plugin(server: NatsServer, store: Store) -> None:
    """A plugin's requests come over its connection, in order; others and the payload over the common one."""
    async with instance(server.url, store) as one, calling(server.url) as caller:
        events = await caller.client.subscribe("db.event.>")
        assert await count(server.url) == list(range(1, TIMES + 1))
        assert (len(one.common.operations), len(one.own.operations)) == (0, TIMES)
        assert await count(server.url, "rosey.db.kv.trivia.incr") == list(range(TIMES + 1, 2 * TIMES + 1))
        assert (await caller.ask("db.table.trivia.get_item"))["error_code"] == "MISSING_FIELD"
        assert (len(one.common.operations), len(one.own.operations)) == (0, 2 * TIMES + 1)
        assert (await caller.ask("db.kv.quotes.incr", {"key": "n"}))["value"] == 1
        named = {"plugin_name": "trivia", "key": "n"}
        assert (await caller.ask("db.kv.get", named))["data"]["value"] == 2 * TIMES
        assert len(one.common.operations) == 2
        await caller.client.flush()
        assert events.delivered == 2 * TIMES + 1


async def test_a_get_sees_the_set_before_it(server: NatsServer, store: Store) -> None:
    """What one connection sends to such a plugin takes effect in order: each get sees the set before it."""
    async with instance(server.url, store), calling(server.url) as caller:
        begun = []
        for number in range(TIMES):
            await caller.send("db.kv.trivia.set", {"key": "k", "value": number})
            begun.append(await caller.begin("db.kv.trivia.get", {"key": "k"}))
        assert [(await answer).fields["value"] for answer in begun] == list(range(TIMES))


@pytest.mark.parametrize("both", [True, False], ids=["alike", "one without"])
async def test_instances_do_each_request_once(server: NatsServer, store: Store, both: bool) -> None:
    """With several instances, whether set up alike or not, each request is done once, by one of them."""
    async with instance(server.url, store) as one, instance(server.url, store, own=both) as other:
        assert sorted(await count(server.url)) == list(range(1, TIMES + 1))
        shares = [len(one.own.operations), len(other.own.operations)]
        assert sum(shares) == TIMES
        assert (min(shares) > 0) == both
        assert not one.common.operations
        assert not other.common.operations


async def test_a_server_that_was_not_told_leaves_it_to_the_common_connection(
    nats_server: NatsServer, store: Store
) -> None:
    """Where the server sends nothing elsewhere, the common connection does it all: once, and in order."""
    async with instance(nats_server.url, store) as one:
        assert await count(nats_server.url) == list(range(1, TIMES + 1))
        assert (len(one.common.operations), len(one.own.operations)) == (TIMES, 0)
