"""How the cost of a request grows with services on one PostgreSQL, and with nodes of one cluster.

A few cores answer no more requests when more services share them. But if a request costs all services
together no more CPU time than one alone, then each core that is added carries as much as the first. So the
CPU time is what counts here: that of the services, and that of the database or of the servers with the log.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg

from bench.client import Plan, Task, clients
from bench.machine import cpu_seconds
from bench.over_nats import told, turned
from bench.sides import OWN_DURABILITY, PLUGINS, WARM_UP
from tests.edges.running import started_up
from tests.jetstream import servers_running
from tests.nats import nats_server
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from bench.client import Clients
    from bench.run import Run

    Pids = Callable[[], Awaitable[list[int]]]

SERVICES: Final = (1, 2, 4)
NODES: Final = (1, 2, 3)
IN_FLIGHT: Final = 128
"""Requests in flight for each service: who adds services has more callers."""
VERBS: Final = {"get": 1.0, "set": 0.0}
CLUSTER_DURABILITY: Final = "three nats-servers with sync_interval: always; two have each write on disk"


class Fleet:
    """Services that share a store and a bus, and a client of theirs.

    Args:
        client: The client.
        pids: The processes of the services.
    """

    def __init__(self, client: Clients, pids: list[int]) -> None:
        self.client = client
        self.pids = pids


async def services(run: Run) -> None:
    """Gets and sets through 1, 2 and 4 services on PostgreSQL, and through 1, 2 and 3 nodes of a cluster."""
    await _on_postgres(run)
    await _on_cluster(run)


async def _on_postgres(run: Run) -> None:
    run.book.durability["services on PostgreSQL"] = OWN_DURABILITY["holdfast-postgres"]
    with postgres_server() as server:
        connection = await asyncpg.connect(server.dsn)

        async def pids() -> list[int]:
            rows = await connection.fetch("SELECT pid FROM pg_stat_activity")
            return [row["pid"] for row in rows]

        try:
            async with contextlib.AsyncExitStack() as stack:
                fleets = {}
                for count in SERVICES:
                    urls = [server.create_database()] * count
                    fleets[f"{count} on PostgreSQL"] = await stack.enter_async_context(_fleet(urls))
                await _measure(run, "services.postgres", fleets, pids)
        finally:
            await connection.close()


async def _on_cluster(run: Run) -> None:
    run.book.durability["nodes of a cluster"] = CLUSTER_DURABILITY
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        log = await stack.enter_async_context(servers_running(3))

        async def pids() -> list[int]:
            return [server.process.pid for server in log.servers]

        fleets = {}
        for count in NODES:
            name = f"of-{count}"
            urls = [log.url(name, folder / f"{name}-{node}", timeout=60) for node in range(count)]
            fleets[f"{count} in a cluster"] = await stack.enter_async_context(_fleet(urls))
        await _measure(run, "services.cluster", fleets, pids)


@contextlib.asynccontextmanager
async def _fleet(urls: list[str]) -> AsyncIterator[Fleet]:
    """Services with these stores on a bus of their own, filled with keys, for the length of a block."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        bus = await stack.enter_async_context(nats_server())
        pids = []
        for number, url in enumerate(urls):
            service = started_up(folder / str(number), "--nats", bus.url, "--db", url)
            pids.append((await stack.enter_async_context(service)).pid)
        plan = Plan(door="nats", url=bus.url, plugins=PLUGINS)
        client = await stack.enter_async_context(clients(plan))
        await client.work(Task(gets=0, seconds=0, in_flight=64, fill=True))
        await client.work(Task(gets=0.7, seconds=WARM_UP, in_flight=128))
        yield Fleet(client, pids)


async def _measure(run: Run, scenario: str, fleets: dict[str, Fleet], storage: Pids) -> None:
    """Ask each fleet in turn, and note its rate and the CPU time of its parts for each request."""
    for number in run.rounds():
        for verb, gets in VERBS.items():
            name = f"{scenario}.{verb}"
            for side in turned(list(fleets), number):
                fleet = fleets[side]
                before = _used(fleet.pids), _used(await storage())
                in_flight = IN_FLIGHT * len(fleet.pids)
                window = await fleet.client.work(Task(gets=gets, seconds=run.seconds, in_flight=in_flight))
                after = _used(fleet.pids), _used(await storage())
                told(run.book, window, name, side)
                run.book.add(name, side, window.per_second, unit="/s")
                for part, begun, ended in zip(("cpu", "storage-cpu"), before, after, strict=True):
                    each = (ended - begun) * 1e6 / max(1, len(window.latencies))
                    run.book.add(f"{name}.{part}", side, each, unit="µs")


def _used(pids: Iterable[int]) -> float:
    """The seconds of CPU time that these processes have used so far."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # a worker of PostgreSQL has ended since it was listed
            used += cpu_seconds(pid) or 0.0
    return used
