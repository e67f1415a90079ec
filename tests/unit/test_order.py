"""Calls take effect in the order in which they were made, also when nobody waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import holdfast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def kv(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[holdfast.KV]:
    """The keys of a plugin in an empty store of each kind."""
    if request.param == "postgresql":
        url = str(request.getfixturevalue("pg_store_url"))
    else:
        url = "memory://" if request.param == "memory" else str(tmp_path / "store.db")
    async with holdfast.open(url, reap=False) as store:
        yield store.kv("p")


async def test_a_get_sees_the_set_before_it_and_not_the_one_after(kv: holdfast.KV) -> None:
    """Of alternating sets and gets each get sees exactly the value of the set before it."""
    calls = [call for number in range(100) for call in (kv.set("k", number), kv.get("k"))]
    results = await asyncio.gather(*calls)
    assert [entry.value for entry in results[1::2] if entry is not None] == list(range(100))


async def test_a_list_sees_what_was_set_before_it_and_nothing_after(kv: holdfast.KV) -> None:
    """A listing between sets shows exactly the keys that were set before it was asked for."""
    writes, pages = [], []
    for number in range(20):
        writes.append(asyncio.create_task(kv.set(f"k{number:02}", number)))
        pages.append(asyncio.create_task(kv.list()))
    await asyncio.gather(*writes)
    assert [page.count for page in await asyncio.gather(*pages)] == list(range(1, 21))


async def test_changes_and_get_many_keep_the_order_too(kv: holdfast.KV) -> None:
    """Every read of a namespace stands between the writes around it."""
    await kv.set("a", 0)
    many, changes, _ = await asyncio.gather(kv.get_many(["a", "b"]), kv.changes(), kv.set("b", 1))
    assert [entry is None for entry in many] == [False, True]
    assert changes.next == 1


async def test_a_cancelled_read_holds_nothing_up(kv: holdfast.KV) -> None:
    """A write goes on when the read that it waited for is given up."""
    read = asyncio.create_task(kv.list())
    await asyncio.sleep(0)
    write = asyncio.create_task(kv.set("a", 1))
    await asyncio.sleep(0)
    read.cancel()
    assert (await write).version == 1
