"""What a namespace keeps is counted exactly, whatever comes and goes, on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
import holdfast.upkeep.reaper
from holdfast.clock import ManualClock
from holdfast.commands import LetterStored, Set
from holdfast.origin import Origin
from holdfast.tables.commands import CreateIndex
from holdfast.tables.schema import KeyAttribute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DAY = 86_400
MEANT = {"purpose": "config"}


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
    async with holdfast.open(url, clock=clock, reap=False, audit_key="a-secret-of-sixteen") as opened:
        yield opened


async def parts(store: holdfast.Store, name: str = "kv/p") -> dict[str, int]:
    """The parts of a namespace that there are, all of them counted right."""
    stats = await store.stats(name)
    assert await store.recount(name) == 0, "every counter is what is there"
    assert stats.kept_bytes == stats.parts.counted
    return {kind: size for kind in stats.parts.__struct_fields__ if (size := getattr(stats.parts, kind))}


async def test_entries_and_their_records(store: holdfast.Store) -> None:
    """Each entry and record counts for its texts and 128 bytes; what is overwritten counts no more."""
    kv = store.kv("p")
    await kv.set("k", "value", writer="me", request_id="id")
    entry = 128 + len('k"value"meid')
    request = (await parts(store))["requests"]
    assert await parts(store) == {"entries": entry, "journal": 128 + len("kmeid"), "requests": request}
    await kv.set("k", "v", writer="me", request_id="id2")
    assert (await parts(store))["entries"] == 128 + len('k"v"meid2')
    await kv.set("ключ", "ä", writer="я", spec_ref="§")
    assert (await parts(store))["entries"] > 2 * 128
    await kv.incr("n", 5)
    await kv.set_ttl("n", 100)
    await kv.set_many([{"key": f"m{number}", "value": number} for number in range(5)])
    await kv.batch(writes=[{"key": "m1", "delete": True}, {"key": "m2", "value": 22}, {"guard": "lock"}])
    await kv.batch(writes=[{"guard": "lock"}])
    assert (await parts(store))["other"] > 128
    for entry_there in (await kv.list(values=True)).entries or []:
        await kv.delete(entry_there.key)
    assert "entries" not in await parts(store)


async def test_the_trash(store: holdfast.Store, clock: ManualClock) -> None:
    """What goes to the trash counts there, in place of what it has of the same key, until it leaves."""
    kv = store.kv("p")
    for value in ("x" * 100, "x" * 10, "y"):
        await kv.set("k", value, semantics=MEANT)
        await kv.delete("k")
        await parts(store)
    await kv.restore("k")
    assert "trash" not in await parts(store)
    await kv.batch(writes=[{"key": "k", "delete": True}])
    await kv.set("k", 1, semantics=MEANT, ttl=1)
    clock.advance(1)
    await kv.set("k", 2, semantics=MEANT, ttl=1)
    await parts(store)
    clock.advance(1)
    await store.sweep()
    await kv.set_many([{"key": "k", "value": 3, "semantics": MEANT}])
    await kv.delete_many(["k"])
    assert "trash" in await parts(store)
    clock.advance(8 * DAY)
    await store.upkeep()
    assert await parts(store) == {}


async def test_entries_that_expire_in_runs(
    store: holdfast.Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes in a run is given back, and the records that it leaves are counted."""
    monkeypatch.setattr(holdfast.upkeep.reaper, "CROWD", 3)
    kv = store.kv("p")
    crowd: list[dict[str, Any]] = [{"key": f"ключ {n}", "value": n, "ttl": 1} for n in range(20)]
    await kv.set_many(crowd, writer="кто", spec_ref="§ 1")
    await kv.set("with semantics", 1, ttl=1, semantics=MEANT)
    clock.advance(1)
    assert await store.sweep() == 21
    assert set(await parts(store)) == {"journal", "trash"}
    clock.advance(DAY)
    await store.upkeep()
    assert set(await parts(store)) == {"trash"}


async def test_requests_letters_and_the_audit(store: holdfast.Store, clock: ManualClock) -> None:
    """Remembered requests and letters count until they go; the audit shows, and counts for nothing."""
    kv = store.kv("p")
    await store.set_policy("kv/p", {"audit": True, "audit_retention": 10})
    await kv.set("k", 1, request_id="once")
    await kv.set("k", 1, request_id="once")
    with pytest.raises(holdfast.VersionConflict):
        await kv.set("k", 2, request_id="once")
    given_up = kv.verbs.command(Set, key="k", value=1)
    kept = await store.pipeline.call(kv.verbs.escalate(given_up, error_code="BUSY", message="", attempts=3))
    assert isinstance(kept, LetterStored)
    found = await parts(store)
    assert set(found) == {"entries", "journal", "requests", "letters", "audit"}
    stats = await store.stats("kv/p")
    assert stats.kept_bytes == sum(found.values()) - found["audit"]
    assert await store.letters("kv/p").drop(kept.number)
    left = (await parts(store))["letters"]
    assert left < found["letters"], "the row that sums up the others stays"
    clock.advance(2 * DAY)
    await store.upkeep()
    after = await parts(store)
    assert "requests" not in after
    assert after["audit"] < found["audit"]


async def test_items_and_indexes(store: holdfast.Store, clock: ManualClock) -> None:
    """An item's entries in indexes count with it, also where the index is younger than the item."""
    tables, name = store.tables("p"), "table/p"
    await tables.create_table("t", partition_key=("id", "string"), ttl_attribute="ends")
    old = [{"id": f"{number}", "a": "x" * number, "b": number} for number in range(8)]
    for item in old:
        await tables.put_item("t", item)
    await tables.put_item("t", {"id": "gone", "a": "x", "ends": clock.now() // 1000 + 1})
    clock.advance(2)
    await tables.create_index("t", "by-a", key=("a", "string"))
    await parts(store, name)
    await tables.put_item("t", {"id": "gone", "a": "again"})  # its first life has never been in the index
    await parts(store, name)
    await tables.put_item("t", old[0])
    await tables.put_item("t", {**old[1], "a": "other"})
    await tables.put_item("t", {**old[1], "a": "third"})
    await tables.update_item("t", "2", set={"c": 1, "ends": clock.now() // 1000 + 100})
    await tables.update_item("t", "2", set={"ends": clock.now() // 1000 + 200})
    await tables.delete_item("t", "3")
    await tables.delete_item("t", "1")
    await parts(store, name)
    await tables.create_index("t", "by-b", key=("b", "number"))
    await tables.transact_write([{"put": {"table": "t", "item": {"id": "new", "a": "n", "b": 1}}}])
    clock.advance(300)
    await tables.sweep_expired_ttl("t")
    found = await parts(store, name)
    assert set(found) == {"items", "indexes", "journal", "other"}
    await tables.drop_index("t", "by-a")
    await store.purge(name)
    assert 0 < (await parts(store, name))["indexes"] < found["indexes"]
    await tables.drop_table("t")
    await store.purge(name)
    assert set(await parts(store, name)) == {"journal"}


async def test_an_index_that_is_being_filled(store: holdfast.Store) -> None:
    """Items that change before the filling reaches them are counted once, and those that go not at all."""
    tables, name = store.tables("p"), "table/p"
    await tables.create_table("t", partition_key=("id", "string"))
    for number in range(6):
        await tables.put_item("t", {"id": f"{number}", "a": "x" * number})
    key = KeyAttribute(name="a", type="string")
    origin = Origin(writer="w", request_id="id")
    await store.pipeline.execute(CreateIndex(namespace=name, origin=origin, table="t", index="by-a", key=key))
    await tables.delete_item("t", "0")
    await tables.put_item("t", {"id": "1", "a": "x"})
    await tables.put_item("t", {"id": "2", "a": "other"})
    await tables.put_item("t", {"id": "3"})
    await tables.put_item("t", {"id": "1", "a": "again"})
    await tables.delete_item("t", "2")
    await parts(store, name)
    await tables.create_index("t", "by-a", key=("a", "string"))
    await parts(store, name)
    assert [item.value["id"] for item in (await tables.query_index("t", "by-a", "again")).items] == ["1"]
    for number in range(6):
        await tables.delete_item("t", f"{number}")
    assert "indexes" not in await parts(store, name)


@pytest.mark.unmeasured
async def test_full_by_its_journal(store: holdfast.Store) -> None:
    """A namespace that is full goes on overwriting: old records go first, unless a policy keeps them."""
    kv, quota = store.kv("p"), 100_000
    await store.set_policy("kv/p", {"quota_bytes": quota})
    for number in range(900):
        await kv.set("k", number)
        if not number % 100:
            assert (await store.stats("kv/p")).kept_bytes <= quota
    assert (await kv.changes(since=0)).gap
    await parts(store)
    await store.set_policy("kv/p", {"quota_bytes": 1_000, "journal_retention": 3_600})
    with pytest.raises(holdfast.QuotaExceeded, match="records of the journal: shorten journal_retention"):
        await kv.set("k", 1)
    assert (await kv.get("k")) is not None


async def test_a_full_namespace_can_be_emptied(store: holdfast.Store, clock: ManualClock) -> None:
    """Deletes and smaller values go through whatever the quota, and what goes makes room again."""
    kv = store.kv("p")
    for number in range(20):
        await kv.set(f"{number}", "x" * 5_000, semantics=MEANT)
    await store.set_policy("kv/p", {"quota_bytes": 50_000})
    with pytest.raises(holdfast.QuotaExceeded, match="are entries: delete some") as full:
        await kv.set("more", "x" * 1_000)
    assert "holdfast namespace set kv/p --quota-bytes" in full.value.message
    await kv.set("0", "small", semantics=MEANT)
    for number in range(20):
        assert await kv.delete(f"{number}")
    with pytest.raises(holdfast.QuotaExceeded, match="are in the trash: shorten trash_retention"):
        await kv.set("more", "x" * 1_000)
    with pytest.raises(holdfast.QuotaExceeded):
        await kv.delete("never there", request_id="remembered")
    clock.advance(8 * DAY)
    assert (await kv.set("more", "x" * 1_000)).version


async def test_a_table_over_its_quota(store: holdfast.Store) -> None:
    """An index that does not fit is refused and goes on later; dropping it, or the table, makes room."""
    tables, name = store.tables("p"), "table/p"
    await tables.create_table("t", partition_key=("id", "string"), stream="keys")
    for number in range(10):
        await tables.put_item("t", {"id": f"{number}", "a": "x" * 500})
    quota = (await store.stats(name)).kept_bytes + 3_000
    await store.set_policy(name, {"quota_bytes": quota, "journal_retention": 3_600})
    with pytest.raises(holdfast.QuotaExceeded):
        await tables.create_index("t", "by-a", key=("a", "string"))
    assert (await store.stats(name)).kept_bytes <= quota
    await tables.drop_index("t", "by-a")
    await tables.drop_table("t")
    await store.purge(name)
    await tables.create_table("t", partition_key=("id", "string"))
    await parts(store, name)


async def test_recount_corrects_totals_after_sql_changes(tmp_path: Path) -> None:
    """Records that were removed with SQL still count until a recount, which reports the difference."""
    import sqlite3
    from contextlib import closing

    path = tmp_path / "store.db"
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        for number in range(3):
            await kv.set(f"{number}", number)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM plugin_kv_storage WHERE key = '1'")
        database.execute("DELETE FROM holdfast_journal")
        database.commit()
    async with holdfast.open(path, reap=False) as store:
        assert (await store.stats("kv/p")).keys == 2
        assert await store.recount("kv/p") == 1
        assert await store.recount("kv/p") == 0
        stats = await store.stats("kv/p")
        assert (stats.keys, stats.bytes, stats.parts.journal) == (2, 4, 0)
        assert await store.recount("kv/nobody") == 0


async def test_defaults(clock: ManualClock) -> None:
    """A default quota and rate hold where a policy names none, and a policy's own are instead of them."""
    defaults = holdfast.Policy(quota_bytes=1_000, rate_limit=5)
    async with holdfast.open("memory://", clock=clock, reap=False, defaults=defaults) as store:
        assert await store.defaults("kv/p") == defaults
        kv = store.kv("p")
        with pytest.raises(holdfast.QuotaExceeded, match="more than its default quota of 1000"):
            await kv.set("k", "x" * 1_000)
        for _ in range(4):
            await kv.get("k")
        with pytest.raises(holdfast.RateLimited, match="kv/p is over the default rate of 5 requests"):
            await kv.get("k")
        await store.kv("q").get("others have a rate of their own")
        await store.set_policy("kv/p", {"ttl_default": 60})
        clock.advance(1)
        with pytest.raises(holdfast.QuotaExceeded, match="default quota"):
            await kv.set("k", "x" * 1_000)
        await store.set_policy("kv/p", {"quota_bytes": 10_000, "rate_limit": 100})
        for _ in range(50):
            await kv.set("k", "x" * 1_000)
    async with holdfast.open("memory://") as store:
        assert await store.defaults("kv/p") == holdfast.Policy()
