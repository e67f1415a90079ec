"""The PostgreSQL engine when processes compete, connections die, servers restart and callers leave.

Every write here has a key or a count of its own, so that afterwards plain SQL can tell whether it was
kept, and what its caller was told must fit.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast.commands import Stored
from holdfast.engine import JournalQuery
from holdfast.engines.postgres import PostgresEngine, reads
from holdfast.engines.postgres.transaction import Group
from holdfast.errors import OutcomeUnknown, Transient, Unavailable, VersionConflict
from holdfast.rows import KV, TRASH, Address
from holdfast.upkeep_commands import Expire
from holdfast.verbs.caller import id_maker
from tests.engines.counting_process import NOW
from tests.forking import ForkedProcess
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.postgres import Server

    Connection = asyncpg.Connection[asyncpg.Record]

NAMESPACE: Final = "kv/trivia"
OURS: Final = "datname = current_database() AND application_name = 'holdfast'"


@pytest.fixture
async def sql(pg_store_url: str) -> AsyncIterator[Connection]:
    """A connection past the engine."""
    connection = await asyncpg.connect(pg_store_url)
    yield connection
    await connection.close()


@pytest.fixture
async def engine(pg_store_url: str, sql: Connection) -> AsyncIterator[PostgresEngine]:
    """An engine on an empty database."""
    engine = PostgresEngine(pg_store_url)
    await engine.start()
    yield engine
    await engine.aclose()


def maker(namespace: str = NAMESPACE) -> Verbs:
    """A maker of commands."""
    return Verbs(namespace, writer="tester", new_id=id_maker(), now=lambda: 0)


class Wire:
    """What lies between an engine and its server, and can be cut when a certain message passes."""

    def __init__(self, url: str) -> None:
        self._there = urlsplit(url)
        self._running: set[asyncio.Task[None]] = set()
        self.cut_at: bytes | None = None
        """Cut when this passes: a command and its confirmation both hold it, and the latter is held back."""
        self.cut_first = False
        """The command is held back too."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1")
        port = self._server.sockets[0].getsockname()[1]
        login = self._there.netloc.rpartition("@")[0]
        self.url = self._there._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await asyncio.gather(*self._running)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        there = await asyncio.open_connection(self._there.hostname, self._there.port)
        back = asyncio.create_task(self._pass_back(there[0], writer))
        await self._pass_on(reader, there[1])
        await back
        self._running.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.cut_first and self._is_cut(data):
                break
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._is_cut(data):
                break
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    def _is_cut(self, data: bytes) -> bool:
        return self.cut_at is not None and self.cut_at in data


async def told(engine: PostgresEngine, verbs: Verbs, key: str) -> str:
    """Write a key, and say what the caller was told: kept, not kept, or unknown."""
    try:
        (result,) = (await engine.transact([verbs.set(key, key)], lambda: NOW)).results
    except Transient:
        return "not kept"
    except OutcomeUnknown:
        return "unknown"
    assert isinstance(result, Stored)
    return "kept"


async def write_until(
    over: Callable[[], bool], engine: PostgresEngine, namespace: str, outcomes: dict[str, str]
) -> None:
    """Write key after key, and note what was told of each."""
    verbs = maker(namespace)
    while not over():
        key = f"{namespace} {len(outcomes)}"
        outcomes[key] = await told(engine, verbs, key)


async def check(url: str, outcomes: dict[str, str]) -> None:
    """What was told of each write must be so."""
    connection = await asyncpg.connect(url)
    kept = {row[0] for row in await connection.fetch("SELECT key FROM plugin_kv_storage")}
    recorded = {row[0] for row in await connection.fetch("SELECT key FROM holdfast_journal")}
    await connection.close()
    assert kept == recorded
    assert {key for key, outcome in outcomes.items() if outcome == "kept"} <= kept
    assert not {key for key, outcome in outcomes.items() if outcome == "not kept"} & kept


@pytest.mark.unmeasured
async def test_increments_of_several_processes_are_not_lost(pg_store_url: str) -> None:
    """Groups of one namespace take effect one after the other, across all processes: no increment is lost."""
    words = (pg_store_url, NAMESPACE, "3", "40")
    counting = [await ForkedProcess.start("tests.engines.counting_process", *words) for _ in range(4)]
    assert [await process.wait() for process in counting] == [0] * 4
    engine = PostgresEngine(pg_store_url)
    await engine.start()
    (row,) = await engine.read([Address(NAMESPACE, KV, "n")], NOW)
    page = await engine.journal(JournalQuery(namespace=NAMESPACE, limit=10_000))
    await engine.aclose()
    assert row is not None
    assert row.value == "480"
    assert [record.version for record in page.records] == list(range(1, 481))


async def test_a_restart_fails_running_requests_and_the_next_one_reconnects(pg_alone: Server) -> None:
    """A restart fails what is under way, never silently, and the next request finds the server by itself."""
    url = pg_alone.create_database()
    engine = PostgresEngine(url)
    await engine.start()
    outcomes: dict[str, str] = {}
    over = asyncio.Event()
    async with asyncio.TaskGroup() as writers:
        for number in range(6):
            writers.create_task(write_until(over.is_set, engine, f"kv/p{number}", outcomes))
        for number in range(2):
            await asyncio.to_thread(pg_alone.restart)
            assert await told(engine, maker(), f"after {number}") == "kept"
        over.set()
    await engine.aclose()
    assert set(outcomes.values()) >= {"kept", "not kept"}
    await check(url, outcomes | {"after 0": "kept", "after 1": "kept"})


async def test_requests_say_that_the_server_is_gone_and_nothing_was_written(pg_alone: Server) -> None:
    """While the server is away every request is told so, and that nothing was written."""
    engine = PostgresEngine(pg_alone.dsn)
    await engine.start()
    address = Address(NAMESPACE, KV, "a")
    assert await told(engine, maker(), "a") == "kept"
    await asyncio.to_thread(pg_alone.stop)
    assert await told(engine, maker(), "b") == "not kept"
    with pytest.raises(Unavailable):
        await engine.read([address], NOW)
    with pytest.raises(Unavailable):
        await engine.totals(NOW)
    await asyncio.to_thread(pg_alone.start)
    (row,) = await engine.read([address], NOW)
    assert row is not None
    await engine.aclose()


async def test_a_dead_idle_connection_fails_no_new_request(engine: PostgresEngine, sql: Connection) -> None:
    """A request that has not begun is not failed by a kept connection that is dead."""
    verbs = maker()
    for number in range(20):
        await sql.fetch(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
        assert await told(engine, verbs, str(number)) == "kept"
        await sql.fetch(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
        assert await engine.read([Address(NAMESPACE, KV, str(number))], NOW) != [None]


async def test_a_cut_connection_never_reports_a_stored_write_as_failed(
    pg_store_url: str, sql: Connection
) -> None:
    """Whenever a connection is cut, a write that was kept is never told as a failure, nor the reverse."""
    name = await sql.fetchval("SELECT current_database()")
    # Each commit waits for 5 ms, so that many a cut comes in the midst of one.
    await sql.execute(f'ALTER DATABASE "{name}" SET commit_delay = 5000')
    await sql.execute(f'ALTER DATABASE "{name}" SET commit_siblings = 0')
    engine = PostgresEngine(pg_store_url)
    await engine.start()
    outcomes: dict[str, str] = {}
    cuts = 0
    async with asyncio.TaskGroup() as writers:
        for number in range(3):
            writers.create_task(write_until(lambda: cuts >= 100, engine, f"kv/p{number}", outcomes))
        while cuts < 100:
            cuts += await sql.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "
                f"WHERE {OURS} AND state <> 'idle' ORDER BY random() LIMIT 1) AS unlucky"
            )
    await engine.aclose()
    await check(pg_store_url, outcomes)


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_unconfirmed_commit_is_outcome_unknown_and_not_retried(
    pg_store_url: str, sql: Connection, arrives: bool
) -> None:
    """A commit that nobody answers is told as unknown, whether it was kept or not, and is not tried again."""
    async with Wire(pg_store_url) as wire:
        engine = PostgresEngine(wire.url)
        await engine.start()
        assert await told(engine, maker(), "before") == "kept"
        await sql.execute("UPDATE holdfast_namespaces SET name = name")  # as another process would
        assert await told(engine, maker(), "notices") == "kept"
        wire.cut_at, wire.cut_first = b"COMMIT\0", not arrives
        assert await told(engine, maker(), "cut") == "unknown"
        wire.cut_at = None
        assert await told(engine, maker(), "after") == "kept"
        await engine.aclose()
    # The rollback of what was cut off precedes the write that came after it: both lock the namespace.
    found = await sql.fetch("SELECT key FROM plugin_kv_storage ORDER BY version")
    assert [row[0] for row in found] == ["before", "notices", *(["cut"] if arrives else []), "after"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_unconfirmed_write_without_a_lock_is_outcome_unknown(
    pg_store_url: str, sql: Connection, arrives: bool
) -> None:
    """The same holds where the statement that writes commits by itself."""
    async with Wire(pg_store_url) as wire:
        engine = PostgresEngine(wire.url)
        await engine.start()
        for value in range(3):  # by then it is known that nobody else writes
            await engine.transact([maker().set("a", value)], lambda: NOW)
        # Two rows are loaded, and one word says that they were written.
        wire.cut_at, wire.cut_first = (b"SELECT 1\0", False) if arrives else (b'"cut"', True)
        with pytest.raises(OutcomeUnknown):
            await engine.transact([maker().set("a", "cut")], lambda: NOW)
        wire.cut_at = None
        assert await told(engine, maker(), "after") == "kept"
        await engine.aclose()
    assert await sql.fetchval("SELECT value_json FROM plugin_kv_storage WHERE key = 'a'") == (
        '"cut"' if arrives else "2"
    )
    assert await sql.fetchval("SELECT count(*) FROM holdfast_journal") == (5 if arrives else 4)


async def test_a_group_without_a_lock_does_not_overwrite_unseen_changes(
    pg_store_url: str, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that took itself to be alone holds nobody up, and does not write over what it has not seen."""
    other = PostgresEngine(pg_store_url)
    await other.start()
    for _ in range(3):
        await engine.transact([maker().incr("n")], lambda: NOW)
    save, held_up = Group._save, 0

    async def save_later(group: Group, *given: Any, commits: bool) -> int | None:
        nonlocal held_up
        if commits and not held_up:
            held_up += 1
            await other.transact([maker().incr("n")], lambda: NOW)
        return await save(group, *given, commits=commits)

    monkeypatch.setattr(Group, "_save", save_later)
    outcome = await engine.transact([maker().incr("n"), maker().set("m", 1)], lambda: NOW)
    assert held_up == 1
    assert [result.row.version for result in outcome.results if isinstance(result, Stored)] == [5, 6]
    for _ in range(2):
        await engine.transact([maker().incr("n")], lambda: NOW)
    held_up = 0
    outcome = await engine.transact([maker().delete("n", expected_version=8)], lambda: NOW)
    assert held_up == 1
    assert isinstance(outcome.results[0], VersionConflict)
    (row,) = await engine.read([Address(NAMESPACE, KV, "n")], NOW)
    assert row is not None
    assert row.value == "8"
    await other.aclose()


@pytest.mark.parametrize(
    "setting",
    ["default_transaction_isolation = serializable", "default_transaction_read_only = on"],
)
async def test_session_defaults_of_the_database_do_not_change_writes(
    pg_store_url: str, sql: Connection, setting: str
) -> None:
    """What a database gives its sessions does not change how a write goes, with a lock or without."""
    engine = PostgresEngine(pg_store_url)
    await engine.start()
    await engine.aclose()
    name = await sql.fetchval("SELECT current_database()")
    await sql.execute(f'ALTER DATABASE "{name}" SET {setting}')
    others = [PostgresEngine(pg_store_url), PostgresEngine(pg_store_url)]
    for other in others:
        await other.start()
    for _ in range(4):
        await others[0].transact([maker().incr("n")], lambda: NOW)
    await asyncio.gather(
        *(one.transact([maker().incr("n")], lambda: NOW) for one in others for _ in range(10))
    )
    assert await sql.fetchval("SELECT value_json FROM plugin_kv_storage") == "24"
    for other in others:
        await other.aclose()


async def test_changes_of_uncounted_rows_are_noticed_too(engine: PostgresEngine, sql: Connection) -> None:
    """Also a change of rows that the namespace does not count is noticed by whoever loaded before it."""
    assert await told(engine, maker(), "a") == "kept"
    await sql.execute(
        "INSERT INTO holdfast_rows "
        "(namespace, space, key, value, expires_at, created_at, updated_at, version, last_writer) "
        "VALUES ($1, 'trash', 'b', '1', 'epoch', 'epoch', 'epoch', 1, 'tester')",
        NAMESPACE,
    )
    mark = "SELECT xmin::text FROM holdfast_namespaces"
    before = await sql.fetchval(mark)
    await engine.transact([Expire(namespace=NAMESPACE, space=TRASH, keys=(b"b",))], lambda: NOW)
    assert await sql.fetchval("SELECT count(*) FROM holdfast_rows") == 0
    assert await sql.fetchval(mark) != before


@pytest.mark.unmeasured
async def test_cancelled_callers_leave_no_open_transaction_or_connection(
    engine: PostgresEngine, sql: Connection
) -> None:
    """Cancelling a caller at any point leaves no open transaction, stray connection or half of a group."""
    dice = random.Random(7)
    verbs = maker()
    for number in range(300):
        group = [verbs.set(f"{number}.{part}", number) for part in range(3)]
        task = asyncio.create_task(engine.transact(group, lambda: NOW))
        for _ in range(dice.randrange(200)):
            await asyncio.sleep(0)
        task.cancel()
        if number % 3 == 0:
            asyncio.create_task(engine.read([Address(NAMESPACE, KV, "0.0")], NOW)).cancel()
    assert await told(engine, verbs, "last") == "kept"
    await until(sql, f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND state <> 'idle'", 0)
    assert await sql.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}") <= 8
    sizes = await sql.fetch(
        "SELECT count(*) FROM plugin_kv_storage WHERE key <> 'last' GROUP BY split_part(key, '.', 1)"
    )
    assert {size[0] for size in sizes} == {3}
    assert await sql.fetchval("SELECT count(*) = max(version) FROM holdfast_journal")


async def test_closing_finishes_accepted_requests(pg_store_url: str, sql: Connection) -> None:
    """What was accepted before the end is finished, and no connection is left."""
    engine, verbs = PostgresEngine(pg_store_url, connections=4), maker()
    await engine.start()
    writes = [asyncio.create_task(engine.transact([verbs.incr("n")], lambda: NOW)) for _ in range(20)]
    reads = [asyncio.create_task(engine.read([Address(NAMESPACE, KV, "n")], NOW)) for _ in range(20)]
    await asyncio.sleep(0)
    await engine.aclose()
    outcomes = await asyncio.gather(*writes)
    assert all(isinstance(outcome.results[0], Stored) for outcome in outcomes)
    assert [len(rows) for rows in await asyncio.gather(*reads)] == [1] * 20
    assert await sql.fetchval("SELECT value_json FROM plugin_kv_storage") == "20"
    await until(sql, f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}", 0)


async def until(connection: Connection, query: str, answer: object) -> None:
    """Ask until the server gives this answer: what it shows of its processes is a little late."""
    async with asyncio.timeout(60):
        while await connection.fetchval(query) != answer:
            pass


async def test_reads_go_on_after_a_program_has_cancelled_all_its_tasks(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that read for several callers are started again, also those that had not begun."""
    addresses = [Address(NAMESPACE, KV, "k")]
    before = asyncio.all_tasks()
    reading = [asyncio.create_task(engine.read(addresses, NOW)) for _ in range(2)]
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.wait(reading)
    async with asyncio.timeout(30):
        assert await engine.read(addresses, NOW) == [None]

    fetching, fetch = asyncio.Event(), reads._fetch

    async def slowly(*given: Any, **more: Any) -> Any:
        fetching.set()
        await asyncio.sleep(0.05)
        return await fetch(*given, **more)

    async def later() -> list[Any]:
        await fetching.wait()
        return await engine.read(addresses, NOW)

    monkeypatch.setattr(reads, "_fetch", slowly)
    waits = asyncio.create_task(later())
    await asyncio.sleep(0)
    before = asyncio.all_tasks()
    reading = [asyncio.create_task(engine.read(addresses, NOW)) for _ in range(2)]
    await fetching.wait()
    await asyncio.sleep(0.01)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    async with asyncio.timeout(30):
        assert await waits == [None]
