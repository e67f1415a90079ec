"""Connections that are opened when first wanted and then kept: work is brought to them.

Law: whoever has work gets a connection that is clean, and gives it back clean; after any failure it is closed
instead. Work runs in tasks that belong to this module, so that a caller who gives up leaves nothing half done
behind. No SQL of the store stands here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import asyncpg

from holdfast.engines.postgres.errors import DRIVER_ERRORS, is_lost, server, translate, unreachable
from holdfast.errors import Unavailable, Unsupported, ValidationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 30.0
"""How long to wait for a server that has gone silent; longer than any lock is waited for."""
_OLDEST: Final = 14
"""Since then `extract` is exact."""

_SETTINGS: Final = {
    "application_name": "holdfast",
    "synchronous_commit": "on",
    "timezone": "UTC",
    # A statement outside of a transaction goes by these, whatever the database or the user has been given.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    # A process that stops while it holds a namespace must not stop the others for good.
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "15s",
    # Every statement here is served by an index, whatever the statistics say: a plan that was made while a
    # table was small is kept, and must still be right when it has grown.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}


class Connections:
    """The connections to one database. How many there are at once is up to the shares."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def share(self, width: int) -> Share:
        """A right to `width` connections at a time, which nobody else can use up."""
        return Share(self, width)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in a task that `aclose` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def check_open(self) -> None:
        """Refuse new work once the end has begun."""
        if self._closed:
            raise Unavailable("the store is closed")

    async def use(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work on a connection.

        One that was kept may have died unnoticed. Work that fails for that is done again on a new one, which
        is safe: an error of the driver's own means that nothing has been written.
        """
        kept = self._take()
        try:
            if kept is not None:
                try:
                    return await self._on(kept, work)
                except DRIVER_ERRORS as error:
                    if not is_lost(error):
                        raise
            return await self._on(await self._open(), work)
        except DRIVER_ERRORS as error:
            raise translate(error) from error

    async def aclose(self) -> None:
        """Finish what has been accepted, then close what is open."""
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

    async def _on(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            result = await work(connection)
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)
        return result

    async def _open(self) -> Connection:
        try:
            connection: Connection = await asyncpg.connect(
                self._dsn,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                max_cached_statement_lifetime=0,
                server_settings=_SETTINGS,
            )
        except (*DRIVER_ERRORS, ValueError) as error:
            trouble = unreachable(error, self._dsn)
            raise trouble from None if isinstance(trouble, ValidationError) else error
        try:
            await self._inspect(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _inspect(self, connection: Connection) -> None:
        """Refuse a server that can't keep what the store promises."""
        where = f"PostgreSQL at {server(self._dsn)}"
        version = connection.get_server_version().major
        if version < _OLDEST:
            raise Unsupported(f"{where} has version {version}; Holdfast needs {_OLDEST} or newer")
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise Unsupported(f"{where} keeps this database as {encoding}; Holdfast needs one in UTF8")
        if await connection.fetchval("SHOW fsync") != "on":
            raise Unsupported(
                f"{where} runs with fsync off and would lose acknowledged writes in a crash: turn fsync on"
            )

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Looked at here for callers that are gone; one that waits is told in any case.
            task.exception()


class Share:
    """So many connections at a time, for one kind of work."""

    def __init__(self, connections: Connections, width: int) -> None:
        self._connections = connections
        self._room = asyncio.Semaphore(width)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work on a connection; once begun it is finished, also when the caller is cancelled."""
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
