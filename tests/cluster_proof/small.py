"""A round in small: three nodes in this process, one server, and no faults but the bug that is planted.

One node works until it holds the lease; then the next one begins, while the first one goes on reading.

It uses the clients, the last look and the checkers of the campaign. It goes by what has happened, not by
time, so that a busy machine plays the same round.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

import holdfast
from holdfast.engines.cluster.lease import SHARED_SECONDS
from holdfast.testing import AUDIT_KEY
from tests.cluster import engine_of
from tests.cluster_proof.campaign import judge, registers_of
from tests.cluster_proof.clients import AUDITED, Clients
from tests.cluster_proof.final import Wanted, keep_look

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster_proof.verdict import Figures
    from tests.jetstream import Servers

NODES: Final = 3
MESSAGES: Final = 60
"""By how many messages the log grows in each half of a round at the least."""
LOOK_SECONDS: Final = 0.01
MOST_SECONDS: Final = 60.0


class HandedOver:
    """The first node writes, and then the second one, when it is told; both read on. See `Turns`."""

    def __init__(self) -> None:
        self.whose = 0

    def writes(self, number: int) -> bool:
        """See `Turns.writes`."""
        return number == self.whose

    def reads(self, number: int) -> bool:
        """See `Turns.reads`."""
        return number <= self.whose

    def left(self) -> float:
        """See `Turns.left`."""
        return MOST_SECONDS


async def small_round(servers: Servers, folder: Path, *, seed: int) -> Figures:
    """Play a round and judge it.

    Args:
        servers: The servers.
        folder: An empty folder.
        seed: Decides what the clients ask for.
    """
    name = f"{folder.name[-12:]}-{seed}"
    urls = [servers.url(name, folder / str(number)) for number in range(NODES + 1)]
    async with contextlib.AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(holdfast.open(url, reap=False, audit_key=AUDIT_KEY))
            for url in urls[:NODES]
        ]
        await stores[0].set_policy(f"kv/{AUDITED}", holdfast.Policy(audit=True))
        await asyncio.sleep(SHARED_SECONDS)  # opening wrote messages, after which no lease is granted
        await _played(stores, folder, seed)
        keys = sorted({(one.namespace, one.key) for one in registers_of(folder)})
        await keep_look(Wanted(url=urls[NODES], keys=keys, path=str(folder / "final.json")))
    return await asyncio.to_thread(judge, folder)


async def _played(stores: list[holdfast.Store], folder: Path, seed: int) -> None:
    turns, start = HandedOver(), time.monotonic_ns()
    clients = [
        Clients(
            *(store, folder),
            number=number,
            life=f"{number}-1",
            seed=seed,
            pace=0.005,
            start=start,
            turns=turns,
        )
        for number, store in enumerate(stores)
    ]
    lease = engine_of(stores[0])._shards[0].lease
    log = engine_of(stores[1])._shards[0].replica
    before = log.at.seq
    async with asyncio.TaskGroup() as group:
        for one in clients:
            one.start(group)
        await _until(lambda: log.at.seq - before >= MESSAGES and lease.held())
        turns.whose, handed = 1, log.at.seq
        await _until(lambda: log.at.seq - handed >= MESSAGES and not lease.held())
        for one in clients:
            one.stopping = True
        await stores[0].kv("counters").set("last", 1)
    for one in clients:
        one.close()


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(MOST_SECONDS):
        while not reached():  # noqa: ASYNC110 - clients and leases have no event in common
            await asyncio.sleep(LOOK_SECONDS)
