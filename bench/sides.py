"""The sides of the comparison over a connection, running together for the length of a run.

Each side has servers of its own, its data on disk, and clients in processes of their own. Holdfast is
`holdfast up` as it comes. Nothing is set for the occasion but where data and ports are.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.book import HOLDFAST, OWN_CLIENT
from bench.client import Clients, Plan, Task, clients
from bench.machine import cpu_seconds, package
from bench.peers import echo, jetstream, naive, redis
from bench.peers.process import module
from tests.edges.running import started_up
from tests.nats import nats_server
from tests.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.book import Book
    from tests.postgres import Server

PLUGINS: Final = [f"plugin{number}" for number in range(10)]
WARM_UP: Final = 0.5
OWN_DURABILITY: Final = {
    HOLDFAST: "SQLite, WAL, synchronous=FULL, with journal; a commit serves all who wait",
    "holdfast-postgres": "PostgreSQL, fsync=on, synchronous_commit=on, with journal",
}
EVERYBODY: Final = (
    HOLDFAST,
    OWN_CLIENT,
    "echo",
    "jetstream",
    "jetstream-sync",
    "redis",
    "naive",
    "holdfast-postgres",
)


@dataclass
class Sides:
    """Where each side listens, its clients by how many processes they are, and the services' processes."""

    urls: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    """The processes of the services written in Python; a server that brings its own bus has none here."""
    clients: dict[tuple[str, int], Clients] = field(default_factory=dict)

    def among(self, names: Sequence[str]) -> list[str]:
        """Those of the names that run."""
        return [name for name in names if name in self.urls]

    def cpu_seconds(self, side: str) -> float | None:
        """The CPU time that a side's service has used, without its bus and its clients, if that is known."""
        pid = self.pids.get(side)
        return None if pid is None else cpu_seconds(pid)


def door_of(side: str) -> str:
    """How a side is asked."""
    others = {OWN_CLIENT: "own", "jetstream": "jetstream", "jetstream-sync": "jetstream", "redis": "redis"}
    return others.get(side, "nats")


@contextlib.asynccontextmanager
async def running(
    names: Sequence[str], book: Book, *, processes: Sequence[int] = (1,)
) -> AsyncIterator[Sides]:
    """Start sides and their clients, and fill each with its keys."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        sides = Sides()
        for name in names:
            if name == OWN_CLIENT:
                sides.urls[name] = sides.urls[HOLDFAST]  # the service that is also asked with bare requests
            else:
                await start(sides, name, folder, stack, book)
        for name, url in sides.urls.items():
            for count in processes:
                plan = Plan(door=door_of(name), url=url, plugins=PLUGINS)
                sides.clients[name, count] = await stack.enter_async_context(clients(plan, processes=count))
            first = sides.clients[name, processes[0]]
            await first.work(Task(gets=0, seconds=0, in_flight=64, fill=True))
            await first.work(Task(gets=0.7, seconds=WARM_UP, in_flight=32))
        yield sides


async def start(sides: Sides, name: str, folder: Path, stack: contextlib.AsyncExitStack, book: Book) -> None:
    """Start one side, and say what it is; one that can't be had here is left out."""
    if name in OWN_DURABILITY:
        book.durability[name] = OWN_DURABILITY[name]
        await _holdfast(sides, name, folder, stack)
    elif name in jetstream.DURABILITY:
        book.durability[name] = jetstream.DURABILITY[name]
        server = jetstream.jetstream(folder, sync=name == "jetstream-sync")
        sides.urls[name] = await stack.enter_async_context(server)
    elif name == "redis":
        if url := await _redis(folder, stack, book):
            sides.urls[name] = url
    else:
        await _python_service(sides, name, folder, stack, book)


async def _holdfast(sides: Sides, name: str, folder: Path, stack: contextlib.AsyncExitStack) -> None:
    arguments: tuple[object, ...] = ()
    if name == "holdfast-postgres":
        server: Server = stack.enter_context(postgres_server())
        arguments = ("--db", server.create_database())
    up = await stack.enter_async_context(started_up(folder / name, *arguments))
    sides.urls[name], sides.pids[name] = up.url, up.pid


async def _python_service(
    sides: Sides, name: str, folder: Path, stack: contextlib.AsyncExitStack, book: Book
) -> None:
    """The echo or the naive service, with a bus of its own."""
    bus = await stack.enter_async_context(nats_server())
    if name in ("echo", "echo again"):
        book.durability[name] = echo.DURABILITY
        service = module("bench.peers.echo", bus.url)
    else:
        book.durability[name] = naive.DURABILITY
        book.versions.setdefault("sqlalchemy", package("sqlalchemy"))
        service = module("bench.peers.naive", bus.url, str(folder / "naive.db"))
    process = await stack.enter_async_context(service)
    sides.urls[name], sides.pids[name] = bus.url, process.pid


async def _redis(folder: Path, stack: contextlib.AsyncExitStack, book: Book) -> str | None:
    if redis.find() is None:
        book.left_out["redis"] = "there is no redis-server here"
        return None
    book.durability["redis"] = redis.DURABILITY
    book.versions |= {"redis-server": redis.version(), "redis-py": package("redis")}
    return await stack.enter_async_context(redis.redis_server(folder))
