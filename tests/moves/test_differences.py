"""`compared`: every difference is found, in every section, and nothing else is named."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from holdfast.moves.differences import compared, differences
from tests.moves.contents import fill, looked_at

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = {
    "UPDATE plugin_kv_storage SET value_json = '0' WHERE key = 'k7'": ("kv/trivia", "entries", ("k7",)),
    "UPDATE plugin_kv_storage SET expires_at = 9 WHERE key = 'k8'": ("kv/trivia", "entries", ("k8",)),
    "DELETE FROM plugin_kv_storage WHERE key = 'k9'": ("kv/trivia", "entries", ("k9",)),
    "UPDATE holdfast_rows SET value = '0' WHERE namespace = 'kv/trivia' AND space = 'guard'": (
        "kv/trivia",
        "rows",
        ("guard", b"one"),
    ),
    "UPDATE holdfast_journal SET op = 'x' WHERE namespace = 'kv/plain'": ("kv/plain", "journal", (1,)),
    "UPDATE holdfast_parts SET data = x'00' WHERE key = (SELECT min(key) FROM holdfast_parts)": (
        "blob/media",
        "parts",
        None,
    ),
    "UPDATE holdfast_namespaces SET policy = NULL WHERE name = 'kv/trivia'": ("kv/trivia", None, None),
}
"""A change behind the store, and the namespace, the section and the position that it concerns."""


QUIET = "INSERT INTO holdfast_meta (name, value) VALUES ('inside', '')"
LOUD = "DELETE FROM holdfast_meta WHERE name = 'inside'"
"""Around a change that the triggers of the store are not to see, as if the disk had changed it."""


async def test_differences_name_each_kind_of_change_and_nothing_else(tmp_path: Path) -> None:
    """A single value, deadline, row, record, byte of a blob or policy is named, and nothing beside it."""
    await fill(tmp_path / "one.db")
    for number, (change, (name, section, position)) in enumerate(CHANGES.items()):
        other = tmp_path / f"{number}.db"
        shutil.copy(tmp_path / "one.db", other)
        async with looked_at(tmp_path / "one.db") as ours, looked_at(other) as theirs:
            assert [found async for found in compared(ours, theirs)] == []
        with contextlib.closing(sqlite3.connect(other)) as connection, connection:
            connection.execute(QUIET)
            assert connection.execute(change).rowcount == 1, change
            connection.execute(LOUD)
        async with looked_at(tmp_path / "one.db") as ours, looked_at(other) as theirs:
            [found] = [found async for found in compared(ours, theirs)]
            assert (found.name, found.rows is None) == (name, section is not None)
            named = [
                one
                for where, parts in found.sections.items()
                for part in parts
                async for one in differences(ours, theirs, name, where, part)
            ]
        assert [one.section for one in named] == ([] if section is None else [section])
        if position is not None:
            assert named[0].position == position


@pytest.mark.parametrize("usual", [1, 4])
async def test_added_row_changes_one_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: int
) -> None:
    """A row that is added or removed changes the range that it is in, not those that follow."""
    monkeypatch.setattr("holdfast.moves.differences.USUAL", usual)
    await fill(tmp_path / "one.db")
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "two.db")) as connection, connection:
        connection.execute(QUIET)
        connection.execute("DELETE FROM plugin_kv_storage WHERE key = 'k20'")
        connection.execute(LOUD)
    async with looked_at(tmp_path / "one.db") as ours, looked_at(tmp_path / "two.db") as theirs:
        [found] = [found async for found in compared(ours, theirs)]
    [[part]] = found.sections.values()
    assert (part.counts[0] - part.counts[1], part.counts[0] < 30) == (1, True)
