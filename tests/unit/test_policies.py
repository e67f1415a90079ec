"""Policies: what an operator asks of a namespace holds at every door."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.audit.chain import AUDIT, address_of
from holdfast.audit.keyring import Keyring
from holdfast.clock import ManualClock
from holdfast.decide import Decision, Loaded, needs
from holdfast.rows import KV, Address, Namespace
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    """The store's time."""
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[holdfast.Store]:
    """An empty store of each kind."""
    if request.param == "postgresql":
        url = str(request.getfixturevalue("pg_store_url"))
    else:
        url = "memory://" if request.param == "memory" else str(tmp_path / "store.db")
    async with holdfast.open(url, clock=clock, reap=False) as opened:
        yield opened


def test_a_part_of_a_group_goes_by_the_policy_that_an_earlier_one_set() -> None:
    """Where the audit is switched on in a group, later changes are decided with the values that it hashes."""
    verbs = Verbs("kv/p", writer="w", new_id=lambda: "id", now=lambda: 0)
    known = Address("kv/p", KV, "k")
    loaded = Loaded(namespaces={"kv/p": Namespace(name="kv/p")}, rows={}, ends={("kv/p", AUDIT): None})
    decision = Decision(loaded, 0, Keyring([b"a-secret-of-sixteen"]))
    later = [verbs.set("k", 1)]
    wanted = needs(later)
    assert wanted.rows == {known: False}
    assert decision.further(later, wanted) is None
    decision.take([verbs.set_policy({"audit": True})])
    more = decision.further(later, wanted)
    assert more is not None
    assert more.rows == {known: True, address_of("kv/p", 0): True}
    together = needs([verbs.set_policy({"audit": True}), *later])
    assert together.rows[known], "in the same part"


async def test_a_quota_of_keys_refuses_one_too_many(store: holdfast.Store) -> None:
    """The quota is named, nothing is written, and what is there can still be changed and removed."""
    await store.set_policy("kv/p", holdfast.Policy(quota_keys=2))
    kv = store.kv("p")
    await kv.set("a", 1)
    await kv.set("b", 1)
    with pytest.raises(holdfast.QuotaExceeded, match="quota_keys of 2"):
        await kv.set("c", 1)
    await kv.set("a", 2)
    assert await kv.delete("b")
    await kv.set("c", 1)
    assert (await store.stats("kv/p")).keys == 2
    await store.kv("q").set("other namespaces are free", 1)


async def test_a_quota_of_bytes_refuses_growth_alone(store: holdfast.Store) -> None:
    """A namespace at its quota of bytes may shrink but not grow."""
    await store.set_policy("kv/p", {"quota_bytes": 1_000})
    kv = store.kv("p")
    await kv.set("a", "x" * 10)
    with pytest.raises(holdfast.QuotaExceeded, match="quota_bytes of 1000"):
        await kv.set("a", "x" * 900)
    await store.set_policy("kv/p", {"quota_bytes": 5})
    assert (await kv.set("a", "x" * 5)).value == "x" * 5


async def test_a_batch_past_the_quota_is_refused_whole(store: holdfast.Store) -> None:
    """All or nothing holds for quotas too."""
    await store.set_policy("kv/p", {"quota_keys": 1})
    with pytest.raises(holdfast.QuotaExceeded):
        await store.kv("p").batch(writes=[{"key": "a", "value": 1}, {"key": "b", "value": 1}])
    assert (await store.kv("p").list()).keys == []


async def test_quota_counts_no_expired_entries(store: holdfast.Store, clock: ManualClock) -> None:
    """A write that would exceed a quota first sweeps the expired entries of its namespace."""
    await store.set_policy("kv/p", {"quota_keys": 1})
    kv = store.kv("p")
    await kv.set("a", 1, ttl=1)
    clock.advance(1)
    told: list[str] = []
    store.pipeline.listen(lambda journal: told.extend(record.op for record in journal))
    assert (await kv.set("b", 1)).value == 1
    await kv.get("b")
    assert told == ["expired", "set"]
    assert [change.op for change in (await kv.changes()).changes] == ["set", "expired", "set"]


@pytest.mark.parametrize("request_id", [None, "r"])
async def test_quota_counts_no_expired_entries_for_parts(
    store: holdfast.Store, clock: ManualClock, request_id: str | None
) -> None:
    """The same holds for what is done part by part; what was done before the sweep is not done again."""
    await store.set_policy("kv/p", {"quota_keys": 3})
    kv = store.kv("p")
    await kv.set_many([{"key": "old1", "value": 1, "ttl": 1}, {"key": "old2", "value": 1, "ttl": 1}])
    clock.advance(1)
    items = [{"key": key, "value": 1} for key in ("a", "b", "", "c", "d")]
    done = await kv.set_many(items, request_id=request_id)
    assert [type(one).__name__ for one in done] == [
        *("Entry", "Entry", "ValidationError", "Entry", "QuotaExceeded")
    ]
    assert [change.key for change in (await kv.changes(2)).changes] == ["a", "old1", "old2", "b", "c"]
    again = await kv.set_many(items, request_id=request_id)
    assert [one.version for one in again if isinstance(one, holdfast.Entry)] == (
        [8, 9, 10] if request_id is None else [one.version for one in done if isinstance(one, holdfast.Entry)]
    )


async def test_quota_counts_no_expired_entries_for_items(store: holdfast.Store, clock: ManualClock) -> None:
    """The same holds for each of several items that are written together."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("id", "number"), ttl_attribute="ends")
    await store.set_policy("table/p", {"quota_keys": 2})
    await tables.put_item("t", {"id": 0, "ends": clock.now() // 1000 + 1})
    clock.advance(1)
    done = await tables.batch_write_item("t", [{"put": {"item": {"id": number}}} for number in (1, 2, 3)])
    assert [isinstance(one, holdfast.QuotaExceeded) for one in done] == [False, False, True]
    assert (await store.stats("table/p")).keys == 2


async def test_all_that_has_expired_makes_room(store: holdfast.Store, clock: ManualClock) -> None:
    """However much has expired, a quota counts none of it: it sweeps to the end before it refuses."""
    await store.set_policy("kv/p", {"quota_keys": 600})
    kv = store.kv("p")
    await kv.batch(writes=[{"key": f"old{number}", "value": 1, "ttl": 1} for number in range(600)])
    clock.advance(1)
    await kv.batch(writes=[{"key": f"new{number}", "value": 1} for number in range(600)])
    assert (await store.stats("kv/p")).keys == 600
    history = (await kv.changes(prefix="old", limit=2000)).changes
    assert sorted(change.key for change in history if change.op == "expired") == sorted(
        f"old{number}" for number in range(600)
    )


async def test_a_quota_of_bytes_removes_no_more_items_than_it_must(
    store: holdfast.Store, clock: ManualClock
) -> None:
    """All writers wait while items expire for one of them, so most are left; many writes at once all fit."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("id", "number"), ttl_attribute="ends")
    ends = clock.now() // 1000 + 1
    for start in range(0, 1_000, 200):
        items = [{"id": start + number, "ends": ends, "text": "x" * 1_000} for number in range(200)]
        await tables.batch_write_item("t", [{"put": {"item": item}} for item in items])
    await store.set_policy("table/p", {"quota_bytes": (await store.stats("table/p")).kept_bytes})
    clock.advance(1)

    async def stored() -> int:
        [totals] = await store._engine.totals(clock.now(), namespace="table/p")
        return totals.namespace.keys

    await tables.put_item("t", {"id": -1, "text": "x" * 1_000})
    assert await stored() > 800
    await asyncio.gather(
        *(tables.put_item("t", {"id": -number, "text": "x" * 9_000}) for number in range(2, 102))
    )
    assert await stored() < 800
    assert await store.recount("table/p") == 0


async def test_all_items_that_have_expired_make_room(store: holdfast.Store, clock: ManualClock) -> None:
    """The same holds for the items of tables."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("id", "string"), ttl_attribute="ends")
    await store.set_policy("table/p", {"quota_keys": 600})
    ends = clock.now() // 1000 + 1
    for name in ("old", "new"):
        items = [{"table": "t", "item": {"id": f"{name}{n}", "ends": ends}} for n in range(600)]
        await tables.transact_write([{"put": item} for item in items])
        clock.advance(1)
        ends = 0
    assert (await store.stats("table/p")).keys == 600


async def test_policy_is_stored_and_can_be_lifted(store: holdfast.Store) -> None:
    """A policy is part of the store; setting an empty one lifts every bound."""
    assert await store.policy("kv/p") == holdfast.Policy()
    await store.set_policy("kv/p", {"quota_keys": 0})
    assert await store.policy("kv/p") == holdfast.Policy(quota_keys=0)
    with pytest.raises(holdfast.QuotaExceeded):
        await store.kv("p").incr("n")
    await store.set_policy("kv/p", holdfast.Policy())
    assert (await store.kv("p").incr("n")).value == 1


@pytest.mark.parametrize("policy", [{"quota_keys": -1}, {"quota_keys": True}, {"audit": 1}, {"nothing": 1}])
async def test_illegal_policy_is_refused(store: holdfast.Store, policy: dict[str, object]) -> None:
    """A policy that makes no sense is refused, with the field."""
    with pytest.raises(holdfast.ValidationError) as refused:
        await store.set_policy("kv/p", policy)
    assert refused.value.field
    with pytest.raises(holdfast.ValidationError):
        await store.set_policy("nowhere", {})
