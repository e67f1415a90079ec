"""The audit: it has one record for every change and for every look of a person, and they form a chain.

Records are read and verified as an operator does it, wherever the store is. Tampering with the storage is
tested where that is possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.audit.results import AuditEntry
from holdfast.clock import ManualClock, moment
from holdfast.errors import (
    KeyNotFound,
    MissingField,
    PermissionDenied,
    QuotaExceeded,
    Unsupported,
    ValidationError,
    VersionConflict,
)
from holdfast.handles.kv import KV
from holdfast.handles.tables import Tables
from holdfast.model import Policy
from holdfast.pipeline.caller import Service
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures, Reopen
from holdfast.testing.conformance.letters import given_up
from holdfast.testing.conformance.tables import events
from holdfast.testing.exact import refusal

AUDITED = "semantic/acme/web"
ROOT = "tenant/acme/project/web/"


async def records(store: Store, namespace: str = AUDITED, **wanted: Any) -> list[AuditEntry]:
    """Return all records of an audit."""
    page = await store.audit(namespace).log(**wanted)
    assert page.next is None
    return page.records


async def assert_told(store: Store, kv: KV) -> list[AuditEntry]:
    """Assert that an always audited namespace has one record per change, and return the records."""
    found = await records(store, kv.namespace)
    told = [
        (one.op, one.key, one.version, one.at, one.writer, one.request_id, one.purpose)
        for one in found
        if one.op != "policy"
    ]
    changes = (await kv.changes()).changes
    assert told == [
        (one.op, one.key, one.version, one.at, one.last_writer, one.request_id, one.purpose)
        for one in changes
    ]
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert [one.previous for one in found] == ["", *(one.signature for one in found[:-1])]
    verdict = await store.audit(kv.namespace).verify()
    assert (verdict.whole, verdict.records, verdict.reason) == (True, len(found), None)
    return found


class AuditRules(Fixtures):
    """The rules of the audit."""

    async def test_the_newest_records_first(self, store: Store) -> None:
        """An audit is read backwards a page at a time; every record is seen once, with filters too."""
        kv = store.semantic("acme", "web")
        for number in range(5):
            await kv.set(f"k{number % 2}", number)
        audit = store.audit(kv.namespace)
        numbers, after = [], 0
        while True:
            page = await audit.log(reverse=True, limit=2, after=after)
            numbers += [one.number for one in page.records]
            if page.next is None:
                break
            after = page.next
        assert numbers == [5, 4, 3, 2, 1]
        odd = await audit.log(reverse=True, prefix=f"{ROOT}k1", after=4)
        assert [one.number for one in odd.records] == [2]
        assert (await audit.log(reverse=True, after=1)).records == []

    async def test_every_change_leaves_a_record(self, store: Store, clock: ManualClock) -> None:
        """The audit records every change once, whichever verb made it, with the state before and after."""
        kv = store.semantic("acme", "web")
        config = {"purpose": "config"}
        first = await kv.set("a", 1, semantics=config, writer="alice", request_id="r1", spec_ref="doc")
        clock.advance(1)
        await kv.set("a", 2, semantics=config)
        await kv.incr("a", 3)
        await kv.set_ttl("a", 60)
        await kv.remove_ttl("a")
        await kv.delete("a", writer="bob")
        await kv.restore("a")
        await kv.batch(
            writes=[{"key": "b", "value": 1}, {"key": "a", "delete": True}, {"key": "n", "incr": 1}]
        )
        await kv.set_many([{"key": "c", "value": 1}, {"key": "d", "value": 1}])
        await kv.delete_many(["c", "nothing"])
        found = await assert_told(store, kv)
        assert [one.op for one in found] == ["set"] * 5 + ["deleted", "restored", "set", "deleted"] + [
            *(["set"] * 3),
            "deleted",
        ]
        one = found[0]
        assert (one.key, one.version_before, one.version) == (f"{ROOT}a", None, first.version)
        assert (one.writer, one.request_id, one.spec_ref, one.purpose) == ("alice", "r1", "doc", "config")
        assert one.at == moment(clock.now() - 1000)
        assert [one.version_before for one in found[1:6]] == [one.version for one in found[:5]]
        assert (found[5].writer, found[5].after, found[6].before) == ("bob", None, None)

    async def test_what_is_refused_or_replayed_leaves_none(self, store: Store) -> None:
        """A record exists if and only if the change does."""
        kv = store.semantic("acme", "web")
        await kv.set("a", 1, request_id="once")
        await kv.set("a", 1, request_id="once")
        with refusal(VersionConflict):
            await kv.set("a", 2, request_id="once")
        with refusal(VersionConflict):
            await kv.set("a", 2, expected_version=9)
        with refusal(VersionConflict):
            await kv.batch(checks=[{"key": "b", "version": 7}], writes=[{"key": "b", "value": 1}])
        await kv.set("text", "no number")
        with refusal(ValidationError, field="value"):
            await kv.batch(writes=[{"key": "b", "value": 1}, {"key": "text", "incr": 1}])
        with refusal(KeyNotFound, field="key"):
            await kv.restore("nothing")
        assert await kv.delete("nothing") is False
        await store.set_policy(AUDITED, {"quota_keys": 2})
        done = await kv.set_many([{"key": "a", "value": 3}, {"key": "new", "value": 3}])
        assert [isinstance(one, QuotaExceeded) for one in done] == [False, True]
        found = await assert_told(store, kv)
        assert [one.op for one in found] == ["set", "set", "policy", "set"]

    async def test_a_refusal_in_company_leaves_none(self, store: Store) -> None:
        """The record after a write that was refused half way follows the record before that write."""
        kv = store.semantic("acme", "web")
        await kv.set("text", "no number")
        half: list[dict[str, Any]] = [{"key": "b", "value": 1}, {"key": "text", "incr": 1}]
        for number in range(3):
            refused, written = await asyncio.gather(
                kv.batch(writes=half), kv.set("c", number), return_exceptions=True
            )
            assert isinstance(refused, ValidationError)
            assert not isinstance(written, BaseException)
        assert len(await assert_told(store, kv)) == 4

    async def test_expiry_is_recorded(self, store: Store, clock: ManualClock) -> None:
        """An entry that expires leaves its own record, whether it is swept or overwritten."""
        kv = store.semantic("acme", "web")
        await kv.set("swept", "x", ttl=1, writer="alice", spec_ref="doc")
        await kv.set("covered", "x", ttl=1)
        clock.advance(2)
        await kv.set("covered", "y")
        await store.sweep()
        found = await assert_told(store, kv)
        assert [one.op for one in found] == ["set", "set", "expired", "set", "expired"]
        swept = found[4]
        assert (swept.key, swept.version_before, swept.writer) == (f"{ROOT}swept", 1, "alice")
        assert (swept.before, swept.after, swept.spec_ref) == (found[0].after, None, "doc")
        assert (found[3].version_before, found[3].before) == (None, None)

    async def test_who_asked_is_known(self, store: Store, clock: ManualClock) -> None:
        """A record names the known principal, whatever writer the caller gives."""
        kv = store.semantic("acme", "web")
        await kv.set("a", 1, writer="root", ttl=1)
        await kv.batch(writes=[{"key": "b", "value": 1}], writer="root")
        clock.advance(2)
        await store.sweep()
        known = "open:acme/web" if isinstance(store.caller, Service) else "embedded"
        assert [(one.principal, one.form) for one in await records(store)] == [
            *[(known, 2)] * 2,
            ("holdfast", 2),
        ]

    async def test_values_are_compared_with_their_records(self, store: Store, clock: ManualClock) -> None:
        """Stored values match the audit. A service refuses the comparison, which needs the storage."""
        kv = store.semantic("acme", "web")
        audit = store.audit(AUDITED)
        await kv.batch(writes=[{"key": f"k{n}", "value": n} for n in range(5)])
        await kv.set("k1", "again", ttl=1)
        await kv.delete("k2")
        clock.advance(2)
        if isinstance(store.caller, Service):
            with refusal(Unsupported):
                await audit.verify_values()
            return
        found = await audit.verify_values()
        assert (found.whole, found.entries, found.expired, found.found) == (True, 4, 1, [])
        await store.sweep()
        found = await audit.verify_values()
        assert (found.whole, found.entries, found.expired) == (True, 3, 0)

    async def test_values_are_hashed_and_never_kept(self, store: Store) -> None:
        """Equal values have equal hashes, other values have others, and the audit contains no value."""
        kv = store.semantic("acme", "web")
        for value in ({"secret": "hunter2"}, "other", {"secret": "hunter2"}):
            await kv.set("a", value)
        await kv.set("b", "other")
        one, two, three, four = await records(store)
        assert one.after == two.before == three.after
        assert two.after == three.before == four.after != one.after
        assert (one.before, four.before) == (None, None)
        assert b"hunter2" not in msgspec.json.encode([one, two, three, four])

    async def test_a_policy_switches_it(self, store: Store, kv: KV) -> None:
        """A plugin's changes are recorded while its policy asks for it, and switching is itself recorded."""
        await kv.set("k", "old")
        assert await records(store, "kv/trivia") == []
        await store.set_policy("kv/trivia", {"audit": True}, writer="root", request_id="on", spec_ref="doc")
        await kv.set("k", "new")
        await store.load("kv/trivia", [_plain("k", await kv.get("k"))], keep_versions=False)
        await kv.set("k", "old")
        await store.set_policy("kv/trivia", {"audit": False})
        await kv.set("k", "unseen")
        found = await records(store, "kv/trivia")
        assert [one.op for one in found] == ["policy", "set", "set", "set", "policy"]
        assert (found[0].key, found[0].writer, found[0].request_id) == ("", "root", "on")
        assert (found[0].spec_ref, found[0].before, found[4].before) == ("doc", None, found[0].after)
        assert found[1].before == found[3].after, "a set that looks at nothing tells what was there"
        assert found[2].before == found[2].after == found[1].after
        assert (await store.audit("kv/trivia").verify()).whole
        await store.set_policy(AUDITED, {"audit": False})
        await store.semantic("acme", "web").set("k", 1)
        assert [one.op for one in await records(store)] == ["policy"]

    async def test_an_audit_is_on_for_the_very_next_change(self, store: Store, kv: KV) -> None:
        """A change submitted right after the policy is recorded with the value before it."""
        await kv.batch(writes=[{"key": f"k{n}", "value": "old"} for n in range(60)])
        sets = [kv.set(f"k{n}", "new") for n in range(60)]
        await asyncio.gather(store.set_policy("kv/trivia", {"audit": True}), *sets)
        found = [one for one in await records(store, "kv/trivia") if one.op == "set"]
        assert found
        assert len({one.before for one in found}) == len({one.after for one in found}) == 1
        assert None not in {one.before for one in found}

    async def test_an_import_is_recorded(self, store: Store, kv: KV) -> None:
        """Loaded entries are recorded as changes by the caller that loads them."""
        entry = await kv.set("k", 1, writer="alice", request_id="hers")
        given = msgspec.structs.replace(entry, key=f"{ROOT}k", version=40)
        await store.load(AUDITED, [given], keep_versions=True, writer="importer", request_id="load")
        [one] = await records(store)
        assert (one.op, one.key, one.version, one.version_before) == ("set", f"{ROOT}k", 40, None)
        assert (one.writer, one.request_id) == ("importer", "load")
        loaded = await store.semantic("acme", "web").get("k")
        assert loaded is not None
        assert loaded.last_writer == "alice"

    async def test_the_audit_is_read_in_pages_and_with_filters(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Pages follow each other without a gap, and each filter returns the records that match it."""
        kv = store.semantic("acme", "web")
        for number in range(6):
            writer, purpose = ("alice", "config") if number % 2 else ("bob", "cursor")
            await kv.set(f"k{number}", number, writer=writer, semantics={"purpose": purpose})
            clock.advance(1)
        await kv.delete("k1", request_id="gone")
        audit = store.audit(AUDITED)
        page, numbers = await audit.log(limit=2), list[int]()
        while page.next is not None:
            assert len(page.records) <= 2
            numbers += [one.number for one in page.records]
            page = await audit.log(limit=2, after=page.next)
        assert numbers + [one.number for one in page.records] == [1, 2, 3, 4, 5, 6, 7]
        began = clock.now() - 6_000
        cases: dict[str, tuple[dict[str, Any], list[int]]] = {
            "prefix": ({"prefix": f"{ROOT}k1"}, [2, 7]),
            "writer": ({"writer": "bob"}, [1, 3, 5]),
            "op": ({"op": "deleted"}, [7]),
            "purpose": ({"purpose": "config"}, [2, 4, 6, 7]),
            "request": ({"request_id": "gone"}, [7]),
            "since": ({"since": moment(began + 4_000)}, [5, 6, 7]),
            "until": ({"until": moment(began + 2_000).isoformat()}, [1, 2]),
            "all": ({"writer": "alice", "op": "set", "after": 2}, [4, 6]),
        }
        for name, (wanted, expected) in cases.items():
            assert [one.number for one in await records(store, **wanted)] == expected, name
        wrong: tuple[dict[str, Any], ...] = (
            {"limit": 0},
            {"after": -1},
            {"since": "yesterday"},
            {"writer": ""},
        )
        for fields in wrong:
            with refusal(ValidationError, field=next(iter(fields)), about=fields):
                await audit.log(**fields)

    async def test_chains_are_apart_and_kept(self, store: Store, reopen: Reopen) -> None:
        """Each namespace has a chain of its own, which continues when the storage is reopened."""
        kv, other = store.semantic("acme", "web"), store.semantic("acme", "other")
        await kv.set("a", 1)
        await other.set("a", 1)
        await kv.set("a", 2)
        before = await store.audit(AUDITED).verify()
        assert before.head == f"2:{(await records(store))[1].signature}"
        assert (await store.audit("semantic/acme/other").verify()).records == 1
        assert (await store.audit("semantic/never/written").verify()).head == "0:"
        again = await reopen()
        if again is None:
            return
        await again.semantic("acme", "web").set("a", 3)
        after = await again.audit(AUDITED).verify(heads=[before.head])
        assert (after.whole, after.records) == (True, 3)

    async def test_what_was_there_is_hashed_after_opening_again(
        self, store: Store, kv: KV, reopen: Reopen
    ) -> None:
        """A record has the hash of the value before it, even if that value has not been read yet."""
        await store.set_policy(kv.namespace, {"audit": True})
        first = [{"key": key, "value": f"old {key}"} for key in "abc"]
        await kv.batch(writes=first)
        again = await reopen()
        if again is None:
            return
        kv = again.kv("trivia")
        await kv.batch(writes=[{"key": key, "value": f"new {key}"} for key in "abc"])
        found = await assert_told(again, kv)
        assert [one.before for one in found[4:]] == [one.after for one in found[1:4]]
        assert None not in [one.after for one in found[1:]]

    async def test_audits_are_listed(self, store: Store, kv: KV) -> None:
        """The list has every namespace that has an audit or whose policy asks for one, and no other."""
        await kv.set("k", 1)
        assert await store.audits() == []
        await store.semantic("acme", "web").set("a", 1)
        await store.set_policy("table/trivia", {"audit": True})
        assert await store.audits() == [AUDITED, "table/trivia"]
        await store.set_policy("table/trivia", {"audit": False})
        await store.set_policy("kv/trivia", {"quota_keys": 5})
        assert await store.audits() == [AUDITED, "table/trivia"], "it has records"

    async def test_a_switch_that_was_set_is_no_break(self, store: Store, kv: KV, clock: ManualClock) -> None:
        """Setting policies through Holdfast never breaks the audit."""
        audit = store.audit("kv/trivia")
        for policy in (
            {"audit": True},
            {"audit": True, "audit_retention": 50},
            {"audit": False},
            {"audit": False, "audit_retention": 10},
            {"quota_keys": 5},
            {"audit": True, "audit_retention": 50},
        ):
            await store.set_policy("kv/trivia", policy)
            await kv.set("k", "v")
            clock.advance(20)
            await store.upkeep()
            verdict = await audit.verify()
            assert (verdict.whole, verdict.reason) == (True, None), policy

    async def test_noted_heads_are_compared(self, store: Store) -> None:
        """An audit that does not lead to a noted head is not whole."""
        await store.semantic("acme", "web").set("a", 1)
        audit = store.audit(AUDITED)
        head = (await audit.verify()).head
        assert (await audit.verify(heads=[head])).whole
        cut = await audit.verify(heads=["7:feed"])
        assert (cut.whole, cut.broken_at) == (False, 2)
        assert "cut off" in str(cut.reason)
        other = await audit.verify(heads=[head, "1:feed"])
        assert (other.whole, other.broken_at) == (False, 1)
        for wrong in ("7", "x:feed", "7:"):
            with refusal(ValidationError, field="heads"):
                await audit.verify(heads=[wrong])

    async def test_old_records_are_pruned_and_the_rest_is_whole(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Records past the policy's retention are pruned, and an anchor remains for the rest."""
        kv = store.semantic("acme", "web")
        for number in range(3):
            await kv.set("k", number)
        noted = (await store.audit(AUDITED).verify()).head
        clock.advance(100)
        await store.upkeep()
        assert len(await records(store)) == 3, "without a policy records are kept for ever"
        await store.set_policy(AUDITED, {"audit_retention": 50})
        await store.upkeep()
        await kv.set("k", "later")
        found = await records(store)
        assert [one.number for one in found] == [4, 5]
        assert f"{found[0].number - 1}:{found[0].previous}" == noted
        verdict = await store.audit(AUDITED).verify(heads=[noted])
        assert (verdict.whole, verdict.records) == (True, 2)
        clock.advance(50)
        await store.upkeep()
        verdict = await store.audit(AUDITED).verify()
        assert (verdict.whole, verdict.records, verdict.head) == (True, 0, f"5:{found[1].signature}")


def _plain(key: str, entry: Any) -> Any:
    return msgspec.structs.replace(entry, key=key)


async def told(store: Store, namespace: str) -> list[tuple[str, str, str | None]]:
    """Return key, writer and reason of each reveal that an audit records, after verifying the audit."""
    assert (await store.audit(namespace).verify()).whole
    found = await records(store, namespace, op="revealed")
    return [(one.key, one.writer, one.spec_ref) for one in found]


class RevealRules(Fixtures):
    """The rules of reveals."""

    async def test_a_revealed_entry_is_in_the_audit(self, store: Store) -> None:
        """The record says who looked and why. Entry and journal stay as they were."""
        await store.set_policy("kv/trivia", {"audit": True})
        kv = store.kv("trivia")
        stored = await kv.set("a", {"password": "hunter2"})
        assert await kv.reveal("a", "OPS-1", writer="ann") == stored
        assert await kv.reveal("a", "OPS-2", writer="ann", timeout=30) == stored
        assert await kv.reveal("nothing", "OPS-3") is None
        assert await told(store, "kv/trivia") == [("a", "ann", "OPS-1"), ("a", "ann", "OPS-2")]
        assert await kv.get("a") == stored
        assert [change.op for change in (await kv.changes()).changes] == ["set"]

    async def test_a_revealed_item_is_in_the_audit(self, store: Store, tables: Tables) -> None:
        """The record names the item by its table and key, like those of changes. The item stays as it was."""
        await store.set_policy("table/trivia", {"audit": True})
        await events(tables)
        stored = await tables.put_item("events", {"user": "ann", "at": 7, "note": "secret"})
        assert await tables.reveal_item("events", "ann", 7, why="OPS-1", writer="bob") == stored
        assert await tables.reveal_item("events", "ann", 8, why="OPS-2", timeout=30) is None
        [change] = await records(store, "table/trivia", op="set")
        assert await told(store, "table/trivia") == [(change.key, "bob", "OPS-1")]
        assert await tables.get_item("events", "ann", 7) == stored
        with refusal(ValidationError, field="sort_key"):
            await tables.reveal_item("events", "ann", "seven", why="OPS-3")

    async def test_an_expired_item_is_not_revealed(
        self, store: Store, tables: Tables, clock: ManualClock
    ) -> None:
        """An item that has reached its deadline does not exist, and no look at it is recorded."""
        await store.set_policy("table/trivia", {"audit": True})
        await events(tables, ttl_attribute="ends")
        await tables.put_item("events", {"user": "ann", "at": 7})
        await tables.set_ttl("events", "ann", 7, 10)
        clock.advance(11)
        assert await tables.reveal_item("events", "ann", 7, why="OPS-1") is None
        assert await told(store, "table/trivia") == []

    async def test_a_revealed_blob_is_in_the_audit(self, store: Store) -> None:
        """A reveal returns the bytes of the blob, as `get` does, and the record has its name."""
        await store.set_policy("blob/trivia", {"audit": True})
        blobs = store.blobs("trivia")
        await blobs.put("a.txt", b"secret")
        reader = await blobs.reveal("a.txt", "OPS-1", writer="ann")
        assert reader is not None
        assert await reader.read() == b"secret"
        assert await blobs.reveal("none", "OPS-2") is None
        assert await told(store, "blob/trivia") == [("a.txt", "ann", "OPS-1")]

    async def test_a_revealed_letter_is_in_the_audit(self, store: Store, clock: ManualClock) -> None:
        """An operator reads a dead letter whole, and the record names the key that it would have written."""
        await store.set_policy("kv/trivia", {"audit": True})
        kv, letters = store.kv("trivia"), store.letters("kv/trivia")
        await kv.set("a", 1)
        await given_up(kv, clock, "a", "secret")
        [kept] = (await letters.list()).letters
        with refusal(MissingField, field="why"):
            await letters.reveal(kept.number)
        for nothing in (" ", "x", "...", "aaa"):
            with refusal(ValidationError, field="why", about=nothing):
                await letters.reveal(kept.number, nothing)
        whole = await letters.reveal(kept.number, "OPS-1", writer="ann")
        assert whole is not None
        assert (whole.number, whole.request["value"]) == (kept.number, "secret")
        assert await letters.reveal(kept.number + 1, "OPS-2") is None
        assert await told(store, "kv/trivia") == [(kept.key, "ann", "OPS-1")]

    async def test_the_policy_decides_on_reveals(self, store: Store, tables: Tables) -> None:
        """An audit and the policy `audited` want a reason; `open` and no policy do not; `never` refuses."""
        await events(tables)
        await tables.put_item("events", {"user": "ann", "at": 7})
        kv, blobs = store.kv("trivia"), store.blobs("trivia")
        await kv.set("a", 1)
        await blobs.put("a", b"1")
        looks: tuple[Callable[[str | None], Awaitable[object]], ...] = (
            lambda why: kv.reveal("a", why),
            lambda why: tables.reveal_item("events", "ann", 7, why=why),
            lambda why: blobs.reveal("a", why),
        )
        for look, namespace in zip(looks, ("kv/trivia", "table/trivia", "blob/trivia"), strict=True):
            assert await look(None) is not None
            for policy in (Policy(reveal="audited"), Policy(audit=True)):
                await store.set_policy(namespace, policy)
                with refusal(MissingField, field="why"):
                    await look(None)
                for nothing in ("x" * 501, "", " ", "x", "12", ".", "?!...", "- -", "aaaa", "a a a"):
                    with refusal(ValidationError, field="why", about=nothing):
                        await look(nothing)
            assert await told(store, namespace) == []
            await store.set_policy(namespace, {"reveal": "open", "audit": True})
            assert await look(None) is not None
            assert await told(store, namespace) == []
            await store.set_policy(namespace, {"reveal": "never"})
            with refusal(PermissionDenied):
                await look("OPS-1")
