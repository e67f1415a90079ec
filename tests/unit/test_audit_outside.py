"""That an audit outlives what is done with SQL around it: to its head, its policy and its namespace's row.

Records are never replaced, whatever becomes of the head, and the audit reports what was done.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.testing import AUDIT_KEY
from tests.unit.audit_ground import RECORDS, Ground, key_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.postgres_stores import Stores

ON = '{"audit":true}'
OFF = '{"audit":false}'
SWITCHED_OFF = "the audit was switched off outside Holdfast"

OLD = [
    '{"number":3,"last":"680ad8fbdf3cb104d1d423caa2f71f09f7109cec0d38767e00a67381420a7e72","floor":0,'
    '"anchor":"","signed_by":"74f4aab679d8c28d","signature":'
    '"18b286371611be48c3a61722a781949d0328ceea746e7caab82d329498027b96"}',
    '{"number":1,"at":1700000000000,"writer":"ops","op":"policy","key":"","version_before":null,"version":1,'
    '"purpose":null,"request_id":"r0","spec_ref":null,"before":null,"after":'
    '"2e24b73b8a31fdcf4696999780774d035a95787d93cf3cb0893c95b1a6467978","signed_by":"74f4aab679d8c28d",'
    '"previous":"","signature":"09849ef29b876ad1371e0772d59b5060cc822d3da9a4f2bb65e64e048acb658c"}',
    '{"number":2,"at":1700000000000,"writer":"alice","op":"set","key":"k","version_before":null,"version":2,'
    '"purpose":null,"request_id":"r1","spec_ref":"doc","before":null,"after":'
    '"49da3a889013de4b9619c07d3f5ac014ea9d836dbb9967ec2d8e65f931833f01","signed_by":"74f4aab679d8c28d",'
    '"previous":"09849ef29b876ad1371e0772d59b5060cc822d3da9a4f2bb65e64e048acb658c","signature":'
    '"d7b142a926da5db173c330323d18cd7da83d86dd71ead24e959c548855be0340"}',
    '{"number":3,"at":1700000000000,"writer":"bob","op":"deleted","key":"k","version_before":2,"version":3,'
    '"purpose":null,"request_id":"r2","spec_ref":null,"before":'
    '"49da3a889013de4b9619c07d3f5ac014ea9d836dbb9967ec2d8e65f931833f01","after":null,'
    '"signed_by":"74f4aab679d8c28d","previous":'
    '"d7b142a926da5db173c330323d18cd7da83d86dd71ead24e959c548855be0340","signature":'
    '"680ad8fbdf3cb104d1d423caa2f71f09f7109cec0d38767e00a67381420a7e72"}',
]
"""The audit of kv/old as it was written before heads told of the policy: the head, then its records."""


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
    """Six records that are whole, of a project."""
    made = Ground(store, store.semantic("t", f"n{abs(hash(request.node.nodeid)) % 10**12}"), url)
    await made.fill()
    return made


@pytest.fixture
async def asked(store: holdfast.Store, url: str, request: pytest.FixtureRequest) -> Ground:
    """Seven records of a plugin, whose policy asks for an audit; the first is that of the policy."""
    made = Ground(store, store.kv(f"p{abs(hash(request.node.nodeid)) % 10**12}"), url)
    await store.set_policy(made.name, {"audit": True}, writer="ops")
    await made.fill()
    assert await made.found() == (None, "whole")
    return made


async def test_a_removed_head_replaces_no_record(ground: Ground) -> None:
    """What is written after the head was removed stands behind the newest record, and says so for ever."""
    before = await ground.table.rows()
    await ground.table.remove(0)
    assert await ground.found() == (RECORDS, "the head was removed")
    await ground.kv.set("k", "later")
    await ground.kv.batch(writes=[{"key": f"k{n}", "value": n} for n in range(3)])
    after = await ground.table.rows()
    assert after[:RECORDS] == before
    assert [number for number, _ in after] == list(range(1, RECORDS + 5))
    assert await ground.found() == (7, "the head had been removed when record 7 was written")
    assert (await ground.audit.verify()).records == RECORDS, "the old ones are whole"


async def test_a_removed_head_is_noticed_after_pruning(ground: Ground, clock: ManualClock) -> None:
    """Where the oldest records were pruned the rest still verifies up to the break, and is not pruned on."""
    await ground.store.set_policy(ground.name, {"audit_retention": 50})
    clock.advance(60)
    await ground.kv.set("k", "kept")
    await ground.store.upkeep()
    assert [number for number, _ in await ground.table.rows()] == [8]
    await ground.table.remove(0)
    clock.advance(60)
    await ground.store.upkeep()
    assert await ground.found() == (8, "the head was removed")
    assert [number for number, _ in await ground.table.rows()] == [8], "it is evidence"
    await ground.kv.set("k", "later")
    assert await ground.found() == (9, "the head had been removed when record 9 was written")
    assert (await ground.audit.verify()).records == 1
    await ground.store.upkeep()
    assert [number for number, _ in await ground.table.rows()] == [9], "pruning goes on"


@pytest.mark.parametrize("number", [2, 2**64 - 1])
async def test_an_edited_head_replaces_no_record(ground: Ground, number: int) -> None:
    """A head that leads elsewhere is not followed: the next record stands behind the newest."""
    before = await ground.table.rows()
    last = (await ground.table.value(2))["signature"]
    await ground.table.edit(0, lambda head: head.update(number=number, last=last))
    await ground.kv.set("k", "later")
    after = await ground.table.rows()
    assert (after[:RECORDS], len(after)) == (before, RECORDS + 1)
    assert await ground.found() == (7, "the head had been edited when record 7 was written")


async def test_edited_head_stops_pruning(ground: Ground, clock: ManualClock) -> None:
    """If somebody has edited the head, no record is pruned, however old it is."""
    await ground.store.set_policy(ground.name, {"audit_retention": 50})
    await ground.table.edit(0, lambda head: head.update(number=3))
    clock.advance(60)
    await ground.store.upkeep()
    assert len(await ground.table.rows()) == RECORDS + 1


async def test_edited_head_without_records_is_reported(ground: Ground) -> None:
    """If nothing is left but an edited head, the first record of the rest says so."""
    await ground.table.edit(0, lambda head: head.update(number=0))
    await ground.table.remove(*range(1, RECORDS + 1))
    await ground.kv.set("k", "later")
    assert await ground.found() == (1, "the head had been edited when record 1 was written")


async def test_no_number_is_left_behind_a_row_that_was_put_in(ground: Ground) -> None:
    """A write that finds no place for its record is refused, and told what to do."""
    await ground.table.copy(3, key_of(2**64 - 1))
    await ground.table.remove(0)
    with pytest.raises(holdfast.DatabaseError, match="run holdfast audit verify, export the audit"):
        await ground.kv.set("k", "refused")
    broken_at, reason = await ground.found()
    assert (broken_at, "no room for records behind it" in reason) == (0, True)
    await ground.table.remove(2**64 - 1)
    await ground.kv.set("k", "later")
    assert await ground.found() == (7, "the head had been removed when record 7 was written")


async def test_a_record_that_can_t_be_read_does_not_stop_writing(ground: Ground) -> None:
    """Who edits the oldest record and removes the head stops nothing either."""
    await ground.table.write(1, "no record")
    await ground.table.remove(0)
    await ground.kv.set("k", "later")
    assert await ground.found() == (1, "record 1 can't be read")
    assert len(await ground.table.rows()) == RECORDS + 1


async def test_audit_of_a_namespace_without_its_row_is_found(ground: Ground) -> None:
    """An audit is found and told of although the row of its namespace is gone, and for ever after that."""
    await ground.table.remove_namespace()
    assert ground.name not in {one.namespace for one in await ground.store.namespaces()}
    assert ground.name in await ground.store.audits()
    removed = "the row of the namespace was removed, although it has an audit"
    assert await ground.found() == (RECORDS, removed)
    await ground.table.run("DELETE FROM holdfast_journal WHERE namespace = ?", ground.name)
    await ground.kv.set("k", "its versions begin anew")
    await ground.kv.set("k", "and go on")
    assert await ground.found() == (
        7,
        "the row of the namespace had been removed, and its versions began anew when record 7 was written",
    )


async def test_switching_off_with_sql_is_noticed(asked: Ground) -> None:
    """The policy must ask for the audit that was last asked for through Holdfast."""
    for policy in (OFF, "{}", None, '{"quota_keys":9}'):
        await asked.table.set_policy(policy)
        assert await asked.found() == (7, SWITCHED_OFF), policy
        await asked.kv.set("k", "unseen")
    await asked.table.set_policy(ON)
    assert await asked.found() == (None, "whole")
    await asked.table.set_policy("no policy")
    assert await asked.found() == (7, "the policy can't be read: it was changed outside Holdfast")
    assert asked.name in await asked.store.audits()
    await asked.table.set_policy(ON)


@pytest.mark.parametrize("policy", [{"audit": True}, {"audit": False}, {"quota_keys": 9}])
async def test_setting_a_policy_does_not_hide_switching_off_with_sql(
    asked: Ground, policy: dict[str, bool | int]
) -> None:
    """A policy that is set after the audit was switched off with SQL is recorded, and its record says so."""
    await asked.table.set_policy(OFF)
    await asked.kv.set("k", "unseen")
    await asked.store.set_policy(asked.name, policy)
    said = "what the policy asks of the audit had been changed outside Holdfast when record 8 was written"
    assert await asked.found() == (8, said)
    assert len(await asked.table.rows()) == 8


async def test_edited_head_and_policy_are_both_reported(asked: Ground) -> None:
    """Of two things that are wrong the record tells the first; neither is hidden."""
    await asked.table.set_policy(OFF)
    await asked.table.edit(0, lambda head: head.update(number=1))
    await asked.store.set_policy(asked.name, {"audit": True})
    assert await asked.found() == (8, "the head had been edited when record 8 was written")


async def test_switching_on_with_sql_is_noticed(asked: Ground) -> None:
    """So is an audit that is on although it was switched off last through Holdfast."""
    await asked.store.set_policy(asked.name, {"audit": False})
    assert await asked.found() == (None, "whole")
    await asked.store.set_policy(asked.name, {"quota_keys": 9, "audit_retention": 5})
    await asked.kv.set("k", "not recorded")
    assert await asked.found() == (None, "whole")
    await asked.table.set_policy(ON)
    assert await asked.found() == (8, "the audit was switched on outside Holdfast")
    await asked.kv.set("k", "recorded")
    assert await asked.found() == (9, "the audit was switched on outside Holdfast")


async def test_a_project_is_audited_without_a_policy(ground: Ground) -> None:
    """A policy that is put in with SQL where there was none is noticed too."""
    await ground.table.set_policy(OFF)
    assert await ground.found() == (RECORDS, SWITCHED_OFF)
    await ground.table.set_policy('{"trash":true}')
    assert await ground.found() == (None, "whole")


async def test_records_are_not_pruned_by_a_policy_of_nobody(asked: Ground, clock: ManualClock) -> None:
    """A shorter time to keep records, put in with SQL, is told of and removes nothing."""
    await asked.table.set_policy('{"audit":true,"audit_retention":1}')
    clock.advance(10)
    await asked.store.upkeep()
    assert len(await asked.table.rows()) == 7
    changed = "the time for which records are kept was changed outside Holdfast"
    assert await asked.found() == (7, changed)
    await asked.kv.set("k", "goes on")
    await asked.store.upkeep()
    assert len(await asked.table.rows()) == 8
    await asked.store.set_policy(asked.name, {"audit": True, "audit_retention": 1})
    assert (await asked.found())[0] == 9


async def test_removed_audit_is_noticed_by_its_bytes(asked: Ground) -> None:
    """The namespace still counts the bytes of an audit that is gone, and the next record says so for ever."""
    await asked.table.remove(*range(8))
    assert asked.name in await asked.store.audits()
    broken_at, reason = await asked.found()
    assert (broken_at, "the whole audit was removed with SQL" in reason) == (0, True)
    await asked.kv.set("k", "later")
    assert [number for number, _ in await asked.table.rows()] == [1]
    assert await asked.found() == (1, "the whole audit had been removed when record 1 was written")
    await asked.kv.set("k", "later still")
    assert (await asked.found())[0] == 1


async def test_audit_of_an_older_version_continues(store: holdfast.Store, url: str) -> None:
    """A chain whose head tells nothing of the policy is whole, goes on, and tells from its next record on."""
    old = Ground(store, store.kv("old"), url)
    await store.set_policy(old.name, {"audit": True})
    await old.kv.set("k", 1)
    await old.kv.delete("k")
    for number, value in enumerate(OLD):
        await old.table.write(number, value)
    assert await old.found() == (None, "whole")
    await old.table.set_policy(OFF)
    assert await old.found() == (3, SWITCHED_OFF)
    await old.table.set_policy(ON)
    await old.kv.set("k", "goes on")
    verdict = await old.audit.verify(heads=[f"3:{(await old.table.value(3))['signature']}"])
    assert (verdict.whole, verdict.records) == (True, 4)
    assert (await old.table.value(0))["audited"] is True
    await old.table.set_policy("{}")
    assert await old.found() == (4, SWITCHED_OFF)


async def test_switched_off_audit_of_an_older_version_raises_no_alarm(
    store: holdfast.Store, url: str
) -> None:
    """Where the last record is that of a policy, a head that tells nothing raises no alarm."""
    old = Ground(store, store.kv("old"), url)
    await old.table.run("DELETE FROM holdfast_rows WHERE namespace = 'kv/old'")
    await store.set_policy(old.name, {"audit": True})
    await old.table.write(1, OLD[1])
    last = '{"number":1,"last":"09849ef29b876ad1371e0772d59b5060cc822d3da9a4f2bb65e64e048acb658c","floor":0,'
    last += '"anchor":"","signed_by":"74f4aab679d8c28d","signature":"'
    await old.table.write(0, last + _old_signature() + '"}')
    await old.table.set_policy(OFF)
    assert await old.found() == (None, "whole")


def _old_signature() -> str:
    """What the head of the first record was signed with."""
    head = '{"number":1,"last":"09849ef29b876ad1371e0772d59b5060cc822d3da9a4f2bb65e64e048acb658c","floor":0,'
    head += '"anchor":"","signed_by":"74f4aab679d8c28d","signature":""}'
    signed = b'holdfast audit head\n["kv/old",' + head.encode() + b"]"
    return hmac.digest(AUDIT_KEY.encode(), signed, "sha256").hex()


async def test_upkeep_tells_of_tampering(
    asked: Ground, ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """Every upkeep logs what can be seen without reading records, so that nobody has to ask."""

    async def told() -> dict[str, str]:
        caplog.clear()
        with caplog.at_level(logging.ERROR, "holdfast.reaper"):
            await asked.store.upkeep()
        found = [line for line in caplog.messages if asked.name in line or ground.name in line]
        return {line.split()[3]: line.split(": ", 1)[1] for line in found}

    assert await told() == {}
    await asked.table.set_policy(OFF)
    await ground.table.remove_namespace()
    cure = "; run holdfast audit verify"
    assert await told() == {
        asked.name: SWITCHED_OFF + cure,
        ground.name: "the row of the namespace was removed, although it has an audit" + cure,
    }
    await ground.table.remove(0)
    assert (await told())[ground.name] == "the head was removed" + cure
    await asked.table.write(0, "no head")
    assert (await told())[asked.name] == "the head can't be read" + cure


async def test_only_audited_namespaces_are_listed(asked: Ground, ground: Ground) -> None:
    """A namespace that is not audited and never was is not among them."""
    await asked.store.kv("plain").set("k", 1)
    found = await asked.store.audits()
    assert found == sorted(found)
    assert {asked.name, ground.name} <= set(found)
    assert "kv/plain" not in found


async def test_two_processes_may_begin_an_audit_at_once(pg_store_url: str) -> None:
    """Where two write the first record of a namespace, one of them comes second, and nothing is broken."""
    async with (
        holdfast.open(pg_store_url, reap=False, audit_key=AUDIT_KEY) as one,
        holdfast.open(pg_store_url, reap=False, audit_key=AUDIT_KEY) as two,
    ):
        projects = [f"p{number}" for number in range(10)]
        writes = [
            store.semantic("t", project).set(f"k{number}", number)
            for project in projects
            for store in (one, two)
            for number in range(2)
        ]
        await asyncio.gather(*writes)
        for project in projects:
            verdict = await two.audit(f"semantic/t/{project}").verify()
            assert (verdict.whole, verdict.records) == (True, 4), verdict
