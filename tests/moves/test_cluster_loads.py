"""Loads into a cluster: who may load, and what a process leaves behind that dies meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.cli.commands.stores import reading, writing
from holdfast.engine.raw import Positioned, Section, StoreInfo
from holdfast.engines.cluster import engine as cluster_engine
from holdfast.engines.cluster import moves
from holdfast.engines.cluster.messages import drop_namespaces, encode_load, loaded_namespaces
from holdfast.moves import transfers
from holdfast.moves.transfers import Ended, StoreTransfer
from holdfast.rows import Row
from tests.cluster import Nodes, at_one_place, engine_of
from tests.jetstream import lasting_servers
from tests.moves.contents import differing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream."""
    with lasting_servers(1) as servers:
        yield servers


@pytest.fixture
async def nodes(server: Servers, tmp_path: Path) -> AsyncIterator[Nodes]:
    """The nodes of a new store."""
    async with AsyncExitStack() as stack:
        yield Nodes(server, tmp_path, stack)


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[holdfast.Store]:
    """A store to copy, with a value in each of eight namespaces."""
    async with holdfast.open(tmp_path / "one.db", reap=False) as store:
        for number in range(8):
            await store.kv(f"p{number}").set("k", 1)
        yield store


def moving_to(stack: AsyncExitStack, engine: Any, url: str) -> Any:
    """A copy to a cluster, to be closed at the end."""
    transfer = StoreTransfer(engine, lambda: writing(url), lambda: reading(url), where="there")
    return stack.enter_async_context(transfer)


async def test_a_following_copy_ends_when_another_process_switches(
    source: holdfast.Store, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that began last goes on alone; the other changes nothing any more, whatever it has read."""
    monkeypatch.setattr(transfers, "INTERVAL", 0.05)
    one, url = str(tmp_path / "one.db"), nodes.url(0, shards=3)
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(reading(one)) for _ in range(2)]
        follower, switcher = [await moving_to(stack, engine, url) for engine in engines]
        await follower.begin(lambda names: None)
        following = asyncio.create_task(follower.follow(asyncio.Event()))
        await source.kv("p0").set("k", 2)
        await switcher.begin(lambda names: None)
        with pytest.raises(Ended) as ended:
            await asyncio.wait_for(following, 60)
        assert not ended.value.complete
        await switcher.switch()
        with pytest.raises(Ended) as ended:
            await follower.step(thorough=True, since={})
        assert ended.value.complete
    assert await differing(one, url) == []
    node = await nodes.open(1)
    assert (await node.kv("p0").set("k", 3)).version == 3


async def test_a_paused_process_loads_nothing_after_a_takeover(nodes: Nodes) -> None:
    """What it had read before another process took over is refused, in every shard."""
    await nodes.open(1, shards=2)
    late = Positioned(("k",), Row(value="1", size=1, version=1, created_at=1, updated_at=1, last_writer="w"))
    async with writing(nodes.url(0)) as one, writing(nodes.url(0)) as two:
        async with one.loading() as loader:
            await loader.remember(StoreInfo(closed="a copy into this store is not complete: by one"))
            await loader.put("kv/p", Section.ENTRIES, [late])
        paused = AsyncExitStack()
        loader = await paused.enter_async_context(one.loading())
        await loader.put("kv/p", Section.ENTRIES, [late])
        async with two.loading() as loader:
            await loader.remember(StoreInfo(closed="a copy into this store is not complete: by two"))
        with pytest.raises(holdfast.Busy):
            await paused.aclose()
        async with two.loading() as loader:
            await loader.remember(StoreInfo())
        for section in (Section.ENTRIES, Section.ROWS):
            with pytest.raises(holdfast.Busy):  # the store is in use
                async with two.loading() as loader:
                    await loader.drop("kv/p", section, [("k",)])
    node = await nodes.open(2)
    assert await node.kv("p").get("k") is not None


async def test_nodes_open_the_shards_that_a_dead_process_left_closed(
    source: holdfast.Store, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy counts as complete, and the nodes open the shards that were left closed."""
    monkeypatch.setattr(cluster_engine, "SETTLE_SECONDS", 0.05)
    one, url = str(tmp_path / "one.db"), nodes.url(0, shards=3)
    async with reading(one) as engine, AsyncExitStack() as stack:
        transfer = await moving_to(stack, engine, url)
        await transfer.begin(lambda names: None)
        await transfer.step()
        whole = moves.publish_facts

        async def first_shard_only(shards: Any, facts: StoreInfo, **options: Any) -> None:
            await whole(shards[:1], facts, **options)

        with monkeypatch.context() as patch:
            patch.setattr(moves, "publish_facts", first_shard_only)
            await transfer.finish()
    stores = [await nodes.open(number) for number in (1, 2)]
    async with asyncio.timeout(30):
        while any(shard.replica.status.closed for shard in engine_of(stores[0])._shards):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    for number in range(8):
        assert (await stores[0].kv(f"p{number}").set("k", 2)).version == 2
    await at_one_place(stores)


async def until_it_stops(node: holdfast.Store) -> None:
    """Ask a node until it says why it can't serve."""
    async with asyncio.timeout(30):
        while True:
            await node.ready()
            await asyncio.sleep(0.02)


async def test_node_stops_at_an_unknown_kind_of_change(nodes: Nodes) -> None:
    """A node that does not know a kind of change stops there and asks to be upgraded."""
    one, two = await nodes.open(1), await nodes.open(2, timeout=1)
    shard = engine_of(one)._shards[0]
    await shard.put(encode_load([("dance", "", "", [])]))
    with pytest.raises(holdfast.Unavailable, match="upgrade this node"):
        await until_it_stops(two)
    assert loaded_namespaces([drop_namespaces(["kv/p"])]) == ["kv/p"]
