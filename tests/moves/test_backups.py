"""Backups: whole, consistent, the same for every engine, and refused when they are damaged."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.engine import Movable
from holdfast.engine.raw import RawLoader
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.sqlite.writer import Writer
from holdfast.moves.backups import back_up, restore
from holdfast.registry import engine_for
from tests.moves.contents import differing, fill


async def backup_of(url: str | Path) -> io.BytesIO:
    """A backup of a store, in memory."""
    engine = engine_for(url)
    assert isinstance(engine, Movable)
    await engine.start()
    file = io.BytesIO()
    try:
        await back_up(engine, file, made_at=0, software="test")
    finally:
        await engine.aclose()
    file.seek(0)
    return file


async def restored(url: str | Path, file: io.BytesIO) -> None:
    """Load a backup into a store."""
    engine = engine_for(url)
    assert isinstance(engine, Movable)
    await engine.start()
    try:
        await restore(engine, file)
    finally:
        await engine.aclose()


async def test_a_backup_holds_the_same_on_sqlite_and_postgres(tmp_path: Path, pg_store_url: str) -> None:
    """SQLite to PostgreSQL and back holds the same in every section, and each store has its own epoch."""
    await fill(tmp_path / "one.db")
    await restored(pg_store_url, await backup_of(tmp_path / "one.db"))
    assert await differing(tmp_path / "one.db", pg_store_url) == []
    await restored(tmp_path / "two.db", await backup_of(pg_store_url))
    assert await differing(tmp_path / "one.db", tmp_path / "two.db") == []
    async with holdfast.open(tmp_path / "two.db") as store:
        found = await store.kv("plain").get("k")
        assert found is not None
        assert found.value == [1, 2.5, None]
        assert len((await store.tables("shop").scan("orders")).items) == 30


async def test_a_restore_leaves_nothing_of_a_store_in_use(
    tmp_path: Path, pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process writes just before the store is replaced is gone too."""
    await fill(tmp_path / "one.db")
    backup = await backup_of(tmp_path / "one.db")
    original = PostgresEngine.loading
    async with holdfast.open(pg_store_url, reap=False) as other:

        @contextlib.asynccontextmanager
        async def write_first(engine: PostgresEngine) -> AsyncIterator[RawLoader]:
            await other.kv("late").set("k", 1)
            await other.kv("plain").set("late", 1)
            async with original(engine) as loader:
                yield loader

        monkeypatch.setattr(PostgresEngine, "loading", write_first)
        await restored(pg_store_url, backup)
    assert await differing(tmp_path / "one.db", pg_store_url) == []


async def test_a_restore_onto_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full only when the restore commits is an error of Holdfast, and nothing is restored."""
    await fill(tmp_path / "one.db")
    backup = await backup_of(tmp_path / "one.db")

    def full(writer: Writer, pages: int) -> None:
        writer.give_up_load()
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(Writer, "_finish", full)
    with pytest.raises(holdfast.StorageFull):
        await restored(tmp_path / "two.db", backup)
    monkeypatch.undo()
    async with holdfast.open(tmp_path / "two.db") as store:
        assert await store.kv("plain").get("k") is None


async def test_a_damaged_backup_changes_nothing(tmp_path: Path) -> None:
    """Truncated anywhere or with a flipped bit, a backup is refused and the store keeps what it had."""
    await fill(tmp_path / "one.db")
    whole = (await backup_of(tmp_path / "one.db")).getvalue()
    async with holdfast.open(tmp_path / "two.db") as store:
        await store.kv("p").set("k", "kept")
    step = max(1, len(whole) // 25)
    damaged = [whole[:length] for length in range(0, len(whole), step)]
    damaged += [
        whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :]
        for place in range(0, len(whole), step)
    ]
    damaged.append(whole[:-1] + bytes([whole[-1] ^ 1]))  # in the last checksum, which nothing else covers
    damaged.append(whole + b"x")
    for file in damaged:
        with pytest.raises(holdfast.HoldfastError):
            await restored(tmp_path / "two.db", io.BytesIO(file))
    async with holdfast.open(tmp_path / "two.db") as store:
        assert [one.namespace for one in await store.namespaces()] == ["kv/p"]
        found = await store.kv("p").get("k")
        assert found is not None
        assert found.value == "kept"
