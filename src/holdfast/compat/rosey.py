"""The database classes of the Rosey bot, over a Holdfast store. Its programs change only their imports.

`BotDatabase` offers the store's verbs, and SQLAlchemy sessions on the same rows. `DatabaseService` serves
them over NATS and removes expired keys.

Nothing is decided here. A call becomes a verb of the store. This module adds the form of the replies, the
built-in errors that such programs expect, and turns, so that sessions and the store can both write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.util import await_

from holdfast import families, rules, seams
from holdfast.bus.errors import BusError
from holdfast.commands import Command, Set
from holdfast.compat.client import BotConnection, DatabaseClient
from holdfast.decide import Outcome
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.engine import Engine
from holdfast.engines.sql.address import writable
from holdfast.engines.sql.orm import Base, PluginKVStorage, builtin_errors, dumped, sqlite_statement
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import Busy, DatabaseError, HoldfastError, Unavailable, ValidationError
from holdfast.handles.kv import KV
from holdfast.pipeline.caller import Service
from holdfast.registry import backend_for
from holdfast.store import Store
from holdfast.stored import value_of
from holdfast.upkeep.reaper import LONGEST_PAUSE, SLOW_SWEEP
from holdfast.verbs.fields import ttl_field
from holdfast.wire import subjects

__all__ = ["Base", "BotDatabase", "DatabaseClient", "DatabaseService", "PluginKVStorage"]

STORE_PATIENCE: Final = 5.0
"""Seconds after which a write gives up waiting for a session."""
SESSION_PATIENCE: Final = 30.0
"""Seconds after which a session gives up waiting for another session or program."""

_log = logging.getLogger("holdfast.compat")


class BotDatabase:
    """The keys of every plugin, by verbs and by SQLAlchemy sessions.

    `create_tables` opens the store, or else the first call does. An expired entry cannot be read, and stays
    in the table until `kv_cleanup_expired` removes it.

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
        """Return the open store: all that Holdfast can do, with the same keys.

        Raises:
            Unavailable: The store cannot be opened now, or the database has been closed.
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
        """Open the store, creating or migrating its tables if needed, and create the program's own tables.

        Those are the tables of the models that the program has declared on `Base`. A table that exists is
        left as it is.

        Raises:
            Unavailable: The store cannot be opened now, or the database has been closed.

        Example:
            `await db.create_tables()`
        """
        await self.store()
        tables = [table for table in Base.metadata.sorted_tables if not _is_ours(table.name)]
        if tables:
            async with self.engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all, tables=tables)

    async def close(self) -> None:
        """Close the sessions' connections and the store. Accepted writes are finished first."""
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
        """Set a key to a value that `json.dumps` takes. It expires if a ttl is given, by either name.

        Args:
            plugin_name: The plugin that owns the key.
            key: The key, of 1 to 255 characters.
            value: The value, of at most 65,536 bytes as compact JSON.
            ttl_seconds: Whole seconds until the key expires; it does not expire if not given.
            ttl: Another name of `ttl_seconds`.

        Raises:
            ValueError: The value has more than 64 KB in its compact form, or another argument is not valid.
            TypeError: The value has no form in JSON.

        Example:
            `await db.kv_set("trivia", "round", {"number": 1}, ttl_seconds=3600)`
        """
        with _told("set", plugin_name, key), builtin_errors():
            kv = await self._kv(plugin_name)
            seconds = ttl_field({"ttl": ttl, "ttl_seconds": ttl_seconds})
            try:
                command = kv.verbs.command(Set, key=key, value=value, ttl=seconds)
            except ValidationError:
                command = kv.verbs.command(Set, key=key, value=dumped(value), ttl=seconds)
            await kv.store.call(command)
        _log.debug("KV set: plugin=%s key=%s size=%d", plugin_name, shown_key(key), command.size)

    async def kv_get(self, plugin_name: str, key: str) -> dict[str, Any]:
        """Return `{"exists": True, "value": …}`, or `{"exists": False}` if the key is absent or expired.

        A stored value that cannot be read counts as absent and is logged as an error.

        Args:
            plugin_name: The plugin that owns the key.
            key: The key.

        Raises:
            ValueError: An argument is not valid.

        Example:
            `found = await db.kv_get("trivia", "round")`
        """
        with _told("get", plugin_name, key):
            with builtin_errors():
                kv = await self._kv(plugin_name)
                key = kv.verbs.key(key)
            row, _ = await kv.store.get_at(kv.namespace, key)
        hit = "false" if row is None else "true"
        _log.debug("KV get: plugin=%s key=%s hit=%s", plugin_name, shown_key(key), hit)
        if row is None:
            return {"exists": False}
        try:
            return {"exists": True, "value": value_of(key, row)}
        except DatabaseError as error:
            _log.error("KV get failed: plugin=%s key=%s: %s", plugin_name, shown_key(key), error.message)
            return {"exists": False}

    async def kv_delete(self, plugin_name: str, key: str) -> bool:
        """Remove a key. Returns True if it was there.

        Args:
            plugin_name: The plugin that owns the key.
            key: The key.

        Raises:
            ValueError: An argument is not valid.

        Example:
            `await db.kv_delete("trivia", "round")`
        """
        with _told("delete", plugin_name, key), builtin_errors():
            deleted = await (await self._kv(plugin_name)).delete(key)
        said = "true" if deleted else "false"
        _log.debug("KV delete: plugin=%s key=%s deleted=%s", plugin_name, shown_key(key), said)
        return deleted

    async def kv_list(self, plugin_name: str, prefix: str = "", limit: int = 1000) -> dict[str, Any]:
        """Return `{"keys": […], "count": …, "truncated": …}`: the first `limit` keys, in byte order.

        Args:
            plugin_name: The plugin that owns the keys.
            prefix: The beginning of the keys; all keys if not given.
            limit: The largest number of keys to return.

        Raises:
            ValueError: An argument is not valid; a limit is from 1 to 10,000.

        Example:
            `found = await db.kv_list("trivia", prefix="round:", limit=100)`
        """
        with _told("list", plugin_name, prefix), builtin_errors():
            kv = await self._kv(plugin_name)
            page = await kv.list(prefix, limit=limit)
            keys = page.keys
            while page.truncated and len(keys) < limit:
                page = await kv.list(prefix, limit=limit - len(keys), cursor=page.cursor)
                keys += page.keys
        _log.debug("KV list: plugin=%s prefix=%s count=%d", plugin_name, shown_key(prefix), len(keys))
        return {"keys": keys, "count": len(keys), "truncated": page.truncated}

    async def kv_cleanup_expired(self) -> int:
        """Remove expired keys of every plugin, and outdated records. Returns the number of keys removed.

        Example:
            `removed = await db.kv_cleanup_expired()`
        """
        store = await self.store()
        removed = await store.sweep()
        await store.upkeep()
        return removed

    async def _kv(self, plugin_name: str) -> KV:
        store = await self.store()
        namespace = families.plain(rules.plugin_name(plugin_name))
        return KV(store.caller, store.caller.verbs(namespace, writer=plugin_name))

    async def _open(self) -> Store:
        store = Store(self._storage, reap=False)
        try:
            await store.start()
        except BaseException:
            self._storage = self._new_storage()  # an engine can't be started a second time
            await store.aclose()
            raise
        return store

    def _new_storage(self) -> Engine | Service:
        with builtin_errors():
            engine = backend_for(self._url)
        if isinstance(engine, SqliteEngine):
            return SharedFile(engine.path if engine.capabilities.durable else None, self._turns)
        return engine

    def _sessions_engine(self) -> AsyncEngine:
        scheme, _, rest = str(self._url).partition("://")
        if isinstance(self._storage, SharedFile):
            engine = create_async_engine(
                URL.create("sqlite+aiosqlite", database=str(self._storage.path)),
                # A session's transaction locks the whole file, so a second connection would only wait.
                pool_size=1,
                max_overflow=0,
                pool_timeout=SESSION_PATIENCE,
                connect_args={"timeout": SESSION_PATIENCE, "isolation_level": None},
            )
            self._turns.share(engine)
            event.listen(engine.sync_engine, "before_cursor_execute", _in_our_time, retval=True)
        elif scheme.partition("+")[0] == "postgresql":
            # The driver gets the address unchanged, because SQLAlchemy reads some parameters differently.
            engine = create_async_engine(
                "postgresql+asyncpg://", connect_args={"dsn": writable(f"postgresql://{rest}")}
            )
        else:
            raise ValueError(f"the database must be in SQLite or PostgreSQL, not at a {scheme}:// address")
        event.listen(engine.sync_engine, "do_connect", self._connecting)
        return engine

    def _connecting(self, dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
        """Make sure that the tables exist and that this process may write to them."""
        await_(self._ready())
        if isinstance(self._storage, SharedFile):
            arguments[0] = str(self._storage.path)

    async def _ready(self) -> None:
        await (await self.store()).ready()


class DatabaseService:
    """Serves a database over NATS, at every prefix and in every dialect, and removes expired keys.

    Args:
        db: The database. Its owner closes it.
        nats_url: The URL of the NATS server.
        cleanup_interval_seconds: Interval in seconds at which expired keys are removed.
    """

    def __init__(self, db: BotDatabase, nats_url: str, cleanup_interval_seconds: float = 300) -> None:
        self.db = db
        self.nats_url = nats_url
        self.cleanup_interval_seconds = cleanup_interval_seconds
        self.logger: logging.Logger = _log
        self.nc: BotConnection | None = None
        self._service: NatsService | None = None
        self._cleanup_task: asyncio.Task[None] | None = None
        self._shutdown = False

    async def start(self) -> None:
        """Connect, and start serving and cleaning up.

        Raises:
            ConnectionError: No NATS server can be reached, or it refuses this user.
            Unavailable: The store cannot be opened.
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
        """Answer all accepted requests, then stop. The database stays open. A second call does no harm."""
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
        began = seams.monotonic()
        removed = await self.db.kv_cleanup_expired()
        seconds = seams.monotonic() - began
        level = logging.WARNING if seconds > SLOW_SWEEP else logging.INFO if removed else logging.DEBUG
        self.logger.log(level, "cleaning up removed %d expired keys in %.0f ms", removed, seconds * 1000)

    def _extract_plugin_name(self, subject: str) -> str | None:
        """Return the plugin in one of our subjects that has a plugin and a verb; None for any other."""
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
    """The right to write to a file, given to the store and the sessions in order of arrival.

    SQLite's own lock is not fair. A store that finds the file changed every time it tries to commit
    eventually gives up.
    """

    def __init__(self) -> None:
        self.right: asyncio.Lock = asyncio.Lock()
        self._lent = False

    def share(self, engine: AsyncEngine) -> None:
        """Make the sessions of an engine take turns too. The engine must have only one connection."""
        for name, listener in (
            ("connect", _configure),
            ("checkout", lambda *_: await_(self._lend())),
            ("checkin", lambda *_: self._take_back()),
            # A transaction that begins with a read may find, once it writes, that another has written.
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
    """A SQLite file to which sessions write as well."""

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
    """Make `CURRENT_TIMESTAMP` in a statement mean the time in the format of SQLite's columns."""
    _, _, statement, parameters, *_ = given
    return sqlite_statement(statement), parameters


def _is_ours(table: str) -> bool:
    """Return whether a table of the metadata is Holdfast's, which the store creates itself."""
    return table.startswith(("holdfast_", "plugin_kv"))


@contextlib.contextmanager
def _told(verb: str, plugin_name: str, key: str) -> Iterator[None]:
    """Log a call that fails, with its plugin and its key: refusals as warnings, the rest as errors."""
    try:
        yield
    except (ValueError, TypeError) as error:
        _log.warning("KV %s refused: plugin=%s key=%s: %s", verb, plugin_name, shown_key(key), error)
        raise
    except HoldfastError as error:
        place = shown_key(key)
        _log.error("KV %s failed: plugin=%s key=%s error=%s", verb, plugin_name, place, error.code)
        raise


def shown_key(key: object) -> str:
    """Return a key as a log line shows it: as it is, or quoted if it is not one plain word."""
    text = str(key)
    return text if text.isprintable() and " " not in text and text else repr(text)


def _configure(connection: Any, record: Any) -> None:
    """Leave checkpoints to the store's writer: two connections making them at once may corrupt the file.

    The other setting makes the trigger of deletes see a row that `INSERT OR REPLACE` replaces.
    """
    cursor = connection.cursor()
    cursor.execute("PRAGMA wal_autocheckpoint = 0")
    cursor.execute("PRAGMA recursive_triggers = ON")
    cursor.close()
