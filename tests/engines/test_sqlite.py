"""The SQLite engine behind the store: its files, its one writer, its readers, and what others do to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.engine import JournalQuery, Scan
from holdfast.engine.raw import Section
from holdfast.engines.sqlite import SqliteEngine, raw, reads
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.errors import DiskFailed, translated
from holdfast.errors import Busy, DatabaseError, StorageFull, Unavailable
from holdfast.rows import KV

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOLDER = """
import asyncio, sys, holdfast
async def hold():
    async with holdfast.open(sys.argv[1]) as store:
        await store.kv("p").set("k", "held")
        print("ready", flush=True)
        sys.stdin.readline()
        await store.kv("p").set("k", "last word")
asyncio.run(hold())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place for a store."""
    return tmp_path / "store.db"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the store open for writing until a line is sent to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    _let_go(process)


def _let_go(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.communicate("\n", timeout=60)


async def test_another_process_reads_and_writes(path: Path, holder: subprocess.Popen[str]) -> None:
    """Two processes have one file open: each sees and extends what the other has written."""
    async with holdfast.open(path) as store:
        kv = store.kv("p")
        entry = await kv.get("k")
        assert entry is not None
        assert entry.value == "held"
        await store.ready()
        assert (await kv.set("k", 2)).version == entry.version + 1
        _let_go(holder)
        entry = await kv.get("k")
        assert entry is not None
        assert (entry.value, entry.version) == ("last word", 3)
        assert (await kv.set("k", 4, expected_version=3)).version == 4


async def test_two_stores_of_one_process_write_to_one_file(path: Path) -> None:
    """Two stores of one program are as good as two programs."""
    async with holdfast.open(path) as first, holdfast.open(path) as second:
        one, other = first.kv("p"), second.kv("p")
        for number in range(1, 20, 2):
            assert (await one.incr("n")).value == number
            assert (await other.incr("n")).value == number + 1


async def test_rows_added_with_sql_are_seen_and_counted(path: Path) -> None:
    """Rows that others add with SQL have a version, are seen by every verb, and a CAS minds them."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("mine", 1)
        with sqlite3.connect(path) as outside:
            outside.execute(
                "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('p', 'theirs', '7')"
            )
        outside.close()
        entry = await kv.get("theirs")
        assert entry is not None
        assert (entry.value, entry.version, entry.last_writer) == (7, 2, "external")
        assert (await kv.list()).keys == ["mine", "theirs"]
        with pytest.raises(holdfast.VersionConflict) as conflict:
            await kv.set("theirs", 8, expected_version=0)
        assert conflict.value.current == entry
        assert (await store.stats("kv/p")).keys == 2
        assert (await kv.incr("theirs", expected_version=entry.version)).value == 8
        assert (await store.stats("kv/p")).keys == 2


async def test_durability_settings(path: Path) -> None:
    """The file is in WAL mode, the writer syncs fully, and nobody else checkpoints."""
    async with holdfast.open(path, reap=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        connection = engine._writer._connection
        assert connection is not None

        def pragmas() -> list[object]:
            names = ("journal_mode", "synchronous", "wal_autocheckpoint")
            return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

        assert await engine._writer.run(pragmas) == ["wal", 2, 0]
        with pytest.raises(sqlite3.OperationalError):
            engine._inline.execute("DELETE FROM plugin_kv_storage")  # type: ignore[union-attr]


async def test_a_temporary_store_leaves_no_file() -> None:
    """`sqlite://` and its like use a private file that is gone after closing."""
    for url in ("sqlite://", "sqlite:///:memory:", ":memory:"):
        async with holdfast.open(url) as store:
            await store.kv("p").set("k", 1)
            engine = store._engine
            assert isinstance(engine, SqliteEngine)
            folder = engine._path.parent
            assert (folder / "store.db").exists()
        assert not folder.exists()


async def test_two_temporary_stores_share_nothing() -> None:
    """What one store keeps in a private file, another does not see."""
    async with holdfast.open("sqlite://") as one, holdfast.open("sqlite://") as other:
        await one.kv("p").set("k", 1)
        assert await other.kv("p").get("k") is None


async def test_closing_leaves_one_plain_file(path: Path) -> None:
    """After closing, the log is in the database, so that the file alone can be copied."""
    async with holdfast.open(path) as store:
        await store.kv("p").set("k", 1)
    assert not path.with_name("store.db-wal").exists()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT key, value_json FROM plugin_kv").fetchall() == [("k", "1")]
    connection.close()


async def test_idle_writer_empties_the_log(path: Path) -> None:
    """The writer checkpoints when it has nothing to do, so the log does not linger."""
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        checkpoint = engine._writer.checkpoint

        def and_tell(mode: str) -> None:
            checkpoint(mode)
            loop.call_soon_threadsafe(done.set)

        engine._writer.checkpoint = and_tell  # type: ignore[method-assign]
        await store.kv("p").set("k", 2)
        async with asyncio.timeout(60):
            await done.wait()
        assert engine._writer._log_pages == 0


async def test_full_log_is_checkpointed_between_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log does not grow past its bound while writing goes on without a pause."""
    monkeypatch.setattr("holdfast.engines.sqlite.writer.CHECKPOINT_PAGES", 64)
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for number in range(300):
            await kv.set(f"k{number % 3}", "x" * 4000)
        assert path.with_name("store.db-wal").stat().st_size < 2_000_000


async def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """A path whose folder does not exist is refused with a sentence, and nothing is made."""
    with pytest.raises(Unavailable, match="folder"):
        async with holdfast.open(tmp_path / "nowhere" / "store.db"):
            pass
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_no_database_is_refused_and_kept(path: Path) -> None:
    """Something else at the path is refused as such and left alone."""
    path.write_bytes(b"not a database, but long enough to look like one: " * 100)
    with pytest.raises(DatabaseError, match="not a database"):
        asyncio.run(holdfast.open(path).start())
    assert path.read_bytes().startswith(b"not a database")


async def test_a_get_of_a_locked_file_waits_on_the_thread(path: Path) -> None:
    """A get that finds the file locked does not fail: it waits where waiting blocks nobody."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        inline = engine._inline

        class Locked:
            def execute(self, *_: object) -> object:
                error = sqlite3.OperationalError("locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error

        engine._inline = Locked()  # type: ignore[assignment]
        entry = await kv.get("k")
        engine._inline = inline
        assert entry is not None
        assert entry.value == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_BUSY, Busy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Busy),
        (sqlite3.SQLITE_LOCKED, Busy),
        (sqlite3.SQLITE_CANTOPEN, Unavailable),
        (sqlite3.SQLITE_READONLY, Unavailable),
        (sqlite3.SQLITE_NOTADB, DatabaseError),
        (sqlite3.SQLITE_CORRUPT, DatabaseError),
        (sqlite3.SQLITE_IOERR, DiskFailed),
        (sqlite3.SQLITE_IOERR_READ, DiskFailed),
        (sqlite3.SQLITE_PROTOCOL, Busy),
    ],
)
def test_driver_errors_are_told_apart_by_code(code: int, expected: type[Exception]) -> None:
    """Each driver error becomes ours by its code; its text never reaches a caller."""
    error = sqlite3.OperationalError("secret words")
    error.sqlite_errorcode = code
    ours = translated(error, "store.db")
    assert type(ours) is expected
    assert "secret" not in ours.message


class FailingDisk(sqlite3.Connection):
    """A connection whose disk fails in each transaction, which ends it."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Fail in a transaction."""
        if not self.in_transaction or sql == "COMMIT":
            return super().execute(sql, *parameters)
        super().execute("ROLLBACK")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    def cursor(self, *_: Any) -> Any:
        """Return something that fails as the connection does."""
        return self


@pytest.mark.parametrize(
    "read",
    [
        lambda connection: reads.totals(connection, 0, None),
        lambda connection: reads.journal(connection, JournalQuery(namespace="kv/p", since=0, limit=1), None),
    ],
)
def test_a_read_that_the_disk_fails_says_so(read: Callable[[sqlite3.Connection], object]) -> None:
    """An error of the disk that ends a transaction is reported as such, not as a mistake of the store."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None, factory=FailingDisk)) as disk:
        with pytest.raises(sqlite3.OperationalError) as raised:
            read(disk)
        assert raised.value.sqlite_errorcode == sqlite3.SQLITE_IOERR


async def test_an_error_during_commit_is_outcome_unknown(path: Path) -> None:
    """A commit that fails half way is OUTCOME_UNKNOWN, never a plain failure; the store stays usable."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        real = engine._writer._connection
        assert real is not None
        execute = real.execute

        class Failing:
            in_transaction = True

            def execute(self, sql: str, parameters: object = ()) -> object:
                if sql == "COMMIT":
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                    raise error
                return execute(sql, parameters)  # type: ignore[arg-type]

        engine._writer._connection = Failing()  # type: ignore[assignment]
        with pytest.raises(holdfast.OutcomeUnknown):
            await kv.set("k", 2)
        engine._writer._connection = real
        assert (await kv.set("k", 3)).value == 3


async def test_a_short_page_is_read_on_the_loop_unless_that_takes_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of few rows needs no thread. Behind very many expired or large rows it is read on one."""
    monkeypatch.setattr(reads, "BRIEF_STEPS", 1_000)
    clock = ManualClock(1_000_000)
    async with holdfast.open(path, reap=False, clock=clock) as store:
        kv = store.kv("p")
        await kv.set_many([{"key": f"dead:{number:03}", "value": 1, "ttl": 1} for number in range(1_000)])
        await kv.set("live:1", "x")
        await kv.set_many([{"key": f"wide:{number}", "value": "x" * 60_000} for number in range(4)])
        clock.advance(2)
        engine = store.pipeline.engine
        assert isinstance(engine, SqliteEngine)
        assert engine._inline is not None

        async def page(prefix: str, limit: int) -> tuple[list[str], bool, bool]:
            query = Scan(
                namespace="p",
                space=KV,
                start=prefix,
                stop=None,
                after=None,
                limit=limit,
                max_bytes=1_000_000,
                values=True,
            )
            assert engine._inline is not None
            briefly = reads.scan_briefly(engine._inline, query, clock.now())
            found = await engine.scan(query, clock.now())
            assert briefly is None or briefly == found
            return [str(key) for key in found.keys], found.more, briefly is not None

        assert await page("live:", 1) == (["live:1"], True, True)
        assert await page("dead:", 1) == (["live:1"], True, False)
        assert await page("wide:", 1) == (["wide:0"], True, True)
        assert await page("wide:", 4) == ([f"wide:{number}" for number in range(4)], False, False)
        assert await page("x", 5) == ([], False, True)
        long = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999) SELECT sum(i) FROM n"
        )
        # The limit was that of the pages: another query on the loop takes as long as it has to.
        assert await engine.quick(lambda connection: connection.execute(long).fetchone()) == (49_995_000,)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "count", [0, 1, reads.FIRST_ROWS - 1, reads.FIRST_ROWS, reads.FIRST_ROWS + 1, reads.BRIEF_ROWS + 2]
)
async def test_a_page_has_every_row_that_it_may_have_wherever_it_was_read(
    path: Path, count: int, reverse: bool
) -> None:
    """A list that may have many keys shows all of them, few or many, and says whether more follow."""
    async with holdfast.open(path, reap=False, clock=(clock := ManualClock())) as store:
        kv = store.kv("p")
        keys = [f"k{number:03}" for number in range(count)]
        await kv.set_many([{"key": f"j{number:03}", "value": 0, "ttl": 1} for number in range(50)])
        if keys:
            await kv.set_many([{"key": key, "value": key} for key in keys])
        clock.advance(2)
        keys.sort(reverse=reverse)
        whole = await kv.list(limit=1000, reverse=reverse, values=True)
        assert [entry.value for entry in whole.entries or ()] == keys
        assert not whole.truncated
        most = max(count - 1, reads.BRIEF_ROWS + 1)
        page = await kv.list(limit=most, reverse=reverse)
        assert (page.keys, page.truncated) == (keys[:most], count > most)


async def test_large_groups_are_loaded_and_saved_in_chunks(path: Path) -> None:
    """A batch of the largest size goes in whole, whatever SQLite's limit on parameters is."""
    async with holdfast.open(path, reap=False, clock=ManualClock()) as store:
        kv = store.kv("p")
        writes = [{"key": f"k{number:04}", "value": number} for number in range(1000)]
        sets = [kv.batch(writes=writes) for _ in range(3)]
        results = await asyncio.gather(*sets)
        assert [result.versions[-1] for result in results] == [1000, 2000, 3000]
        assert len(await kv.get_many([f"k{number:04}" for number in range(1000)])) == 1000
        assert (await store.stats("kv/p")).keys == 1000


async def test_rows_of_a_group_do_not_mix_their_optional_fields(path: Path) -> None:
    """Entries with and without meaning, deadline and document are written together, each as it was given."""
    meaning = {"purpose": "cache", "producer": "p"}
    full = {"ttl": 60, "semantics": meaning, "spec_ref": "doc"}
    given: list[dict[str, Any]] = [{}, full, {"ttl": 60}, {"semantics": meaning}, {"spec_ref": "doc"}]
    async with holdfast.open(path, reap=False, clock=ManualClock()) as store:
        kv = store.kv("p")
        for shift in range(len(given)):
            turned = [*given[shift:], *given[:shift]]
            await asyncio.gather(*(kv.set(f"k{number}", 1, **one) for number, one in enumerate(turned)))
            for number, one in enumerate(turned):
                entry = await kv.get(f"k{number}")
                assert entry is not None
                assert (entry.expires_at is not None) == ("ttl" in one)
                assert (entry.semantics is not None) == ("semantics" in one)
                assert entry.spec_ref == one.get("spec_ref")
                newest, *_ = await kv.history(f"k{number}")
                assert newest.purpose == ("cache" if "semantics" in one else None)


@pytest.mark.parametrize(
    ("sql", "parameters", "index"),
    [
        (statements.due("kv", owned=False), (1, 1), "idx_kv_expires_at"),
        (statements.due("kv", owned=True), (1, "p", 1), "idx_kv_expires_at"),
        (statements.FALLING_DUE, (1, 2, 1), "idx_kv_expires_at"),
        (statements.due("trash", owned=True), (1, "kv/p", "trash", 1), "idx_rows_expires_at"),
        (statements.totals(owned=True)[1], (1, "p"), "idx_kv_expires_at"),
        (
            statements.scan("kv", values=False, bounded=True, after=True),
            ("p", "a", "b", 1, 1),
            "PRIMARY KEY",
        ),
        (
            statements.journal(key=False, bounded=True, newest_first=False),
            ("kv/p", 0, "", "z", 1),
            "PRIMARY KEY",
        ),
        (statements._drop_kv(2), ("p", "a", "b"), "PRIMARY KEY"),
        (statements._drop_rows("holdfast_rows", 2), ("n", "s", b"k", b"l"), "PRIMARY KEY"),
        (statements._drop_rows("holdfast_parts", 2), ("n", "s", b"k", b"l"), "sqlite_autoindex"),
        (statements._load_parts(2, shown=True), ("n", "s", b"k") * 2, "sqlite_autoindex"),
        (statements._load_kv(2, shown=True), ("p", "a", "p", "b"), "PRIMARY KEY"),
        (statements.OWNERS, ("s",), "PRIMARY KEY"),
        (raw._find(Section.ENTRIES, 2), ("a", "b", "p"), "plugin_name=? AND key=?"),
        (raw._find(Section.ROWS, 2), ("s", b"k", "s", b"l", "n"), "namespace=? AND space=? AND key=?"),
        (raw._find(Section.PARTS, 2), ("s", b"k", "s", b"l", "n"), "namespace=? AND space=? AND key=?"),
        (raw._find(Section.JOURNAL, 2), (1, 2, "n"), "namespace=? AND version=?"),
    ],
)
async def test_statements_use_an_index(
    path: Path, sql: str, parameters: tuple[object, ...], index: str
) -> None:
    """No statement of the engine walks a table that grows with the data."""
    async with holdfast.open(path, reap=False):
        connection = sqlite3.connect(path)
        plan = " / ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))
        connection.close()
    assert index in plan
    assert "TEMP B-TREE FOR ORDER BY" not in plan
    walked = [step for step in plan.split(" / ") if step.startswith("SCAN")]
    assert [step for step in walked if "CONSTANT ROW" not in step and "wanted" not in step] == []
