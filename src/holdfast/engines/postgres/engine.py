"""The PostgreSQL engine: rows in a database that several processes share.

A group of commands is one transaction of two messages, or of four where other processes write too. Concurrent
reads are batched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from holdfast import families
from holdfast.audit.keyring import Keyring
from holdfast.clock import Reading
from holdfast.commands import Command
from holdfast.decide import Outcome, needs
from holdfast.engine import (
    LATER,
    CannotShareTransaction,
    Capabilities,
    Checkup,
    Due,
    JournalPage,
    JournalQuery,
    Later,
    Scan,
    Scanned,
    Totals,
)
from holdfast.engine.raw import UNFINISHED
from holdfast.engines.postgres import raw, reads
from holdfast.engines.postgres.connections import Connection, Connections
from holdfast.engines.postgres.raw import PostgresLoader, PostgresSnapshot
from holdfast.engines.postgres.reads import Lookups, examined
from holdfast.engines.postgres.setup import prepare
from holdfast.engines.postgres.shared import SharedGroup
from holdfast.engines.postgres.transaction import Group, Marks
from holdfast.errors import Unavailable
from holdfast.model import Policy
from holdfast.rows import Address, Row

__all__ = ["PostgresEngine"]

_FEWEST: Final = 3
SHARED: Final = 128
"""The maximum number of namespaces in one transaction."""


class PostgresEngine:
    """See `holdfast.engine.Engine`.

    Args:
        dsn: The address of the database, in the form that asyncpg accepts.
        connections: The maximum number of connections. A quarter is for reads by address and a quarter for
            other reads, so that neither waits for writes or for the other.
        keys: The keys that sign the audit. Without a key, audited writes are refused.
    """

    capabilities: Capabilities = Capabilities(multi_process=True, lane_per_namespace=True)
    shared = SHARED

    def __init__(self, dsn: str, *, connections: int = 8, keys: Keyring | None = None) -> None:
        if connections < _FEWEST:
            raise ValueError(f"the engine needs at least {_FEWEST} connections")
        reading = max(1, connections // 4)
        self._dsn = dsn
        self.keys: Keyring = Keyring() if keys is None else keys
        self._connections = Connections(dsn)
        self._lookups = Lookups(self._connections, reading)
        self._reads = self._connections.share(reading)
        self._writes = self._connections.share(connections - 2 * reading)
        self._marks = Marks()
        self.shares: Callable[[str], bool] = self._marks.together
        self.defaults: Policy | None = None
        self._unfinished_too = False

    async def start(self) -> None:
        """Connect to the server, and create or migrate the store if needed.

        Raises:
            Unavailable: The server can't be reached or refuses the login.
            Unsupported: The server would lose acknowledged writes, or this version can't use the store.
        """
        await self._writes.run(partial(prepare, dsn=self._dsn))
        await self._writes.run(self._require_finished)

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`. Commands of several namespaces share a transaction if they can."""
        wanted = needs(commands)
        if len(wanted.namespaces) > 1:
            if not all(map(families.has_keys, wanted.namespaces)) and any(
                at.namespace not in wanted.namespaces for at in wanted.rows
            ):
                raise CannotShareTransaction  # the lock of a fence is in a namespace that would not be locked
            shared = SharedGroup(commands, wanted, now, self.keys, self.defaults)
            outcome = await self._writes.run(partial(shared.run, marks=self._marks))
            if outcome is None:
                raise CannotShareTransaction
            return outcome
        group = Group(commands, now, self.keys, self.defaults, wanted=wanted)
        return await self._writes.run(partial(group.run, marks=self._marks))

    def glance(self, addresses: Sequence[Address], now: int) -> Later:
        """See `Engine.glance`: every read waits for the server."""
        return LATER

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        return await self._lookups.read(addresses, now) if addresses else []

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`."""
        return await self._reads.run(partial(reads.scan, query=query, now=now))

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """See `Engine.due`."""
        return await self._reads.run(
            partial(reads.due, space=space, now=now, limit=limit, namespace=namespace)
        )

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """See `Engine.falling_due`."""
        return await self._reads.run(partial(reads.falling_due, since=since, until=until, limit=limit))

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        return await self._reads.run(partial(reads.journal, query=query))

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`."""
        return await self._reads.run(partial(reads.totals, now=now, namespace=namespace))

    async def owners(self, space: str) -> list[str]:
        """See `Engine.owners`."""
        return await self._reads.run(partial(reads.owners, space=space))

    async def ready(self) -> None:
        """See `Engine.ready`: a standby accepts no writes, and neither does a closed store.

        Raises:
            Unavailable: The server can't be reached or is a standby, or the store is closed.
        """
        if await self._reads.run(reads.follows_another):
            raise Unavailable("the PostgreSQL server is a standby and accepts no writes")
        await self._reads.run(self._require_open)

    async def examine(self, *, seconds: float | None = None) -> Checkup:
        """See `Movable.examine`. A quick check does nothing: the server takes care of its own pages."""
        if seconds is not None:
            return Checkup(checked="nothing")
        return await self._reads.run(examined)

    def hint(self, namespace: str, ring: Callable[[], None]) -> None:
        """See `SharedStorage.hint`: changes by other processes are found by polling."""

    def figures(self) -> None:
        """Return None: there is no cluster."""

    async def clock(self, ticks: Callable[[], float]) -> Reading:
        """See `SharedStorage.clock`."""
        return await self._reads.run(partial(reads.clock, ticks=ticks))

    async def remembered(self) -> int:
        """See `DurableStorage.remembered`."""
        return await self._reads.run(reads.remembered)

    async def remember(self, now: int) -> int:
        """See `DurableStorage.remember`: this is a separate statement, so that no group waits for it."""
        return await self._reads.run(partial(reads.remember, now=now))

    async def kept_keys(self) -> list[str]:
        """See `DurableStorage.kept_keys`."""
        return await self._reads.run(reads.kept_keys)

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """See `DurableStorage.keep_keys`."""
        return await self._reads.run(partial(reads.keep_keys, names=names, before=before))

    def open_read_only(self) -> None:
        """See `Movable.open_read_only`: there are no files to create."""

    def open_unfinished(self) -> None:
        """See `Movable.open_unfinished`."""
        self._unfinished_too = True

    def snapshot(self) -> AbstractAsyncContextManager[PostgresSnapshot]:
        """See `Movable.snapshot`."""
        return raw.snapshot(self._connections)

    def loading(self) -> AbstractAsyncContextManager[PostgresLoader]:
        """See `Movable.loading`."""
        return raw.loading(self._connections)

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """See `Movable.close_to_writes`."""
        await raw.close_to_writes(self._connections, reason, instead_of)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        await self._connections.aclose()

    async def _require_finished(self, connection: Connection) -> None:
        """Refuse to open a store into which a copy is under way.

        Raises:
            Unavailable: The copy is not complete.
        """
        closed = await self._closed(connection)
        if closed is not None and closed.startswith(UNFINISHED):
            raise Unavailable(f"this PostgreSQL database can't be used yet: {closed}")

    async def _require_open(self, connection: Connection) -> None:
        """Refuse a store that accepts no writes.

        Raises:
            Unavailable: The store is closed.
        """
        closed = await self._closed(connection)
        if closed is not None:
            raise Unavailable(f"this PostgreSQL database accepts no writes: {closed}")

    async def _closed(self, connection: Connection) -> str | None:
        """Return the reason why the store is closed; None if it is open, or was opened to be loaded."""
        if self._unfinished_too:
            return None
        return await raw.closed_at(connection)
