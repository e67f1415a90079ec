"""What a store tells of entries that expired in runs, which no outcome holds one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import holdfast.pipeline.executor
import holdfast.upkeep.reaper
from holdfast.clock import ManualClock
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import (
    DatabaseError,
    HoldfastError,
    OutcomeUnknown,
    QuotaExceeded,
    StorageFull,
    Unavailable,
)
from holdfast.model import Entry
from holdfast.store import Store
from holdfast.upkeep_commands import Expire, ExpireRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engine import JournalPage, JournalQuery
    from holdfast.rows import Record


class Engine(MemoryEngine):
    """The reference engine, whose journal is counted and can fail, and whose sweeps can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.failure: Exception | None = None
        self.failure_of_sweeps: Exception | None = None
        self.unswept: str | None = None

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Execute commands, if no sweep that fails is among them."""
        sweeps = [one for one in commands if isinstance(one, (Expire, ExpireRun))]
        if self.failure_of_sweeps and any(one.namespace == (self.unswept or one.namespace) for one in sweeps):
            raise self.failure_of_sweeps
        return await super().transact(commands, now)

    async def journal(self, query: JournalQuery) -> JournalPage:
        """What it holds, if all goes well."""
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return await super().journal(query)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expired entry makes a crowd, and a part holds three records."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "CROWD", 1)
    monkeypatch.setattr(holdfast.pipeline.executor, "PART", 3)


async def _expired(store: Store, clock: ManualClock) -> None:
    await store.kv("a").set_many([{"key": f"{n}", "value": 1, "ttl": n + 1} for n in range(7)])
    clock.advance(60)
    assert await store.sweep() == 7


async def test_listeners_hear_of_each_entry_of_a_run() -> None:
    """Whoever listens is told of every expiry, in order, a part at a time; then of what came after."""
    clock, told = ManualClock(), list[list[tuple[str, int]]]()
    async with Store(Engine(), clock=clock, reap=False) as store:
        store.pipeline.listen(
            lambda records: told.append([(record.op, record.version) for record in records])
        )
        await _expired(store, clock)
        await store.kv("a").set("k", 1)
    assert [part for part in told if part and part[0][0] == "expired"] == [
        [("expired", version) for version in part] for part in ((8, 9, 10), (11, 12, 13), (14,))
    ]
    assert told[-1] == [("set", 15)]


async def test_records_are_read_only_for_listeners() -> None:
    """The records of a run are read only if somebody listens."""
    clock, engine = ManualClock(), Engine()
    async with Store(engine, clock=clock, reap=False) as store:
        await _expired(store, clock)
    assert engine.asked == 0


async def test_watchers_are_woken_by_a_run() -> None:
    """A bell rings for a run as it does for any change."""
    clock = ManualClock()
    async with Store(MemoryEngine(), clock=clock, reap=False) as store:
        await store.kv("a").set("k", 1, ttl=1)
        bell = store.pipeline.bell("kv/a")
        clock.advance(1)
        await store.sweep()
        assert bell._rung.is_set()


async def test_a_listener_or_a_journal_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """What can't be told does not undo a sweep, nor keep it from going on."""
    clock, engine = ManualClock(), Engine()

    def refuse(records: list[Record]) -> None:
        raise ValueError("not now")

    async with Store(engine, clock=clock, reap=False) as store:
        store.pipeline.listen(refuse)
        await _expired(store, clock)
        engine.failure = Unavailable("no journal")
        await _expired(store, clock)
    assert "notifying listeners of expired entries failed" in caplog.text


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (StorageFull("the disk is full"), StorageFull),
        (DatabaseError("no such page"), DatabaseError),
        (OutcomeUnknown("no answer to the commit"), Unavailable),
    ],
)
async def test_a_quota_refuses_only_after_a_sweep_that_worked(
    failure: HoldfastError, expected: type[HoldfastError]
) -> None:
    """Where room could not be made, the write fails with the cause, and works once a sweep does.

    Whether the sweep was committed may be unknown; that the write was not is certain.
    """
    clock, engine = ManualClock(), Engine()
    async with Store(engine, clock=clock, reap=False) as store:
        kv = store.kv("a")
        await store.set_policy("kv/a", {"quota_keys": 2})
        await kv.set("old", 1, ttl=1)
        clock.advance(1)
        engine.failure_of_sweeps = failure
        done = await kv.set_many([{"key": "new", "value": 1}, {"key": "newer", "value": 1}])
        assert [type(one) for one in done] == [Entry, expected]
        with pytest.raises(expected, match=failure.message):
            await kv.set("newer", 1)
        engine.failure_of_sweeps = None
        await kv.set("newer", 1)
        with pytest.raises(QuotaExceeded):
            await kv.set("newest", 1)


async def test_a_failed_sweep_concerns_its_own_namespace() -> None:
    """A namespace that can be swept gets its room beside one that can't."""
    clock, engine = ManualClock(), Engine()
    async with Store(engine, clock=clock, reap=False) as store:
        for name in ("full", "other"):
            await store.set_policy(f"kv/{name}", {"quota_keys": 1})
            await store.kv(name).set("old", 1, ttl=1)
        clock.advance(1)
        engine.unswept = "kv/full"
        engine.failure_of_sweeps = StorageFull("the disk is full")
        writes = (store.kv(name).set("new", 1) for name in ("full", "other"))
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(one) for one in done] == [StorageFull, Entry]
