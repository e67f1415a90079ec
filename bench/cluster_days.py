"""Bad days and first days of a cluster: how long no write is answered, and how soon a new node serves.

Three servers on this machine, with all writes synced. Times are of the wall clock, from the fault or the
start to the first answer that a caller gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast
from bench.doors import value
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.lease import SHARED_SECONDS
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.errors import HoldfastError
from tests.cluster import lose_node
from tests.cluster_proof.network import Network
from tests.cluster_proof.servers import ProofServers
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from bench.run import Run
    from tests.jetstream import Servers

ENTRIES: Final = 1_000_000
ITEMS: Final = 1_000
"""The number of entries that one call puts."""
WRITERS: Final = 4
PAUSE_SECONDS: Final = 0.01
FAULTS: Final = 4
"""How often each fault is done in a round."""


async def cluster_failover(run: Run) -> None:
    """The seconds until a write is answered again, after the leading server or the writing node is lost."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        servers = ProofServers(Network(6, apart=False), folder)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(servers.stop)
            await servers.start()
            nodes = [
                await stack.enter_async_context(
                    holdfast.open(servers.url(folder / f"node-{number}"), reap=False)
                )
                for number in range(2)
            ]
            for _ in range(run.count * FAULTS):
                run.book.add("cluster.failover", "leader killed", await _leader(servers, nodes[0]), unit="s")
        async with servers_running(3) as others:
            for number in range(run.count * FAULTS):
                seconds = await _node(others, folder, f"lost-{number}")
                run.book.add("cluster.failover", "node lost", seconds, unit="s")


async def _leader(servers: ProofServers, node: holdfast.Store) -> float:
    await _answered(node)
    leader = await servers.leader()
    await leader.kill()
    seconds = await _answered(node)
    await leader.start()
    return seconds


async def _node(servers: Servers, folder: Path, name: str) -> float:
    """Lose the node that holds the lease, and return when another one writes."""
    urls = [servers.url(name, folder / name / str(number)) for number in range(2)]
    holder = holdfast.open(urls[0], reap=False)
    await holder.start()
    async with holdfast.open(urls[1], reap=False) as other:
        await _answered(other)
        await asyncio.sleep(SHARED_SECONDS)  # for so long nodes grant no lease after a message of another one
        await _answered(holder)
        await lose_node(holder)
        return await _answered(other)


async def _answered(node: holdfast.Store) -> float:
    """Return after how many seconds a write is answered."""
    began = time.perf_counter()
    while True:
        try:
            await node.kv("bench").set("key", 1)
        except HoldfastError:
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return time.perf_counter() - began


async def cluster_fresh(run: Run) -> None:
    """The seconds until a node without files serves a store of 1,000,000 entries."""
    scenario = f"cluster.fresh.{ENTRIES}"
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        async with servers_running(3) as servers:
            url = servers.url("fresh", folder / "first", timeout=60, snapshot_every=0)
            async with holdfast.open(url, reap=False) as store:
                await _filled(store)
                found = await _served(servers.url("fresh", folder / "log"))
                run.book.add(f"{scenario}.log", "from the log", found, unit="s")
                async with ClusterOperator(cluster_address(url)) as operator:
                    await operator.snapshot(seconds=120)
                for number in run.rounds():
                    found = await _served(servers.url("fresh", folder / f"node-{number}"))
                    run.book.add(scenario, "from a snapshot", found, unit="s")


async def _filled(store: holdfast.Store) -> None:
    numbers = iter(range(0, ENTRIES, ITEMS))

    async def fill() -> None:
        for start in numbers:
            items = [{"key": _key(number), "value": value(number)} for number in range(start, start + ITEMS)]
            await store.kv("bench").set_many(items)

    await asyncio.gather(*(fill() for _ in range(WRITERS)))


def _key(number: int) -> str:
    return f"key:{number:08}"


async def _served(url: str) -> float:
    began = time.perf_counter()
    async with holdfast.open(url, reap=False) as store:
        entry = await store.kv("bench").get(_key(ENTRIES - 1))
        seconds = time.perf_counter() - began
        assert entry is not None
    return seconds
