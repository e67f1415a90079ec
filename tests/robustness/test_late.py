"""Nothing takes effect after its deadline: not behind a pause of the service, not behind a lock.

`HOLDFAST_LATE_STOPS` says how often a service is stopped with SIGSTOP; `./dev soak late` does it 30 times on
each storage. A write counts as late if its caller had given up before the service went on, and it is there
afterwards although a restart at that moment would not have found it. Two kinds are told apart by the time
that the entry carries, which is that of the look at the clock that decided it:

- `decided late`: the look itself came after the deadline. There must be none, ever.
- `in the window`: the look was in time, and the process was stopped between it and the moment at which the
  commit was in the log. With PostgreSQL the server looks while it commits, so that there must be none either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import pytest

import holdfast
from holdfast.errors import OutcomeUnknown, Timeout, Transient
from tests.robustness.serving_process import service_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from tests.forking import ForkedProcess

STOPS = int(os.environ.get("HOLDFAST_LATE_STOPS", "1"))
HELD = 20
"""How many writes wait behind a lock."""
CALLERS = 160
TIMEOUT = 0.4
MARGIN = 0.3
"""By how many seconds a look counts as late or in time: clients know the service's clock only so well."""
_KV = "SELECT key, {} FROM plugin_kv_storage WHERE plugin_name = 'late'"


class Late(NamedTuple):
    """How many writes took effect too late."""

    decided: int
    in_the_window: int


class Load:
    """Callers who write one new key after the other, and when each of their calls was over."""

    def __init__(self, kv: holdfast.KV) -> None:
        self._kv = kv
        self.acknowledged: set[str] = set()
        self.given_up: dict[str, float] = {}

    async def write(self, number: int) -> None:
        """Write until cancelled; a call that is cancelled has been given up."""
        count = 0
        while True:
            key = f"{number}:{count}"
            count += 1
            deadline = time.time() + TIMEOUT
            try:
                await self._kv.set(key, count, timeout=TIMEOUT)
            except (OutcomeUnknown, Transient) as error:
                self.given_up[key] = min(deadline, time.time()) if isinstance(error, Timeout) else deadline
            else:
                self.acknowledged.add(key)

    def late(self, before: set[str], after: dict[str, float], resumed: float) -> Late:
        """What was not there when the service went on, and is there now although its caller had given up."""
        ends = {key: end for key, end in self.given_up.items() if end < resumed - MARGIN}
        found = [key for key in ends if key in after and key not in before]
        decided = sum(after[key] > ends[key] + MARGIN for key in found)
        return Late(decided, len(found) - decided)


async def _entries(storage: str) -> dict[str, float]:
    """The keys in the storage and the times that they carry, read past the service."""
    if storage.startswith("postgresql"):
        connection = await asyncpg.connect(storage)
        try:
            rows = await connection.fetch(_KV.format("extract(epoch FROM updated_at)::float8"))
        finally:
            await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(storage)) as file:
            rows = file.execute(_KV.format("updated_at / 1000.0")).fetchall()
    return {key: at for key, at in rows}  # noqa: C416 - asyncpg's rows are no tuples


async def _recoverable(storage: str) -> set[str]:
    """The keys that a restart would find, while the service is stopped: those in SQLite's log among them."""
    if storage.startswith("postgresql"):
        return set(await _entries(storage))
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", "-wal"):
            shutil.copy(storage + suffix, f"{folder}/copy.db{suffix}")
        return set(await _entries(f"{folder}/copy.db"))


@contextlib.asynccontextmanager
async def _loaded(kv: holdfast.KV) -> AsyncIterator[Load]:
    load = Load(kv)
    tasks = [asyncio.create_task(load.write(number)) for number in range(CALLERS)]
    try:
        yield load
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stopped_once(process: ForkedProcess, kv: holdfast.KV, storage: str, dice: random.Random) -> Late:
    """Stop the process under load until every call that had been sent is given up; what it did too late."""
    async with _loaded(kv) as load:
        await asyncio.sleep(dice.uniform(0.02, 0.3))
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(TIMEOUT + 3 * MARGIN + dice.uniform(0, 0.5))
            before = await _recoverable(storage)
            resumed = time.time()
        finally:
            process.send_signal(signal.SIGCONT)
        known = len(load.acknowledged)
        async with asyncio.timeout(60):
            while len(load.acknowledged) < known + CALLERS:  # noqa: ASYNC110 - many tasks count together
                await asyncio.sleep(0.01)
    await asyncio.sleep(2 * MARGIN)
    entries = await _entries(storage)
    assert load.acknowledged <= entries.keys()
    assert load.given_up, "nobody gave up: the stop was too short to show anything"
    return load.late(before, entries, resumed)


async def _learn_the_clock(kv: holdfast.KV) -> None:
    """Let a client learn the service's clock: it goes by the quickest of its replies."""
    for _ in range(20):
        with contextlib.suppress(Transient):
            await kv.get("before")


async def _campaign(url: str, storage: str, processes: list[ForkedProcess]) -> Late:
    dice, found = random.Random(5), [Late(0, 0)]
    async with holdfast.open(f"{url}?timeout={TIMEOUT}") as store:
        kv = store.kv("late")
        await kv.set("before", 1, timeout=60)
        await _learn_the_clock(kv)
        for stop in range(STOPS):
            found.append(await _stopped_once(processes[stop % len(processes)], kv, storage, dice))
            await kv.delete_many(list(await _entries(storage))[:1000], timeout=60)
    total = Late(*map(sum, zip(*found, strict=True)))
    print(f"\nlate: {STOPS} stops of {storage.partition(':')[0][-10:]}: {total}")
    return total


async def test_a_resumed_service_does_nothing_its_callers_gave_up(
    nats_server: NatsServer, storage: str
) -> None:
    """What a caller gave up while the service was stopped is not carried out when it goes on."""
    async with service_process(nats_server.url, storage) as process:
        total = await _campaign(nats_server.url, storage, [process])
    assert total.decided == 0
    if storage.startswith("postgresql"):
        assert total.in_the_window == 0


async def test_a_resumed_service_does_not_overwrite_the_other_one(
    nats_server: NatsServer, pg_store_url: str
) -> None:
    """A service that was stopped does not write over what another has acknowledged meanwhile."""
    async with (
        service_process(nats_server.url, pg_store_url) as one,
        service_process(nats_server.url, pg_store_url) as other,
    ):
        assert await _campaign(nats_server.url, pg_store_url, [one, other]) == Late(0, 0)


@contextlib.asynccontextmanager
async def _holding(storage: str) -> AsyncIterator[None]:
    """Another program that holds the file, or the row of the namespace, for the length of a block."""
    if storage.startswith("postgresql"):
        connection = await asyncpg.connect(storage)
        try:
            async with connection.transaction():
                await connection.execute("SELECT FROM holdfast_namespaces WHERE name = 'kv/late' FOR UPDATE")
                yield
        finally:
            await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(storage, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")


async def _results(*calls: asyncio.Task[holdfast.Entry]) -> list[type]:
    return [type(result) for result in await asyncio.gather(*calls, return_exceptions=True)]


@pytest.mark.parametrize("door", ["embedded", "nats"])
async def test_a_write_past_its_deadline_behind_a_lock_is_not_done(
    nats_server: NatsServer, storage: str, door: str
) -> None:
    """What waited for a lock past its deadline is not done when the lock is free; others of its group are."""
    async with contextlib.AsyncExitStack() as stack:
        url: str | Path = storage
        if door == "nats":
            await stack.enter_async_context(service_process(nats_server.url, storage))
            url = f"{nats_server.url}?timeout=60"
        kv = (await stack.enter_async_context(holdfast.open(url))).kv("late")
        first = await kv.set("before", 1, timeout=60)
        await _learn_the_clock(kv)
        async with _holding(storage):
            held = [asyncio.create_task(kv.set(f"held {n}", n, timeout=TIMEOUT)) for n in range(HELD)]
            patient = asyncio.create_task(kv.set("patient", 1, timeout=60))
            await asyncio.sleep(TIMEOUT + 3 * MARGIN)
        assert await _results(*held) == [OutcomeUnknown if door == "nats" else Timeout] * HELD
        await patient
        page = await kv.list()
        assert page.keys == ["before", "patient"]
        assert (await kv.set("after", 1, timeout=60)).version == first.version + 2
