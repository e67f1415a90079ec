"""Groups of the PostgreSQL engine that need two looks before they can be decided, while somebody else writes.

The other store writes between the two looks, every time. What the caller is told must have been true at
some instant of the call.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.engine import Swept
from holdfast.engines.postgres.transaction import Group
from holdfast.pipeline.executor import Executor
from holdfast.testing import AUDIT_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@pytest.fixture
async def stores(pg_store_url: str) -> AsyncIterator[tuple[holdfast.Store, holdfast.Store]]:
    """Two stores on one database."""
    async with (
        holdfast.open(pg_store_url, reap=False, audit_key=AUDIT_KEY) as one,
        holdfast.open(pg_store_url, reap=False, audit_key=AUDIT_KEY) as other,
    ):
        yield one, other


@asynccontextmanager
async def between_looks(
    patch: pytest.MonkeyPatch, write: Callable[[], Awaitable[object]], *, second: str = "_load_further"
) -> AsyncIterator[list[bool]]:
    """Have something written once, after the first look of the next group and before its second."""
    look_again, written = getattr(Group, second), list[bool]()

    async def later(group: Group, *given: Any) -> Any:
        if not written:
            written.append(True)
            await write()
        return await look_again(group, *given)

    with patch.context() as context:
        context.setattr(Group, second, later)
        yield written
    assert written


async def test_a_quota_does_not_mix_counts_from_before_and_after_a_change(
    stores: tuple[holdfast.Store, holdfast.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota does not refuse by a count of before and an item of after a change that came in between."""
    tables, others = (store.tables("p") for store in stores)
    await tables.create_table("t", partition_key=("id", "number"))
    await stores[0].set_policy("table/p", {"quota_keys": 1})
    for value in range(3):  # by then it is known that nobody else writes
        await tables.put_item("t", {"id": 1, "value": value})

    async def found_nothing(*given: object) -> Swept:
        return Swept(journal=[], freed=False)

    monkeypatch.setattr(
        Executor, "_swept", found_nothing
    )  # else a refusal is judged again, and can't be seen
    async with between_looks(monkeypatch, lambda: others.delete_item("t", 1)):
        await tables.put_item("t", {"id": 1, "value": "again"})
    item = await others.get_item("t", 1)
    assert item is not None
    assert item.value["value"] == "again"
    assert (await stores[1].stats("table/p")).keys == 1


async def test_a_quota_does_not_mix_counts_with_rows_that_turned_out_to_be_needed(
    pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set over an expired entry replaces what the trash has of it. So does a sweep of another process."""
    clock = ManualClock()

    async def found_nothing(*given: object) -> Swept:
        return Swept(journal=[], freed=False)

    monkeypatch.setattr(Executor, "_swept", found_nothing)
    async with (
        holdfast.open(pg_store_url, reap=False, clock=clock) as store,
        holdfast.open(pg_store_url, reap=False, clock=clock) as other,
    ):
        kv = store.kv("p")
        await store.set_policy("kv/p", {"trash": True, "quota_bytes": 150_000})
        await kv.set("k", "x" * 60_000)
        await kv.delete("k")
        await kv.set("k", 1, ttl=1)
        await kv.set("other", "x" * 60_000)
        clock.advance(2)
        async with between_looks(monkeypatch, other.sweep, second="_load_besides"):
            await kv.set("k", "y" * 40_000)
        assert (await other.stats("kv/p")).keys == 2


async def test_an_audited_write_treats_an_entry_removed_meanwhile_as_gone(
    stores: tuple[holdfast.Store, holdfast.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to an audited namespace takes an entry that was removed meanwhile to be gone."""
    kv, others = (store.kv("p") for store in stores)
    await stores[0].set_policy("kv/p", {"audit": True})
    for value in range(3):
        await kv.set("k", value)
    async with between_looks(monkeypatch, lambda: others.delete("k")):
        entry = await kv.set("k", "again")
    changes = (await others.changes()).changes
    assert [(change.op, change.version) for change in changes[-2:]] == [
        ("deleted", entry.version - 1),
        ("set", entry.version),
    ]
    assert (await stores[1].audit("kv/p").verify()).whole
