"""Metrics of what is stored and written: by purpose and outcome, locks, quotas, letters and the audit."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast
from holdfast import errors
from holdfast.clock import ManualClock
from holdfast.commands import Delete, LetterStored, Many, Results, Set
from holdfast.edges.monitoring import gauges
from holdfast.edges.monitoring.counters import OUTCOMES, PURPOSES, purpose_label, writes_of
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.engines.memory import MemoryEngine
from holdfast.letter_commands import DropLetter, Escalate
from holdfast.origin import Origin
from holdfast.rows import KV
from holdfast.store import Store
from holdfast.stored import purpose_of
from holdfast.testing import AUDIT_KEY
from tests.edges.running import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.rows import Address

ORIGIN = Origin(writer="w", request_id="r")


class Measured:
    """A store under measurement."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.metrics = Metrics("m", store)

    async def values(self, name: str) -> dict[str, float]:
        """The samples of one metric by what is within their braces."""
        text = (await self.metrics.exposition()).decode()
        found = re.findall(rf"^m_{name}(?:{{(\S*)}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}


class InMemory(Measured):
    """One in memory, whose clock stands still and that sweeps when it is told to."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.clock = ManualClock()
        super().__init__(Store(self.engine, clock=self.clock, reap=False))


@pytest.fixture
async def at() -> AsyncIterator[InMemory]:
    """A store in memory under measurement."""
    at = InMemory()
    async with at.store:
        yield at


def spoiled(engine: MemoryEngine, seen: list[Address] | None = None) -> Any:
    """The engine's `read`, as if the rows that hold sums had been written over; what is `seen` is kept."""
    read = engine.read

    async def read_spoiled(addresses: Any, now: int) -> Any:
        (seen if seen is not None else []).extend(addresses)
        rows = await read(addresses, now)
        return [
            row if row is None or address.key else msgspec.structs.replace(row, value="?")
            for address, row in zip(addresses, rows, strict=True)
        ]

    return read_spoiled


def written(plugin: str, purpose: str, outcome: str) -> str:
    """The labels of a write."""
    return f'outcome="{outcome}",plugin="{plugin}",purpose="{purpose}"'


async def test_writes_are_counted_by_purpose_and_outcome(at: InMemory) -> None:
    """Each write counts once under what it was for and what became of it; one of many for itself."""
    kv = at.store.kv("a")
    await kv.set("k", 1, semantics={"purpose": "config"})
    with pytest.raises(errors.VersionConflict):
        await kv.set("k", 2, expected_version=9, semantics={"purpose": "cursor"})
    with pytest.raises(errors.VersionConflict):
        await kv.delete("k", expected_version=9)
    await kv.set_many([{"key": "n", "value": 1}, {"key": "k", "value": 1, "expected_version": 9}])
    with pytest.raises(errors.VersionConflict):
        await kv.batch(
            checks=[{"key": "n", "version": 9}],
            writes=[{"key": "n", "delete": True}, {"key": "o", "value": 1, "semantics": {"purpose": "odd"}}],
        )
    await kv.batch(writes=[{"key": "n", "incr": 1}, {"key": "k", "delete": True}])
    with pytest.raises(errors.KeyNotFound):
        await kv.set_ttl("k", 10)
    assert await at.values("writes_total") == {
        written("a", "config", "ok"): 2,
        written("a", "cursor", "conflict"): 1,
        written("a", "config", "conflict"): 2,
        written("a", "none", "ok"): 1,
        written("a", "other", "conflict"): 1,
        written("a", "none", "refused"): 1,
    }


async def test_a_storage_that_fails_shows_in_every_write(
    at: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a whole group fails, each of its writes counts, and the error is told apart from a defect."""
    failures: list[Exception] = [
        errors.Unavailable("gone"),
        errors.OutcomeUnknown("cut off"),
        errors.DatabaseError("broken"),
    ]

    async def fail(*ignored: Any) -> Any:
        raise failures[0]

    monkeypatch.setattr(at.engine, "transact", fail)
    while failures:
        writes = [
            at.store.kv("a").set("k", 1),
            at.store.kv("a").set_many([{"key": key, "value": 1} for key in "no"]),
        ]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, errors.HoldfastError) for result in results)
        failures.pop(0)
    found = await at.values("writes_total")
    assert found == {written("a", "none", outcome): 3 for outcome in ("unavailable", "unknown", "error")}


def test_labels_of_purposes_and_outcomes_are_bounded() -> None:
    """A purpose that is not among the known ones is `other`, and there are no outcomes but those listed."""
    assert {purpose_label(purpose) for purpose in (*PURPOSES, "odd", "even", None)} == {
        *PURPOSES,
        "other",
        "none",
    }
    key = Delete(namespace="kv/a", key="k", origin=ORIGIN)
    outcomes = {writes_of(key, cls("no"))[0][1] for cls in errors.error_classes()}
    assert outcomes | {"ok"} == set(OUTCOMES)
    put = Set(namespace="kv/a", key="k", origin=ORIGIN, value="1", size=1, semantics='{"purpose":"lock"}')
    assert purpose_of(put.semantics) == "lock"
    many = Many(namespace="kv/a", origin=ORIGIN, items=(put, key))
    assert writes_of(many, Results((errors.Fenced("no"), errors.Busy("no")))) == [
        ("lock", "refused"),
        ("none", "unavailable"),
    ]


async def test_expirations_are_counted_by_purpose(at: InMemory) -> None:
    """What has expired counts once under its purpose, whether a sweep or a write noticed it."""
    kv = at.store.kv("a")
    await kv.set("cached", 1, ttl=1, semantics={"purpose": "cache"})
    await kv.set("odd", 1, ttl=2, semantics={"purpose": "odd"})
    await kv.set("plain", 1, ttl=1)
    at.clock.advance(3)
    await kv.set("plain", 2)
    await at.store.sweep()
    assert await at.values("reaper_lag_seconds") == {"": 2}
    assert await at.values("expirations_total") == {
        'plugin="a",purpose="cache"': 1,
        'plugin="a",purpose="other"': 1,
        'plugin="a",purpose="none"': 1,
    }


async def test_the_lag_is_that_of_what_the_sweep_removes(at: InMemory) -> None:
    """Items do not count as late, however old their deadline: nothing removes them unless asked to."""
    tables, kv = at.store.tables("a"), at.store.kv("a")
    await tables.create_table("t", partition_key=("id", "string"), ttl_attribute="expires")
    for number in range(3):
        await tables.put_item("t", {"id": f"k{number}", "expires": 1})
    await tables.put_item("t", {"id": "k0", "expires": 1})  # notices that the first one has expired
    await tables.delete_item("t", "k1")
    assert await tables.sweep_expired_ttl("t") == 2
    assert await at.values("expirations_total") == {'plugin="a",purpose="none"': 4}
    assert at.metrics.totals().lag == 0
    await kv.set("k", 1, ttl=1)
    at.clock.advance(4)
    await asyncio.gather(at.store.sweep(), tables.put_item("t", {"id": "k2", "expires": 1}))
    await tables.put_item("t", {"id": "k2"})
    assert await at.values("reaper_lag_seconds") == {"": 3}


async def test_the_lag_begins_when_the_store_is_opened(at: InMemory) -> None:
    """What fell due while nothing was running is not late by that time, but from the start of the service."""
    await at.store.kv("a").set("k", 1, ttl=10)
    at.clock.advance(40_000)
    restarted = Measured(at.store)
    at.clock.advance(2)
    await at.store.sweep()
    assert await restarted.values("reaper_lag_seconds") == {"": 2}


async def test_locks_that_are_held_and_waited_for(at: InMemory) -> None:
    """A lock shows while it is held, and so does whoever waits for it; nothing is left when all is over."""
    kv = at.store.semantic("acme", "waiting")
    first, second = kv.lock("door"), kv.lock("door")
    assert await first.acquire(timeout=0)
    waiter = asyncio.create_task(second.acquire(timeout=PATIENCE))
    async with asyncio.timeout(PATIENCE):
        while len(found := await at.values("locks")) < 2:
            pass
    assert found == {'plugin="acme/waiting",state="held"': 1, 'plugin="acme/waiting",state="waiting"': 1}
    await first.release()
    assert await waiter
    assert await at.values("locks") == {'plugin="acme/waiting",state="held"': 1}
    await second.release()
    assert await at.values("locks") == {}


async def test_a_lock_that_ended_elsewhere_is_not_held(at: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that expired, or whose entry another process changed, is not shown nor looked for any more."""
    kv = at.store.kv("a")
    for key in ("released", "retired"):
        await kv.set(key, 1, semantics={"purpose": "lock"})
    await kv.set("expired", 1, ttl=5, semantics={"purpose": "lock"})
    assert await at.values("locks") == {'plugin="a",state="held"': 3}
    at.clock.advance(5)
    assert await at.values("locks") == {'plugin="a",state="held"': 2}
    async with Store(at.engine, clock=at.clock, reap=False) as other:
        await other.kv("a").delete("released")
        await other.kv("a").set("retired", 1, semantics={"purpose": "config"})
    assert await at.values("locks") == {}
    seen: list[Address] = []
    monkeypatch.setattr(at.engine, "read", spoiled(at.engine, seen))
    await at.metrics.exposition()
    assert not [address for address in seen if address.space == KV]


async def test_no_more_locks_are_known_than_the_bound(at: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many locks there are, a scrape looks at the newest; those that were given back take no room."""
    monkeypatch.setattr(gauges, "MOST_LOCKS", 3)
    await at.store.kv("held").set("lock/x", 1, semantics={"purpose": "lock"})
    for number in range(5):
        await at.store.kv("brief").set(f"lock/{number}", 1, semantics={"purpose": "lock"})
        await at.store.kv("brief").delete(f"lock/{number}")
    assert await at.values("locks") == {'plugin="held",state="held"': 1}
    for number in range(5):
        await at.store.kv(f"p{number}").set("lock/x", 1, semantics={"purpose": "lock"})
    assert await at.values("locks") == {f'plugin="p{number}",state="held"': 1 for number in (2, 3, 4)}


async def test_a_scrape_lets_others_have_their_turn(at: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many namespaces and locks there are, requests are served while they are looked at."""
    monkeypatch.setattr("holdfast.operators.store_stats.PART", 1)
    for number in range(5):
        await at.store.kv(f"p{number}").set("lock/x", 1, semantics={"purpose": "lock"})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await at.metrics._gauges.read()
    task.cancel()
    assert turns >= 2 * 5


async def test_each_quota_shows_its_used_share(at: InMemory) -> None:
    """Each quota shows its share that is used; a journal that gives way does not count as used."""
    await at.store.set_policy("kv/a", {"quota_keys": 4, "quota_bytes": 4 * 350})
    await at.store.set_policy("kv/b", {"quota_keys": 10})
    await at.store.set_policy("kv/closed", {"quota_keys": 0})
    await at.store.kv("a").set("k", "x" * 22, writer="w", request_id="r")
    await at.store.kv("a").set("gone", 1, ttl=1)
    await at.store.kv("c").set("k", 1)
    at.clock.advance(1)
    parts = (await at.store.stats("kv/a")).parts
    assert await at.values("quota_ratio") == {
        'plugin="a",quota="keys"': 0.25,
        'plugin="a",quota="bytes"': (parts.counted - parts.journal) / 1_400,
        'plugin="b",quota="keys"': 0.0,
        'plugin="closed",quota="keys"': 1.0,
    }


async def test_dead_letters_are_counted(at: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter shows at the next scrape, and no more when it is dropped; a spoiled sum spoils no scrape."""

    async def escalate(plugin: str) -> int:
        command = Escalate(
            namespace=f"kv/{plugin}",
            origin=ORIGIN,
            request="r",
            key="k",
            letter="{}",
            code="BUSY",
            attempts=5,
        )
        result = await at.store.pipeline.call(command)
        assert isinstance(result, LetterStored)
        return result.number

    await at.store.kv("c").set("k", 1)
    number = await escalate("a")
    for _ in range(2):
        await escalate("b")
    assert await at.values("dead_letters") == {'plugin="a"': 1, 'plugin="b"': 2}
    await at.store.pipeline.call(DropLetter(namespace="kv/a", origin=ORIGIN, number=number))
    assert await at.values("dead_letters") == {'plugin="b"': 2}
    monkeypatch.setattr(at.engine, "read", spoiled(at.engine))
    assert await at.values("dead_letters") == {}
    assert await at.values("store_up") == {"": 1}


async def test_the_head_of_each_audit_is_a_gauge(at: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator sees how long each audit is, how old its newest record, and that a head was spoiled."""
    web = at.store.semantic("acme", "web")
    for number in range(3):
        await web.set("k", number)
    await at.store.kv("plain").set("k", 1)
    at.clock.advance(7)
    assert await at.values("audit_head") == {'plugin="acme/web"': 3}
    assert await at.values("audit_records") == {'plugin="acme/web"': 3}
    assert await at.values("audit_head_age_seconds") == {'plugin="acme/web"': 7}
    monkeypatch.setattr(at.engine, "read", spoiled(at.engine))
    assert await at.values("audit_head") == {'plugin="acme/web"': 0}


async def test_pruned_audit_records_are_not_counted(at: InMemory) -> None:
    """The number of the newest record only grows; how many are kept goes down when old ones are pruned."""
    web = at.store.semantic("acme", "web")
    await web.set("k", 1)
    await at.store.set_policy("semantic/acme/web", {"audit_retention": 86_400})
    pruned = await at.store.audit("semantic/acme/web").log()
    at.clock.advance(2 * 86_400)
    await web.set("k", 2)
    await at.store.upkeep()
    [[_, head]] = (await at.values("audit_head")).items()
    assert head == len(pruned.records) + 1
    assert await at.values("audit_records") == {'plugin="acme/web"': 1}


async def test_failed_sweeps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that cleanup fails counts, and a sweep that succeeds does not."""
    engine, clock = MemoryEngine(), ManualClock()
    done = asyncio.Event()
    outcomes: list[Exception | None] = [errors.Unavailable("gone"), RuntimeError("what"), None]
    due = engine.due

    async def sometimes(*args: Any, **options: Any) -> Any:
        if outcomes and (error := outcomes.pop(0)) is not None:
            raise error
        if not outcomes:
            done.set()
        return await due(*args, **options)

    async def nothing(*args: Any, **options: Any) -> list[Any]:
        return []

    monkeypatch.setattr(engine, "due", sometimes)
    monkeypatch.setattr(engine, "falling_due", nothing)  # the sweep alone is counted
    monkeypatch.setattr("holdfast.upkeep.reaper.TICK", 0.0)
    async with Store(engine, clock=clock, sweep_interval=0.001) as store:
        at = Measured(store)
        await asyncio.wait_for(done.wait(), PATIENCE)
        assert await at.values("kv_cleanup_failures_total") == {"": 2}


async def test_a_storage_that_is_gone_leaves_the_rest(at: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the storage does not answer the counters are there all the same, and the gauge says so."""
    await at.store.kv("a").set("k", 1)

    async def fail(*ignored: Any, **options: Any) -> Any:
        raise errors.Unavailable("gone")

    monkeypatch.setattr(at.engine, "totals", fail)
    assert await at.values("store_up") == {"": 0}
    assert await at.values("kv_keys_total") == {}
    assert await at.values("writes_total") == {written("a", "none", "ok"): 1}


async def test_gauges_read_from_storage_work_on_postgresql(pg_url: str) -> None:
    """Keys, quotas, locks, dead letters and audits show on PostgreSQL as they do in memory."""
    async with holdfast.open(pg_url, reap=False, audit_key=AUDIT_KEY) as store:
        at = Measured(store)
        await store.set_policy("kv/a", {"quota_keys": 2})
        await store.kv("a").set("lock/x", 1, semantics={"purpose": "lock"})
        await store.semantic("acme", "web").set("k", 1)
        command = Escalate(
            namespace="kv/a", origin=ORIGIN, request="r", key="k", letter="{}", code="BUSY", attempts=5
        )
        await store.pipeline.call(command)
        names = ("kv_keys_total", "quota_ratio", "locks", "dead_letters", "audit_head")
        found = {name: await at.values(name) for name in names}
    assert found == {
        "kv_keys_total": {'plugin="a"': 1, 'plugin="acme/web"': 1},
        "quota_ratio": {'plugin="a",quota="keys"': 0.5},
        "locks": {'plugin="a",state="held"': 1},
        "dead_letters": {'plugin="a"': 1},
        "audit_head": {'plugin="acme/web"': 1},
    }
