"""That what was changed past Holdfast is found by what the audit tells of it, on SQLite and PostgreSQL.

Changes are made with plain SQL behind the store's back, and the audit is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.operators import audit as audit_module
from holdfast.testing import AUDIT_KEY
from tests.unit.audit_ground import Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_stores import Stores

INSERT = (
    "INSERT INTO plugin_kv_storage"
    " (plugin_name, key, value_json, created_at, updated_at, version, last_writer)"
    " SELECT plugin_name, ?, value_json, created_at, updated_at, ?, last_writer FROM plugin_kv_storage"
    " WHERE plugin_name = ? AND key = ?"
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A storage that the tests of this module share; each has a namespace of its own."""
    if request.param == "sqlite":
        yield str(tmp_path_factory.mktemp("audit") / "store.db")
        return
    stores: Stores = request.getfixturevalue("pg_stores")
    made = stores.take()
    yield made
    stores.give_back(made)


@pytest.fixture
def clock() -> ManualClock:
    """The store's time."""
    return ManualClock()


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[holdfast.Store]:
    """The storage, open."""
    async with holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY) as opened:
        yield opened


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"n{abs(hash(request.node.nodeid)) % 10**12}"


class Place:
    """An audited project with three entries, and its table."""

    def __init__(self, store: holdfast.Store, url: str, project: str) -> None:
        self.kv = store.semantic("t", project)
        self.name = self.kv.namespace
        self.audit = store.audit(self.name)
        self.table = Table(url, self.name)
        self.root = f"tenant/t/project/{project}/"

    async def sql(self, sql: str, *parameters: Any) -> None:
        """Change entries with SQL; `{key}` stands for which, the last parameter."""
        *more, key = parameters
        where = " WHERE plugin_name = ? AND key = ?"
        await self.table.run(sql + where, *more, self.name, self.root + key)

    async def found(self) -> dict[str, str]:
        """What was done to which key."""
        compared = await self.audit.verify_values()
        assert (await self.audit.verify()).whole
        assert compared.whole == (not compared.found)
        return {one.key.removeprefix(self.root): one.what for one in compared.found}


@pytest.fixture
async def place(store: holdfast.Store, url: str, project: str) -> Place:
    """Entries that are as the audit tells, some of them after a few changes."""
    made = Place(store, url, project)
    for number in range(3):
        await made.kv.set(f"k{number}", number)
    await made.kv.set("k1", "again")
    await made.kv.set("gone", 1)
    await made.kv.delete("gone")
    compared = await made.audit.verify_values()
    assert (compared.whole, compared.entries, compared.unrecorded, compared.expired) == (True, 3, 0, 0)
    return made


async def test_a_changed_value_is_found(place: Place) -> None:
    """A value that SQL has changed, and one that it has put back to an earlier one, is not as its record."""
    await place.sql("UPDATE plugin_kv_storage SET value_json = ?", '"forged"', "k0")
    await place.sql("UPDATE plugin_kv_storage SET value_json = ?", "1", "k1")
    assert await place.found() == {"k0": "changed", "k1": "changed"}
    compared = await place.audit.verify_values()
    assert [(one.number, one.reason) for one in compared.found] == [
        (1, "record 1 is its last, and its value is another"),
        (4, "record 4 is its last, and its value is another"),
    ]
    await place.kv.set("k0", "through Holdfast")
    await place.kv.set("k1", "through Holdfast")
    assert await place.found() == {}


async def test_a_changed_version_is_found(place: Place) -> None:
    """So is an entry whose version was moved, which a compare-and-set would trust."""
    await place.sql("UPDATE plugin_kv_storage SET version = version + 100", "k0")
    assert await place.found() == {"k0": "changed"}


async def test_a_deleted_and_an_inserted_entry_are_found(place: Place) -> None:
    """An entry that is not there has no record of its end, and one that should not be there has no record."""
    await place.table.run(INSERT, f"{place.root}new", 0, place.name, f"{place.root}k2")
    await place.table.run(INSERT, f"{place.root}newer", 99, place.name, f"{place.root}k2")
    await place.table.run(INSERT, f"{place.root}gone", 5, place.name, f"{place.root}k2")
    await place.sql("DELETE FROM plugin_kv_storage", "k0")
    assert await place.found() == {
        "k0": "deleted",
        "new": "inserted",
        "newer": "inserted",
        "gone": "inserted",
    }


async def test_unswept_expired_entry_is_reported_as_expired(place: Place, clock: ManualClock) -> None:
    """An entry past its deadline that no sweep has removed yet is reported neither as deleted nor as
    wrong.
    """
    await place.kv.set("short", 1, ttl=1)
    clock.advance(5)
    compared = await place.audit.verify_values()
    assert (compared.whole, compared.entries, compared.expired) == (True, 4, 1)
    await place.sql("DELETE FROM plugin_kv_storage", "short")
    assert await place.found() == {"short": "deleted"}


async def test_entries_older_than_the_audit_are_counted(
    store: holdfast.Store, url: str, project: str, clock: ManualClock
) -> None:
    """Entries from before the audit, from while it was off, or whose records were pruned prove nothing."""
    kv, name = store.kv(project), f"kv/{project}"
    for key in ("before", "b2"):
        await kv.set(key, 1)
    await store.set_policy(name, {"audit": True, "audit_retention": 50})
    await kv.set("during", 1)
    await kv.set("turned", 1)
    await store.set_policy(name, {"audit": False, "audit_retention": 50})
    await kv.set("off", 1)
    await kv.set("turned", 2)
    await kv.delete("during")
    compared = await store.audit(name).verify_values()
    assert (compared.found, compared.entries, compared.unrecorded) == ([], 0, 4)
    await store.set_policy(name, {"audit": True, "audit_retention": 50})
    await kv.set("on", 1)
    compared = await store.audit(name).verify_values()
    assert (compared.found, compared.entries, compared.unrecorded) == ([], 1, 4)
    clock.advance(60)
    await store.upkeep()
    compared = await store.audit(name).verify_values()
    assert (compared.found, compared.entries, compared.unrecorded) == ([], 0, 5)
    await Table(url, name).run(INSERT, "forged", 99, project, "on")
    [found] = (await store.audit(name).verify_values()).found
    assert (found.key, found.what, found.number) == ("forged", "inserted", None)


async def test_namespace_without_an_audit_has_no_discrepancy(store: holdfast.Store, project: str) -> None:
    """Where there is no audit everything is unrecorded, and nothing is wrong."""
    await store.kv(project).set("k", 1)
    compared = await store.audit(f"kv/{project}").verify_values()
    assert (compared.whole, compared.entries, compared.unrecorded) == (True, 0, 1)


async def test_items_are_compared_with_their_records(store: holdfast.Store, url: str, project: str) -> None:
    """Items of tables are as their records say, however their keys are spelt and whatever was dropped."""
    name = f"table/{project}"
    await store.set_policy(name, {"audit": True})
    tables = store.tables(project)
    for table in ("t", "dropped"):
        await tables.create_table(table, partition_key=("id", "number"))
        for number in (1, 2, 3):
            await tables.put_item(table, {"id": number, "v": "x"})
    await tables.create_index("t", "by_v", key=("v", "string"))
    await tables.put_item("t", {"id": 1.0, "v": "y"})
    await tables.drop_table("dropped")
    compared = await store.audit(name).verify_values()
    assert (compared.found, compared.entries) == ([], 3)
    rows = Table(url, name)
    sql = "UPDATE holdfast_rows SET value = ? WHERE namespace = ? AND space LIKE 'item/%' AND value LIKE ?"
    await rows.run(sql, '{"id":2,"v":"forged"}', name, '%"id":2%')
    gone = "DELETE FROM holdfast_rows WHERE namespace = ? AND space LIKE 'item/%' AND value LIKE ?"
    await rows.run(gone, name, '%"id":3%')
    found = (await store.audit(name).verify_values()).found
    assert [(one.key, one.what) for one in found] == [("t:[2]", "changed"), ("t:[3]", "deleted")]


async def test_shares_cover_each_entry_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shares there are, each entry is compared once."""
    monkeypatch.setattr(audit_module, "SHARE", 1)
    monkeypatch.setattr(audit_module, "STEP", 2)
    await place.sql("UPDATE plugin_kv_storage SET value_json = ?", "9", "k2")
    compared = await place.audit.verify_values()
    assert (compared.entries, [one.what for one in compared.found]) == (2, ["changed"])


async def test_a_rotated_key_is_no_change(url: str, project: str, clock: ManualClock, tmp_path: Any) -> None:
    """Each hash is compared with the key that made it."""
    own = str(tmp_path / "own.db")
    async with holdfast.open(own, clock=clock, reap=False, audit_key=AUDIT_KEY) as store:
        await store.semantic("t", "p").set("old", 1)
    async with holdfast.open(
        own, clock=clock, reap=False, audit_key=f"{AUDIT_KEY},another-key-of-it"
    ) as store:
        await store.semantic("t", "p").set("new", 1)
        compared = await store.audit("semantic/t/p").verify_values()
    assert (compared.whole, compared.entries) == (True, 2)


async def test_writing_meanwhile_is_no_discrepancy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written between the looks at records and at entries is explained by newer records."""
    original = audit_module._Share._look
    written = 0

    async def write_first(share: Any, wanted: Any) -> Any:
        nonlocal written
        written += 1
        if written < 3:
            await place.kv.set("k0", f"meanwhile {written}")
            await place.kv.set(f"new{written}", 1)
            await place.kv.delete("k2")
        return await original(share, wanted)

    monkeypatch.setattr(audit_module._Share, "_look", write_first)
    compared = await place.audit.verify_values()
    assert (compared.found, written) == ([], 3)


async def test_chain_alone_does_not_verify_values(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain alone says nothing of values, and a comparison that hashes nothing finds nothing."""
    entry = await place.kv.get("k0")
    assert entry is not None
    await place.sql("UPDATE plugin_kv_storage SET value_json = ?", '"forged"', "k0")
    await place.sql(f"UPDATE plugin_kv_storage SET version = {entry.version}", "k0")
    assert (await place.audit.verify()).whole
    monkeypatch.setattr(audit_module, "same", lambda one, other: True)
    assert await place.found() == {}
