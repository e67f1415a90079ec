"""Snapshots and the log behind them: what is kept, what is removed, and what a node begins with."""

from __future__ import annotations

import asyncio
import base64
import secrets
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.engines.cluster import log, reports
from holdfast.engines.cluster import snapshots as snapshots_module
from holdfast.engines.cluster.replica import kept_place
from holdfast.engines.cluster.snapshots import KEPT
from holdfast.errors import Busy, DatabaseError, Unavailable
from tests.cluster import at_one_place, engine_of
from tests.engines.cluster.test_shard import follow_past_a_gap, shard_of, stop_following, value_of

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engines.cluster.snapshots import SnapshotMaker
    from holdfast.store import Store
    from tests.cluster import Nodes


@pytest.fixture(autouse=True)
def close_trimming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no more of the log than is needed, and do not wait long for nodes that do not answer."""

    async def trim(*given: Any, needed: int) -> int:
        return await log.trim(*given, needed=needed, margin=0)

    monkeypatch.setattr(snapshots_module, "trim", trim)
    monkeypatch.setattr(reports, "ANSWER_SECONDS", 0.6)


def maker_of(store: Store) -> SnapshotMaker:
    """What makes the snapshots of a node."""
    return engine_of(store).answers._maker


async def first_of(store: Store) -> int:
    """The sequence of the first message that the log still has."""
    engine = engine_of(store)
    told = await engine._jetstream.api(f"STREAM.INFO.{engine._address.stream}", seconds=5)
    assert told["config"].get(log.LIMIT, -1) == -1, "a limit would remove messages later"
    return int(told["state"]["first_seq"])


async def fill(store: Store, count: int) -> None:
    """Write so many messages."""
    for number in range(count):
        await store.kv("trivia").set("key", number)


async def test_the_log_is_not_trimmed_past_the_slowest_node(nodes: Nodes, tmp_path: Path) -> None:
    """A node that is behind, but answers, finds in the log what it needs next and fetches no snapshot."""
    one, slow = await nodes.open(1), await nodes.open(2)
    await fill(one, 3)
    await at_one_place([one, slow])
    shard = shard_of(slow)
    await stop_following(shard)
    for _ in range(KEPT + 1):
        await fill(one, 4)
        await maker_of(one).make([shard_of(one)])
    assert await first_of(one) <= shard.replica.at.seq + 1 < shard_of(one).replica.at.seq
    shard._following = asyncio.create_task(shard._follow())
    await at_one_place([one, slow])
    assert not list((tmp_path / "2").glob("*.replaced"))
    await maker_of(one).make([shard_of(one)])
    assert await first_of(one) > shard.replica.at.seq - 10, "nobody needs the beginning of the log any more"


async def test_the_log_after_the_older_snapshot_stays(nodes: Nodes) -> None:
    """The log is trimmed up to the older snapshot, so that a node that fetched that one can go on."""
    store = await nodes.open(1)
    made = []
    for _ in range(KEPT + 1):
        await fill(store, 4)
        [note], _ = await maker_of(store).make([shard_of(store)])
        made.append(note.seq)
    assert made == sorted(set(made))
    assert [note.seq for note in await engine_of(store)._snapshots.notes(0)] == made[:0:-1]
    assert await first_of(store) == made[1]


async def test_a_shard_without_a_snapshot_keeps_the_whole_log(nodes: Nodes) -> None:
    """Shards share a log. Trimming it needs a snapshot of each."""
    store = await nodes.open(1, shards=2)
    named = {engine_of(store).shard_of(f"kv/plugin-{number}"): f"plugin-{number}" for number in range(20)}
    for number in range(10):
        await store.kv(named[0]).set("key", number)
        await store.kv(named[1]).set("key", number)
    maker = maker_of(store)
    await maker._made(engine_of(store)._shards[1])
    assert await maker._trimmed(2) == 0
    assert await first_of(store) == 1


async def test_trimming_keeps_what_is_needed(nodes: Nodes) -> None:
    """The message at the place that is needed stays, and all after it; the ones before it go."""
    store = await nodes.open(1)
    await fill(store, 10)
    engine, last = engine_of(store), shard_of(store).replica.at.seq
    for needed, margin, first in ((last - 4, 3, last - 7), (last - 4, 0, last - 4), (last, 0, last)):
        assert await log.trim(engine._address, engine._jetstream, needed=needed, margin=margin) > 0
        assert await first_of(store) == first
    assert await log.trim(engine._address, engine._jetstream, needed=1) == 0
    await store.kv("trivia").set("key", "after")
    assert await first_of(store) == last


async def test_a_limit_is_lifted_though_trimming_failed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that stays would remove messages which are needed, so it is lifted whatever has happened."""
    store = await nodes.open(1)
    await fill(store, 5)
    jetstream = engine_of(store)._jetstream
    api = jetstream.api

    async def done_but_not_answered(call: str, body: Any = None, *, seconds: float) -> Any:
        told = await api(call, body, seconds=seconds)
        if "STREAM.UPDATE" in call and body[log.LIMIT] > 0:
            raise TimeoutError
        return told

    monkeypatch.setattr(jetstream, "api", done_but_not_answered)
    with pytest.raises(Unavailable, match="the log can't be trimmed"):
        await log.trim(engine_of(store)._address, jetstream, needed=4, margin=0)
    await first_of(store)


async def test_a_snapshot_names_the_place_of_its_file(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written while the file is copied is not in the snapshot, which does not claim that it is."""
    store = await nodes.open(1)
    await fill(store, 3)
    file = shard_of(store).replica.file
    rescue = file.rescue

    async def copied_while_written(target: str) -> Any:
        rescued = await rescue(target)
        await fill(store, 2)
        return rescued

    monkeypatch.setattr(file, "rescue", copied_while_written)
    [note], _ = await maker_of(store).make([shard_of(store)])
    await engine_of(store)._snapshots.fetch(note, tmp_path / "fetched.db")
    assert kept_place(tmp_path / "fetched.db").seq == note.seq == shard_of(store).replica.at.seq - 2


async def test_a_damaged_file_becomes_no_snapshot(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose file is damaged says so, and the snapshots that there are stay."""
    store = await nodes.open(1)
    await fill(store, 3)
    await maker_of(store).make([shard_of(store)])
    before = await engine_of(store)._snapshots.notes(0)
    file = shard_of(store).replica.file
    rescue = file.rescue

    async def damaged(target: str) -> Any:
        return msgspec.structs.replace(await rescue(target), trouble="a page is unreadable")

    monkeypatch.setattr(file, "rescue", damaged)
    with pytest.raises(DatabaseError, match="is damaged: a page is unreadable"):
        await maker_of(store).make([shard_of(store)])
    assert await engine_of(store)._snapshots.notes(0) == before
    assert not list((nodes.folder / "1").glob("*.copy*"))


async def test_snapshots_that_are_not_kept_are_removed(nodes: Nodes) -> None:
    """The stream of snapshots holds the parts of those that are kept, and nothing of older ones."""
    store = await nodes.open(1)
    engine = engine_of(store)
    for _ in range(KEPT + 2):
        await fill(store, 2)
        await maker_of(store).make([shard_of(store)])
    body = {"subjects_filter": engine._address.subject("snapshot", "0.*")}
    told = await engine._jetstream.api(f"STREAM.INFO.{engine._snapshots._stream}", body, seconds=5)
    kept = {engine._address.subject("snapshot", f"0.{note.id}") for note in await engine._snapshots.notes(0)}
    assert len(kept) == KEPT
    assert told["state"]["subjects"].keys() == kept


async def test_two_nodes_that_make_a_snapshot_at_once_do_not_lose_each_others(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is refused, and the note of the first one stays."""
    store = await nodes.open(1)
    await fill(store, 2)
    await store.aclose()
    shutil.copy(tmp_path / "1" / "shard-0.db", tmp_path / "copy.db")
    store = await nodes.open(1)
    snapshots = engine_of(store)._snapshots
    replace = snapshots._replace_notes

    async def late(*given: Any) -> None:
        monkeypatch.undo()
        await snapshots.store(tmp_path / "copy.db", shard=0, seq=2, node="first")
        await replace(*given)

    monkeypatch.setattr(snapshots, "_replace_notes", late)
    with pytest.raises(Busy, match="at the same time"):
        await snapshots.store(tmp_path / "copy.db", shard=0, seq=2, node="second")
    assert [note.node for note in await snapshots.notes(0)] == ["first"]


async def test_a_node_begins_with_the_newest_snapshot(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are kept the newer one is fetched: the log may have been trimmed up to the other."""
    one = await nodes.open(1)
    for _ in range(KEPT):
        await fill(one, 3)
        await maker_of(one).make([shard_of(one)])
    newest, *_ = await engine_of(one)._snapshots.notes(0)
    fetched = []
    fetch = engine_of(one)._snapshots.fetch

    async def noted(self: Any, note: Any, target: Any) -> None:
        fetched.append(note)
        await fetch(note, target)

    monkeypatch.setattr("holdfast.engines.cluster.snapshots.Snapshots.fetch", noted)
    monkeypatch.setattr(snapshots_module, "FAR", 1)
    other = await nodes.open(2)
    assert fetched == [newest]
    assert await value_of(other, "key") == 2


def test_the_write_ahead_log_of_a_replaced_file_goes_with_it(tmp_path: Path) -> None:
    """SQLite would apply the log of the old file to the snapshot, so it is moved away beside that file."""
    path, new = tmp_path / "shard-0.db", tmp_path / "fetched"
    new.write_text("new")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).write_text(f"old{suffix}")
    snapshots_module.replace_file(path, new)
    found = {file.name: file.read_text() for file in tmp_path.iterdir()}
    replaced = {f"shard-0.db.replaced{suffix}": f"old{suffix}" for suffix in ("", "-wal", "-shm")}
    assert found == {"shard-0.db": "new", **replaced}


async def test_a_snapshot_of_other_contents_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    """A snapshot whose parts came in order, but are not those of its note, is damaged and not used."""
    store = await nodes.open(1)
    await fill(store, 3)
    [note], _ = await maker_of(store).make([shard_of(store)])
    snapshots = engine_of(store)._snapshots
    wrong = msgspec.structs.replace(note, sha256=base64.b16encode(b"another").decode())
    with pytest.raises(DatabaseError, match=f"snapshot {note.id} of shard 0 is damaged"):
        await snapshots.fetch(wrong, tmp_path / "one.db")
    put = await snapshots._put(f"0.{note.id}", b"x", {"Hf-Part": "1"})
    wrong = msgspec.structs.replace(note, first=put.seq, parts=1)
    with pytest.raises(DatabaseError, match="is damaged: make a new one"):
        await snapshots.fetch(wrong, tmp_path / "two.db")


async def test_a_snapshot_of_which_a_part_was_lost_is_fetched_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is lost with the connection says nothing against the snapshot, which comes whole next."""
    monkeypatch.setattr("holdfast.engines.cluster.shard.RETRY_SECONDS", 0.02)
    monkeypatch.setattr(snapshots_module, "FAR", 0)
    one, other = await nodes.open(1), await nodes.open(2)
    await at_one_place([one, other])
    shard = shard_of(other)
    await stop_following(shard)
    for number in range(20):
        await one.kv("trivia").set(f"key-{number}", secrets.token_hex(6000))
    [note], _ = await maker_of(one).make([shard_of(one)])
    assert note.parts > 1
    snapshots = engine_of(other)._snapshots
    lost: list[Any] = []
    part = snapshots._part

    async def losing(messages: Any) -> Any:
        if not lost:
            lost.append(await part(messages))
        return await part(messages)

    monkeypatch.setattr(snapshots, "_part", losing)
    fetch, refusals = snapshots.fetch, []

    async def noted(*given: Any) -> None:
        try:
            await fetch(*given)
        except Unavailable as error:
            refusals.append(error.message)
            raise

    monkeypatch.setattr(snapshots, "fetch", noted)
    follow_past_a_gap(shard, monkeypatch, times=2)
    async with asyncio.timeout(20):
        await at_one_place([one, other])
    assert [message.rpartition(": ")[2] for message in refusals] == ["its part 1 did not arrive"]
    assert list((nodes.folder / "2").glob("*.replaced"))
