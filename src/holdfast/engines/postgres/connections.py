"""The connections to a database: finding the server that accepts writes, and reusing connections to it.

Work receives a clean connection and returns it clean; after any failure the connection is closed instead.
Work runs in tasks that this module owns, so that a cancelled caller leaves nothing half done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakSet

import asyncpg

from holdfast.engines.postgres.errors import DRIVER_ERRORS, is_lost, server, translate, unknown, unreachable
from holdfast.engines.sql.address import one_by_one, writable
from holdfast.engines.sql.layout import WRITER_MARK
from holdfast.errors import HoldfastError, Unavailable, Unsupported, ValidationError

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
LOCK_SECONDS: Final = 10
"""Timeout for a lock that another transaction holds."""
_STATEMENT_SECONDS: Final = 30.0
"""Timeout for a server that has stopped answering; longer than any lock timeout."""
HEAD_START: Final = 1.0
"""Seconds after which the next server is tried although the one before has not answered yet."""
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
    # Otherwise a commit that did not wait for its standby would be acknowledged: see `require_replicated`.
    "client_min_messages": "warning",
    # A process that hangs while it holds a namespace's lock must not block the others forever.
    "lock_timeout": f"{LOCK_SECONDS}s",
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
        self._servers = Servers(writable(dsn), self._dial)
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
            return await self._on(await self._servers.connection(), work)
        except DRIVER_ERRORS as error:
            raise translate(error) from error

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Lend a connection outside the shares, for long work of an operator. It is closed afterwards."""
        self.check_open()
        connection = await self._servers.connection()
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
            connection.add_log_listener(_warned)
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


class Servers:
    """The servers that an address names, the one that was found last in front.

    That one is tried first. If it does not answer within a moment, the next one is tried beside it, so that a
    machine that is gone costs a moment and not the driver's whole timeout. An attempt that is not wanted any
    more is ended.

    Args:
        dsn: The address, which may name several servers.
        dial: Connects to the server of an address, or raises an error of ours that says why it can't be used.
    """

    def __init__(self, dsn: str, dial: Callable[[str], Coroutine[Any, Any, Connection]]) -> None:
        self._places = one_by_one(dsn)
        self._dial = dial

    async def connection(self) -> Connection:
        """Return a connection to a server that accepts writes.

        Raises:
            Unavailable: There is none at the moment. The message says of each server why.
            HoldfastError: An address is not valid, or a server does not suit.
        """
        if len(self._places) == 1:
            return await self._dial(self._places[0])
        waiting = list(self._places)
        trying: dict[asyncio.Task[Connection], str] = {}
        troubles: dict[str, HoldfastError] = {}
        try:
            while waiting or trying:
                if waiting:
                    place = waiting.pop(0)
                    trying[asyncio.create_task(self._dial(place))] = place
                head_start = HEAD_START if waiting else None
                await asyncio.wait(trying, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in trying if task.done()]:
                    try:
                        connection = task.result()
                    except HoldfastError as error:
                        troubles[trying.pop(task)] = error
                        continue
                    self._found(trying.pop(task))
                    return connection
        finally:
            await _ended(trying)
        raise _together([troubles[place] for place in self._places])

    def _found(self, place: str) -> None:
        self._places = [place, *(other for other in self._places if other != place)]


async def _ended(trying: Iterable[asyncio.Task[Connection]]) -> None:
    """End attempts that are not wanted any more, and close what they have opened."""
    for task in trying:
        task.cancel()
    for opened in await asyncio.gather(*trying, return_exceptions=True):
        if not isinstance(opened, BaseException):
            opened.terminate()


def _together(troubles: list[HoldfastError]) -> HoldfastError:
    """Return one error for servers that all failed: the gravest, or all reasons if they may pass."""
    for trouble in troubles:
        if not isinstance(trouble, Unavailable):
            return trouble
    return Unavailable("; ".join(trouble.message for trouble in troubles))


# A commit that waits for a synchronous standby can be told to stop waiting, by `pg_cancel_backend` or a
# timeout. The server then keeps the commit for itself, sends a warning and confirms. If it fails over now,
# the commit is lost, so its caller must not be told that it was kept. Such a warning is recognized by the
# function of the server that sends it, never by its text.

_WAITING_FOR_STANDBY: Final = "SyncRepWaitForLSN"
_doubted: Final[WeakSet[Connection]] = WeakSet()


def require_replicated(connection: Connection) -> None:
    """Check that the server has not stopped waiting for a standby. Call this after each commit.

    Raises:
        OutcomeUnknown: It has: the commit is kept unless another server takes over.
    """
    if _doubted and connection in _doubted:
        raise unknown()


def _warned(connection: Any, message: asyncpg.PostgresLogMessage) -> None:
    # The driver schedules this call before it hands over the answer that follows the warning.
    if getattr(message, "server_source_function", None) == _WAITING_FOR_STANDBY:
        _doubted.add(connection)
