"""A round against a cluster: three servers with JetStream, three nodes that serve, and faults of all of them.

As in `round`. At the end every replica must hold the same rows.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import holdfast
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.errors import HoldfastError
from tests.cluster import at_one_place, equal
from tests.jetstream import servers_running
from tests.linear.checker import judge
from tests.linear.round import SLACK, STALL_SECONDS, Load, Round, last_look
from tests.nats import nats_server
from tests.robustness.serving_process import kill, launch, ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import IO

    from tests.forking import ForkedProcess
    from tests.jetstream import Servers

ClusterFault: TypeAlias = Literal[
    "kill node", "pause node", "kill server", "pause server", "snapshot", "lose replica"
]
CLUSTER_FAULTS: Final[tuple[ClusterFault, ...]] = get_args(ClusterFault)
NODES: Final = 3
TIMEOUT: Final = 2.0
"""After how many seconds a client gives up: less than an election takes, more than a busy machine does."""


class Cluster:
    """Nodes that serve one store, each a process of its own, and the servers that keep its log."""

    def __init__(
        self, servers: Servers, urls: Sequence[str], front: str, log: IO[bytes], pause: tuple[float, float]
    ) -> None:
        self._servers = servers
        self._urls = urls
        self._front = front
        self._log = log
        self._pause = pause
        self._nodes: list[ForkedProcess] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Cluster]:
        """All nodes for the length of a block."""
        try:
            for number in range(NODES):
                self._nodes.append(await self._launch(number))
            yield self
        finally:
            await asyncio.gather(*map(kill, self._nodes))

    async def strike(self, fault: ClusterFault, chance: random.Random) -> None:
        """Do something bad, and mend it."""
        which, seconds = chance.randrange(NODES), chance.uniform(*self._pause)
        if fault == "kill node":
            await kill(self._nodes[which])
            self._nodes[which] = await self._launch(which)
        elif fault == "lose replica":
            await kill(self._nodes[which])
            shutil.rmtree(cluster_address(self._urls[which]).data)
            self._nodes[which] = await self._launch(which)
        elif fault == "snapshot":
            with contextlib.suppress(HoldfastError):
                async with ClusterOperator(cluster_address(self._urls[which])) as operator:
                    await operator.snapshot(seconds=30)
        elif fault == "pause node":
            self._nodes[which].send_signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self._nodes[which].send_signal(signal.SIGCONT)
        elif fault == "kill server":
            self._servers.kill(which)
            await asyncio.sleep(seconds)
            await self._servers.start_again(which)
        else:
            self._servers.halt(which)
            await asyncio.sleep(seconds)
            self._servers.go_on(which)

    async def _launch(self, number: int) -> ForkedProcess:
        process = await launch(self._front, self._urls[number], stderr=self._log.fileno())
        try:
            return await ready(process)
        except BaseException:
            await kill(process)
            raise


async def play_on_cluster(
    *, operations: int, seed: int, faults: Sequence[ClusterFault], pause: tuple[float, float]
) -> Round:
    """Play a round on a new store of three nodes.

    Args:
        operations: How many operations the clients make in all, apart from those that are refused.
        seed: What decides which faults come when, and what the clients ask for.
        faults: What is done, in an order that the seed decides.
        pause: For how many seconds a process is stopped, at the least and at the most.
    """
    chance, began = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-round-") as name:
        folder = Path(name)
        async with servers_running(3) as servers, nats_server() as front:
            urls = [servers.url("linear", folder / f"node-{number}") for number in range(NODES)]
            load = Load(front.url, folder, operations, seed, timeout=TIMEOUT)
            with (folder / "nodes.log").open("ab") as log:
                async with Cluster(servers, urls, front.url, log, pause).running() as cluster:
                    await load.run(cluster, chance.sample(list(faults), len(faults)), chance)
                    history = load.history()
                    async with asyncio.timeout(STALL_SECONDS):
                        history += await last_look(front.url, history)
            await _replicas_are_equal(urls, folder)
    seconds = time.monotonic() - began
    verdict = await asyncio.to_thread(judge, history, slack=SLACK)
    return Round(f"cluster/{NODES}", history, collections.Counter(faults), seconds, verdict)


async def _replicas_are_equal(urls: Sequence[str], folder: Path) -> None:
    """Open every replica once more, let them follow the log to its end, and compare their rows."""
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(holdfast.open(url, reap=False)) for url in urls]
        await at_one_place(stores)
        for store in stores:
            await store.aclose()
    equal(folder, [f"node-{number}" for number in range(NODES)])
