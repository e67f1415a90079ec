"""Entries that expire in runs go with their records or stay without, whenever the process is killed."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import holdfast
from tests.robustness.killing import said_until_killed

if TYPE_CHECKING:
    from pathlib import Path

CYCLES = int(os.environ.get("HOLDFAST_KILL_CYCLES", "2"))

TORN = """
SELECT key, sum(op = 'set') - sum(op = 'expired') - (SELECT count(*) FROM plugin_kv_storage AS kept
WHERE kept.plugin_name = 'crash' AND kept.key = holdfast_journal.key) AS missing
FROM holdfast_journal GROUP BY key HAVING missing <> 0
"""


async def test_a_killed_sweep_leaves_records_and_counters_right(tmp_path: Path) -> None:
    """After `kill -9` in a sweep each expiry has its record, and the counters are those of the rows."""
    path, dice = tmp_path / "store.db", random.Random(5)
    for life in range(CYCLES):
        lines, later = dice.randint(6, 41), dice.uniform(0, 0.05)
        said_until_killed("sweeping_process", str(path), str(life), after_lines=lines, later=later)
        async with holdfast.open(path, reap=False):
            pass
        _check(path)
    with closing(sqlite3.connect(path)) as connection:
        [expired] = connection.execute(
            "SELECT count(*) FROM holdfast_journal WHERE op = 'expired'"
        ).fetchone()
    assert expired > 1000


def _check(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        held = connection.execute(
            "SELECT count(*), coalesce(sum(length(key) + length(value_json)), 0) FROM plugin_kv_storage"
        ).fetchone()
        *counted, revision = connection.execute(
            "SELECT keys, bytes, revision FROM holdfast_namespaces"
        ).fetchone()
        assert tuple(counted) == held
        versions = connection.execute(
            "SELECT count(*), min(version), max(version) FROM holdfast_journal"
        ).fetchone()
        assert versions == (revision, 1, revision)
        assert connection.execute(TORN).fetchall() == []
