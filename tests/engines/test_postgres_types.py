"""A new connection to PostgreSQL is used at once, without questions about types.

The driver knows the types of single values and of arrays of texts. About any other it asks the server,
on every connection anew, and that takes the server longer than most requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.testing import AUDIT_KEY


async def test_no_request_looks_up_a_type(pg_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by entries, batches, expiry, locks, items, indexes, the trash or the audit."""
    asked: list[Any] = []
    ask = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def noted(self: object, types: Any, *rest: Any) -> Any:
        asked.extend(types)
        return await ask(self, types, *rest)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", noted)
    async with holdfast.open(pg_store_url, audit_key=AUDIT_KEY, reap=False) as store:
        kv, documents, tables = store.kv("trivia"), store.semantic("acme", "web"), store.tables("trivia")
        await kv.set("score", 1, ttl=60)
        await kv.batch(
            checks=[{"key": "b", "version": 0}],
            writes=[{"key": "a", "value": 1}, {"key": "score", "incr": 2}, {"guard": "one"}],
            request_id="first",
        )
        async with kv.lock("one"):
            assert await kv.get("score")
        await documents.set("note", {"text": "hello"})
        await documents.delete("note")
        await documents.restore("note")
        await asyncio.gather(*(store.kv(name).set("score", 1) for name in ("one", "two", "three")))
        await tables.create_table("games", partition_key=("id", "string"))
        await tables.create_index("games", "by_player", key=("player", "string"))
        await tables.put_item("games", {"id": "1", "player": "ada"})
        assert (await tables.query_index("games", "by_player", "ada")).items
        await tables.delete_item("games", "1")
    assert asked == []
