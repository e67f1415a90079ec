"""A PostgreSQL database that tests use one after the other, since making one takes longer than most tests.

Law: only emptying it stands here. It goes by the catalogue, so that a new table is emptied too; what names
this life of the storage and the version of its schema stay. Every process keeps a connection for it, since a
new one takes the server longer than emptying does. It has a thread with a loop of its own, since tests have
loops that end with them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from typing import TYPE_CHECKING, Final

import asyncpg

if TYPE_CHECKING:
    from asyncpg import Connection

_EMPTY: Final = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN
        SELECT quote_ident(tablename) FROM pg_tables
        WHERE schemaname = 'public' AND tablename NOT IN ('alembic_version', 'holdfast_meta')
    LOOP
        EXECUTE 'DELETE FROM ' || name;
    END LOOP;
END $$
"""


class _Emptier:
    """A thread that empties databases over connections that it keeps."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def empty(self, url: str) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._empty(url), self._loop))

    async def _empty(self, url: str) -> None:
        connection = self._connections.get(url)
        if connection is None or connection.is_closed():
            connection = self._connections[url] = await asyncpg.connect(url)
        await connection.execute(_EMPTY)


@functools.cache
def _emptier(process: int) -> _Emptier:
    """The emptier of a process; one that was forked does not share it."""
    return _Emptier()


async def empty(url: str) -> None:
    """Remove every row of every table of a store that nobody has open."""
    await _emptier(os.getpid()).empty(url)
