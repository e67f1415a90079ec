"""The node that holds the lease: it shows no less than others have shown, and keeps it while others read."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from holdfast.engines.cluster.lease import SHARED_SECONDS
from tests.cluster import Nodes, at_one_place, engine_of
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_the_holder_of_the_lease_never_shows_less_than_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is missing at its writer, which waits for an answer, is not shown by another node."""
    async with servers_running(1) as servers, AsyncExitStack() as stack:
        nodes = Nodes(servers, tmp_path, stack)
        holder, other = await nodes.open(1), await nodes.open(2)
        await asyncio.sleep(SHARED_SECONDS)
        await holder.kv("trivia").set("key", 1)
        await at_one_place([holder, other])
        engine, held = engine_of(holder), asyncio.Event()
        right, take = engine._jetstream.publish, engine._shards[0].replica.take

        async def publish(*args: Any, **options: Any) -> Any:
            ack = await right(*args, **options)
            await held.wait()
            return ack

        async def late(entry: Any) -> bool:
            await held.wait()
            return await take(entry)

        monkeypatch.setattr(engine._jetstream, "publish", publish)
        monkeypatch.setattr(engine._shards[0].replica, "take", late)
        write = asyncio.create_task(holder.kv("trivia").set("key", 2))
        await engine_of(other)._shards[0].replica.reach(engine._shards[0].replica.at.seq + 1)
        reads = [asyncio.create_task(store.kv("trivia").get("key")) for store in (holder, other)]
        await asyncio.wait(reads, timeout=0.05)
        held_by, answered = engine._shards[0].lease.held(), [read.done() for read in reads]
        held.set()
        assert (held_by, answered) == (True, [False, False])
        assert await asyncio.gather(*reads) == [await write] * 2


async def test_a_node_that_only_reads_does_not_end_the_lease_of_the_one_that_writes(tmp_path: Path) -> None:
    """A reader appends an empty message if no node has a lease; the next write grants its writer one."""
    async with servers_running(1) as servers, AsyncExitStack() as stack:
        nodes = Nodes(servers, tmp_path, stack)
        writer, reader = await nodes.open(1), await nodes.open(2)
        shard = engine_of(writer)._shards[0]
        await writer.kv("trivia").set("key", 1)
        shard.lease.give_up()  # as after a message in doubt
        engine_of(reader)._shards[0].lease.make_way()
        before = shard.replica.at
        await reader.kv("trivia").get("key")
        await at_one_place([writer, reader])
        assert shard.replica.at != before
        await writer.kv("trivia").set("key", 2)
        assert shard.lease.held()
