"""How the server goes about the statements of the PostgreSQL engine.

Plans are looked at on empty tables, where a planner is most tempted, with the settings of the engine.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from holdfast.engines.postgres import sql
from holdfast.engines.postgres.connections import Connections
from holdfast.engines.postgres.save_sql import Part, save
from holdfast.engines.postgres.setup import prepare
from holdfast.engines.postgres.sql import keys_text
from holdfast.rows import Address

NOW: Final = 1_700_000_000_123
KEYS: Final = keys_text([Address("n", "s", b"k")])


@pytest.mark.parametrize(
    ("statement", "parameters", "searches"),
    [
        (sql.READ_KV, (["p"], ["k"]), 1),
        (sql.READ_OTHERS, (["n"], ["s"], KEYS), 1),
        (
            sql.load(kv=True, others=True, alike=False),
            ("n", "p", ["k"], "{t}", "n", ["s"], KEYS, "{t}", 1),
            3,
        ),
        (
            sql.load(kv=True, others=True, alike=True),
            ("n", "p", ["k"], True, "n", ["s"], KEYS, False, 1),
            3,
        ),
        (
            save(Part("touch_namespace"), Part("drop_kv"), Part("drop_others")),
            ("n", 7, None, "p", ["k"], "n", ["s"], KEYS),
            3,
        ),
        (sql.scan_kv(values=True, bounded=True, after=True), (NOW, 9, 9, "k", "p", "l", "k"), 1),
        (sql.scan_others(values=False, bounded=False, after=False), (NOW, 9, 9, b"", "n", "s"), 1),
        (sql.OWNERS, ("s",), 2),
        (sql.due_kv(one=True), (NOW, 9, "p"), 1),
        (sql.FALLING_DUE, (NOW, NOW + 1000, 9), 1),
        (sql.OVERDUE, (NOW, 9, "p", 9), 1),
        (
            save(Part("touch_namespace"), Part("drop_run"), Part("record_run")),
            ("n", 7, None, "p", NOW, 9, "n", 9, NOW),
            3,
        ),
        (sql.due_others(one=True), (NOW, 9, "s", "n"), 2),
        (sql.journal(bounded=True, key=True, newest_first=True), ("n", 0, "k", 9, "l", "k"), 3),
    ],
)
async def test_plans_made_on_empty_tables_use_the_index(
    pg_url: str, statement: str, parameters: tuple[Any, ...], searches: int
) -> None:
    """A plan made while the tables are empty goes by the index, since it is kept when they have grown."""
    connections = Connections(pg_url)
    await connections.use(partial(prepare, dsn=pg_url))
    found = await connections.use(lambda connection: connection.fetch(f"EXPLAIN {statement}", *parameters))
    await connections.aclose()
    plan = "\n".join(line[0] for line in found)
    assert plan.count("Index Cond:") == searches, plan
    assert "Seq Scan" not in plan, plan
    assert "Join Filter" not in plan, plan
