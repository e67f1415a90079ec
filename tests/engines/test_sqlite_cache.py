"""The rows that a SQLite store keeps in memory are never older than the file.

Most tests look at what a program sees: values, versions and the journal. How often the file was asked is
counted only where the rule is that it need not be.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
import holdfast.sync
from holdfast.clock import ManualClock
from holdfast.decide import Outcome
from holdfast.engines.sqlite import SqliteEngine, cache, reads
from holdfast.engines.sqlite.cache import ROW_BYTES, RowCache
from holdfast.engines.sqlite.log import LogHeader
from holdfast.rows import KV, Address, Namespace, Row
from holdfast.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.handles import kv as handles

FEW_ROWS = 8 * (ROW_BYTES + 8)
"""The size of a cache that holds four small rows in each of its two generations."""


def write_outside(path: Path, key: str, value: int) -> None:
    """Change an entry as another program would, past the store."""
    with sqlite3.connect(path) as outside:
        outside.execute("UPDATE plugin_kv_storage SET value_json = ? WHERE key = ?", [str(value), key])
    outside.close()


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """The addresses that were looked up in the file."""
    seen: list[Address] = []
    get, get_alive = reads.get, reads.get_alive

    def counted_get(connection: sqlite3.Connection, address: Address) -> Row | None:
        seen.append(address)
        return get(connection, address)

    def counted_get_alive(
        connection: sqlite3.Connection, addresses: list[Address], now: int
    ) -> list[Row | None]:
        seen.extend(addresses)
        return get_alive(connection, addresses, now)

    monkeypatch.setattr(reads, "get", counted_get)
    monkeypatch.setattr(reads, "get_alive", counted_get_alive)
    return seen


async def value_of(kv: handles.KV, key: str) -> Any:
    """Return the value of an entry that exists."""
    entry = await kv.get(key)
    assert entry is not None
    return entry.value


async def values_of(kv: handles.KV, *keys: str) -> list[Any]:
    """Return the values of several entries, None for those that do not exist."""
    entries: list[Any] = await kv.get_many(keys)
    return [None if entry is None else entry.value for entry in entries]


class Broken:
    """A writer's connection whose COMMIT fails, after it was done or before."""

    def __init__(self, real: sqlite3.Connection, *, kept: bool) -> None:
        self._real = real
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, sql: str, parameters: Any = ()) -> object:
        """Do what is asked, but for a commit."""
        if sql != "COMMIT":
            return self._real.execute(sql, parameters)
        if self._kept:
            self._real.execute("COMMIT")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error


async def test_entries_expired_in_a_run_stay_gone(tmp_path: Path) -> None:
    """An entry that went with a crowd is gone for good, however long ago it was written."""
    size = 400 * (ROW_BYTES + 1)  # so that some rows are of the older generation
    clock = ManualClock()
    keys = [f"{number:03}" for number in range(250)]
    engine = SqliteEngine(tmp_path / "store.db", cache_bytes=size)
    async with Store(engine, clock=clock, reap=False) as store:
        kv = store.kv("p")
        for start in range(0, 250, 50):
            await kv.batch(writes=[{"key": key, "value": 1, "ttl": 1} for key in keys[start : start + 50]])
        clock.advance(1)
        assert await store.sweep() == 250
        await kv.batch(writes=[{"key": key, "value": 2} for key in keys])
        changes = (await kv.changes(limit=2000)).changes
        assert sorted(change.key for change in changes if change.op == "expired") == keys
        assert [change.version for change in changes] == list(range(1, 751))
        assert (await store.stats("kv/p")).keys == 250


@pytest.mark.parametrize("kept", [True, False])
async def test_after_a_failed_commit_the_next_write_reads_the_file(tmp_path: Path, kept: bool) -> None:
    """After a commit that may have been kept, the next write goes by what the file has, not by memory."""
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        kv = store.kv("p")
        await kv.incr("n")
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        real = engine._writer._connection
        assert real is not None
        engine._writer._connection = Broken(real, kept=kept)  # type: ignore[assignment]
        with pytest.raises(holdfast.OutcomeUnknown):
            await kv.incr("n")
        engine._writer._connection = real
        entry = await kv.incr("n")
        assert (entry.value, entry.version) == ((3, 3) if kept else (2, 2))
        assert [change.version for change in (await kv.changes()).changes] == list(
            range(1, entry.version + 1)
        )


async def test_a_deleted_entry_is_not_remembered(tmp_path: Path) -> None:
    """A deleted entry is gone for the next write too, whichever generation it was of."""
    async with Store(SqliteEngine(tmp_path / "store.db", cache_bytes=FEW_ROWS), reap=False) as store:
        kv = store.kv("p")
        for number in range(10):
            await kv.set(f"k{number}", number)
        for number in reversed(range(10)):
            assert await kv.delete(f"k{number}")
            assert (await kv.set(f"k{number}", 0, expected_version=0)).value == 0


async def test_the_later_of_two_writes_is_remembered(tmp_path: Path) -> None:
    """Of an entry that was written twice the later row counts, whichever generation the earlier one is of."""
    async with Store(SqliteEngine(tmp_path / "store.db", cache_bytes=FEW_ROWS), reap=False) as store:
        kv = store.kv("p")
        versions = dict.fromkeys("abcdef", 0)
        for key in "abcdefabcdef":
            for _ in range(2):
                versions[key] = (await kv.set(key, 1, expected_version=versions[key])).version
        assert max(versions.values()) == 24


def test_the_size_of_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entries and namespaces are written to, the cache holds so many and no more."""
    monkeypatch.setattr(cache, "MAX_NAMESPACES", 4)
    memory = RowCache(FEW_ROWS)
    row = Row(value="1", size=1, version=1, created_at=1, updated_at=1)
    names = [f"kv/p{number}" for number in range(20)]
    for name in names:
        rows: dict[Address, Row | None] = {Address(name, KV, "k"): row}
        outcome = Outcome(results=[], namespaces=[Namespace(name=name)], rows=rows, journal=[], trims={})
        memory.learn(outcome, None)
        assert len(names) - len(memory.add_namespaces({}, names)) <= 4
        wanted = {Address(one, KV, "k"): True for one in names}
        assert len(names) - len(memory.add_rows({}, wanted)) <= 8


async def test_a_large_value_replaces_a_cached_small_one(tmp_path: Path) -> None:
    """A value too large to be cached takes the place of the one that was."""
    async with Store(SqliteEngine(tmp_path / "store.db", cache_bytes=FEW_ROWS), reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", "small")
        large = await kv.set("k", "x" * FEW_ROWS)
        assert await kv.get("k") == large
        with pytest.raises(holdfast.VersionConflict) as conflict:
            await kv.set("k", 1, expected_version=1)
        assert conflict.value.current == large


async def test_the_next_read_sees_what_another_program_wrote(tmp_path: Path) -> None:
    """A read never returns an older value than the one that another program committed before it."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set_many([{"key": "a", "value": 0}, {"key": "b", "value": 0}])
        for number in range(1, 20):
            assert await value_of(kv, "a") == number - 1
            write_outside(path, "a", number)
            assert await value_of(kv, "a") == number
            write_outside(path, "b", number)
            assert await values_of(kv, "a", "b") == [number, number]
        with sqlite3.connect(path) as outside:
            outside.execute("DELETE FROM plugin_kv_storage WHERE key = 'a'")
        outside.close()
        assert await kv.get("a") is None
        assert not await kv.exists("a")


async def test_the_next_read_sees_what_another_store_wrote(tmp_path: Path) -> None:
    """Of two stores on one file each reads what the other wrote last."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as one, holdfast.open(path, reap=False) as other:
        for number in range(20):
            writer, reader = (one, other) if number % 2 else (other, one)
            written = await writer.kv("p").set("k", number)
            assert await reader.kv("p").get("k") == written
            assert await writer.kv("p").get("k") == written


def test_a_thread_sees_what_another_program_wrote(tmp_path: Path) -> None:
    """A read on a thread of its own is never answered with an older value either."""
    path = tmp_path / "store.db"
    with holdfast.sync.open(path) as store:
        kv = store.kv("p")
        kv.set("k", 0)
        for number in range(1, 20):
            write_outside(path, "k", number)
            entry = kv.get("k")
            assert entry is not None
            assert entry.value == number
            kv.set("other", number)  # what was read stays in the cache
            assert kv.get("k") == entry


async def test_a_row_that_changed_while_it_was_read_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another program commits between the query and the end of a read, the next read sees it."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", 0)
        write_outside(path, "k", 1)  # the cache is empty now
        get = reads.get

        def late(connection: sqlite3.Connection, address: Address) -> Row | None:
            row = get(connection, address)
            write_outside(path, "k", 2)
            return row

        monkeypatch.setattr(reads, "get", late)
        assert await value_of(kv, "k") == 1
        monkeypatch.undo()
        assert await value_of(kv, "k") == 2


async def test_several_keys_are_read_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of `get_many` are of one moment, also if some were cached and the file changed meanwhile."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set_many([{"key": "a", "value": 0}, {"key": "b", "value": 0}])
        write_outside(path, "b", 5)
        assert await value_of(kv, "a") == 0  # a is cached, b is not
        load_rows = reads.load_rows

        def late(connection: sqlite3.Connection, *arguments: Any, **limits: Any) -> dict[Address, Row]:
            monkeypatch.undo()
            with sqlite3.connect(path) as outside:
                outside.execute("UPDATE plugin_kv_storage SET value_json = '1'")
            outside.close()
            return load_rows(connection, *arguments, **limits)

        monkeypatch.setattr(reads, "load_rows", late)
        assert await values_of(kv, "a", "b") == [1, 1]


async def test_a_hot_key_is_answered_from_memory(tmp_path: Path, queries: list[Address]) -> None:
    """A hot key is answered from memory, and the store's own writes to other keys change nothing in that."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1)
        await store.kv("p").set("read", 1)
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        assert await value_of(kv, "read") == 1
        queries.clear()
        for number in range(10):
            await kv.set("k", number)
            assert await value_of(kv, "k") == number
            assert await value_of(kv, "read") == 1
            assert await values_of(kv, "k", "read") == [number, 1]
            assert await kv.exists("read")
        looked_up = {address.key for address in queries}
        assert looked_up <= {"k"}  # before its first write


async def test_others_writing_between_own_commits_are_seen(tmp_path: Path) -> None:
    """A commit keeps the rest of the cache only if nobody else has written since."""
    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set_many([{"key": "a", "value": 0}, {"key": "b", "value": 0}])
        for number in range(1, 10):
            write_outside(path, "a", number)
            await kv.set("b", number)
            assert await value_of(kv, "a") == number
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        write_outside(path, "a", 10)
        await engine.remember(store.now() + 60_000)  # a commit that changes no entry
        assert await value_of(kv, "a") == 10


async def test_entries_in_the_cache_expire(tmp_path: Path) -> None:
    """An entry that is read from memory is gone at its deadline, to the millisecond."""
    clock = ManualClock()
    async with holdfast.open(tmp_path / "store.db", clock=clock, reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", 1, ttl=1)
        clock.advance(0.999)
        assert await value_of(kv, "k") == 1
        clock.advance(0.001)
        assert await kv.get("k") is None
        assert await values_of(kv, "k", "other") == [None, None]


async def test_a_cache_of_no_bytes_keeps_nothing(tmp_path: Path, queries: list[Address]) -> None:
    """With a size of 0 every read asks the file."""
    async with holdfast.open(tmp_path / "store.db", cache_bytes=0, reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", 1)
        queries.clear()
        for _ in range(3):
            assert await value_of(kv, "k") == 1
        assert len(queries) == 3


@pytest.mark.parametrize("size", [-1, 1.5, "32 MB", True])
def test_the_size_of_the_cache_must_be_a_whole_number(tmp_path: Path, size: Any) -> None:
    """A size that makes no sense is refused before anything is opened."""
    with pytest.raises(holdfast.ValidationError, match="cache_bytes must be a whole number from 0"):
        holdfast.open(tmp_path / "store.db", cache_bytes=size)


async def test_closed_stores_leave_no_file_descriptor_behind(tmp_path: Path) -> None:
    """Opening and closing stores takes no descriptors for good."""
    before = None
    for number in range(4):
        async with holdfast.open(tmp_path / f"{number}.db", reap=False) as store:
            await store.kv("p").set("k", 1)
            assert (await store.kv("p").get("k")) is not None
        descriptors = len(os.listdir("/dev/fd"))
        assert before is None or descriptors <= before
        before = descriptors
    assert not LogHeader._known


def _lock_is_free(path: str, answer: Any) -> None:
    """Tell whether the lock could be taken that SQLite holds while a connection is open."""
    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
        except OSError:
            answer.put(False)
        else:
            answer.put(True)


async def test_closing_a_store_leaves_the_locks_of_another_alone(tmp_path: Path) -> None:
    """SQLite's locks hold while a store of the process is open, whichever other store of it is closed."""
    path = tmp_path / "store.db"
    spawning = multiprocessing.get_context("spawn")
    answer = spawning.Queue()
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1)
        async with holdfast.open(path, reap=False) as other:
            await other.kv("p").set("k", 2)
        process = spawning.Process(target=_lock_is_free, args=(f"{path}-shm", answer))
        process.start()
        try:
            assert answer.get(timeout=60) is False
        finally:
            process.join()
        assert await value_of(store.kv("p"), "k") == 2
