"""What the SQLite engine keeps in mind of its last writes is never older than the file.

What the memory gets wrong shows in versions, values and the journal, as whoever writes through the store
sees them. The memory itself is asked only how much it holds.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.decide import Outcome
from holdfast.engines.sqlite import SqliteEngine, decider
from holdfast.rows import KV, Address, Namespace, Row

if TYPE_CHECKING:
    from pathlib import Path


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


async def test_entries_expired_in_a_run_stay_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that went with a crowd is gone for good, however long ago it was written."""
    monkeypatch.setattr(decider, "RECENT_ROWS", 200)  # so that some rows are of the older generation
    clock = ManualClock()
    keys = [f"{number:03}" for number in range(250)]
    async with holdfast.open(tmp_path / "store.db", clock=clock, reap=False) as store:
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


async def test_a_deleted_entry_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted entry is gone for the next write too, whichever generation it was of."""
    monkeypatch.setattr(decider, "RECENT_ROWS", 4)
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        kv = store.kv("p")
        for number in range(10):
            await kv.set(f"k{number}", number)
        for number in reversed(range(10)):
            assert await kv.delete(f"k{number}")
            assert (await kv.set(f"k{number}", 0, expected_version=0)).value == 0


async def test_the_later_of_two_writes_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an entry that was written twice the later row counts, whichever generation the earlier one is of."""
    monkeypatch.setattr(decider, "RECENT_ROWS", 4)
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        kv = store.kv("p")
        versions = dict.fromkeys("abcdef", 0)
        for key in "abcdefabcdef":
            for _ in range(2):
                versions[key] = (await kv.set(key, 1, expected_version=versions[key])).version
        assert max(versions.values()) == 24


def test_remembered_entries_and_namespaces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entries and namespaces are written to, memory holds so many and no more."""
    monkeypatch.setattr(decider, "RECENT_ROWS", 4)
    monkeypatch.setattr(decider, "RECENT_NAMESPACES", 4)
    memory = decider.RecentRows()
    row = Row(value="1", size=1, version=1, created_at=1, updated_at=1)
    names = [f"kv/p{number}" for number in range(20)]
    for name in names:
        rows: dict[Address, Row | None] = {Address(name, KV, "k"): row}
        memory.learn(Outcome(results=[], namespaces=[Namespace(name=name)], rows=rows, journal=[], trims={}))
        assert len(memory.namespaces(names)) <= 4
        assert len(memory.rows([Address(one, KV, "k") for one in names])) <= 9


async def test_a_large_value_replaces_a_remembered_small_one(tmp_path: Path) -> None:
    """A value too large to be kept in mind takes the place of the one that was."""
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", "small")
        large = await kv.set("k", "x" * (decider.LARGEST_RECENT + 1))
        with pytest.raises(holdfast.VersionConflict) as conflict:
            await kv.set("k", 1, expected_version=1)
        assert conflict.value.current == large
