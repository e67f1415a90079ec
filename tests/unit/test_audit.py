"""That nobody changes the record of who changed what without its being found, on SQLite and PostgreSQL.

Every change is made with plain SQL behind the store's back, by somebody who does not have the key.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.audit.chain import AuditRecord
from holdfast.clock import ManualClock
from holdfast.operators import audit as auditing
from holdfast.testing import AUDIT_KEY
from tests.unit.audit_ground import COLUMNS, RECORDS, Ground, Table, key_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.postgres_stores import Stores

OTHER_KEY = "another-key-of-tests-alone"


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
async def ground(store: holdfast.Store, url: str, request: pytest.FixtureRequest) -> Ground:
    """Six records that are whole."""
    made = Ground(store, store.semantic("t", f"n{abs(hash(request.node.nodeid)) % 10**12}"), url)
    await made.fill()
    assert await made.found() == (None, "whole")
    return made


async def test_an_edited_record_is_found(ground: Ground) -> None:
    """Whatever is changed in a record, its number is named; those before it are whole."""
    whole = await ground.table.value(3)
    for field, before in whole.items():
        other = before + 1 if isinstance(before, int) else f"{before}0"
        await ground.table.write(3, whole | {field: other})
        broken_at, reason = await ground.found()
        assert (broken_at, "record 3 " in reason) == (3, True), (field, reason)
        assert ("unknown key" in reason) == (field == "signed_by"), field
        assert (await ground.audit.verify()).records == 2
    assert set(whole) == set(AuditRecord.__struct_fields__)
    await ground.table.write(3, whole)
    assert await ground.found() == (None, "whole")


Tampering = Callable[[Table], Awaitable[None]]


async def _swap(table: Table) -> None:
    two, three = await table.value(2), await table.value(3)
    await table.write(2, three)
    await table.write(3, two)


async def _put_in(table: Table) -> None:
    await table.copy(3, key_of(7))
    await table.edit(7, lambda value: value.update(number=7, previous=value["signature"]))


async def _cut_with_edited_head(table: Table) -> None:
    last = (await table.value(4))["signature"]
    await table.remove(5, 6)
    await table.edit(0, lambda head: head.update(number=4, last=last))


async def _cut_before_the_floor(table: Table) -> None:
    await table.remove(1)
    anchor = (await table.value(2))["previous"]
    await table.edit(0, lambda head: head.update(floor=1, anchor=anchor))


TAMPERINGS: dict[str, tuple[Tampering, int, str]] = {
    "first removed": (lambda table: table.remove(1), 1, "record 1 was removed"),
    "middle removed": (lambda table: table.remove(3), 3, "record 3 was removed"),
    "last removed": (lambda table: table.remove(6), 6, "record 6 was removed, and all after it"),
    "tail removed": (lambda table: table.remove(5, 6), 5, "record 5 was removed, and all after it"),
    "all removed": (
        lambda table: table.remove(1, 2, 3, 4, 5, 6),
        1,
        "record 1 was removed, and all after it",
    ),
    "two swapped": (_swap, 2, "record 2 was moved"),
    "copied to the end": (lambda table: table.copy(3, key_of(7)), 7, "record 7 was moved"),
    "put in at the end": (_put_in, 7, "record 7 was edited or put in"),
    "tail cut, head edited": (_cut_with_edited_head, 4, "the head was edited"),
    "passed off as pruned": (_cut_before_the_floor, 6, "the head was edited"),
    "head removed": (lambda table: table.remove(0), 6, "the head was removed"),
    "head unreadable": (lambda table: table.write(0, "no head"), 0, "the head can't be read"),
    "record unreadable": (lambda table: table.write(4, "[1]"), 4, "record 4 can't be read"),
    "row of another kind": (lambda table: table.copy(3, key_of(3) + b"x"), 4, "a row was put in"),
    "head's key unknown": (
        lambda table: table.edit(0, lambda head: head.update(signed_by="nobody")),
        6,
        "unknown key 'nobody'",
    ),
}


@pytest.mark.parametrize("case", TAMPERINGS)
async def test_removed_moved_and_inserted_records_are_found(ground: Ground, case: str) -> None:
    """Removing, moving, inserting and cutting records is found, and the first wrong record is named."""
    tamper, number, says = TAMPERINGS[case]
    await tamper(ground.table)
    broken_at, reason = await ground.found()
    assert (broken_at, says in reason) == (number, True), reason


async def test_an_older_head_is_found_by_what_was_noted(ground: Ground) -> None:
    """A chain that is cut and given its own older head back looks whole, but not to who noted a head."""
    noted = (await ground.audit.verify()).head
    head = await ground.table.value(0)
    await ground.kv.set("k", "covered up")
    late = (await ground.audit.verify()).head
    await ground.table.remove(7)
    await ground.table.write(0, head)
    assert await ground.found(heads=[noted]) == (None, "whole")
    assert await ground.found(heads=[late, noted]) == (7, "the audit was cut off: it had 7 records once")
    await ground.kv.set("k", "in its place")
    assert await ground.found() == (None, "whole")
    assert await ground.found(heads=[noted, late]) == (7, "record 7 is not the one that was noted")


async def test_writing_on_never_makes_an_edited_head_good(ground: Ground) -> None:
    """A record that hangs on an edited head says so for ever."""
    await _cut_with_edited_head(ground.table)
    await ground.kv.set("k", "later")
    await ground.kv.set("k", "still later")
    assert await ground.found() == (5, "the head had been edited when record 5 was written")


async def test_a_head_of_an_unknown_key_stops_what_is_audited(ground: Ground) -> None:
    """Where nobody can tell whether the head is right, nothing is written that would hang on it."""
    await ground.table.edit(0, lambda head: head.update(signed_by="nobody"))
    with pytest.raises(
        holdfast.Unsupported,
        match="signed with the key nobody, but audit_key has no key with that fingerprint",
    ):
        await ground.kv.set("k", "refused")
    entry = await ground.kv.get("k")
    assert entry is not None
    assert entry.value == RECORDS - 1


async def test_an_unreadable_head_is_a_fault_of_the_database(ground: Ground) -> None:
    """A write that would have to guess where the chain ends is refused, and the log of records goes on."""
    await ground.table.write(0, "no head")
    with pytest.raises(holdfast.DatabaseError, match="head of the audit can't be read"):
        await ground.kv.set("k", "refused")
    assert len((await ground.audit.log()).records) == RECORDS
    await ground.table.write(2, "no record")
    with pytest.raises(holdfast.DatabaseError, match="record of the audit can't be read"):
        await ground.audit.log()


async def test_a_record_that_lies_about_its_number_does_not_trap_the_reader(ground: Ground) -> None:
    """Reading goes by where records are, so that it always comes to an end."""
    await ground.table.edit(5, lambda value: value.update(number=1))
    page = await ground.audit.log(limit=5)
    assert page.next == 5
    assert [one.number for one in (await ground.audit.log(after=5)).records] == [6]


@pytest.fixture
def own_url(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A storage of the same kind that is one test's alone, since a store keeps which key is in force."""
    if url.startswith("postgresql"):
        found: str = request.getfixturevalue("pg_store_url")
        return found
    return str(tmp_path / "store.db")


async def test_records_verify_with_the_key_they_were_signed_with(own_url: str) -> None:
    """Records of the old key verify with it, those of the new one with that, and an unknown one is named."""
    namespace = "semantic/t/p"
    async with holdfast.open(own_url, reap=False, audit_key=AUDIT_KEY) as first:
        await Ground(first, first.semantic("t", "p"), own_url).fill()
    async with holdfast.open(own_url, reap=False, audit_key=f"{AUDIT_KEY},{OTHER_KEY}") as later:
        await later.semantic("t", "p").set("k", "signed by another")
        assert (await later.audit(namespace).verify()).whole
        page = await later.audit(namespace).log()
        assert len({record.signed_by for record in page.records}) == 2
    async with holdfast.open(own_url, reap=False, audit_key=OTHER_KEY) as later:
        verdict = await later.audit(namespace).verify()
        assert (verdict.broken_at, "unknown key" in str(verdict.reason)) == (1, True)
        await later.semantic("t", "p").set("k", "the head is known")
    async with holdfast.open(own_url, reap=False, audit_key=AUDIT_KEY) as later:
        verdict = await later.audit(namespace).verify()
        assert verdict.broken_at == 9, "record 7 is that of the rotation"
        assert "the head is signed with the unknown key" in str(verdict.reason)
        with pytest.raises(holdfast.Unsupported, match="has no key with that fingerprint"):
            await later.semantic("t", "p").set("k", "refused")


async def test_audit_rows_contain_no_values(ground: Ground) -> None:
    """What was written can't be read out of the audit's rows."""
    await ground.kv.set("k", {"secret": "hunter2"})
    sql = "SELECT value FROM holdfast_rows WHERE namespace = ? AND space = 'audit'"
    rows = await ground.table.run(sql, ground.kv.namespace)
    assert len(rows) == RECORDS + 2
    assert "hunter2" not in json.dumps(rows)


async def test_pages_are_bounded_and_verifying_goes_in_parts(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a page nor a part grows with the audit, and nothing is lost between two of them."""
    await ground.kv.batch(writes=[{"key": f"k{n:03}", "value": n} for n in range(20)], spec_ref="d" * 500)
    monkeypatch.setattr(auditing, "STEP", 4)
    monkeypatch.setattr(auditing, "PART", 8)
    monkeypatch.setattr("holdfast.rules.MAX_TRANSFER_BYTES", 4_000)
    numbers = list[int]()
    after: int | None = 0
    while after is not None:
        page = await ground.audit.log(after=after)
        assert sum(map(len, map(json.dumps, [str(one) for one in page.records]))) < 8_000
        numbers += [one.number for one in page.records]
        after = page.next
    assert numbers == list(range(1, RECORDS + 21))
    assert (await ground.audit.verify()).records == RECORDS + 20
    await ground.table.remove(20)
    assert await ground.found() == (20, "record 20 was removed")


async def test_pruning_while_it_is_verified_is_no_break(
    ground: Ground, store: holdfast.Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the policy has pruned in the middle of a verification is not taken for removed."""
    await store.set_policy(ground.kv.namespace, {"audit_retention": 50})
    clock.advance(60)
    await ground.kv.set("k", "later")
    original = auditing.Audit._scan
    pruned = False

    async def prune_first(audit: auditing.Audit, after: int, limit: int) -> Any:
        nonlocal pruned
        if not pruned:
            pruned = True
            await store.upkeep()
        return await original(audit, after, limit)

    monkeypatch.setattr(auditing.Audit, "_scan", prune_first)
    verdict = await ground.audit.verify()
    assert (verdict.whole, verdict.records, pruned) == (True, 1, True)


async def test_writing_while_it_is_verified_is_no_break(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that come after the head was read are verified too, or left to the next time."""
    original = auditing.Audit._scan
    written = 0

    async def write_first(audit: auditing.Audit, after: int, limit: int) -> Any:
        nonlocal written
        written += 1
        await ground.kv.set("k", "meanwhile")
        return await original(audit, after, limit)

    monkeypatch.setattr(auditing.Audit, "_scan", write_first)
    verdict = await ground.audit.verify()
    assert (verdict.whole, verdict.records, written) == (True, RECORDS + 1, 1)


async def test_records_of_another_namespace_are_refused(ground: Ground, store: holdfast.Store) -> None:
    """Records that belong to another namespace prove nothing here, however whole they are there."""
    name = f"{ground.kv.namespace}-2"
    await store.semantic("t", name.rpartition("/")[2]).set("k", 1)
    await ground.table.run("DELETE FROM holdfast_rows WHERE namespace = ? AND space = 'audit'", name)
    await ground.table.run(
        f"INSERT INTO holdfast_rows (namespace, space, key, {COLUMNS}) SELECT '{name}', space, key, {COLUMNS}"
        " FROM holdfast_rows WHERE namespace = ? AND space = 'audit'",
        ground.kv.namespace,
    )
    assert (await ground.audit.verify()).whole
    verdict = await store.audit(name).verify()
    assert (verdict.whole, verdict.reason) == (False, "the head was edited")


async def test_pruning_goes_by_the_signed_time(
    ground: Ground, store: holdfast.Store, clock: ManualClock
) -> None:
    """Nobody has records pruned early by changing the times of their rows."""
    await store.set_policy(ground.kv.namespace, {"audit_retention": 50})
    sql = "SELECT created_at FROM holdfast_rows WHERE namespace = ? AND space = 'audit' AND key = ?"
    [(at,)] = await ground.table.run(sql, ground.kv.namespace, key_of(1))
    older = at - 10**9 if isinstance(at, int) else at.replace(year=2000)
    change = "UPDATE holdfast_rows SET created_at = ? WHERE namespace = ? AND space = 'audit'"
    await ground.table.run(change, older, ground.kv.namespace)
    await store.upkeep()
    assert len((await ground.audit.log()).records) == RECORDS + 1
    clock.advance(50)
    await store.upkeep()
    assert (await ground.audit.log()).records == []


@pytest.mark.parametrize("how", ["edited", "removed"])
async def test_what_was_tampered_with_is_not_pruned(
    ground: Ground, store: holdfast.Store, clock: ManualClock, how: str
) -> None:
    """Nobody has upkeep remove the traces of a change: what is not as written is kept, however old."""
    await store.set_policy(ground.kv.namespace, {"audit_retention": 50})
    clock.advance(60)
    await ground.kv.set("k", "later")
    if how == "edited":  # the record of the last change tells of another one, made long ago
        await ground.table.edit(RECORDS + 2, lambda record: record.update(at=0, writer="nobody"))
    else:
        await ground.table.remove(3)
    before = await ground.found()
    await store.upkeep()
    assert await ground.found() == before != (None, "whole")


async def test_heads_are_logged_and_trouble_with_one_stops_no_other(
    ground: Ground, store: holdfast.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Upkeep tells each new head once, and an audit that can't be read is told of and passed over."""
    head = (await ground.audit.verify()).head
    line = f"audit head of {ground.kv.namespace} is {head}"
    with caplog.at_level(logging.INFO, "holdfast.reaper"):
        await store.upkeep()
        assert line in caplog.messages
        caplog.clear()
        await store.upkeep()
        assert line not in caplog.messages
        await ground.table.write(0, "no head")
        caplog.clear()
        await store.upkeep()
    assert f"writing the audit of {ground.kv.namespace} failed" in caplog.text
