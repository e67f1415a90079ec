"""Rows that other programs write with SQL: they have versions, are counted and are in the journal.

Every rule holds on SQLite and PostgreSQL, through the same test.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import holdfast
from holdfast.engines.sql.migrate import downgrade_postgres, downgrade_sqlite
from holdfast.errors import QuotaExceeded, VersionConflict

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model import Change

ADD = "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', '{}', '{}')"


class OtherProgram:
    """A program that has nothing but the address of the database."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in one transaction. Returns what the last one found."""
        if self.url.startswith("postgresql"):
            connection = await asyncpg.connect(self.url)
            async with connection.transaction():
                for statement in statements:
                    found = await connection.fetch(statement)
            await connection.close()
            return [tuple(row) for row in found]
        return await asyncio.to_thread(self._run, statements)

    def _run(self, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.url, timeout=60)) as connection, connection:
            for statement in statements:
                rows = connection.execute(statement).fetchall()
            return rows

    async def back_to(self, revision: str) -> None:
        """Make the store one of an older Holdfast."""
        if self.url.startswith("postgresql"):
            await downgrade_postgres(self.url, revision)
        else:
            await asyncio.to_thread(downgrade_sqlite, self.url, revision)


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> OtherProgram:
    """Another program at the database of a store, of each kind in turn."""
    if request.param == "sqlite":
        return OtherProgram(str(tmp_path / "store.db"))
    return OtherProgram(request.getfixturevalue("pg_url"))


def told(changes: list[Change]) -> list[tuple[str, str, int, str | None]]:
    return [(one.op, one.key, one.version, one.last_writer) for one in changes]


async def test_a_row_written_with_sql_has_a_stable_version(other: OtherProgram) -> None:
    """A row written with SQL has a version that stays the same until it changes, and that can be expected."""
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        await other.run(ADD.format("a", 1), ADD.format("b", 2))
        entry = await kv.get("a")
        assert entry is not None
        assert entry.version > 0
        assert await kv.get("a") == entry
        entries = (await kv.list(values=True)).entries or []
        assert [(one.key, one.value) for one in entries] == [("a", 1), ("b", 2)]
        assert len({one.version for one in entries}) == 2
        with pytest.raises(VersionConflict):
            await kv.set("a", 5, expected_version=0)
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        assert await kv.get("a") == entry
        written = await kv.set("a", 3, expected_version=entry.version)
        assert written.version > max(one.version for one in entries)
        [b] = [one for one in entries if one.key == "b"]
        assert await kv.delete("b", expected_version=b.version)


async def test_update_changes_a_row_written_with_sql(other: OtherProgram) -> None:
    """`update` and `retry.update` change a row of another program like any other."""
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        await kv.set("ready", True)
        await other.run(ADD.format("a", 1))
        assert (await kv.update("a", lambda value: value + 1)).value == 2
        assert (await kv.incr("a")).value == 3


async def test_a_change_with_sql_gives_a_new_version(other: OtherProgram) -> None:
    """An old version never matches another value, whoever wrote that."""
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        entry = await kv.set("a", 1, request_id="r1")
        await other.run("UPDATE plugin_kv_storage SET value_json = '2' WHERE key = 'a'")
        with pytest.raises(VersionConflict):
            await kv.set("a", 9, expected_version=entry.version)
        changed = await kv.get("a")
        assert changed is not None
        assert (changed.value, changed.last_writer) == (2, "external")
        assert changed.version > entry.version
        await other.run("UPDATE plugin_kv_storage SET value_json = value_json WHERE key = 'a'")
        assert await kv.get("a") == changed
        await kv.set("a", 3, expected_version=changed.version)
        assert await store.recount("kv/trivia") == 0


async def test_rows_of_other_programs_are_counted(other: OtherProgram) -> None:
    """Keys and bytes are exact whoever writes, changes, renames or deletes: a recount finds no error."""
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        await kv.set("ours", "ä", request_id="r")
        await other.run(ADD.format("schlüssel", '"ä"'), ADD.format("b", 2), ADD.format("c", 3))
        stats = await store.stats("kv/trivia")
        assert stats.keys == 4
        assert [(one.namespace, one.keys) for one in await store.namespaces()] == [("kv/trivia", 4)]
        assert await store.recount("kv/trivia") == 0
        await other.run(
            "UPDATE plugin_kv_storage SET value_json = '[1, 2, 3]' WHERE key = 'b'",
            "UPDATE plugin_kv_storage SET key = 'renamed' WHERE key = 'c'",
            "UPDATE plugin_kv_storage SET plugin_name = 'quotes' WHERE key = 'schlüssel'",
            "DELETE FROM plugin_kv_storage WHERE key = 'ours'",
        )
        for name, keys in (("kv/trivia", 2), ("kv/quotes", 1)):
            stats = await store.stats(name)
            assert (stats.keys, await store.recount(name)) == (keys, 0)
        await kv.set("b", 1)
        assert await kv.delete("renamed")
        await store.kv("quotes").set_ttl("schlüssel", 100)
        for name, keys in (("kv/trivia", 1), ("kv/quotes", 1)):
            stats = await store.stats(name)
            assert (stats.keys, await store.recount(name)) == (keys, 0)


async def test_an_upsert_of_another_program_is_counted_once(other: OtherProgram) -> None:
    """A row that is inserted or else updated counts once, and has a new version each time."""
    upsert = f"{ADD} ON CONFLICT (plugin_name, key) DO UPDATE SET value_json = excluded.value_json"
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        versions = []
        for number in range(3):
            await other.run(upsert.format("a", number))
            entry = await kv.get("a")
            assert entry is not None
            versions.append(entry.version)
        assert versions == sorted(set(versions))
        stats = await store.stats("kv/trivia")
        assert (stats.keys, await store.recount("kv/trivia")) == (1, 0)


async def test_a_quota_counts_rows_of_other_programs(other: OtherProgram) -> None:
    """A quota of keys is used up by rows that were written with SQL as well."""
    async with holdfast.open(other.url) as store:
        await store.set_policy("kv/trivia", {"quota_keys": 2})
        await other.run(ADD.format("a", 1), ADD.format("b", 2))
        with pytest.raises(QuotaExceeded):
            await store.kv("trivia").set("c", 3)


async def test_changes_of_other_programs_are_in_the_journal(other: OtherProgram) -> None:
    """Who watches a namespace sees what was written, changed and deleted with SQL, each with its version."""
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        await other.run(ADD.format("a", 1))
        await kv.set("a", 2)
        await other.run(
            "UPDATE plugin_kv_storage SET value_json = '3' WHERE key = 'a'",
            "DELETE FROM plugin_kv_storage WHERE key = 'a'",
        )
        assert told((await kv.changes()).changes) == [
            ("set", "a", 1, "external"),
            ("set", "a", 2, "embedded"),
            ("set", "a", 3, "external"),
            ("deleted", "a", 4, "external"),
        ]
        assert (await kv.set("a", 4)).version == 5


async def test_rows_of_an_older_store_get_versions(other: OtherProgram) -> None:
    """Rows that were written with SQL before the store knew this get their versions when it is opened."""
    async with holdfast.open(other.url) as store:
        await store.kv("trivia").set("ours", 1)
    await other.back_to("0005")
    await other.run(ADD.format("a", 1), ADD.format("b", 2))
    assert await other.run("SELECT version FROM plugin_kv_storage WHERE key = 'a'") == [(0,)]
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        entries = (await kv.list(values=True)).entries or []
        assert sorted(one.version for one in entries) == [1, 2, 3]
        stats = await store.stats("kv/trivia")
        assert (stats.keys, await store.recount("kv/trivia")) == (3, 0)
        assert (await kv.update("a", lambda value: value + 1)).version == 4


async def test_increments_with_sql_and_through_the_store_all_count(other: OtherProgram) -> None:
    """Programs that count up with SQL and a store that counts up by versions lose none of the steps."""
    async with holdfast.open(other.url) as store:
        kv = store.kv("trivia")
        await kv.set("n", 0)
        by_sql = "UPDATE plugin_kv_storage SET value_json = CAST(CAST(value_json AS integer) + 1 AS text)"

        async def count_with_sql() -> None:
            for _ in range(20):
                await other.run(f"{by_sql} WHERE key = 'n'")

        async def count_with_versions() -> None:
            for _ in range(20):
                await kv.update("n", lambda value: value + 1)

        async with asyncio.timeout(60):
            await asyncio.gather(count_with_sql(), count_with_versions())
        entry = await kv.get("n")
        assert entry is not None
        assert (entry.value, entry.version) == (40, 41)
        assert await store.recount("kv/trivia") == 0


async def test_a_store_counts_its_own_writes_once(other: OtherProgram) -> None:
    """What a store writes, deletes and expires itself is counted and recorded once."""
    async with holdfast.open(other.url, reap=False) as store:
        kv = store.kv("trivia")
        for number in range(4):
            await kv.set(f"k{number}", number)
        await other.run("UPDATE plugin_kv_storage SET expires_at = created_at WHERE key = 'k3'")
        assert await kv.delete("k0")
        assert await kv.delete_many(["k1"]) == [True]
        assert await store.sweep() == 1
        assert [one[:2] for one in told((await kv.changes(since=4)).changes)] == [
            ("set", "k3"),
            ("deleted", "k0"),
            ("deleted", "k1"),
            ("expired", "k3"),
        ]
        stats = await store.stats("kv/trivia")
        assert (stats.keys, await store.recount("kv/trivia")) == (1, 0)
        assert await other.run("SELECT name FROM holdfast_meta WHERE name = 'inside'") == []


async def test_an_open_transaction_of_another_program_holds_up_its_own_namespace_only(pg_url: str) -> None:
    """While a program leaves a transaction open in which it has written, other namespaces can be written."""
    async with holdfast.open(pg_url) as store:
        trivia, quotes = store.kv("trivia"), store.kv("quotes")
        await trivia.set("a", 1)
        await quotes.set("a", 1)
        program = await asyncpg.connect(pg_url)
        transaction = program.transaction()
        await transaction.start()
        try:
            await program.execute(ADD.format("b", 2))
            async with asyncio.timeout(60):
                assert (await quotes.set("a", 2)).version == 2
                waits = asyncio.create_task(trivia.set("a", 2))
                await until_somebody_waits(program)
        finally:
            await transaction.commit()
            await program.close()
        assert (await waits).version == 3
        assert await store.recount("kv/trivia") == 0


async def test_a_store_does_not_deadlock_with_a_program_that_locked_an_entry(pg_url: str) -> None:
    """A program that has locked an entry and then writes it is not met half way by a write of the store."""
    async with holdfast.open(pg_url) as store:
        kv = store.kv("trivia")
        await kv.set("a", 1)
        program = await asyncpg.connect(pg_url)
        transaction = program.transaction()
        await transaction.start()
        try:
            await program.execute("SELECT FROM plugin_kv_storage WHERE key = 'a' FOR UPDATE")
            ours = asyncio.create_task(kv.incr("a"))
            await until_somebody_waits(program)
            async with asyncio.timeout(60):
                await program.execute("UPDATE plugin_kv_storage SET value_json = '40' WHERE key = 'a'")
        finally:
            await transaction.commit()
            await program.close()
        entry = await ours
        assert (entry.value, entry.version) == (41, 3)
        assert await store.recount("kv/trivia") == 0


async def until_somebody_waits(program: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return once a session of the database waits for a lock."""
    async with asyncio.timeout(60):
        while not await program.fetchval(
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE NOT granted AND datname = current_database()"
        ):
            pass
