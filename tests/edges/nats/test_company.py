"""A plugin beside another one whose requests are expensive: it does not wait for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.edges.intake.service import Limits
from holdfast.edges.nats.service import Settings
from holdfast.engines.memory import MemoryEngine
from tests.edges.nats.ground import PATIENCE, Gated, calling, serving, until

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from holdfast.engine import Scan, Scanned

SETTINGS = Settings(limits=Limits(under_way=64), deadline_ms=60_000)
ITEMS = [{"key": f"k{number}", "value": 1} for number in range(1_000)]
FLOOD = 8


class SlowWalks(MemoryEngine):
    """An engine whose listings end when its gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Wait for the gate, then do it."""
        await self.gate.wait()
        return await super().scan(query, now)


async def test_a_set_waits_for_no_listing_of_another_plugin(nats_server: NatsServer) -> None:
    """A set is answered while a set of another plugin waits for the listing before it."""
    engine = SlowWalks()
    async with (
        serving(nats_server.url, engine=engine, settings=SETTINGS) as running,
        calling(nats_server.url) as caller,
        asyncio.timeout(PATIENCE),
    ):
        listing = await caller.begin("db.kv.flood.list", {})
        behind = await caller.begin("db.kv.flood.set", {"key": "k", "value": 1})
        await caller.client.flush()
        await until(lambda: running.service.requests.under_way == 2)
        assert (await caller.ask("db.kv.quiet.set", {"key": "k", "value": 1}))["success"] is True
        assert not behind.done()
        engine.gate.set()
        assert (await listing).fields["keys"] == []
        assert (await behind).fields["success"] is True


async def test_a_set_waits_for_one_expensive_call_at_the_most(nats_server: NatsServer) -> None:
    """A set beside a flood of calls that write a thousand keys is answered right after the one that runs."""
    engine = Gated()
    async with (
        serving(nats_server.url, engine=engine, settings=SETTINGS) as running,
        calling(nats_server.url) as caller,
        asyncio.timeout(PATIENCE),
    ):
        engine.gate.clear()
        flood = [await caller.begin("db.kv.flood.set_many", {"items": ITEMS}) for _ in range(FLOOD)]
        await caller.client.flush()
        await until(lambda: running.service.requests.under_way == FLOOD)
        quiet = await caller.begin("db.kv.quiet.set", {"key": "k", "value": 1})
        await caller.client.flush()
        await until(lambda: running.service.requests.under_way == FLOOD + 1)
        engine.gate.set()
        answer, *others = await asyncio.gather(quiet, *flood)
        assert answer.fields["success"] is True
        assert all(other.fields["success"] for other in others)
        assert answer.position <= 2
        assert engine.groups == [1] * (FLOOD + 1)


async def test_a_set_is_answered_while_an_expensive_call_is_decided(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """On a real file, a set that arrives right after calls of a thousand writes is answered before them."""
    async with (
        serving(nats_server.url, storage=str(tmp_path / "store.db"), settings=SETTINGS),
        calling(nats_server.url) as caller,
        asyncio.timeout(PATIENCE),
    ):
        await caller.ask("db.kv.quiet.set", {"key": "k", "value": 1})
        begun = {
            "first": await caller.begin("db.kv.flood.set_many", {"items": ITEMS}),
            "second": await caller.begin("db.kv.flood.set_many", {"items": ITEMS}),
            "quiet": await caller.begin("db.kv.quiet.set", {"key": "k", "value": 2}),
        }
        answers = dict(zip(begun, await asyncio.gather(*begun.values()), strict=True))
    assert all(answer.fields["success"] for answer in answers.values())
    assert sorted(answers, key=lambda name: answers[name].position) == ["quiet", "first", "second"]
