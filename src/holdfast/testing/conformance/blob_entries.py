"""The rules that blobs share with entries: deadlines, trash, copies, quotas, journal and audit.

Law: see the package. What is left of a blob shows in the bytes that its namespace keeps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.blobs.manifest import GRACE, PART_BYTES
from holdfast.errors import (
    KeyNotFound,
    QuotaExceeded,
    VersionConflict,
)
from holdfast.model import KEEP
from holdfast.testing.conformance.blobs import (
    NAME,
    SMALL,
    BlobRules,
    assert_swept,
    content,
    kept,
    read,
)
from holdfast.testing.conformance.fixtures import DAY, Reopen
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.blobs import Blobs
    from holdfast.model import Blob
    from holdfast.store import Store


class BlobEntryRules(BlobRules):
    """The rules that hold for blobs because they are entries."""

    async def test_blobs_expire(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """A blob expires like an entry: unseen from then on, recorded once, and its bytes are removed."""
        put = await blobs.put("b", content(2 * PART_BYTES), ttl=10)
        assert await blobs.get_ttl("b") == 10
        assert (await blobs.set_ttl("b", 20)).size == put.size
        assert (await blobs.remove_ttl("b")).expires_at is None
        last = await blobs.set_ttl("b", 5)
        assert (await blobs.put("b", SMALL, ttl=KEEP)).expires_at == last.expires_at
        clock.advance(5)
        assert (await blobs.get("b"), await blobs.head("b"), (await blobs.list()).blobs) == (None, None, [])
        assert await store.sweep() == 1
        assert [change.op for change in await blobs.history("b", limit=2)] == ["expired", "set"]
        await assert_swept(store, clock)

    async def test_many_blobs_that_expire_at_once(
        self, blobs: Blobs, store: Store, clock: ManualClock
    ) -> None:
        """Blobs that expire in large numbers leave no bytes either."""
        await asyncio.gather(*(blobs.put(f"{number}", SMALL, ttl=1) for number in range(120)))
        clock.advance(1)
        assert await store.sweep() == 120
        await assert_swept(store, clock)

    async def test_a_trash_of_blobs(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """With a trash, a deleted or expired blob is restored whole, and its bytes go with its last copy."""
        await store.set_policy(NAME, {"trash": True})
        data = content(2 * PART_BYTES + 1)
        await blobs.put("b", data, metadata={"a": "b"})
        await blobs.delete("b")
        clock.advance(DAY)
        await store.upkeep()
        assert (await blobs.restore("b")).metadata == {"a": "b"}
        await blobs.set_ttl("b", 1)
        clock.advance(1)
        await store.sweep()
        await blobs.restore("b")
        assert await read(blobs, "b") == data
        await blobs.delete("b")
        await blobs.put("b", SMALL)
        await blobs.delete("b")
        clock.advance(GRACE)
        await store.upkeep()
        assert await kept(store) < PART_BYTES, "the trash keeps the newest blob of a name"
        clock.advance(7 * DAY)
        await store.upkeep()
        await assert_swept(store, clock)
        with refusal(KeyNotFound, field="key"):
            await blobs.restore("b")

    async def test_copies_of_blobs(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """A copy takes no room of its own, and lives on when the other is replaced or deleted."""
        data = content(3 * PART_BYTES)
        one = await blobs.put("one", data, content_type="a/b", metadata={"a": "b"})
        alone = await kept(store)
        two = await blobs.copy("one", "two", ttl=500, expected_version=0)
        assert (two.size, two.content_type, two.metadata) == (len(data), "a/b", {"a": "b"})
        assert (two.checksum, two.version > one.version) == (one.checksum, True)
        assert two.expires_at is not None
        with refusal(VersionConflict):
            await blobs.copy("one", "two", expected_version=0)
        await blobs.copy("one", "one")
        assert await kept(store) < alone + PART_BYTES
        await blobs.delete("one")
        clock.advance(GRACE)
        await store.upkeep()
        assert await read(blobs, "two") == data
        assert [change.op for change in await blobs.history("two")] == ["set"]
        clock.advance(500)
        await store.sweep()
        await assert_swept(store, clock)

    async def test_a_quota_of_blobs(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """A quota counts all bytes. A put past it is refused whole, after unneeded bytes were removed."""
        await blobs.put("b", content(3 * PART_BYTES))
        await store.set_policy(NAME, {"quota_bytes": 17 * PART_BYTES // 2})
        with refusal(QuotaExceeded, says="blobs"):
            await blobs.put("c", content(6 * PART_BYTES))
        assert await blobs.head("c") is None
        for seed in range(4):  # what was replaced makes room at once
            await blobs.put("b", content(4 * PART_BYTES, seed))
        assert await read(blobs, "b") == content(4 * PART_BYTES, 3)
        await store.set_policy(NAME, {"quota_keys": 1})
        with refusal(QuotaExceeded):
            await blobs.put("c", SMALL)
        await blobs.delete("b")
        await assert_swept(store, clock)

    async def test_changes_of_blobs(self, blobs: Blobs, store: Store) -> None:
        """Each put, copy and delete is one change, which names its writer; parts are none."""
        await blobs.put("b", content(3 * PART_BYTES), writer="w", request_id="r", spec_ref="s")
        blob = await blobs.head("b")
        assert blob is not None
        assert (blob.last_writer, blob.request_id, blob.spec_ref) == ("w", "r", "s")
        await blobs.copy("b", "c")
        await blobs.delete("b")
        changes = (await blobs.changes()).changes
        assert [(change.op, change.key) for change in changes] == [
            ("set", "b"),
            ("set", "c"),
            ("deleted", "b"),
        ]
        assert (changes[0].last_writer, changes[0].request_id) == ("w", "r")
        told = []
        async for change in blobs.watch(since=0):
            told.append(change)
            if len(told) == 3:
                break
        assert told == changes
        assert (await store.stats(NAME)).keys == 1

    async def test_an_audit_of_blobs(self, blobs: Blobs, store: Store) -> None:
        """Changes of blobs are audited where the policy asks for it."""
        await store.set_policy(NAME, {"audit": True})
        await blobs.put("b", content(2 * PART_BYTES))
        await blobs.delete("b")
        audit = store.audit(NAME)
        assert [record.op for record in (await audit.log()).records][-2:] == ["set", "deleted"]
        assert (await audit.verify()).whole

    async def test_blobs_outlive_the_process(self, blobs: Blobs, reopen: Reopen) -> None:
        """Blobs are there when a durable storage is opened again."""
        data = content(2 * PART_BYTES + 1)
        put: Blob = await blobs.put("b", data)
        again = await reopen()
        if not again.capabilities.durable:
            assert await again.blobs("trivia").head("b") is None
            return
        assert await again.blobs("trivia").head("b") == put
        assert await read(again.blobs("trivia"), "b") == data
