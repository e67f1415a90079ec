"""On PostgreSQL the database's clock counts: instances agree by it, and doubt it when it jumps.

The database is a real one; only what its clock shows is set by hand.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Unavailable
from holdfast.testing.exact import present, refusal
from holdfast.upkeep import reaper, tables
from tests.clocks.world import HOUR
from tests.edges.nats.ground import calling, serving

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from holdfast.store import Store
    from tests.clocks.world import Storage, World


async def test_an_instance_with_a_wrong_wall_clock_sweeps_and_shows_the_same(
    database: Storage, world: World
) -> None:
    """An instance on a machine whose clock is an hour off, and jumps, sweeps and shows what all others do."""
    wrong = world.machine(off=HOUR)
    async with database.opened(world.machine()) as right_store, database.opened(wrong) as wrong_store:
        ours, theirs = right_store.kv("a"), wrong_store.kv("a")
        await ours.set_many([{"key": f"k{n}", "value": n, "ttl": 1800} for n in range(100)])
        for off in (HOUR, 2 * HOUR, -HOUR, 0):
            wrong.off = off
            await database.passes(10)
            assert await wrong_store.sweep() == 0
            assert len((await theirs.list(limit=1000)).keys) == 100
            assert abs(right_store.now() - wrong_store.now()) <= 1
        await theirs.set("brief", 1, ttl=1)
        assert present(await ours.get("brief")).value == 1
        await database.passes(1)
        assert await ours.get("brief") is None
        assert await theirs.get("brief") is None


def sure(store: Store) -> bool:
    """Whether a store is sure of the time."""
    return store.pipeline.timekeeper.sure


async def until_unsure(storage: Storage, store: Store) -> None:
    """Let time pass until a store doubts the database's clock, which takes 30 s at the most."""
    for _ in range(30):
        await storage.passes(1)
        if not sure(store):
            return
    raise AssertionError("the store has noticed nothing")


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_nothing_is_answered_or_removed_while_the_database_clock_jumps(
    database: Storage, world: World, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    """While the database's clock is elsewhere nothing is answered or removed; then all is as before."""
    async with database.opened(world.machine()) as store:
        kv = store.kv("a")
        await kv.set_many([{"key": f"k{n}", "value": n, "ttl": 1800} for n in range(100)])
        world.database = jump
        await until_unsure(database, store)
        await database.passes(2)
        assert not sure(store)
        for call in (kv.get("k1"), kv.set("k1", 2), kv.list(), store.sweep(), store.ready()):
            with refusal(Unavailable, says="measuring the database's clock"):
                await call
        world.database = 0
        await database.passes(1)
        assert sure(store)
        await store.ready()
        assert await store.sweep() == 0
        assert len((await kv.list(limit=1000)).keys) == 100
        assert await kv.get_ttl("k1") == 1800 - world.elapsed
        assert store.pipeline.timekeeper.jumps["database"] == 1
        assert f"{jump:+.1f} s from where it was expected" in caplog.text


async def test_a_database_clock_ahead_for_five_seconds_is_believed(database: Storage, world: World) -> None:
    """A clock that has stayed ahead for five seconds is believed, by all instances."""
    async with database.opened(world.machine()) as one, database.opened(world.machine()) as other:
        await one.kv("a").set("k", 1, ttl=1800)
        began = one.now()
        world.database = HOUR
        await until_unsure(database, one)
        await database.passes(4)
        assert not sure(one)
        assert one.now() - began == pytest.approx(world.elapsed * 1000, abs=1)
        await database.passes(1)
        assert sure(one)
        assert one.now() - began == pytest.approx((HOUR + world.elapsed) * 1000, abs=1)
        assert abs(one.now() - other.now()) <= 1
        assert await other.kv("a").get("k") is None


async def test_time_never_goes_back_with_the_database_clock(database: Storage, world: World) -> None:
    """Time goes on evenly past the database's clock, for instances that are open and those opened later."""
    async with database.opened(world.machine()) as one, database.opened(world.machine()) as other:
        await one.kv("a").set("gone", 1, ttl=5)
        await one.kv("a").set("there", 1, ttl=1800)
        await database.passes(10)
        assert await one.kv("a").get("gone") is None
        began = one.now()
        world.database = -HOUR
        await database.passes(40)
        assert sure(one)
        assert one.now() - began == pytest.approx(40_000, abs=1)
        await database.passes(60)
        assert abs(one.now() - other.now()) <= 1
        async with database.opened(world.machine()) as late:
            assert abs(one.now() - late.now()) <= 1000
            for store in (one, other, late):
                assert await store.kv("a").get("gone") is None
                assert await store.kv("a").get_ttl("there") == pytest.approx(1800 - 110, abs=2)
            await late.kv("a").set("brief", 1, ttl=1)
            await database.passes(2)
            for store in (one, other, late):
                assert await store.kv("a").get("brief") is None
        world.database = 0
        await database.passes(40)
        assert sure(one)
        assert one.pipeline.timekeeper.ahead == 0
        assert one.now() - began == pytest.approx(142_000, abs=1)


async def test_a_jump_of_the_wall_clock_triggers_a_measurement(database: Storage, world: World) -> None:
    """When the clock of this machine jumps, that of the database is looked at at once: they may be one."""
    machine = world.machine()
    async with database.opened(machine) as store:
        await database.passes(10)
        world.database = HOUR
        await database.passes(1)
        assert sure(store)
        machine.off = HOUR
        await database.passes(1)
        assert not sure(store)


async def test_a_second_ahead_is_followed_and_a_second_behind_is_waited_for(
    database: Storage, world: World
) -> None:
    """A second ahead is followed at once, a second behind is waited for at half speed; nothing is refused."""
    async with database.opened(world.machine()) as store:
        began = store.now()
        world.database = 1
        await database.passes(1)
        assert store.now() - began == pytest.approx(2_000, abs=1)
        world.database = 0
        await database.passes(1)
        assert store.now() - began == pytest.approx(3_000, abs=1)
        world.elapsed += 1
        assert store.now() - began == pytest.approx(3_500, abs=1)
        await database.passes(10)
        assert store.now() - began == pytest.approx(13_000, abs=1)
        assert sure(store)
        assert store.pipeline.timekeeper.jumps["database"] == 0


async def test_an_instance_is_unsure_after_five_minutes_without_a_measurement(
    database: Storage, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """After five minutes without a measurement an instance is no longer sure, until it has measured."""
    async with database.opened(world.machine()) as store:
        await store.kv("a").set("k", 1)
        world.reachable = False
        await database.passes(300)
        assert present(await store.kv("a").get("k")).value == 1
        await database.passes(30)
        with refusal(Unavailable, says="measuring"):
            await store.kv("a").get("k")
        assert caplog.text.count("could not be measured: the database is away") == 1
        world.reachable = True
        await database.passes(1)
        assert present(await store.kv("a").get("k")).value == 1


async def test_a_store_opens_before_it_can_read_the_database_clock(database: Storage, world: World) -> None:
    """The store opens and answers once it knows the time."""
    world.reachable = False
    async with database.opened(world.machine(off=HOUR)) as store:
        with refusal(Unavailable, says="time is not known"):
            await store.kv("a").set("k", 1)
        world.reachable = True
        await database.passes(1)
        await store.kv("a").set("k", 1)
        assert store.now() == pytest.approx(1_700_000_001_000, abs=1)


async def test_no_entry_is_swept_while_the_time_is_unknown(
    database: Storage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reaper leaves what is due alone in the first seconds and while the database's clock is in doubt."""
    monkeypatch.setattr(reaper, "TICK", 0.001)
    async with database.opened(world.machine(), reap=True) as store:
        looked: list[int] = []
        store.measure(grouped=lambda size: None, swept=lambda removed, seconds: looked.append(removed))
        await store.kv("a").set("k", 1, ttl=2)
        await database.passes(3)
        await asyncio.sleep(0.05)
        assert looked == []
        await database.passes(3)
        async with asyncio.timeout(60):
            while not sum(looked):  # noqa: ASYNC110 - a sweep has no event
                await asyncio.sleep(0.01)
        await store.kv("a").set("k", 1, ttl=40)
        world.database = HOUR
        await database.passes(30)
        assert not sure(store)
        for _ in range(20):
            world.database += 60
            await database.passes(1)
        removed = sum(looked)
        await asyncio.sleep(0.05)
        assert sum(looked) == removed
        world.database = 0
        await database.passes(1)
        async with asyncio.timeout(60):
            while sum(looked) == removed:  # noqa: ASYNC110 - a sweep has no event
                await asyncio.sleep(0.01)


async def test_a_quota_expires_nothing_while_the_time_is_unknown(
    database: Storage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that would exceed a quota while doubts arise fails with that cause, and expires nothing."""
    async with database.opened(world.machine()) as store:
        kv = store.kv("a")
        await store.set_policy("kv/a", {"quota_keys": 1})
        await kv.set("first", 1, ttl=5)
        await database.passes(6)
        transact = store._engine.transact

        async def doubting(commands: Any, now: Any) -> Any:
            world.database, world.elapsed = HOUR, world.elapsed + 31
            await store.pipeline.timekeeper.beat()
            return await transact(commands, now)

        with monkeypatch.context() as patch:
            patch.setattr(store._engine, "transact", doubting)
            with refusal(Unavailable, says="time"):
                await kv.set("second", 1)
        world.database = 0
        await database.passes(1)
        assert [change.op for change in (await kv.changes(0)).changes] == ["set"]
        assert (await kv.set("second", 1)).value == 1


async def test_no_item_is_swept_while_the_time_is_unknown(
    database: Storage, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """The reaper of tables waits in the first seconds too, and begins when they are over."""
    swept = asyncio.Event()

    async def sweep(store: object) -> int:
        swept.set()
        return 0

    monkeypatch.setattr(tables, "BEAT", 0.001)
    monkeypatch.setattr(tables, "sweep_tables", sweep)
    async with database.opened(world.machine()) as store:
        reaping = asyncio.create_task(tables.reap_tables(store.pipeline, HOUR))
        await asyncio.sleep(0.05)
        assert not swept.is_set()
        await database.passes(6)
        async with asyncio.timeout(60):
            await swept.wait()
        reaping.cancel()
        await asyncio.gather(reaping, return_exceptions=True)


async def test_a_service_unsure_of_the_time_is_unavailable_and_recovers(
    database: Storage, world: World, nats_server: NatsServer
) -> None:
    """A service that is not sure of the time answers UNAVAILABLE, also to `ready`, and recovers by itself."""
    clock = world.machine().clock()
    async with (
        serving(nats_server.url, engine=database.make(), clock=clock) as running,
        calling(nats_server.url) as caller,
    ):
        database.stores.append(running.store)
        requests: list[tuple[str, dict[str, Any]]] = [
            ("db.kv.trivia.set", {"key": "k", "value": 1}),
            ("db.kv.trivia.get", {"key": "k"}),
            ("db.kv.trivia.ready", {}),
        ]
        assert [(await caller.ask(*request))["success"] for request in requests] == [True] * 3
        world.database = HOUR
        await until_unsure(database, running.store)
        refused = [await caller.ask(*request) for request in requests]
        assert [(reply["error_code"], reply["retryable"]) for reply in refused] == [("UNAVAILABLE", True)] * 3
        world.database = 0
        await database.passes(1)
        assert [(await caller.ask(*request))["success"] for request in requests] == [True] * 3
        database.stores.remove(running.store)
