"""The service looks after its storage: an outage is noticed though nobody writes, and operators are told."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import holdfast
from holdfast import seams
from holdfast.clock import ManualClock, Reading, SystemClock
from holdfast.edges.monitoring import outage as looking
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.monitoring.outage import OutageWatch
from holdfast.edges.nats.links import Link
from holdfast.edges.serve import _watched
from holdfast.edges.settings.read import read_config
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.store import Store
from tests.edges.nats.ground import PATIENCE, until
from tests.edges.running import plain_client
from tests.jetstream import servers_running
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

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
        await watch.probe()
        clock.advance(10)


def critical(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The alerts in the log."""
    told = [record for record in caplog.records if record.name == "holdfast.outage"]
    return [record.getMessage() for record in told if record.levelno == logging.CRITICAL]


class MovedClock(SystemClock):
    """The clock of a service, which the timekeeper keeps. It is moved on together with the database's."""

    def __init__(self) -> None:
        self._by = 0.0
        super().__init__(wall=lambda: time.time() + self._by, ticks=lambda: seams.ticks() + self._by)

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self._by += seconds

    def move_database(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the same time pass in PostgreSQL."""
        measure = PostgresEngine.clock

        async def moved(engine: PostgresEngine, ticks: Callable[[], float]) -> Reading:
            found = await measure(engine, ticks)
            return Reading(found.time + self._by * 1000, found.ticks)

        monkeypatch.setattr(PostgresEngine, "clock", moved)


class Storage(NamedTuple):
    """A storage that can be taken away and brought back."""

    url: str
    take_away: Callable[[], Awaitable[object]]
    bring_back: Callable[[], Awaitable[object]]


@contextlib.asynccontextmanager
async def sqlite_storage(folder: Path) -> AsyncIterator[Storage]:
    """A file that somebody renames, and renames back."""
    file, elsewhere = folder / "state.db", folder / "elsewhere.db"
    yield Storage(
        str(file),
        functools.partial(asyncio.to_thread, os.rename, file, elsewhere),
        functools.partial(asyncio.to_thread, os.rename, elsewhere, file),
    )


@contextlib.asynccontextmanager
async def postgres_storage(folder: Path) -> AsyncIterator[Storage]:
    """A PostgreSQL of this test's own."""
    with postgres_server(alone=True) as server:
        stop = functools.partial(asyncio.to_thread, server.stop)
        start = functools.partial(asyncio.to_thread, server.start)
        yield Storage(server.create_database(), stop, start)


@contextlib.asynccontextmanager
async def cluster_storage(folder: Path) -> AsyncIterator[Storage]:
    """A node whose log is kept by one server."""
    async with servers_running(1) as servers:

        async def kill() -> None:
            servers.kill(0)

        url = servers.url("outage", folder / "node")
        yield Storage(url, kill, functools.partial(servers.start_again, 0))


@pytest.fixture(params=[sqlite_storage, postgres_storage, cluster_storage])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """Storage of every kind."""
    async with request.param(tmp_path) as found:
        yield found


async def test_an_outage_of_the_storage_is_logged_measured_and_alerted(
    storage: Storage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage that is away for ten minutes is one alert, in log, metrics and events; then it is back, once.

    The timekeeper, which no longer trusts the time when a database's clock can't be measured for five
    minutes, is at work as in a service.
    """
    clock, sent = MovedClock(), list[dict[str, Any]]()
    clock.move_database(monkeypatch)

    def send(subject: str, payload: bytes) -> bool:
        sent.append(json.loads(payload))
        return True

    async with holdfast.open(storage.url, clock=clock, reap=False) as store:
        watch, metrics = OutageWatch(store, send, prefix="db"), Metrics("holdfast", store)

        async def pass_time(seconds: int) -> None:
            for _ in range(seconds // 10):
                await store.pipeline.timekeeper.beat()
                await watch.probe()
                clock.advance(10)

        await pass_time(60)
        assert store.outage.seconds == 0
        await storage.take_away()
        with monkeypatch.context() as hurried:
            hurried.setattr(looking, "PATIENCE", 0.1)
            async with asyncio.timeout(PATIENCE):
                while not store.outage.seconds:
                    await watch.probe()
            await pass_time(600)
        shown = (await metrics.exposition()).decode()
        [unavailable] = re.findall(r"^holdfast_storage_unavailable_seconds (\S+)$", shown, re.MULTILINE)
        assert 600 <= float(unavailable) < 700
        assert "\nholdfast_storage_alerts_total 1.0\n" in shown
        await storage.bring_back()
        async with asyncio.timeout(PATIENCE):
            while store.outage.seconds:
                await store.pipeline.timekeeper.beat()
                await watch.probe()
        assert (await store.kv("trivia").set("k", 1)).version == 1
        await pass_time(60)
        assert store.outage.seconds == 0
    assert [line.partition(" for ")[0] for line in critical(caplog)] == ["the storage has been unavailable"]
    assert [alert["seconds"] // 20 for alert in sent] == [15]
    ends = [record for record in caplog.records if "the storage is available again" in record.getMessage()]
    assert [record.levelno for record in ends] == [logging.WARNING]


async def test_an_outage_that_only_writes_notice(
    pg_alone: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that opens the database itself gets the alert too, even if its writes are all that fails."""
    clock = MovedClock()
    clock.move_database(monkeypatch)
    async with holdfast.open(pg_alone.create_database(), clock=clock, reap=False) as store:
        kv, metrics = store.kv("trivia"), Metrics("holdfast", store)
        await kv.set("k", 1)
        await asyncio.to_thread(pg_alone.stop)
        for number in range(60):
            with pytest.raises((holdfast.Unavailable, holdfast.OutcomeUnknown)):
                await kv.set("k", number)
            clock.advance(10)
            await store.pipeline.timekeeper.beat()
        assert 590 <= store.outage.seconds < 700
        assert b"\nholdfast_store_up 0.0\n" in await metrics.exposition()
        await asyncio.to_thread(pg_alone.start)
        async with asyncio.timeout(PATIENCE):
            while store.outage.seconds:
                await store.pipeline.timekeeper.beat()
                with contextlib.suppress(holdfast.Unavailable, holdfast.OutcomeUnknown):
                    await kv.set("k", "back")
    assert len(critical(caplog)) == 1


@pytest.mark.parametrize("kind", ["broken", "hanging"])
async def test_every_failure_to_write_is_an_outage(
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


async def test_an_unsent_alert_is_kept_and_sent_once() -> None:
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


async def test_a_running_service_publishes_its_outages(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
