"""Migration of a store from one revision of its schema to another.

`needed` decides whether to migrate, by comparing two strings. Alembic and SQLAlchemy take seconds to
import, so they are imported only for a migration, and never on an event loop's thread. The driver's errors
are raised unchanged, for the engine to translate.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from holdfast import extras, seams
from holdfast.engines.sql.address import writable
from holdfast.engines.sql.layout import KNOWN_REVISIONS, SCHEMA_REVISION
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from sqlalchemy import Connection

    Store = sqlite3.Connection | str | os.PathLike[str]

_ALONE: Final = seams.Lock()
"""Allows one migration at a time in a process: Alembic keeps the running migration in a global variable."""
_PURPOSES: Final = {
    "upgrade": f"the store's schema is older than {SCHEMA_REVISION}, and migrating it",
    "downgrade": "taking a store back to an older schema",
}


class Need(Enum):
    """The action that a store needs before it can be used."""

    NOTHING = "nothing"
    CREATE = "create"
    MIGRATE = "migrate"


def needed(found: str | None) -> Need:
    """Return what a store needs, by its revision (None if there is none).

    Raises:
        Unsupported: The revision is unknown: a newer Holdfast made it.
    """
    if found is None:
        return Need.CREATE
    if found not in KNOWN_REVISIONS:
        raise Unsupported(
            f"the store was written by a newer Holdfast (schema {found}; "
            f"this version knows up to {SCHEMA_REVISION}): upgrade Holdfast"
        )
    return Need.NOTHING if found == SCHEMA_REVISION else Need.MIGRATE


def upgrade_sqlite(store: Store) -> None:
    """Upgrade a SQLite store to the newest schema. On failure the store is unchanged.

    A connection must be outside a transaction. It is left open, with SQLAlchemy's functions `regexp` and
    `floor` added.

    Raises:
        Unsupported: A newer Holdfast made the store, or the extra `migrate` is not installed.
        sqlite3.Error: The database failed.
    """
    _migrate_sqlite(store, "upgrade", "head")


def downgrade_sqlite(store: Store, revision: str = "base") -> None:
    """Downgrade a SQLite store to an older schema, or to an empty database.

    Data that the older schema can't hold is lost. In an empty database the table of revisions remains.

    Raises:
        Unsupported: A newer Holdfast made the store, or the extra `migrate` is not installed.
        sqlite3.Error: The database failed.
    """
    _migrate_sqlite(store, "downgrade", revision)


async def upgrade_postgres(dsn: str) -> None:
    """Upgrade a PostgreSQL store to the newest schema. On failure the store is unchanged.

    Several processes may do so at once. The address has the form that asyncpg accepts.

    Raises:
        Unsupported: A newer Holdfast made the store, or the extra `migrate` is not installed.
    """
    await seams.aside(_migrate_postgres, dsn, "upgrade", "head")


async def downgrade_postgres(dsn: str, revision: str = "base") -> None:
    """Downgrade a PostgreSQL store to an older schema, or to an empty database.

    Data that the older schema can't hold is lost. In an empty database the table of revisions remains.

    Raises:
        Unsupported: A newer Holdfast made the store, or the extra `migrate` is not installed.
    """
    await seams.aside(_migrate_postgres, dsn, "downgrade", revision)


def _migrate_sqlite(store: Store, direction: str, revision: str) -> None:
    with extras.needed("migrate", _PURPOSES[direction]):
        # late: optional driver
        from sqlalchemy import StaticPool, create_engine, event

    with _connected(store) as raw:
        engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # A transaction that begins by reading could fail at its first write, if another one wrote first.
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        with _driver_errors(), engine.connect() as connection:
            _run(connection, direction, revision)


@contextlib.contextmanager
def _connected(store: Store) -> Iterator[sqlite3.Connection]:
    """Yield a connection that begins no transaction by itself: `sqlite3` would begin one too late for DDL."""
    if not isinstance(store, sqlite3.Connection):
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
            yield connection
        return
    settings = store.isolation_level, store.row_factory
    store.isolation_level = store.row_factory = None
    try:
        yield store
    finally:
        store.isolation_level, store.row_factory = settings


def _migrate_postgres(dsn: str, direction: str, revision: str) -> None:
    with extras.needed("migrate", _PURPOSES[direction]):
        # late: optional driver
        from sqlalchemy import NullPool
        from sqlalchemy.ext.asyncio import create_async_engine

    async def migrate() -> None:
        # The address is passed to the driver unchanged: SQLAlchemy interprets some parameters differently.
        engine = create_async_engine(
            "postgresql+asyncpg://", connect_args={"dsn": writable(dsn)}, poolclass=NullPool
        )
        async with engine.connect() as connection:
            await connection.run_sync(_run, direction, revision)

    with _driver_errors():
        asyncio.run(migrate())


def _run(connection: Connection, direction: str, revision: str) -> None:
    with extras.needed("migrate", _PURPOSES[direction]):
        # late: optional driver
        from alembic import command
        from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "holdfast.engines.sql:migrations")
    config.set_main_option("path_separator", "os")
    with _ALONE:
        (command.upgrade if direction == "upgrade" else command.downgrade)(config, revision)


@contextlib.contextmanager
def _driver_errors() -> Iterator[None]:
    # late: optional driver
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        cause: Any = error.driver_exception
        raise cause from error
