"""The database classes of the Rosey bot, over a Holdfast store: its programs run with other import lines.

`BotDatabase` speaks the store's verbs and lends out SQLAlchemy sessions on the same rows; `DatabaseService`
serves them over NATS and cleans up what has expired.

Law: nothing is decided here. A call becomes a verb of the store; what is added is the shape of the answers,
the built-in errors that such programs expect, and turns, so that sessions and the store can both write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.util import await_

from holdfast import rules
from holdfast.bus.errors import BusError
from holdfast.compat.client import DatabaseClient
from holdfast.compat.connection import BotConnection
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.engines.sql.orm import Base, PluginKVStorage, builtin_errors, dumped, sqlite_statement
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import Busy, DatabaseError, HoldfastError, Unavailable, ValidationError
from holdfast.handles.kv import KV
from holdfast.registry import engine_for
from holdfast.store import Store
from holdfast.stored import value_of
from holdfast.upkeep.reaper import LONGEST_PAUSE, SLOW_SWEEP
from holdfast.verbs.fields import ttl_field
from holdfast.wire import subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engine import Engine

__all__ = ["Base", "BotDatabase", "DatabaseClient", "DatabaseService", "PluginKVStorage"]

STORE_PATIENCE: Final = 5.0
"""After how many seconds a write gives up that a session does not let through."""
SESSION_PATIENCE: Final = 30.0
"""After how many seconds a session gives up that another session or program does not let through."""

_log = logging.getLogger("holdfast.compat")


class BotDatabase:
    """The keys of every plugin, by verbs and by SQLAlchemy sessions.

    The store is opened by `create_tables`, or else by whatever is called first. What has expired can't be
    read, and stays in the table until `kv_cleanup_expired` removes it.

    Args:
        url: A file or a database as `holdfast.open` takes it, in SQLite or PostgreSQL.

    Raises:
        ValueError: The URL names neither.
    """

    def __init__(self, url: str | Path) -> None:
        self._url = url
        self._turns = Turns()
        self._storage = self._new_storage()
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._closed = False
        self.engine: AsyncEngine = self._sessions_engine()
        self.session_factory: async_sessionmaker[AsyncSession] = async_sessionmaker(
            self.engine, expire_on_commit=False
        )

    async def store(self) -> Store:
        """The store itself, open: all that Holdfast can do, with the same keys.

        Raises:
            Unavailable: It can't be opened now, or the database has been closed.
        """
        if self._store is not None:
            return self._store
        async with self._opening:
            if self._closed:
                raise Unavailable("the database has been closed")
            if self._store is None:
                self._store = await self._open()
            return self._store

    async def create_tables(self) -> None:
        """Open the store, making or migrating its tables where that is needed."""
        await self.store()

    async def close(self) -> None:
        """Close the sessions' connections and the store; what was accepted is finished first."""
        self._closed = True
        await self.engine.dispose()
        async with self._opening:
            store, self._store = self._store, None
        if store is not None:
            await store.aclose()

    async def kv_set(
        self,
        plugin_name: str,
        key: str,
        value: Any,
        ttl_seconds: int | None = None,
        ttl: int | None = None,
    ) -> None:
        """Put what `json.dumps` takes; it is gone after so many seconds if a ttl is given by either name.

        Raises:
            ValueError: The value has more than 64 KB in its compact form, or another argument is not legal.
            TypeError: The value has no form in JSON.
        """
        with builtin_errors():
            kv = await self._kv(plugin_name)
            seconds = ttl_field({"ttl": ttl, "ttl_seconds": ttl_seconds})
            try:
                command = kv.verbs.set(key, value, ttl=seconds)
            except ValidationError:
                command = kv.verbs.set(key, dumped(value), ttl=seconds)
            await kv.store.execute(command)

    async def kv_get(self, plugin_name: str, key: str) -> dict[str, Any]:
        """`{"exists": True, "value": …}`, or `{"exists": False}` if the key is not there or has expired.

        A stored value that can't be read does not exist either; that is logged as an error.

        Raises:
            ValueError: An argument is not legal.
        """
        with builtin_errors():
            kv = await self._kv(plugin_name)
            key = kv.verbs.key(key)
        row, _ = await kv.store.get_at(kv.namespace, key)
        if row is None:
            return {"exists": False}
        try:
            return {"exists": True, "value": value_of(key, row)}
        except DatabaseError as error:
            _log.error("plugin %s: %s", plugin_name, error.message)
            return {"exists": False}

    async def kv_delete(self, plugin_name: str, key: str) -> bool:
        """Remove a key; whether it was there.

        Raises:
            ValueError: An argument is not legal.
        """
        with builtin_errors():
            return await (await self._kv(plugin_name)).delete(key)

    async def kv_list(self, plugin_name: str, prefix: str = "", limit: int = 1000) -> dict[str, Any]:
        """`{"keys": […], "count": …, "truncated": …}`: the first `limit` keys, in the order of their bytes.

        Raises:
            ValueError: An argument is not legal; a limit is from 1 to 10,000.
        """
        with builtin_errors():
            kv = await self._kv(plugin_name)
            page = await kv.list(prefix, limit=limit)
            keys = page.keys
            while page.truncated and len(keys) < limit:
                page = await kv.list(prefix, limit=limit - len(keys), cursor=page.cursor)
                keys += page.keys
        return {"keys": keys, "count": len(keys), "truncated": page.truncated}

    async def kv_cleanup_expired(self) -> int:
        """Remove what has expired, of every plugin, and records kept long enough; how many keys that was."""
        store = await self.store()
        removed = await store.sweep()
        await store.upkeep()
        return removed

    async def _kv(self, plugin_name: str) -> KV:
        store = await self.store()
        namespace = f"kv/{rules.plugin_name(plugin_name)}"
        return KV(store, store.verbs(namespace, writer=plugin_name))

    async def _open(self) -> Store:
        store = Store(self._storage, reap=False)
        try:
            await store.start()
        except BaseException:
            self._storage = self._new_storage()  # this one can't be started again
            await store.aclose()
            raise
        return store

    def _new_storage(self) -> Engine:
        with builtin_errors():
            found = engine_for(self._url)
        if isinstance(found, SqliteEngine):
            return SharedFile(found.path if found.capabilities.durable else None, self._turns)
        return found

    def _sessions_engine(self) -> AsyncEngine:
        scheme, _, rest = str(self._url).partition("://")
        if isinstance(self._storage, SharedFile):
            engine = create_async_engine(
                URL.create("sqlite+aiosqlite", database=str(self._storage.path)),
                # A session's transaction has the file for itself: a second connection would only wait.
                pool_size=1,
                max_overflow=0,
                pool_timeout=SESSION_PATIENCE,
                connect_args={"timeout": SESSION_PATIENCE, "isolation_level": None},
            )
            self._turns.share(engine)
            event.listen(engine.sync_engine, "before_cursor_execute", _in_our_time, retval=True)
        elif scheme.partition("+")[0] == "postgresql":
            # The address goes to the driver as it is: SQLAlchemy reads some of its parameters otherwise.
            engine = create_async_engine(
                "postgresql+asyncpg://", connect_args={"dsn": f"postgresql://{rest}"}
            )
        else:
            raise ValueError(f"the database must be in SQLite or PostgreSQL, not at a {scheme}:// address")
        event.listen(engine.sync_engine, "do_connect", self._connecting)
        return engine

    def _connecting(self, dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
        """See to it that there are tables, and that this process may write to them."""
        await_(self._ready())
        if isinstance(self._storage, SharedFile):
            arguments[0] = str(self._storage.path)

    async def _ready(self) -> None:
        await (await self.store()).ready()


class DatabaseService:
    """Serves a database over NATS, at every prefix and in every dialect, and keeps it clean.

    Args:
        db: The database; closing it is its owner's business.
        nats_url: Where the NATS server is.
        cleanup_interval_seconds: Every how many seconds what has expired is removed.
    """

    def __init__(self, db: BotDatabase, nats_url: str, cleanup_interval_seconds: float = 300) -> None:
        self.db = db
        self.nats_url = nats_url
        self.cleanup_interval_seconds = cleanup_interval_seconds
        self.logger = _log
        self.nc: BotConnection | None = None
        self._service: NatsService | None = None
        self._cleanup_task: asyncio.Task[None] | None = None
        self._shutdown = False

    async def start(self) -> None:
        """Connect, begin to answer, and begin to clean up.

        Raises:
            ConnectionError: No NATS server can be reached, or it does not let this user in.
            Unavailable: The store can't be opened.
        """
        store = await self.db.store()
        self.nc = connection = BotConnection(inbox=subjects.SERVICE_INBOX, on_error=self._complain)
        self._shutdown = False
        try:
            await _reach(connection, self.nats_url)
            self._service = NatsService(store, connection, Settings())
            await self._service.start()
        except BaseException:
            await self.stop()
            raise
        self._cleanup_task = asyncio.create_task(self._kv_cleanup_loop(), name="holdfast cleanup")

    async def stop(self) -> None:
        """Answer all that was taken, and end; twice does no harm. The database stays open."""
        self._shutdown = True
        if self._cleanup_task is not None:
            self._cleanup_task.cancel()
            await asyncio.gather(self._cleanup_task, return_exceptions=True)
        if self._service is not None:
            await self._service.stop()
        if self.nc is not None:
            await self.nc.close()
        self._cleanup_task = self._service = self.nc = None

    async def _kv_cleanup_loop(self) -> None:
        self.logger.info("cleanup of expired keys started; it runs every %g s", self.cleanup_interval_seconds)
        try:
            await self._keep_clean()
        finally:
            self.logger.info("cleanup of expired keys stopped")

    async def _keep_clean(self) -> None:
        await asyncio.sleep(self.cleanup_interval_seconds)
        while not self._shutdown:
            pause = self.cleanup_interval_seconds
            try:
                await self._clean_up()
            except Exception as error:
                self.logger.error("cleanup failed; retrying after a pause: %s", error, exc_info=error)
                pause = min(pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _clean_up(self) -> None:
        began = time.monotonic()
        removed = await self.db.kv_cleanup_expired()
        seconds = time.monotonic() - began
        level = logging.WARNING if seconds > SLOW_SWEEP else logging.INFO if removed else logging.DEBUG
        self.logger.log(level, "cleaning up removed %d expired keys in %.0f ms", removed, seconds * 1000)

    def _extract_plugin_name(self, subject: str) -> str | None:
        """The plugin of a subject of ours that has one and a verb; of any other None."""
        for prefix in Settings().prefixes:
            with contextlib.suppress(HoldfastError):
                route = subjects.route(subject, prefix)
                if route.family == "kv" and "." not in route.verb:
                    return route.owner
        return None

    def _complain(self, error: Exception) -> None:
        self.logger.warning("the NATS connection reports: %s", error)


async def _reach(connection: BotConnection, url: str) -> None:
    try:
        await connection.reach(url.split(","))
    except (OSError, BusError) as error:
        raise ConnectionError(f"no NATS server can be reached: {error}") from error


class Turns:
    """The right to write to a file: the store's and the sessions', first come first served.

    SQLite's own lock is not fair, and a store that finds the file changed each time it comes to commit gives
    up in the end.
    """

    def __init__(self) -> None:
        self.right = asyncio.Lock()
        self._lent = False

    def share(self, engine: AsyncEngine) -> None:
        """Have the sessions of an engine that has one connection take turns too."""
        for name, listener in (
            ("connect", _leave_checkpoints),
            ("checkout", lambda *_: await_(self._lend())),
            ("checkin", lambda *_: self._take_back()),
            # A transaction that began by reading could find, when it comes to write, that it is too late.
            ("begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE")),
        ):
            event.listen(engine.sync_engine, name, listener)

    async def _lend(self) -> None:
        await self.right.acquire()
        self._lent = True

    def _take_back(self) -> None:
        if self._lent:
            self._lent = False
            self.right.release()


class SharedFile(SqliteEngine):
    """A file to which sessions write as well."""

    def __init__(self, path: Path | None, turns: Turns) -> None:
        super().__init__(path)
        self._turns = turns

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`."""
        try:
            async with asyncio.timeout(STORE_PATIENCE):
                await self._turns.right.acquire()
        except TimeoutError:
            raise Busy(f"a session has been open for {STORE_PATIENCE:.0f} s: commit or close it") from None
        try:
            return await super().transact(commands, now)
        finally:
            self._turns.right.release()


def _in_our_time(*given: Any) -> tuple[str, Any]:
    """Have a statement's `CURRENT_TIMESTAMP` mean the time as SQLite's columns hold it."""
    _, _, statement, parameters, *_ = given
    return sqlite_statement(statement), parameters


def _leave_checkpoints(connection: Any, record: Any) -> None:
    """Leave them to the store's writer: two connections that do it at once may break the file."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA wal_autocheckpoint = 0")
    cursor.close()
