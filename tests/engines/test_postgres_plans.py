"""How the server goes about the statements of the PostgreSQL engine.

Law: plans are looked at on empty tables, where a planner is most tempted, with the settings of the engine.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from holdfast.engines.postgres import statements
from holdfast.engines.postgres.connections import Connections
from holdfast.engines.postgres.opening import prepare
from holdfast.engines.postgres.saving import Part, save

NOW: Final = 1_700_000_000_123


@pytest.mark.parametrize(
    ("statement", "parameters", "searches"),
    [
        (statements.READ_KV, (["p"], ["k"]), 1),
        (statements.READ_OTHERS, (["n"], ["s"], [b"k"]), 1),
        (
            statements.load(kv=True, others=True, alike=False),
            ("n", "p", ["k"], [True], "n", ["s"], [b"k"], [True], 1),
            3,
        ),
        (
            statements.load(kv=True, others=True, alike=True),
            ("n", "p", ["k"], True, "n", ["s"], [b"k"], False, 1),
            3,
        ),
        (
            save(Part("touch_namespace"), Part("drop_kv"), Part("drop_others")),
            ("n", 7, None, "p", ["k"], "n", ["s"], [b"k"]),
            3,
        ),
        (statements.scan_kv(values=True, bounded=True, after=True), (NOW, 9, 9, "k", "p", "l", "k"), 1),
        (statements.scan_others(values=False, bounded=False, after=False), (NOW, 9, 9, b"", "n", "s"), 1),
        (statements.OWNERS, ("s",), 2),
        (statements.due_kv(one=True), (NOW, 9, "p"), 1),
        (statements.FALLING_DUE, (NOW, NOW + 1000, 9), 1),
        (statements.OVERDUE, (NOW, 9, "p", 9), 1),
        (
            save(Part("touch_namespace"), Part("drop_run"), Part("record_run")),
            ("n", 7, None, "p", NOW, 9, "n", 9, NOW),
            3,
        ),
        (statements.due_others(one=True), (NOW, 9, "s", "n"), 2),
        (statements.journal(bounded=True, key=True, newest_first=True), ("n", 0, "k", 9, "l", "k"), 3),
    ],
)
async def test_rows_are_found_by_an_index(
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
