"""The connection pool: connections are opened on demand and reused.

Law: work receives a clean connection and returns it clean; after any failure the connection is closed
instead. Work runs in tasks that this module owns, so that a cancelled caller leaves nothing half done. This
module holds no SQL of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import asyncpg

from holdfast.engines.postgres.dialling import Dialling
from holdfast.engines.postgres.doubts import heed
from holdfast.engines.postgres.errors import DRIVER_ERRORS, is_lost, server, translate, unreachable
from holdfast.engines.sql.address import writable
from holdfast.engines.sql.layout import WRITER_MARK
from holdfast.errors import Unavailable, Unsupported, ValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 30.0
"""Timeout for a server that has stopped answering; longer than any lock timeout."""
_OLDEST: Final = 14
"""The oldest supported version, the first in which `extract` is exact."""

_SETTINGS: Final = {
    "application_name": WRITER_MARK,
    "synchronous_commit": "on",
    "timezone": "UTC",
    # These govern statements outside a transaction and override the defaults of the database and the user.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    # A process that hangs while it holds a namespace's lock must not block the others forever.
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "15s",
    # Every statement must use an index, whatever the statistics say: plans are cached, and a plan made for a
    # small table must still be right when the table has grown.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}


class Connections:
    """The connections to one database. The shares limit how many are in use at once.

    Args:
        dsn: The address of the database. It may name several servers; the one that accepts writes is used.
    """

    def __init__(self, dsn: str) -> None:
        self._dialling = Dialling(writable(dsn), self._dial)
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def share(self, width: int) -> Share:
        """Reserve `width` concurrent connections that other shares can't use."""
        return Share(self, width)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work in a task that `aclose` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def check_open(self) -> None:
        """Refuse new work once closing has begun.

        Raises:
            Unavailable: The store is closed.
        """
        if self._closed:
            raise Unavailable("the store is closed")

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection.

        A reused connection may have died unnoticed, or its server may accept no writes any more. Work that
        fails for that reason is retried on a new connection, and the other idle ones, which lead to the same
        server, are closed. This is safe because an error from the driver itself means that nothing was
        written.
        """
        kept = self._take()
        try:
            if kept is not None:
                try:
                    return await self._on(kept, work)
                except DRIVER_ERRORS as error:
                    if not is_lost(error):
                        raise
                    self._drop_idle()
            return await self._on(await self._dialling.connection(), work)
        except DRIVER_ERRORS as error:
            raise translate(error) from error

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Lend a connection outside the shares, for long work of an operator. It is closed afterwards."""
        self.check_open()
        connection = await self._dialling.connection()
        try:
            yield connection
        finally:
            connection.terminate()

    async def aclose(self) -> None:
        """Finish accepted work, then close the connections."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=_CONNECT_SECONDS)
            except DRIVER_ERRORS:
                connection.terminate()

    def _take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    async def _on(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            result = await work(connection)
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)
        return result

    async def _dial(self, place: str) -> Connection:
        """Connect to one server, if it accepts writes and suits."""
        try:
            connection: Connection = await asyncpg.connect(
                place,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                max_cached_statement_lifetime=0,
                server_settings=_SETTINGS,
            )
        except (*DRIVER_ERRORS, ValueError) as error:
            trouble = unreachable(error, place)
            raise trouble from None if isinstance(trouble, ValidationError) else error
        try:
            heed(connection)
            await _inspect(connection, f"PostgreSQL at {server(place)}")
        except BaseException as error:
            connection.terminate()
            if isinstance(error, DRIVER_ERRORS):
                raise unreachable(error, place) from error
            raise
        return connection

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Mark the exception as retrieved in case the caller is gone. A waiting caller still receives it.
            task.exception()


class Share:
    """A fixed number of concurrent connections for one kind of work."""

    def __init__(self, connections: Connections, width: int) -> None:
        self._connections = connections
        self._room = asyncio.Semaphore(width)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection. Once started it is finished, even if the caller is cancelled."""
        self._connections.check_open()
        begun = False

        async def finish() -> T:
            nonlocal begun
            async with self._room:
                begun = True
                return await self._connections.use(work)

        task = self._connections.spawn(finish())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not begun:
                task.cancel()
            raise


async def _inspect(connection: Connection, where: str) -> None:
    """Refuse a server that can't uphold the store's guarantees."""
    version = connection.get_server_version().major
    if version < _OLDEST:
        raise Unsupported(f"{where} has version {version}; Holdfast needs {_OLDEST} or newer")
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise Unsupported(f"{where} has this database in {encoding}; Holdfast needs one in UTF8")
    if await connection.fetchval("SHOW fsync") != "on":
        raise Unsupported(
            f"{where} runs with fsync off and would lose acknowledged writes in a crash: turn fsync on"
        )
