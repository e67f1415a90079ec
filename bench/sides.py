"""The sides of the comparison over a connection, running together for the length of a run.

Law: each side has servers of its own, its data on disk, and clients in processes of their own. Holdfast is
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
from bench.machine import package
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
    """Where each side listens, and its clients by how many processes they are."""

    urls: dict[str, str] = field(default_factory=dict)
    clients: dict[tuple[str, int], Clients] = field(default_factory=dict)

    def among(self, names: Sequence[str]) -> list[str]:
        """Those of the names that run."""
        return [name for name in names if name in self.urls]


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
            # The same service as that which is asked with bare requests.
            url = sides.urls[HOLDFAST] if name == OWN_CLIENT else await start(name, folder, stack, book)
            if url is not None:
                sides.urls[name] = url
        for name, url in sides.urls.items():
            for count in processes:
                plan = Plan(door=door_of(name), url=url, plugins=PLUGINS)
                sides.clients[name, count] = await stack.enter_async_context(clients(plan, processes=count))
            first = sides.clients[name, processes[0]]
            await first.work(Task(gets=0, seconds=0, in_flight=64, fill=True))
            await first.work(Task(gets=0.7, seconds=WARM_UP, in_flight=32))
        yield sides


async def start(name: str, folder: Path, stack: contextlib.AsyncExitStack, book: Book) -> str | None:
    """Start one side, and say what it is; its address, or None where it can't be had."""
    if name in OWN_DURABILITY:
        book.durability[name] = OWN_DURABILITY[name]
        return await _holdfast(name, folder, stack)
    if name in jetstream.DURABILITY:
        book.durability[name] = jetstream.DURABILITY[name]
        return await stack.enter_async_context(jetstream.jetstream(folder, sync=name == "jetstream-sync"))
    if name == "redis":
        return await _redis(folder, stack, book)
    server = await stack.enter_async_context(nats_server())
    if name in ("echo", "echo again"):
        book.durability[name] = echo.DURABILITY
        await stack.enter_async_context(module("bench.peers.echo", server.url))
    else:
        book.durability[name] = naive.DURABILITY
        book.versions.setdefault("sqlalchemy", package("sqlalchemy"))
        await stack.enter_async_context(module("bench.peers.naive", server.url, str(folder / "naive.db")))
    return server.url


async def _holdfast(name: str, folder: Path, stack: contextlib.AsyncExitStack) -> str:
    arguments: tuple[object, ...] = ()
    if name == "holdfast-postgres":
        server: Server = stack.enter_context(postgres_server())
        arguments = ("--db", server.create_database())
    up = await stack.enter_async_context(started_up(folder / name, *arguments))
    return up.url


async def _redis(folder: Path, stack: contextlib.AsyncExitStack, book: Book) -> str | None:
    if redis.find() is None:
        book.left_out["redis"] = "there is no redis-server here"
        return None
    book.durability["redis"] = redis.DURABILITY
    book.versions |= {"redis-server": redis.version(), "redis-py": package("redis")}
    return await stack.enter_async_context(redis.redis_server(folder))
