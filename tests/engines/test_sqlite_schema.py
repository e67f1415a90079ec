"""Opening a SQLite file whose schema is not today's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.engines.sql import migrate
from holdfast.engines.sql.layout import SCHEMA_REVISION
from holdfast.engines.sqlite import setup

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with an entry, closed."""
    file = tmp_path / "store.db"
    async with holdfast.open(file) as store:
        await store.kv("p").set("k", 1)
    return file


def _mark(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE holdfast_alembic_version SET version_num = ?", [revision])


async def test_a_newer_store_is_refused_and_left_alone(path: Path) -> None:
    """A store that a newer Holdfast has migrated is refused with a sentence, and nobody is locked out."""
    _mark(path, "from the future")
    store = holdfast.open(path)
    with pytest.raises(holdfast.Unsupported, match="newer Holdfast"):
        await store.start()
    _mark(path, SCHEMA_REVISION)
    async with holdfast.open(path) as mended:
        assert (await mended.kv("p").set("k", 2)).version == 2


async def test_an_older_store_is_migrated_before_it_is_used(path: Path) -> None:
    """A store of an older version is brought up to date by the process that may write, and keeps its data."""
    migrate.downgrade_sqlite(path, "0001")
    async with holdfast.open(path) as store:
        entry = await store.kv("p").get("k")
        assert (await store.kv("p").set("k", 2)).version == 2
    assert entry is not None
    assert entry.value == 1
    with closing(sqlite3.connect(path)) as connection:
        assert setup.revision(connection) == SCHEMA_REVISION
