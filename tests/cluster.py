"""What tests do with the nodes of a cluster: lose one, wait until they agree, and compare their files.

It looks behind the store, at files and places in the log, and changes nothing there.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast.engines.cluster import ClusterEngine
from holdfast.testing import AUDIT_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from holdfast.store import Store
    from tests.jetstream import Servers

_OWN = ("clock", "clock_line", "log")
"""What a node keeps for itself in the table of settings. A node may close before the last empty message."""


class Nodes:
    """The nodes of one store, each with a folder of its own."""

    def __init__(self, servers: Servers, folder: Path, stack: AsyncExitStack) -> None:
        self._servers = servers
        self._stack = stack
        self.folder = folder
        self.name = secrets.token_hex(6)

    def url(self, number: int, **options: object) -> str:
        """The address of a node."""
        return self._servers.url(self.name, self.folder / str(number), **options)

    async def open(self, number: int, **options: object) -> Store:
        """Open a node, to be closed at the end."""
        store = holdfast.open(self.url(number, **options), reap=False, audit_key=AUDIT_KEY)
        return await self._stack.enter_async_context(store)


def engine_of(store: Store) -> ClusterEngine:
    """The engine behind a node's store."""
    assert isinstance(store._engine, ClusterEngine)
    return store._engine


async def lose_node(store: Store) -> None:
    """End a node's connection and its tasks, as a crash would: nothing is released, nothing is said."""
    engine = engine_of(store)
    await engine._connection.close()
    for shard in engine._shards:
        shard.lease.give_up()
    await store.aclose()


async def at_one_place(stores: Sequence[Store], seconds: float = 60.0) -> None:
    """Wait until all nodes have applied the same messages."""
    async with asyncio.timeout(seconds):
        while len({_places(store) for store in stores}) > 1:  # noqa: ASYNC110 - they have no event in common
            await asyncio.sleep(0.02)


def _places(store: Store) -> tuple[Any, ...]:
    return tuple(shard.replica.at for shard in engine_of(store)._shards)


def tables(path: Path) -> dict[str, list[Any]]:
    """All rows of all tables of a file, but for what a node keeps for itself."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        found = {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
    finally:
        connection.close()
    found["holdfast_meta"] = [row for row in found["holdfast_meta"] if row[0] not in _OWN]
    return found


def equal(folder: Path, nodes: Sequence[str]) -> None:
    """Assert that the replicas of closed nodes hold the same rows in every table of every shard."""
    first, *others = nodes
    for path in sorted((folder / first).glob("shard-*.db")):
        wanted = tables(path)
        for node in others:
            found = tables(folder / node / path.name)
            for name, rows in wanted.items():
                assert found[name] == rows, f"{name} of {path.name} differs between {first} and {node}"
