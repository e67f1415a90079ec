"""Statements for a PostgreSQL over connections that are kept, since a new one takes longer than most of them.

Each statement is a transaction of its own. A process has its own connections, in a thread with a loop of
its own, since tests have loops that end with them. A connection that the server has closed is replaced.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Final

import asyncpg

if TYPE_CHECKING:
    from asyncpg import Connection

_GONE: Final = (ConnectionError, asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError)


async def run(url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run a statement, and return the rows that it gives."""
    session = _session(os.getpid())
    work = asyncio.run_coroutine_threadsafe(session.run(url, statement, *parameters), session.loop)
    return await asyncio.wrap_future(work)


def run_now(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement while the thread of the caller waits, and return the rows that it gives."""
    session = _session(os.getpid())
    return asyncio.run_coroutine_threadsafe(session.run(url, statement), session.loop).result()


def execute_now(url: str, statements: str) -> None:
    """Run statements that give no rows while the thread of the caller waits."""
    session = _session(os.getpid())
    asyncio.run_coroutine_threadsafe(session.execute(url, statements), session.loop).result()


@functools.cache
def _session(process: int) -> _Session:
    """The connections of a process; one that was forked has none of them."""
    return _Session()


class _Session:
    """A thread that keeps a connection for each address."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        atexit.register(self._end, os.getpid())

    def _end(self, process: int) -> None:
        """Let go of the connections at the exit of the process that made them."""
        if process == os.getpid():
            for connection in self._connections.values():
                self.loop.call_soon_threadsafe(connection.terminate)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    async def run(self, url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with contextlib.suppress(*_GONE):
            return await self._run(url, statement, *parameters)
        return await self._run(url, statement, *parameters)

    async def execute(self, url: str, statements: str) -> None:
        with contextlib.suppress(*_GONE):
            await (await self._connection(url)).execute(statements)
            return
        await (await self._connection(url)).execute(statements)

    async def _run(self, url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        connection = await self._connection(url)
        return [tuple(row) for row in await connection.fetch(statement, *parameters)]

    async def _connection(self, url: str) -> Connection:
        connection = self._connections.get(url)
        if connection is None or connection.is_closed():
            connection = await asyncpg.connect(url, statement_cache_size=0)
            self._connections[url] = connection
        return connection
