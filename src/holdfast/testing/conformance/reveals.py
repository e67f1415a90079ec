"""Reveals: a person looks at an entry, an item or a blob, and an audit records who looked and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import MissingField, PermissionDenied, ValidationError
from holdfast.model import Policy
from holdfast.testing.conformance.audit import records
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.letters import given_up
from holdfast.testing.conformance.table_items import events
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import ManualClock
    from holdfast.handles.tables import Tables
    from holdfast.store import Store


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
