"""Blobs: bytes of any size, whole or not at all, with everything that an entry has.

What is left of a blob shows in the bytes that its namespace keeps.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from typing import Any

import pytest

from holdfast.blobs.manifest import GRACE, PART_BYTES, UPLOAD_IDLE
from holdfast.clock import ManualClock
from holdfast.errors import (
    Busy,
    Fenced,
    InvalidPluginName,
    KeyNotFound,
    QuotaExceeded,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.handles.blobs import AHEAD, AT_ONCE, Blobs
from holdfast.handles.kv import KV
from holdfast.model import KEEP, Blob
from holdfast.store import Store
from holdfast.testing.conformance.batches import take
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen
from holdfast.testing.exact import present, refusal

NAME = "blob/trivia"
SMALL = b"small"


def content(size: int, seed: int = 0) -> bytes:
    """Return bytes that differ from part to part, and from seed to seed."""
    block = b"".join(sha256(f"{seed} {number}".encode()).digest() for number in range(64))
    parts = (number.to_bytes(8, "big") + block[8:] for number in range(-(-size // len(block))))
    return b"".join(parts)[:size]


async def read(blobs: Blobs, name: str, **given: Any) -> bytes:
    """Read a blob that must be there."""
    return await present(await blobs.get(name, **given)).read()


async def kept(store: Store) -> int:
    """Return the bytes that blobs take, after verifying that they are counted rightly."""
    assert await store.recount(NAME) == 0
    return (await store.stats(NAME)).parts.blobs


async def assert_swept(store: Store, clock: ManualClock) -> None:
    """Require that upkeep leaves nothing of any blob."""
    clock.advance(GRACE)
    await store.upkeep()
    assert (await kept(store), (await store.stats(NAME)).keys) == (0, 0)


class BlobRules(Fixtures):
    """The rules of blobs."""

    @pytest.fixture
    def blobs(self, store: Store) -> Blobs:
        """The blobs of a plugin that has none yet."""
        return store.blobs("trivia")

    async def test_what_was_put_comes_back(self, blobs: Blobs) -> None:
        """A blob of any size comes back as it was put, with its size, type and metadata."""
        for size in (0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 5 * PART_BYTES + 7):
            data = content(size)
            put = await blobs.put("b", data, content_type="text/x; a=b", metadata={"ü": "🎉", "": ""})
            assert (put.name, put.size, put.content_type) == ("b", size, "text/x; a=b")
            assert put.metadata == {"ü": "🎉", "": ""}
            assert await blobs.head("b") == put
            assert present(await blobs.get("b")).blob == put
            assert await read(blobs, "b") == data
            if size <= PART_BYTES:
                assert put.checksum == sha256(data).hexdigest()
        assert (await blobs.put("plain", b"")).content_type == "application/octet-stream"

    async def test_every_form_of_data(self, blobs: Blobs) -> None:
        """Bytes, a file and both kinds of iterators are taken, whatever the size of their pieces."""
        data = content(2 * PART_BYTES + 5)
        cuts = [0, 0, 1, 100, PART_BYTES, PART_BYTES + 3, len(data)]
        pieces = [data[start:end] for start, end in zip(cuts, [*cuts[1:], len(data)], strict=True)]

        async def later() -> AsyncIterator[bytes]:
            for piece in pieces:
                await asyncio.sleep(0)
                yield piece

        forms: list[Any] = [
            bytearray(data),
            memoryview(data),
            io.BytesIO(data),
            pieces,
            iter(pieces),
            later(),
        ]
        checksums = set()
        for form in forms:
            checksums.add((await blobs.put("b", form)).checksum)
            assert await read(blobs, "b") == data
        assert len(checksums) == 1
        forms = ["text", 5, None, ["text"], io.StringIO("text")]
        for form in forms:
            with refusal(ValidationError, field="data", about=form):
                await blobs.put("b", form)
        assert await read(blobs, "b") == data

    async def test_illegal_arguments_of_blobs(self, blobs: Blobs, store: Store) -> None:
        """Names follow the rules of keys, and what is said about a blob has its limits."""
        with refusal(InvalidPluginName, field="plugin_name"):
            store.blobs("Trivia")
        for name in ("", "x" * 256, "a\x00b"):
            with refusal(ValidationError, field="key"):
                await blobs.put(name, SMALL)
            with refusal(ValidationError, field="key"):
                await blobs.get(name)
            with refusal(ValidationError, field="source"):
                await blobs.copy(name, "b")
        wrong: dict[str, tuple[Any, ...]] = {
            "content_type": ("", "x" * 256, "ü", "a\nb", 5),
            "metadata": ([], {"a": 1}, {1: "a"}, "text"),
            "ttl": (0, 1.5, "1"),
            "expected_version": (-1, "1"),
        }
        for field, values in wrong.items():
            for value in values:
                with refusal(ValidationError, field=field, about=value):
                    await blobs.put("b", SMALL, **{field: value})
        with refusal(ValueTooLarge, field="metadata"):
            await blobs.put("b", SMALL, metadata={"a": "x" * 8192})
        for field in ("start", "end"):
            for value in (-1, 1.0, "1"):
                with refusal(ValidationError, field=field):
                    await read(blobs, "b", **{field: value})
        with refusal(ValidationError, field="namespace", says="without their bytes"):
            await store.load(NAME, [], keep_versions=False)
        assert await blobs.head("b") is None

    async def test_ranges_of_a_blob(self, blobs: Blobs) -> None:
        """A range of bytes is read as a slice would be, across parts, and past the end."""
        data = content(3 * PART_BYTES + 10)
        await blobs.put("b", data)
        edges = (0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, len(data), len(data) + 9)
        for start in edges:
            for end in (*edges, None):
                reader = present(await blobs.get("b", start=start, end=end))
                found = await reader.read()
                assert found == data[start:end], (start, end)
                assert reader.end - reader.start == len(found)

    async def test_blobs_that_are_not_there(self, blobs: Blobs) -> None:
        """What is not there is None, False or 0."""
        assert await blobs.get("b") is None
        assert await blobs.head("b") is None
        assert await blobs.delete("b") is False
        assert await blobs.get_ttl("b") == 0
        assert (await blobs.list()).blobs == []
        with refusal(KeyNotFound, field="source", says="'b'"):
            await blobs.copy("b", "c")
        for call in (blobs.set_ttl("b", 5), blobs.remove_ttl("b"), blobs.restore("b")):
            with refusal(KeyNotFound, field="key"):
                await call

    async def test_blobs_are_listed(self, blobs: Blobs, store: Store) -> None:
        """Blobs are listed in order, by prefix and page by page, each plugin's for itself."""
        put = [await blobs.put(name, SMALL) for name in ("a/1", "a/2", "b", "ä")]
        await store.blobs("other").put("a/3", SMALL)
        await store.kv("trivia").set("a/4", 1)
        assert (await blobs.list()).blobs == put
        assert (await blobs.list("a/")).blobs == put[:2]
        first = await blobs.list(limit=3)
        assert (first.blobs, first.truncated, first.count) == (put[:3], True, 3)
        last = await blobs.list(cursor=first.cursor)
        assert (last.blobs, last.truncated, last.cursor) == (put[3:], False, None)
        assert (await store.kv("trivia").list()).keys == ["a/4"]

    async def test_versions_of_blobs(self, blobs: Blobs, clock: ManualClock) -> None:
        """A put replaces a blob only if it has the expected version, and a conflict changes nothing."""
        first = await blobs.put("b", SMALL, expected_version=0)
        clock.advance(1)
        for data in (b"other", content(2 * PART_BYTES)):
            for wrong in (0, first.version + 9):
                with refusal(VersionConflict) as caught:
                    await blobs.put("b", data, expected_version=wrong)
                assert caught.value.current is not None
                assert caught.value.current.version == first.version
        assert (await blobs.head("b"), await read(blobs, "b")) == (first, SMALL)
        second = await blobs.put("b", content(2 * PART_BYTES), expected_version=first.version)
        assert second.version > first.version
        assert second.created_at == first.created_at < second.updated_at
        with refusal(VersionConflict):
            await blobs.delete("b", expected_version=first.version)
        assert await blobs.delete("b", expected_version=second.version) is True
        with refusal(VersionConflict):
            await blobs.put("b", SMALL, expected_version=second.version)

    async def test_a_reader_sees_the_old_blob_or_the_new_one(
        self, blobs: Blobs, store: Store, clock: ManualClock
    ) -> None:
        """A reader that has begun finishes the old blob for a minute, then fails, and never mixes both."""
        size = (AT_ONCE * AHEAD + 3) * PART_BYTES  # more than a reader reads ahead
        old, new = content(size, 1), content(size, 2)
        await blobs.put("b", old)
        readers = [present(await blobs.get("b")) for _ in range(2)]
        pieces = [aiter(reader) for reader in readers]
        begun = [await anext(each) for each in pieces]
        await blobs.put("b", new)
        assert await read(blobs, "b") == new
        clock.advance(GRACE - 1)
        await store.upkeep()
        assert b"".join([begun[0], *[piece async for piece in pieces[0]]]) == old
        clock.advance(1)
        await store.upkeep()
        found = bytearray(begun[1])
        with refusal(Busy, says="replaced or deleted"):
            async for piece in pieces[1]:
                found += piece
        assert old.startswith(found)
        assert await read(blobs, "b") == new

    async def test_what_is_replaced_is_removed(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """Upkeep removes the bytes of replaced and deleted blobs, and those of no others."""
        await blobs.put("b", content(3 * PART_BYTES))
        alone = await kept(store)
        for seed in range(3):
            await blobs.put("b", content(3 * PART_BYTES, seed))
        assert await kept(store) > 4 * 3 * PART_BYTES
        clock.advance(GRACE)
        await store.upkeep()
        assert abs(await kept(store) - alone) < 100, "but for the digits of some numbers"
        assert await read(blobs, "b") == content(3 * PART_BYTES, 2)
        await blobs.delete("b")
        await assert_swept(store, clock)

    async def test_a_writer_that_fails_leaves_nothing(
        self, blobs: Blobs, store: Store, clock: ManualClock
    ) -> None:
        """A put whose data ends in an error changes nothing, and its parts are removed."""

        async def broken() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield content(PART_BYTES)
            raise OSError("the other side hung up")

        await blobs.put("b", SMALL)
        before = await blobs.changes()
        with pytest.raises(OSError, match="hung up"):
            await blobs.put("b", broken())
        assert (await blobs.changes()).changes == before.changes
        assert await read(blobs, "b") == SMALL
        await blobs.delete("b")
        await assert_swept(store, clock)

    async def test_a_writer_that_dies_is_swept(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """An upload that gets no more parts is invisible, and is removed after an hour."""
        waiting = asyncio.Event()

        async def stuck() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield content(PART_BYTES)
            waiting.set()
            await asyncio.Event().wait()

        put = asyncio.create_task(blobs.put("b", stuck()))
        await waiting.wait()
        put.cancel()
        await asyncio.gather(put, return_exceptions=True)
        assert await blobs.head("b") is None
        clock.advance(UPLOAD_IDLE)
        await store.upkeep()
        await assert_swept(store, clock)

    async def test_writers_of_one_blob(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """Of several writers of one name the last one wins whole, and the others leave nothing."""
        datas = [content(3 * PART_BYTES + seed, seed) for seed in range(5)]
        put = await asyncio.gather(*(blobs.put("b", data) for data in datas))
        newest = max(put, key=lambda blob: blob.version)
        assert await read(blobs, "b") == datas[put.index(newest)]
        results = await asyncio.gather(
            *(blobs.put("b", data, expected_version=newest.version) for data in datas), return_exceptions=True
        )
        won = [number for number, result in enumerate(results) if not isinstance(result, BaseException)]
        assert len(won) == 1
        assert all(isinstance(result, VersionConflict) for n, result in enumerate(results) if n not in won)
        assert await read(blobs, "b") == datas[won[0]]
        await blobs.delete("b")
        await assert_swept(store, clock)

    async def test_a_put_that_is_sent_again(self, blobs: Blobs, store: Store, clock: ManualClock) -> None:
        """A put that is sent again has the first answer and no second effect; other bytes are refused."""
        for data in (SMALL, content(2 * PART_BYTES)):
            first = await blobs.put("b", data, request_id=f"put {len(data)}")
            await blobs.put("b", b"newer")
            assert await blobs.put("b", data, request_id=f"put {len(data)}") == first
            assert await read(blobs, "b") == b"newer"
            for other in (data + b"!", data[:-1]):
                with refusal(VersionConflict) as caught:
                    await blobs.put("b", other, request_id=f"put {len(data)}")
                assert caught.value.reason == "request_id_reused"
        assert await blobs.delete("b", request_id="d") is await blobs.delete("b", request_id="d") is True
        await assert_swept(store, clock)


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

    async def test_fences_of_blobs(self, blobs: Blobs, kv: KV) -> None:
        """Every write to blobs is refused once a newer holder has taken the lock, a key of the plugin."""
        await blobs.put("b", SMALL)
        old, new = await take(kv), await take(kv)
        calls: dict[str, Callable[[dict[str, Any]], Awaitable[object]]] = {
            "put": lambda fence: blobs.put("b", content(PART_BYTES + 1), fence=fence),
            "copy": lambda fence: blobs.copy("b", "c", fence=fence),
            "set_ttl": lambda fence: blobs.set_ttl("b", 60, fence=fence),
            "remove_ttl": lambda fence: blobs.remove_ttl("b", fence=fence),
            "delete": lambda fence: blobs.delete("b", fence=fence),
        }
        for verb, call in calls.items():
            with refusal(Fenced, field="fence", says="newer holder", about=verb):
                await call(old)
            with refusal(Fenced, field="fence", says="no longer held", about=verb):
                await call(new | {"live": True})
        assert await read(blobs, "b") == SMALL
        for call in calls.values():
            await call(new)
        assert await blobs.get("b") is None
        async with kv.lock("b") as lock:
            await blobs.put("b", SMALL, fence=lock.fence | {"live": True})
        with refusal(Fenced, field="fence", says="never been taken"):
            await blobs.put("b", b"", fence={"lock": "other", "token": lock.token})
        assert await read(blobs, "b") == SMALL

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
        if again is None:
            return
        assert await again.blobs("trivia").head("b") == put
        assert await read(again.blobs("trivia"), "b") == data
