"""What only the PostgreSQL engine can get wrong: opening, conversions, transactions.

What holds for every engine is certified by `holdfast.testing`; here stands what is peculiar to this one,
looked at from behind with plain SQL where that says more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, cast

import asyncpg
import pytest

import holdfast
from holdfast import errors
from holdfast.audit.keyring import Keyring
from holdfast.commands import Stored
from holdfast.engine import JournalQuery, Scan
from holdfast.engines.postgres import PostgresEngine, connections, transaction
from holdfast.engines.sql import migrate
from holdfast.engines.sql.layout import SCHEMA_REVISION
from holdfast.rows import KV, TRASH, Address
from holdfast.upkeep_commands import Trim
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.postgres import Server

NOW: Final = 1_700_000_000_123
NAMESPACE: Final = "kv/trivia"


@pytest.fixture
async def engine(pg_store_url: str) -> AsyncIterator[PostgresEngine]:
    """An engine on an empty database."""
    async with started(pg_store_url) as opened:
        yield opened


@pytest.fixture
async def sql(pg_store_url: str, engine: PostgresEngine) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection past the engine, once the store is there."""
    connection = await asyncpg.connect(pg_store_url)
    yield connection
    await connection.close()


@pytest.fixture
def verbs() -> Verbs:
    """A maker of commands for one plugin."""
    return Verbs(NAMESPACE, writer="tester", new_id=id_maker(), now=lambda: 0)


@contextlib.asynccontextmanager
async def started(url: str, **settings: Any) -> AsyncIterator[PostgresEngine]:
    """An engine that is ready, and closed at the end."""
    engine = PostgresEngine(url, keys=Keyring([b"a secret of tests"]), **settings)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.aclose()


def everything(namespace: str = NAMESPACE, space: str = KV, **changes: Any) -> Scan:
    """A scan of a whole space."""
    start = "" if space == KV else b""
    return Scan(namespace=namespace, space=space, start=start, limit=10_000, max_bytes=2**30, **changes)


class TestOpening:
    """Before the first command."""

    async def test_many_open_an_empty_database_at_once(self, pg_url: str) -> None:
        """Of several that open the same empty database at once all succeed, and they see one store."""
        engines = [PostgresEngine(pg_url, connections=3) for _ in range(6)]
        await asyncio.gather(*(engine.start() for engine in engines))
        pages = [await engine.journal(JournalQuery(namespace=NAMESPACE, limit=1)) for engine in engines]
        assert len({page.epoch for page in pages}) == 1
        await asyncio.gather(*(engine.aclose() for engine in engines))

    async def test_reopening_keeps_data_and_epoch(self, pg_store_url: str, verbs: Verbs) -> None:
        """Opening a store again finds what was written, in the same life."""
        query = JournalQuery(namespace=NAMESPACE, limit=10)
        async with started(pg_store_url) as engine:
            await engine.transact([verbs.set("a", 1)], lambda: NOW)
            before = await engine.journal(query)
        async with started(pg_store_url) as engine:
            assert await engine.journal(query) == before

    async def test_fsync_off_is_refused(self, pg_alone: Server) -> None:
        """A server that may lose acknowledged writes is refused, with what to do."""
        connection = await asyncpg.connect(pg_alone.dsn)
        await connection.execute("ALTER SYSTEM SET fsync = off")
        await connection.close()
        await asyncio.to_thread(pg_alone.restart)
        engine = PostgresEngine(pg_alone.dsn)
        with pytest.raises(errors.Unsupported, match="turn fsync on"):
            await engine.start()
        await engine.aclose()

    async def test_a_database_in_another_encoding_than_utf8_is_refused(self, pg_dsn: str) -> None:
        """A database that can't hold every text is refused."""
        connection = await asyncpg.connect(pg_dsn)
        name = f"latin_{time.time_ns()}"
        await connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            engine = PostgresEngine(pg_dsn.rpartition("/")[0] + f"/{name}")
            with pytest.raises(errors.Unsupported, match="UTF8"):
                await engine.start()
            await engine.aclose()
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
            await connection.close()

    async def test_a_newer_store_is_refused(
        self, pg_store_url: str, engine: PostgresEngine, sql: Any
    ) -> None:
        """A store that a newer Holdfast has migrated is left alone."""
        await sql.execute("UPDATE holdfast_alembic_version SET version_num = 'from the future'")
        late = PostgresEngine(pg_store_url)
        with pytest.raises(errors.Unsupported, match="newer Holdfast"):
            await late.start()
        await late.aclose()

    async def test_an_older_store_is_migrated(
        self, pg_store_url: str, engine: PostgresEngine, sql: Any, verbs: Verbs
    ) -> None:
        """A store of an older version is brought up to date before anything else is done with it."""
        await migrate.downgrade_postgres(pg_store_url, "0001")
        async with started(pg_store_url) as migrated:
            assert await sql.fetchval("SELECT version_num FROM holdfast_alembic_version") == SCHEMA_REVISION
            await migrated.transact([verbs.set("k", 1)], lambda: NOW)

    async def test_an_old_server_is_refused(self, pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A server that is too old for exact times is refused, with the version that is needed."""
        monkeypatch.setattr(connections, "_OLDEST", 99)
        engine = PostgresEngine(pg_url)
        with pytest.raises(errors.Unsupported, match="needs 99 or newer"):
            await engine.start()
        await engine.aclose()

    async def test_foreign_tables_of_the_same_names_stop_creation(self, pg_url: str) -> None:
        """Where others have tables of the same names, nothing is created."""
        connection = await asyncpg.connect(pg_url)
        await connection.execute("CREATE TABLE plugin_kv_storage (mine integer)")
        engine = PostgresEngine(pg_url)
        with pytest.raises(errors.Unsupported, match="did not create"):
            await engine.start()
        await engine.aclose()
        assert await connection.fetchval("SELECT to_regclass('holdfast_meta')") is None
        await connection.close()

    async def test_an_unreachable_server_is_named_without_the_password(self) -> None:
        """The refusal says where the server was looked for, and tells no secret."""
        engine = PostgresEngine("postgresql://somebody:s3cret@127.0.0.1:1/store")
        with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1 can't be reached") as caught:
            await engine.start()
        assert "s3cret" not in str(caught.value)
        await engine.aclose()

    async def test_a_wrong_password_is_told_apart_from_a_missing_server(self, pg_dsn: str) -> None:
        """A login that is refused is told apart from a server that is not there."""
        user, _, place = pg_dsn.rpartition("@")
        engine = PostgresEngine(f"{user.rpartition(':')[0]}:wrong@{place}")
        with pytest.raises(errors.Unavailable, match="refuses the login"):
            await engine.start()
        await engine.aclose()

    async def test_a_closed_engine_refuses_and_says_nothing_was_written(
        self, pg_store_url: str, verbs: Verbs
    ) -> None:
        """A closed engine refuses, and says that nothing was written."""
        async with started(pg_store_url) as engine:
            pass
        with pytest.raises(errors.Unavailable):
            await engine.transact([verbs.set("a", 1)], lambda: NOW)
        with pytest.raises(errors.Unavailable):
            await engine.read([Address(NAMESPACE, KV, "a")], NOW)

    def test_too_few_connections_are_refused(self) -> None:
        """Each kind of work has a connection of its own."""
        with pytest.raises(ValueError, match="at least 3"):
            PostgresEngine("postgresql://localhost/store", connections=2)


class TestFidelity:
    """What goes in comes out."""

    async def test_odd_values_round_trip(self, engine: PostgresEngine, verbs: Verbs) -> None:
        """Every character that the rules allow, in keys and in values, comes back as it was."""
        planes = [chr(point) for point in (*range(0x20, 0x300), 0x2028, 0xFEFF, 0xFFFF, 0x1F600, 0x10FFFF)]
        value = {
            "text": "".join(planes),
            "nul": "\0",
            "back": "\\'\"$1%s{}",
            "deep": [[{}], -0.0, 1e300, 2**63],
        }
        keys = ["'; DROP TABLE holdfast_meta; --", "\\", "%_", "é", "e\u0301", "\U0010ffff", "a" * 255, " "]
        results = (
            await engine.transact([verbs.set(key, value, spec_ref=key) for key in keys], lambda: NOW)
        ).results
        rows = await engine.read([Address(NAMESPACE, KV, key) for key in keys], NOW)
        assert rows == [result.row for result in results if isinstance(result, Stored)]
        assert all(row is not None and row.size == len((row.value or "").encode()) for row in rows)

    async def test_keys_are_ordered_by_their_bytes(self, engine: PostgresEngine, verbs: Verbs) -> None:
        """No locale has a say in the order of keys."""
        keys = [
            "a",
            "B",
            "b",
            "A",
            "é",
            "z",
            "Z",
            "_",
            "-",
            "a-b",
            "ab",
            "\U0001f600",
            "\uffff",
            "1",
            "10",
            "2",
        ]
        await engine.transact([verbs.set(key, 1) for key in keys], lambda: NOW)
        found = await engine.scan(everything(), NOW)
        assert found.keys == sorted(keys, key=str.encode)

    @pytest.mark.parametrize("now", [1, 999, NOW, 64_000_000_000_001, 4_102_444_799_999])
    async def test_times_are_stored_to_the_millisecond(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any, now: int
    ) -> None:
        """A time is kept to the millisecond, and the database shows the same instant."""
        (stored,) = (await engine.transact([verbs.set("a", 1, ttl=3)], lambda: now)).results
        (row,) = await engine.read([Address(NAMESPACE, KV, "a")], now)
        assert isinstance(stored, Stored)
        assert row == stored.row
        assert row is not None
        assert (row.created_at, row.updated_at, row.expires_at) == (now, now, now + 3000)
        micros = await sql.fetchval("SELECT extract(epoch FROM created_at) * 1000000 FROM plugin_kv_storage")
        assert int(micros) == now * 1000

    async def test_a_deadline_finer_than_milliseconds_passes_at_one_instant(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any
    ) -> None:
        """A deadline that somebody set more finely than we count is passed for all at the same instant."""
        await sql.execute(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json, expires_at) "
            "VALUES ('trivia', 'a', '1', timestamptz 'epoch' + interval '1000.7 milliseconds')"
        )
        address = Address(NAMESPACE, KV, "a")
        for now, there in ((999, True), (1000, False)):
            assert [row is not None for row in await engine.read([address], now)] == [there]
            assert len((await engine.scan(everything(), now)).keys) == there
            assert len(await engine.due(KV, now, limit=1)) == (not there)
        (result,) = (
            await engine.transact([verbs.set("a", 2, semantics={"purpose": "config"})], lambda: 1000)
        ).results
        assert isinstance(result, Stored)
        assert (await engine.journal(JournalQuery(namespace=NAMESPACE, limit=9))).records[1].op == "expired"

    async def test_infinity_written_with_sql_stops_no_read_or_sweep(
        self, engine: PostgresEngine, sql: Any
    ) -> None:
        """An infinity that somebody wrote past Holdfast stops neither a read nor a sweep."""
        await sql.execute(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json, expires_at, created_at) VALUES "
            "('trivia', 'a', '1', 'infinity', '-infinity'), ('trivia', 'b', '1', '-infinity', 'infinity')"
        )
        assert (await engine.scan(everything(), NOW)).keys == ["a"]
        assert [due.key for due in await engine.due(KV, NOW, limit=9)] == ["b"]

    async def test_a_row_written_with_sql_is_an_entry(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any
    ) -> None:
        """A row written past Holdfast is read, has a version, is counted, and can be overwritten."""
        await sql.execute(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', 'a', '7')"
        )
        (row,) = await engine.read([Address(NAMESPACE, KV, "a")], NOW)
        assert row is not None
        assert (row.value, row.version, row.last_writer) == ("7", 1, "external")
        await engine.transact([verbs.incr("a", 1, expected_version=1)], lambda: NOW)
        (totals,) = await engine.totals(NOW)
        assert (totals.namespace.keys, totals.namespace.bytes) == (1, 2)

    async def test_a_plugin_name_with_quotes_is_not_interpreted_as_sql(self, engine: PostgresEngine) -> None:
        """A plugin's name that only somebody past Holdfast can have written is handled, not interpreted."""
        odd = Verbs("kv/o'dd\\ name", writer="tester", new_id=id_maker(), now=lambda: 0)
        for version in (1, 2):
            (result,) = (await engine.transact([odd.set("a", version)], lambda: NOW)).results
            assert isinstance(result, Stored)
            assert result.row.version == version

    async def test_clock_reads_the_time_of_the_server(self, engine: PostgresEngine) -> None:
        """On the same machine the server's clock is this one's."""
        reading = await engine.clock(time.monotonic)
        assert abs(reading.time - time.time() * 1000 + (time.monotonic() - reading.ticks) * 1000) < 10_000


class RollingBack:
    """A connection on which every commit becomes a rollback."""

    async def execute(self, statement: str) -> str:
        """See asyncpg's `Connection.execute`."""
        return "ROLLBACK"


class TestTransactions:
    """One group, one transaction."""

    async def test_a_write_recreates_a_namespace_that_was_deleted_with_sql(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any
    ) -> None:
        """When the database is emptied under a running engine, the next write makes the namespace anew."""
        await engine.transact([verbs.set("a", 1)], lambda: NOW)
        await sql.execute("TRUNCATE holdfast_namespaces, plugin_kv_storage, holdfast_journal")
        (result,) = (await engine.transact([verbs.set("a", 1)], lambda: NOW)).results
        assert isinstance(result, Stored)
        assert result.row.version == 1
        assert [totals.namespace.revision for totals in await engine.totals(NOW)] == [1]

    async def test_a_record_trimmed_by_its_own_group_is_gone(
        self, engine: PostgresEngine, verbs: Verbs
    ) -> None:
        """A record that is dropped by the group that made it is not there afterwards."""
        group = [verbs.set("a", 1), verbs.set("b", 1), Trim(namespace=NAMESPACE, upto=1), verbs.set("c", 1)]
        await engine.transact(group, lambda: NOW)
        page = await engine.journal(JournalQuery(namespace=NAMESPACE, limit=9))
        assert [record.version for record in page.records] == [2, 3]
        assert (page.floor, page.head, page.complete) == (1, 3, True)

    async def test_reads_go_on_while_writes_wait_for_a_lock(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any
    ) -> None:
        """While every write waits for a lock, reads of all kinds go on."""
        await engine.transact([verbs.set("a", 1)], lambda: NOW)
        async with sql.transaction():
            await sql.execute("SELECT 1 FROM holdfast_namespaces FOR UPDATE")
            writes = [asyncio.create_task(engine.transact([verbs.incr("a")], lambda: NOW)) for _ in range(16)]
            rows = await asyncio.gather(*(engine.read([Address(NAMESPACE, KV, "a")], NOW) for _ in range(64)))
            assert {row.version for (row,) in rows if row is not None} == {1}
            assert len((await engine.scan(everything(), NOW)).keys) == 1
            assert not any(write.done() for write in writes)
        await asyncio.gather(*writes)
        (row,) = await engine.read([Address(NAMESPACE, KV, "a")], NOW)
        assert row is not None
        assert row.value == "17"

    async def test_a_fence_of_a_blob_waits_for_who_takes_the_lock(self, pg_store_url: str, sql: Any) -> None:
        """While somebody takes the lock, which is no blob, no write of an older holder to a blob commits."""
        async with holdfast.open(pg_store_url) as store:
            [token] = (await store.kv("trivia").batch(writes=[{"guard": "a"}])).versions
            blobs, fence = store.blobs("trivia"), {"lock": "a", "token": token}
            await blobs.put("b", b"old", fence=fence)
            await store.kv("other").set("k", 0)
            async with sql.transaction():
                await sql.execute(
                    "UPDATE holdfast_namespaces SET revision = revision + 1 WHERE name = 'kv/trivia'"
                )
                await sql.execute("UPDATE holdfast_rows SET version = version + 1 WHERE space = 'guard'")
                late = asyncio.create_task(blobs.set_ttl("b", 60, fence=fence))
                # A write of another plugin, which may be in the same group.
                other = asyncio.create_task(store.kv("other").set("k", 1))
                while not await sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    assert not late.done(), await late
                    await asyncio.sleep(0.01)
            with pytest.raises(errors.Fenced):
                await late
            assert (await other).version == 2
            held = await blobs.head("b")
            assert held is not None
            assert held.expires_at is None

    async def test_fenced_writes_do_not_pass_a_write_of_keys(self, pg_store_url: str, sql: Any) -> None:
        """However many fenced writes of tables and blobs follow each other, the keys get their turn."""
        async with holdfast.open(pg_store_url) as store:
            kv, blobs = store.kv("trivia"), store.blobs("trivia")
            [token] = (await kv.batch(writes=[{"guard": "a"}])).versions
            await blobs.put("b", b"old")

            async def waiting(count: int) -> None:
                while await sql.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < count:
                    assert not any(write.done() for write in writes)
                    await asyncio.sleep(0.01)

            writes: list[asyncio.Task[Any]] = []
            async with sql.transaction():  # as a fenced write of a table
                await sql.execute("SELECT 1 FROM holdfast_namespaces WHERE name = 'kv/trivia' FOR SHARE")
                writes.append(asyncio.create_task(kv.set("k", 1)))
                await waiting(1)
                writes.append(
                    asyncio.create_task(blobs.set_ttl("b", 60, fence={"lock": "a", "token": token}))
                )
                await waiting(2)
            await asyncio.gather(*writes)

    async def test_reads_in_one_round_are_answered_each_for_itself(
        self, engine: PostgresEngine, verbs: Verbs
    ) -> None:
        """Reads that go together are answered each for itself, however much each of them asks for."""
        await engine.transact([verbs.set(str(number), number) for number in range(0, 700, 2)], lambda: NOW)
        asked = [
            [Address(NAMESPACE, KV, str(first + part)) for part in range(200)] for first in range(0, 500, 99)
        ]
        found = await asyncio.gather(*(engine.read(addresses, NOW) for addresses in asked))
        for addresses, rows in zip(asked, found, strict=True):
            values = [None if row is None else row.value for row in rows]
            keys = [address.key for address in addresses]
            assert values == [str(key) if int(key) % 2 == 0 else None for key in keys]

    async def test_reads_in_one_round_use_their_own_times(self, engine: PostgresEngine, verbs: Verbs) -> None:
        """Reads that go together each see what is alive at their own time."""
        await engine.transact([verbs.set("a", 1, ttl=1)], lambda: NOW)
        address = Address(NAMESPACE, KV, "a")
        times = (NOW, NOW + 1000, NOW + 999, NOW + 5000)
        found = await asyncio.gather(*(engine.read([address], now) for now in times))
        assert [row is not None for [row] in found] == [True, False, True, False]

    async def test_a_commit_answered_by_rollback_is_a_failure(self) -> None:
        """A server that answers a commit by rolling back has kept nothing, and nobody is told otherwise."""
        with pytest.raises(errors.DatabaseError, match="rolled the transaction back"):
            await transaction.commit(cast("Any", RollingBack()))

    async def test_a_row_that_the_database_refuses_undoes_the_whole_group(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any
    ) -> None:
        """When the database refuses a row, the whole group is undone and the next one works."""
        await engine.transact([verbs.set("a", 1)], lambda: NOW)
        await sql.execute("ALTER TABLE plugin_kv_storage ADD CONSTRAINT no CHECK (key <> 'poison')")
        with pytest.raises(errors.DatabaseError) as caught:
            await engine.transact([verbs.set("b", 1), verbs.set("poison", 1)], lambda: NOW)
        assert isinstance(caught.value.__cause__, asyncpg.CheckViolationError)
        assert "poison" not in caught.value.message
        (result,) = (await engine.transact([verbs.set("b", 1)], lambda: NOW)).results
        assert isinstance(result, Stored)
        assert result.row.version == 2

    async def test_a_group_of_reads_leaves_the_namespace_row_unchanged(
        self, engine: PostgresEngine, verbs: Verbs, sql: Any
    ) -> None:
        """A group that changes nothing leaves the namespace's row as it was."""
        await engine.transact([verbs.set("a", 1)], lambda: NOW)
        before = await sql.fetchval("SELECT xmin FROM holdfast_namespaces")
        results = (await engine.transact([verbs.set("a", 2, expected_version=9)], lambda: NOW)).results
        assert isinstance(results[0], errors.VersionConflict)
        assert await sql.fetchval("SELECT xmin FROM holdfast_namespaces") == before

    async def test_a_group_writes_and_removes_a_thousand_rows(self, engine: PostgresEngine) -> None:
        """A thousand rows go in one group, and so do their removals, in the trash as well."""
        verbs = Verbs("semantic/t/p", writer="tester", new_id=id_maker(), now=lambda: 0)
        keys = [f"k{number:04}" for number in range(1000)]
        await engine.transact([verbs.set(key, {"n": key}) for key in keys], lambda: NOW)
        await engine.transact([verbs.delete(key) for key in keys], lambda: NOW)
        trash = await engine.scan(everything("semantic/t/p", TRASH), NOW)
        assert trash.keys == [key.encode() for key in keys]
        await engine.transact([verbs.restore(key) for key in keys], lambda: NOW)
        assert not (await engine.scan(everything("semantic/t/p", TRASH), NOW)).keys
        assert len((await engine.scan(everything("semantic/t/p"), NOW)).keys) == 1000
