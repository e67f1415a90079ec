"""The service looks after its storage: an outage is noticed though nobody writes, and operators are told."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.monitoring import outage as looking
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.monitoring.outage import OutageWatch
from holdfast.edges.nats.link import Link
from holdfast.edges.serve import _watched
from holdfast.edges.settings.read import read_config
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.store import Store
from tests.edges.nats.ground import PATIENCE, until
from tests.edges.running import plain_client

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from tests.postgres import Server


class Moody(MemoryEngine):
    """Storage that says how it is when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.mood: HoldfastError | None = None
        self.hangs = False

    async def ready(self) -> None:
        """Raise what is in the way, or don't answer."""
        if self.hangs:
            await asyncio.Event().wait()
        if self.mood is not None:
            raise self.mood


class Hasty(ManualClock):
    """A clock on which a second passes with every look."""

    def now(self) -> int:
        """See `Clock.now`."""
        self.advance(1)
        return super().now()


async def minutes(watch: OutageWatch, clock: ManualClock, number: int) -> None:
    """Look every ten seconds for so many minutes."""
    for _ in range(number * 6):
        await watch.look()
        clock.advance(10)


def critical(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged at CRITICAL."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


async def test_postgresql_goes_away(pg_alone: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A PostgreSQL that is stopped for six minutes is one alert, in log and metrics; then it is back."""
    clock = ManualClock()
    url = pg_alone.create_database()
    async with holdfast.open(url, clock=clock, reap=False) as store:
        watch, metrics = OutageWatch(store, None, prefix="db"), Metrics("holdfast", store)
        await minutes(watch, clock, 6)
        assert store.outage.seconds == 0
        await asyncio.to_thread(pg_alone.stop)
        await minutes(watch, clock, 6)
        text = (await metrics.exposition()).decode()
        await asyncio.to_thread(pg_alone.start)
        async with asyncio.timeout(PATIENCE):
            while store.outage.seconds:
                await watch.look()
    assert [line.partition(": ")[0] for line in critical(caplog)] == [
        "the storage has been unavailable for 300 s"
    ]
    assert "\nholdfast_storage_unavailable_seconds 360.0\n" in text
    assert "\nholdfast_storage_alerts_total 1.0\n" in text
    assert "\nholdfast_store_up 0.0\n" in text
    assert caplog.records[-1].getMessage().startswith("the storage is available again after 36")


@pytest.mark.parametrize("kind", ["broken", "hanging"])
async def test_whatever_keeps_it_from_writing(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that answers with any error, or not at all, is unavailable too."""
    monkeypatch.setattr(looking, "PATIENCE", 0.0)
    engine, clock = Moody(), ManualClock()
    async with Store(engine, clock=clock, reap=False) as store:
        watch = OutageWatch(store, None, prefix="db")
        engine.hangs, engine.mood = kind == "hanging", DatabaseError("it is broken")
        await minutes(watch, clock, 10)
    assert len(critical(caplog)) == 1


async def test_operators_are_told_once_the_bus_is_there() -> None:
    """An alert that NATS does not take is kept, also beyond the end of the outage, and then sent once."""
    engine, clock = Moody(), ManualClock()
    there, sent = False, []

    def send(subject: str, payload: bytes) -> bool:
        if there:
            sent.append((subject, json.loads(payload)))
        return there

    async with Store(engine, clock=clock, reap=False) as store:
        watch = OutageWatch(store, send, prefix="rosey.db")
        engine.mood = holdfast.Unavailable("it is away")
        await minutes(watch, clock, 7)
        engine.mood = None
        await minutes(watch, clock, 1)
        assert sent == []
        there = True
        await minutes(watch, clock, 1)
    assert sent == [
        (
            "rosey.db.event.service.unavailable",
            {"since": "2023-11-14T22:13:20Z", "seconds": 300.0, "message": "it is away"},
        )
    ]


async def test_a_service_looks_by_itself(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it serves, whoever listens at `db.event.service.>` hears of an outage; with events off nobody."""
    monkeypatch.setattr(looking, "INTERVAL", 0.0)
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append((message.subject, json.loads(message.data)["message"]))

    async with plain_client(nats_server.url) as operator:
        await operator.subscribe("db.event.service.>", cb=hear)
        await operator.flush()
        for events in (False, True):
            config = read_config(environment={}, events=events)
            async with (
                Link(nats_server.url, config, name="holdfast") as link,
                Store(Moody(), clock=Hasty(), reap=False) as store,
            ):
                store._engine.mood = holdfast.Unavailable("it is away")  # type: ignore[attr-defined]
                async with _watched(config, store, link):
                    await until(lambda: store.outage.alerts == 1)
                    if events:
                        await until(lambda: bool(heard))
    assert heard == [("db.event.service.unavailable", "it is away")]
