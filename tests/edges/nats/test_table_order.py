"""What one connection asks of a plugin's tables takes effect in order; nobody waits for what takes long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.edges.nats.server import NatsServer
from holdfast.engine import Scan, Scanned
from holdfast.engines.memory import MemoryEngine
from tests.edges.nats.ground import Caller, Gated, calling, serving, until
from tests.edges.nats.test_tables import ALICE, at_tables, make_table

pytestmark = pytest.mark.unmeasured


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
async def test_reads_and_writes_keep_their_order(
    kind: str, nats_server: NatsServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A get sees the put that was sent just before it and none after it; so do a query and the changes."""
    storage = {"memory": "memory://", "sqlite": str(tmp_path / "store.db")}.get(kind)
    stem = "db.table.trivia"
    requests: list[tuple[str, dict[str, Any]]] = []
    for number in range(100):
        item = {"user": "alice", "at": 7, "number": number}
        requests += [
            (f"{stem}.put_item", {"table": "events", "item": item}),
            (f"{stem}.get_item", {"table": "events", **ALICE}),
            (f"{stem}.query", {"table": "events", "partition_key": "alice"}),
            (f"{stem}.changes", {"table": "events"}),
        ]
    async with (
        serving(nats_server.url, storage=storage or request.getfixturevalue("pg_url")),
        calling(nats_server.url) as caller,
    ):
        await make_table(at_tables(caller))
        answers = [answer.fields for answer in await caller.ask_all(requests)]
    assert [answer["item"]["number"] for answer in answers[1::4]] == list(range(100))
    assert [answer["items"][0]["number"] for answer in answers[2::4]] == list(range(100))
    assert [len(answer["changes"]) for answer in answers[3::4]] == list(range(1, 101))


class SlowWalks(MemoryEngine):
    """An engine that walks only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_walk = asyncio.Event()

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Wait, then do it."""
        await self.may_walk.wait()
        return await super().scan(query, now)


async def test_a_read_does_not_see_what_was_sent_after_it(nats_server: NatsServer) -> None:
    """A scan that takes time shows the table without the write that came after it, which waits its turn."""
    engine = SlowWalks()
    async with serving(nats_server.url, engine=engine), calling(nats_server.url) as caller:
        ask = at_tables(caller)
        await make_table(ask)
        scan = await caller.begin("db.table.trivia.scan", {"table": "events"})
        put = await caller.begin(
            "db.table.trivia.put_item", {"table": "events", "item": {"user": "alice", "at": 7}}
        )
        for _ in range(5):
            await caller.ask("db.kv.other.get", {"key": "rounds"})
        overtaken = put.done()
        engine.may_walk.set()  # before anything is asserted, or the service could not stop
        assert (await scan).fields["items"] == []
        assert ((await put).fields["version"], overtaken) == (2, False)


async def test_a_put_that_nobody_waits_for_is_done(caller: Caller) -> None:
    """Without a reply subject a write is executed, and a later get of the connection sees it."""
    ask = at_tables(caller)
    await make_table(ask)
    await caller.send("db.table.trivia.put_item", b'{"table": "events", "item": {"user": "alice", "at": 7}}')
    assert (await ask("get_item", **ALICE))["version"] == 2


async def test_a_long_call_holds_nobody_up(nats_server: NatsServer) -> None:
    """While an index is being filled the same plugin is answered."""
    engine = Gated()
    async with serving(nats_server.url, engine=engine) as running, calling(nats_server.url) as caller:
        ask = at_tables(caller)
        await make_table(ask)
        engine.gate.clear()
        fields = {"table": "events", "index": "i", "index_key": {"name": "x", "type": "string"}}
        made = await caller.begin("db.table.trivia.create_index", fields)
        await until(lambda: running.service.requests.under_way == 1)
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["exists"] is False
        assert not made.done()
        engine.gate.set()
        assert (await made).fields["indexes"][0]["state"] == "ready"
