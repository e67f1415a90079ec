"""An item is read once on its way through `decide`."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.tables import items


async def test_a_put_decodes_its_item_and_encodes_its_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a put does not double because its row has to be named before it can be loaded."""
    calls: list[str] = []

    def counted(name: str) -> None:
        real = getattr(items, name)

        def count(*given: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*given, **options)

        monkeypatch.setattr(items, name, count)

    async with holdfast.open("memory://", reap=False) as store:
        tables = store.tables("trivia")
        await tables.create_table("scores", partition_key=("user", "string"), sort_key=("at", "number"))
        counted("some_attributes")
        counted("encode_key")
        await tables.put_item("scores", {"user": "alice", "at": 1, "points": 3})
    assert calls == ["some_attributes", "encode_key", "encode_key"]  # one for each part of the key
