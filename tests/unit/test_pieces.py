"""Pieces of work between two turns of the loop: a large item makes none of them long.

Law: what is done is counted, by bytes, members or steps of work. No test here looks at a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast import model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def store() -> AsyncIterator[holdfast.Store]:
    """A store on SQLite, since others load as their drivers do."""
    async with holdfast.open("sqlite:///:memory:", reap=False) as opened:
        yield opened


async def test_a_list_is_no_key_and_is_not_made(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index about an attribute that is a long list costs no more than to pass over the list."""
    made: list[int] = []
    value = model._value

    def noted(text: str, key: str) -> Any:
        made.append(len(text))
        return value(text, key)

    tables = store.tables("p")
    await tables.create_table("t", partition_key=("p", "string"))
    for number in range(3):
        await tables.put_item("t", {"p": f"i{number}", "l": [[1]] * 9_000, "o": {"x": [1] * 9_000}})
    await tables.put_item("t", {"p": "text", "l": "a", "o": "b"})
    monkeypatch.setattr(model, "_value", noted)
    for name in ("l", "o"):
        await tables.create_index("t", f"by-{name}", key=(name, "string"))
        assert (await tables.check_index("t", f"by-{name}"))["entries"] == 1
    assert 0 < max(made) < 100
