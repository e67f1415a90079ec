"""The hash by which replicas are compared."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.engines.cluster import operators
from holdfast.engines.cluster.operators import Contents, contents_of
from tests.moves.contents import fill

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = [
    "UPDATE plugin_kv_storage SET value_json = '0' WHERE key = 'k7'",
    "UPDATE plugin_kv_storage SET expires_at = 9 WHERE key = 'k7'",
    "DELETE FROM plugin_kv_storage WHERE key = 'k7'",
    "UPDATE holdfast_rows SET value = '0' WHERE namespace = 'kv/trivia' AND space = 'guard'",
    "UPDATE holdfast_journal SET op = 'x' WHERE namespace = 'kv/plain'",
    "UPDATE holdfast_parts SET data = x'00' WHERE key = (SELECT min(key) FROM holdfast_parts)",
    "UPDATE holdfast_namespaces SET policy = NULL WHERE name = 'kv/trivia'",
]


async def found_in(path: Path) -> Contents:
    """The contents of a file."""
    return await (await contents_of(path))


@pytest.mark.parametrize("change", CHANGES)
async def test_every_difference_changes_the_hash(tmp_path: Path, change: str) -> None:
    """A value, a deadline, a row, a record, a byte of a blob, a policy: nothing is left out of it."""
    path = tmp_path / "one.db"
    await fill(path)
    before = await found_in(path)
    assert before == await found_in(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for [trigger] in triggers:  # they would change other rows too
            connection.execute(f"DROP TRIGGER {trigger}")
        assert connection.execute(change).rowcount == 1
    after = await found_in(path)
    assert after.hash != before.hash
    assert before.rows - after.rows == change.startswith("DELETE")


async def test_the_contents_are_those_of_the_moment_of_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them may take long, and what is written meanwhile does not show."""
    monkeypatch.setattr(operators, "ROWS", 1)
    path = tmp_path / "one.db"
    async with holdfast.open(path, reap=False) as store:
        for number in range(20):
            await store.kv("p").set(f"k{number}", number)
        before = await found_in(path)
        pinned = await contents_of(path)
        await store.kv("p").set("later", 1)
        assert await pinned == before
        assert await found_in(path) != before
