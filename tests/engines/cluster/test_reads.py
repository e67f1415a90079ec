"""Reads of a shard: what the holder of the lease tells other nodes, and what they wait for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from holdfast.engines.cluster.shard import ASK_SECONDS
from holdfast.rows import KV, Address
from tests.cluster import at_one_place, engine_of

if TYPE_CHECKING:
    import pytest

    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.messages import Logged
    from holdfast.engines.cluster.shard import Shard
    from holdfast.rows import Row
    from holdfast.store import Store
    from tests.cluster import Nodes

KEY = Address("kv/trivia", KV, "key")


def shard_of(store: Store) -> Shard:
    """The only shard of a node."""
    [shard] = engine_of(store)._shards
    return shard


def shown(store: Store) -> int:
    """The version that a node shows at once, by its lease."""
    [row] = cast("list[Row]", shard_of(store).reads.glance([KEY], 0))
    return row.version


async def test_no_node_reads_less_than_the_holder_has_shown(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the holder may show a message before the node has taken note that it is saved.

    A reader at another node that does not have the message yet waits for it.
    """
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    saved, noted, delivered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    file, follower = shard_of(one).replica.file, shard_of(other).follower
    save, take = file.save, follower._take

    async def noted_late(*given: Any, **named: Any) -> None:
        await save(*given, **named)
        saved.set()
        await noted.wait()

    async def delivered_late(entry: Logged) -> bool:
        await delivered.wait()
        return await take(entry)

    monkeypatch.setattr(file, "save", noted_late)
    follower._take = delivered_late
    write = asyncio.create_task(one.kv("trivia").set("key", 2))
    await saved.wait()
    assert shown(one) == 2
    get = asyncio.create_task(other.kv("trivia").get("key"))
    await asyncio.wait([get], timeout=3 * ASK_SECONDS)
    noted.set()
    delivered.set()
    assert await get == await write


async def test_a_reader_waits_for_what_the_holder_has(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that hears the log late answers only once it has all that the holder of the lease has stored."""
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    delivered, follower = asyncio.Event(), shard_of(other).follower
    take = follower._take

    async def delivered_late(entry: Logged) -> bool:
        await delivered.wait()
        return await take(entry)

    follower._take = delivered_late
    written = await one.kv("trivia").set("key", 2)
    get = asyncio.create_task(other.kv("trivia").get("key"))
    done, _ = await asyncio.wait([get], timeout=3 * ASK_SECONDS)
    assert not done
    delivered.set()
    assert await get == written


async def test_the_holder_replies_only_once_it_has_read_as_far_as_the_asker(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder replies only once it has come as far as the node that asks; until then it says nothing."""
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    engine, replica = engine_of(store), shard_of(store).replica
    index, inbox = engine._address.subject("index", 0), engine._connection.new_inbox()
    replies: asyncio.Queue[Message] = asyncio.Queue()
    engine._connection.listen(inbox, replies.put_nowait)
    told = replica.at.seq
    engine._connection.send(index, str(told + 1).encode(), reply=inbox)
    engine._connection.send(index, b"", reply=inbox)  # an older node does not say how far it is
    async with asyncio.timeout(60):
        assert int((await replies.get()).data) == told
        await store.kv("trivia").set("key", 2)
        engine._connection.send(index, str(told + 1).encode(), reply=inbox)
        assert int((await replies.get()).data) == told + 1


async def test_a_node_without_the_lease_does_not_tell_how_far_the_log_is(nodes: Nodes) -> None:
    """It may lack what the holder has acknowledged, so a reader that asks hears nothing from it."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    for store in (one, other):
        shard_of(store).lease.give_up()
    asker, index = engine_of(one)._connection, engine_of(one)._address.subject("index", 0)
    replies: asyncio.Queue[Message] = asyncio.Queue()
    inbox = asker.new_inbox()
    asker.listen(inbox, replies.put_nowait)
    asker.send(index, b"", reply=inbox)
    for connection in (asker, engine_of(other)._connection, asker):
        await connection.flush()
    assert replies.empty()


async def test_readers_that_come_during_a_round_wait_for_another(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that joined a question which is under way could miss a write that it came after."""
    store = await nodes.open(1)
    reads, rounds, begun, go_on = shard_of(store).reads, 0, asyncio.Event(), asyncio.Event()

    async def counted(least: int = 0) -> bool:
        nonlocal rounds
        rounds += 1
        begun.set()
        await go_on.wait()
        return True

    shard_of(store).lease.see(0, 60_000, wrote=False)  # as if another node held the lease
    monkeypatch.setattr(reads, "_ask_holder", counted)
    first = [asyncio.create_task(reads._confirmed()) for _ in range(2)]
    await begun.wait()
    later = [asyncio.create_task(reads._confirmed()) for _ in range(3)]
    for _ in range(10):  # turns in which another round could begin
        await asyncio.sleep(0)
    assert rounds == 1
    go_on.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*first, *later)
    assert rounds == 2
