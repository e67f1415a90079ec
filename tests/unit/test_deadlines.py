"""A write whose deadline passes before it is committed is refused, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import holdfast
from holdfast.clock import ManualClock, SystemClock
from holdfast.commands import Get
from holdfast.decide import Loaded, decide
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import Busy, Timeout
from holdfast.pipeline.executor import too_late
from holdfast.rows import Namespace
from holdfast.store import Store
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.engines.postgres.connections import Connection


@pytest.fixture
def clock() -> ManualClock:
    """The store's time."""
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store on each engine that commits by itself."""
    urls = {"memory": "memory://", "sqlite": str(tmp_path / "store.db")}
    url = urls.get(request.param) or request.getfixturevalue("pg_store_url")
    async with holdfast.open(url, clock=clock, reap=False) as opened:
        yield opened


async def _handed_over(clock: ManualClock, *calls: Any) -> list[Any]:
    """The ends of calls between whose handing over and whose group two seconds pass."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    asyncio.get_running_loop().call_soon(clock.advance, 2)  # after the calls' first step, before their group
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_group_leaves_out_who_has_given_up(store: Store, clock: ManualClock) -> None:
    """When a group is formed, those past their deadline are refused and the others go on, in their order."""
    kv = store.kv("trivia")
    first, late, patient, last = await _handed_over(
        clock,
        kv.set("a", 1),
        kv.set("b", 1, timeout=1),
        kv.set("c", 1, timeout=3),
        kv.incr("a"),
    )
    assert isinstance(late, Timeout)
    assert late.code == "TIMEOUT"
    assert [first.version, patient.version, last.version] == [1, 2, 3]
    assert (await kv.list()).keys == ["a", "c"]


async def test_a_group_of_late_ones_is_nothing(store: Store, clock: ManualClock) -> None:
    """Where all have given up nothing is asked of the storage, and the next write goes on as ever."""
    kv = store.kv("trivia")
    ends = await _handed_over(clock, *(kv.set(key, 1, timeout=1) for key in "abc"))
    assert [type(end) for end in ends] == [Timeout] * 3
    assert (await kv.set("d", 1, timeout=1)).version == 1


async def test_an_error_of_the_rest_is_theirs(clock: ManualClock, tmp_path: Path) -> None:
    """If the storage refuses a group, those who had given up are told so, and the others why."""
    async with holdfast.open(tmp_path / "store.db", clock=clock, reap=False) as store:
        kv = store.kv("trivia")
        await kv.set("a", 1)
        (tmp_path / "store.db").rename(tmp_path / "moved.db")
        late, other = await _handed_over(clock, kv.set("b", 1, timeout=1), kv.set("c", 1))
        assert isinstance(late, Timeout)
        assert isinstance(other, holdfast.DatabaseError | holdfast.OutcomeUnknown)


async def test_a_batch_is_late_as_a_whole(store: Store, clock: ManualClock) -> None:
    """Of a batch, of several writes in one call and of a transaction nothing is written too late."""
    kv, tables = store.kv("trivia"), store.tables("trivia")
    await tables.create_table("events", partition_key=("user", "string"))
    ends = await _handed_over(
        clock,
        kv.batch(writes=[{"key": "a", "value": 1}], timeout=1),
        kv.set_many([{"key": "b", "value": 1}], timeout=1),
        kv.delete_many(["c"], timeout=1),
        tables.put_item("events", {"user": "a"}, timeout=1),
        tables.transact_write([{"put": {"table": "events", "item": {"user": "b"}}}], timeout=1),
        tables.batch_write_item("events", [{"put": {"item": {"user": "c"}}}], timeout=1),
    )
    assert [type(end) for end in ends] == [Timeout] * 6
    assert (await kv.list()).keys == []
    assert (await tables.scan("events")).items == []


async def test_a_refusal_for_being_late_is_not_remembered(store: Store, clock: ManualClock) -> None:
    """The same request may be sent again, with a deadline that has not passed, and is done then."""
    kv = store.kv("trivia")
    [late] = await _handed_over(clock, kv.incr("n", request_id="r", timeout=1))
    assert isinstance(late, Timeout)
    assert (await kv.incr("n", request_id="r", timeout=1)).value == 1


async def test_every_attempt_of_a_retry_has_its_own_deadline(clock: ManualClock) -> None:
    """A timeout of `kv.retry` is that of each attempt: a late one does not make the next one late."""
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        kv = store.kv("trivia")
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        retry = kv.retry
        retry._sleep = sleep
        [entry] = await _handed_over(clock, retry.set("k", 1, timeout=1))
        assert entry.version == 1
        assert len(slept) == 1


def test_decide_looks_at_the_clock_and_not_at_the_last_change() -> None:
    """A namespace whose last change lies ahead makes nobody late; the time that is given does."""
    verbs = Verbs("kv/p", writer="w", new_id=id_maker(), now=lambda: 1_000)
    ahead = Loaded(namespaces={"kv/p": Namespace(name="kv/p", changed_at=99_000)}, rows={})
    commands = [verbs.set("a", 1, timeout=2), verbs.set("b", 1, timeout=1), verbs.set("c", 1)]
    outcome = decide(ahead, commands, 2_500)
    assert [type(result).__name__ for result in outcome.results] == ["Stored", "Timeout", "Stored"]
    assert outcome.deadline == 3_000
    assert decide(ahead, commands, 2_000).deadline == 2_000  # at the instant itself it is not too late


def test_only_changes_can_be_late() -> None:
    """Upkeep and reads that take their turn among the writes have no deadline."""
    assert too_late([Get(namespace="kv/p", key="a")], lambda: 2**60) == {}


class _Locked:
    """A SQLite file that another program holds; time passes while the store waits for it."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        """Let go of the file."""
        self._file.execute("ROLLBACK")
        self._file.close()


async def _begun(engine: SqliteEngine) -> None:
    """Wait until the writer's thread has taken up the job that it was given."""
    async with asyncio.timeout(60):
        while not engine._writer._jobs.empty():  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0.01)


async def test_sqlite_looks_again_when_it_has_the_file(clock: ManualClock, tmp_path: Path) -> None:
    """A write that waited for the file past its deadline is refused; the rest of its group is committed."""
    path = tmp_path / "store.db"
    engine = SqliteEngine(path)
    async with Store(engine, clock=clock, reap=False) as store:
        kv = store.kv("trivia")
        await kv.set("before", 1)
        locked = _Locked(path)
        late = asyncio.create_task(kv.set("late", 1, timeout=1))
        patient = asyncio.create_task(kv.set("patient", 1, timeout=5))
        await asyncio.sleep(0)
        await _begun(engine)
        clock.advance(2)
        locked.release()
        with pytest.raises(Timeout):
            await late
        assert (await patient).version == 2
        assert (await kv.list()).keys == ["before", "patient"]


class _Stalling:
    """A clock that is asked a few times before time passes: a pause in the middle of a commit."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self._start = ManualClock().now()

    def now(self) -> int:
        """The time, which jumps by an hour after so many looks."""
        self._looks -= 1
        return self._start if self._looks >= 0 else self._start + 3_600_000


@pytest.mark.parametrize("looks", range(6))
async def test_sqlite_looks_before_the_commit_at_the_latest(looks: int, tmp_path: Path) -> None:
    """Whenever the process is paused, up to the last look before the commit, nothing is written late."""
    path = tmp_path / "store.db"
    engine = SqliteEngine(path)
    await engine.start()
    try:
        clock = _Stalling(looks)
        verbs = Verbs("kv/p", writer="w", new_id=id_maker(), now=ManualClock().now)
        outcome = await engine.transact([verbs.set("a", 1, timeout=1), verbs.set("b", 1)], clock.now)
        kinds = [type(result).__name__ for result in outcome.results]
        assert kinds == ["Stored" if looks >= 3 else "Timeout", "Stored"]
        with contextlib.closing(sqlite3.connect(path)) as file:
            keys = [key for (key,) in file.execute("SELECT key FROM plugin_kv_storage ORDER BY key")]
        assert keys == (["a", "b"] if looks >= 3 else ["b"])
    finally:
        await engine.aclose()


@contextlib.asynccontextmanager
async def _row_held(url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM holdfast_namespaces WHERE name = 'kv/trivia' FOR UPDATE")
            yield
    finally:
        await connection.close()


async def _waiting(url: str) -> None:
    """Wait until somebody waits for a lock in this database."""
    connection = await asyncpg.connect(url)
    asking = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    try:
        async with asyncio.timeout(60):
            while not await connection.fetchval(asking):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


@pytest.mark.parametrize("alone", [True, False])
async def test_postgres_looks_at_its_own_clock_in_the_statement_that_commits(
    pg_store_url: str, alone: bool
) -> None:
    """However long the row of the namespace was waited for: the server's clock refuses what is too late."""
    async with (
        holdfast.open(pg_store_url, clock=SystemClock(), reap=False) as store,
        holdfast.open(pg_store_url, clock=SystemClock(), reap=False) as other,
    ):
        kv = store.kv("trivia")
        for number in range(3):  # until this process has seen that nobody else writes there
            await kv.set("before", number)
        if not alone:
            await other.kv("trivia").set("other", 1)
        async with _row_held(pg_store_url):
            late = asyncio.create_task(kv.set("late", 1, timeout=0.2))
            patient = asyncio.create_task(kv.set("patient", 1, timeout=30))
            await _waiting(pg_store_url)
            await asyncio.sleep(0.3)
        with pytest.raises(Timeout):
            await late
        await patient
        assert await kv.get("late") is None
        assert await kv.get("patient") is not None


async def test_postgres_refuses_a_pause_before_the_commit(
    pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is paused between its last look and the commit finds it refused by the server."""
    from holdfast.engines.postgres import transaction

    commit = transaction.commit
    pauses = [0.5]

    async def paused(connection: Connection, until: int | None = None) -> None:
        if until is not None and pauses:
            await asyncio.sleep(pauses.pop())
        await commit(connection, until)

    monkeypatch.setattr(transaction, "commit", paused)
    async with holdfast.open(pg_store_url, clock=SystemClock(), reap=False) as store:
        kv = store.kv("trivia")  # whose row is not there yet, so that the first write locks it
        with pytest.raises(Timeout):
            await kv.set("late", 1, timeout=0.3)
        assert not pauses
        assert await kv.get("late") is None
        assert (await kv.set("k", 1, timeout=30)).version == 1


async def test_postgres_gives_up_if_it_is_always_too_late(
    pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose every commit comes too late for deadlines that have not passed here is busy."""
    from holdfast.engines.postgres import transaction

    monkeypatch.setattr(transaction, "_until", lambda outcome, found: 1)
    async with holdfast.open(pg_store_url, clock=ManualClock(), reap=False) as store:
        with pytest.raises(Busy):
            await store.kv("trivia").set("k", 1, timeout=5)
        assert await store.kv("trivia").get("k") is None
