"""Uploads step by step, and bytes that are not what they should be."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.blobs.commands import VERBS
from holdfast.blobs.manifest import (
    GRACE,
    MAX_BLOB_BYTES,
    MOST_AHEAD,
    PART_BYTES,
    UPLOAD_IDLE,
    checksum_after,
    checksum_of,
    upload_key,
)
from holdfast.clock import ManualClock
from holdfast.commands import Removed
from holdfast.errors import DatabaseError, KeyNotFound, MissingField, ValidationError, ValueTooLarge
from holdfast.handles import blob_upload
from holdfast.rows import PARTS, UPLOAD
from holdfast.testing.exact import refusal
from holdfast.upkeep_commands import Expire
from holdfast.wire.writes import written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.store import Store

NAME = "blob/p"
FULL = b"x" * PART_BYTES


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store."""
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    """An empty store."""
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        yield store


async def call(store: Store, verb: str, **fields: Any) -> dict[str, Any]:
    """A call as a door makes it."""
    declaration = VERBS[verb]
    write = written(declaration, store.pipeline.verbs(NAME), declaration.of_fields(fields), None)
    assert write.command is not None
    return write.show(await store.pipeline.call(write.command))


async def begun(store: Store) -> int:
    """A new upload."""
    upload: int = (await call(store, "begin"))["upload"]
    return upload


def whole(*parts: bytes) -> dict[str, Any]:
    """The size and the checksum of parts."""
    chain = ""
    for number, part in enumerate(parts):
        chain = checksum_after(chain, checksum_of(part), number)
    return {"size": sum(map(len, parts)), "checksum": chain}


async def test_parts_arrive_in_any_order_and_twice(store: Store) -> None:
    """Parts may arrive out of order and again; the blob is the parts in the order of their numbers."""
    upload = await begun(store)
    for number, data in ((2, b"end"), (0, FULL), (2, b"end"), (0, b"other"), (1, FULL[::-1]), (1, FULL)):
        await call(store, "put_part", upload=upload, number=number, data=data)
    before = (await store.stats(NAME)).bytes
    await call(store, "put_part", upload=upload, number=0, data=b"other")
    assert (await store.stats(NAME)).bytes == before
    await call(store, "commit", key="b", upload=upload, **whole(FULL, FULL, b"end"))
    reader = await store.blobs("p").get("b")
    assert reader is not None
    assert await reader.read() == FULL + FULL + b"end"
    assert await store.recount(NAME) == 0


async def test_an_upload_that_is_not_whole_is_refused(store: Store) -> None:
    """Missing parts, wrong sizes and wrong checksums are refused, and the upload stays open."""
    upload = await begun(store)
    await call(store, "put_part", upload=upload, number=1, data=FULL)
    for announced in (whole(FULL, FULL), whole(FULL), {"size": 0, "checksum": "0" * 64}):
        with refusal(ValidationError, field="size"):
            await call(store, "commit", key="b", upload=upload, **announced)
    await call(store, "put_part", upload=upload, number=0, data=FULL)
    with refusal(ValidationError, field="checksum", says="has arrived"):
        await call(store, "commit", key="b", upload=upload, **whole(FULL, FULL) | {"checksum": "0" * 64})
    await call(store, "commit", key="b", upload=upload, **whole(FULL, FULL))


async def test_only_the_last_part_is_short(store: Store) -> None:
    """A short part is the last one, and there is one."""
    upload = await begun(store)
    await call(store, "put_part", upload=upload, number=1, data=b"short")
    with refusal(ValidationError, field="number", says="only the last may"):
        await call(store, "put_part", upload=upload, number=0, data=b"short too")
    for number in (0, 2):
        await call(store, "put_part", upload=upload, number=number, data=FULL)
    with refusal(ValidationError, field="size", says="part 1"):
        await call(store, "commit", key="b", upload=upload, **whole(FULL, b"short", FULL))


async def test_illegal_parts_are_refused(store: Store) -> None:
    """A part that no blob can have is refused before anything is stored."""
    upload = await begun(store)
    good: dict[str, Any] = {"upload": upload, "number": 0, "data": b"x"}
    wrong: list[tuple[type[holdfast.HoldfastError], str, dict[str, Any]]] = [
        (ValidationError, "data", {"data": b""}),
        (ValidationError, "data", {"data": 5}),
        (ValidationError, "data", {"data": "no base64"}),
        (ValueTooLarge, "data", {"data": FULL + b"x"}),
        (ValidationError, "checksum", {"checksum": checksum_of(b"y")}),
        (ValidationError, "checksum", {"checksum": "x"}),
        (ValidationError, "number", {"number": -1}),
        (ValidationError, "number", {"number": MOST_AHEAD + 1}),
        (ValidationError, "number", {"number": MAX_BLOB_BYTES // PART_BYTES}),
        (ValidationError, "upload", {"upload": 0}),
        (KeyNotFound, "upload", {"upload": upload + 9}),
    ]
    for kind, field, fields in wrong:
        with refusal(kind, field=field, about=fields):
            await call(store, "put_part", **good | fields)
    for field in good:
        with refusal(MissingField, field=field):
            await call(store, "put_part", **{name: one for name, one in good.items() if name != field})
    assert (await call(store, "put_part", **good | {"data": "eA=="}))["checksum"] == checksum_of(b"x")


async def test_a_finished_upload_is_closed(store: Store) -> None:
    """Nothing is added to a finished upload, and aborting it does nothing; an aborted one takes no parts."""
    upload = await begun(store)
    await call(store, "put_part", upload=upload, number=0, data=b"x")
    await call(store, "commit", key="b", upload=upload, **whole(b"x"))
    for verb, fields in (("put_part", {"number": 1, "data": b"x"}), ("commit", {"key": "c", **whole(b"x")})):
        with refusal(KeyNotFound, field="upload", says="finished"):
            await call(store, verb, upload=upload, **fields)
    assert await call(store, "abort", upload=upload) == {}
    reader = await store.blobs("p").get("b")
    assert reader is not None
    assert await reader.read() == b"x"
    another = await begun(store)
    await call(store, "abort", upload=another)
    assert await call(store, "abort", upload=another) == {}
    with refusal(KeyNotFound, field="upload"):
        await call(store, "put_part", upload=another, number=0, data=b"x")


async def test_an_upload_that_goes_on_is_not_given_up(store: Store, clock: ManualClock) -> None:
    """A part that arrives after a sweep has found the upload idle saves it, and all parts before it."""
    upload = await begun(store)
    await call(store, "put_part", upload=upload, number=0, data=FULL)
    clock.advance(UPLOAD_IDLE - 1)
    await call(store, "put_part", upload=upload, number=1, data=b"end")
    clock.advance(1)
    idle = Expire(namespace=NAME, space=UPLOAD, keys=(upload_key(upload),))
    assert await store.pipeline.call(idle) == Removed(0)
    await call(store, "commit", key="b", upload=upload, **whole(FULL, b"end"))
    clock.advance(UPLOAD_IDLE)
    assert await store.pipeline.call(idle) == Removed(0), "a finished upload has no deadline"


async def test_a_blob_that_is_copied_onto_itself_keeps_its_bytes(store: Store, clock: ManualClock) -> None:
    """Nobody else refers to the parts, and they are not let go of between the two halves of the copy."""
    blobs = store.blobs("p")
    await blobs.put("b", b"bytes")
    copy = await blobs.copy("b", "b", ttl=500)
    clock.advance(GRACE + 1)
    await store.upkeep()
    reader = await blobs.get("b")
    assert reader is not None
    assert (await reader.read(), reader.blob, await store.recount(NAME)) == (b"bytes", copy, 0)


async def test_a_write_past_the_quota_removes_no_more_than_it_needs(store: Store) -> None:
    """All writers wait while parts of deleted blobs are removed for one, so most are left to others."""
    blobs = store.blobs("p")
    await store.set_policy(NAME, {"quota_bytes": 81 * PART_BYTES})
    await blobs.put("old", FULL * 80)
    await blobs.delete("old")
    await blobs.put("new", FULL * 2)
    assert (await store.stats(NAME)).bytes > 60 * PART_BYTES
    await blobs.put("new", FULL * 40)
    assert await store.recount(NAME) == 0
    assert await blobs.get("new") is not None


async def test_a_deadline_is_kept(store: Store) -> None:
    """`KEEP` keeps a deadline and keeps none, unless the policy requires one."""
    blobs = store.blobs("p")
    assert (await blobs.put("b", b"x", ttl=holdfast.KEEP)).expires_at is None
    assert (await blobs.put("b", b"y", ttl=holdfast.KEEP)).expires_at is None
    await store.set_policy(NAME, {"ttl_required": True})
    with refusal(ValidationError, field="ttl"):
        await blobs.put("b", b"z", ttl=holdfast.KEEP)
    assert (await blobs.put("b", b"z", ttl=5)).expires_at is not None


async def test_size_beyond_the_limit_is_refused(store: Store) -> None:
    """A size beyond the limit is refused."""
    with refusal(ValueTooLarge, field="size"):
        await call(store, "commit", key="b", upload=1, size=MAX_BLOB_BYTES + 1, checksum="0" * 64)
    with refusal(ValidationError, field="size"):
        await call(store, "commit", key="b", upload=1, size=-1, checksum="0" * 64)


async def test_a_put_stops_at_the_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put of too many bytes is refused as soon as there are too many."""
    monkeypatch.setattr(blob_upload, "MAX_BLOB_BYTES", 2 * PART_BYTES)
    monkeypatch.setattr("holdfast.blobs.fields.MAX_BLOB_BYTES", 2 * PART_BYTES)
    with refusal(ValueTooLarge, field="size"):
        await store.blobs("p").put("b", FULL * 3)
    assert await store.blobs("p").head("b") is None


async def test_a_part_is_sent_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was refused for a moment, or whose outcome is unknown, is sent again a few times."""
    monkeypatch.setattr(blob_upload, "PAUSE", 0)
    execute, failures = (
        store.pipeline.call,
        [holdfast.Busy("a moment", retry_after=0), holdfast.OutcomeUnknown("?")] * 2,
    )

    async def failing(command: Any) -> Any:
        if type(command).__name__ == "PutPart" and failures:
            raise failures.pop()
        return await execute(command)

    monkeypatch.setattr(store.pipeline, "call", failing)
    assert (await store.blobs("p").put("b", FULL + b"x")).size == PART_BYTES + 1
    failures += [holdfast.Busy("for ever", retry_after=0)] * 20
    with refusal(holdfast.Busy, says="for ever"):
        await store.blobs("p").put("b", FULL + b"y")


async def test_a_commit_of_unknown_outcome_keeps_the_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that may be those of a blob by now are left to the sweep."""
    execute, asked = store.pipeline.call, []

    async def failing(command: Any) -> Any:
        asked.append(type(command).__name__)
        if type(command).__name__ == "StoreBlob":
            raise holdfast.OutcomeUnknown("?")
        return await execute(command)

    monkeypatch.setattr(store.pipeline, "call", failing)
    with refusal(holdfast.OutcomeUnknown):
        await store.blobs("p").put("b", FULL + b"x")
    assert "AbortUpload" not in asked


@pytest.mark.parametrize("damage", ["changed", "short", "missing", "swapped"])
async def test_reader_reports_damage(store: Store, damage: str) -> None:
    """A reader never returns bytes that were not put; it says what is wrong."""
    await store.blobs("p").put("b", FULL + FULL[::-1].replace(b"x", b"y") + b"end")
    engine: Any = store._engine
    parts = sorted((at for at in engine._rows if at.space.startswith(PARTS)), key=lambda at: at.key)
    row = engine._rows[parts[1]]
    match damage:
        case "changed":
            engine._rows[parts[1]] = holdfast_row(row, data=b"z" + row.data[1:])
        case "short":
            engine._rows[parts[1]] = holdfast_row(row, data=b"z", value=checksum_of(b"z"))
        case "missing":
            del engine._rows[parts[1]]
        case "swapped":
            engine._rows[parts[0]], engine._rows[parts[1]] = row, engine._rows[parts[0]]
    for start in (0, 1) if damage != "swapped" else (0,):  # a range shows less than the whole
        reader = await store.blobs("p").get("b", start=start)
        assert reader is not None
        with refusal(DatabaseError, field="key", says="missing" if damage == "missing" else "checksum"):
            await reader.read()


def holdfast_row(row: Any, **changed: Any) -> Any:
    """A row with other contents."""
    import msgspec

    return msgspec.structs.replace(row, **changed)


async def test_a_large_blob_is_never_held_whole(tmp_path: Path) -> None:
    """A blob of 32 MB needs less than 12 MB of memory, whether it is put or read."""
    parts = 128
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        blobs = store.blobs("p")
        tracemalloc.start()
        try:
            await blobs.put("b", (FULL[:1] * PART_BYTES for _ in range(parts)))
            reader = await blobs.get("b")
            assert reader is not None
            assert sum([len(piece) async for piece in reader]) == parts * PART_BYTES
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 12_000_000, peak


async def test_unreadable_manifest_or_upload_is_an_error(store: Store) -> None:
    """A manifest or an upload record that was changed from outside is refused by its name."""
    await store.blobs("p").put("b", b"x")
    engine: Any = store._engine
    for at, row in list(engine._rows.items()):
        if at.space == "upload":
            engine._rows[at] = holdfast_row(row, value="nonsense")
    with refusal(DatabaseError, says="upload"):
        await store.blobs("p").put("b", b"y")
    for at, row in list(engine._rows.items()):
        if at.space == "kv":
            engine._rows[at] = holdfast_row(row, value="nonsense")
    with refusal(DatabaseError, field="key", says="manifest"):
        await store.blobs("p").head("b")


async def test_a_reader_that_stops_early_leaves_nothing_running(store: Store) -> None:
    """A reader that is left in the middle cancels what it has begun to read."""
    await store.blobs("p").put("b", FULL * 9)
    reader = await store.blobs("p").get("b")
    assert reader is not None
    before = asyncio.all_tasks()
    pieces = aiter(reader)
    await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]
    assert asyncio.all_tasks() <= before
