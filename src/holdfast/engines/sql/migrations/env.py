"""Alembic's environment: runs the migrations on the connection that `holdfast.engines.sql.migrate` passes in.

A store keeps its revision in a table of its own. An older store keeps it in `alembic_version`, which another
program may want for itself: an upgrade takes the revision out of it, and a downgrade to one of those stores
puts it back, if no other program has moved in. A revision of another program is never touched.

On both databases, one transaction covers all steps from one revision to the other. If several processes
migrate the same store, they run one after the other. Nothing here reads settings or opens a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context
from sqlalchemy import inspect, text

from holdfast.engines.sql.layout import (
    CREATION_LOCK,
    SHARED_REVISIONS,
    SHARED_VERSION_TABLE,
    VERSION_TABLE,
)
from holdfast.engines.sql.migrate import needed

if TYPE_CHECKING:
    from sqlalchemy import Connection


def _take_over(connection: Connection) -> None:
    """Move a store's revision to its own table. The shared table goes, unless it holds other revisions."""
    tables = inspect(connection)
    if tables.has_table(VERSION_TABLE) or not tables.has_table(SHARED_VERSION_TABLE):
        return
    if not tables.has_table("holdfast_namespaces"):
        return
    revisions = connection.scalars(text(f"SELECT version_num FROM {SHARED_VERSION_TABLE}")).all()
    ours = [one for one in revisions if one in SHARED_REVISIONS]
    if ours:
        _move(connection, ours[0], SHARED_VERSION_TABLE, VERSION_TABLE)


def _hand_back(connection: Connection, found: str | None) -> None:
    """Put the revision of an older store where an older Holdfast looks for it."""
    if found not in SHARED_REVISIONS:
        return
    tables = inspect(connection)
    if tables.has_table(SHARED_VERSION_TABLE):
        count = connection.scalar(text(f"SELECT count(*) FROM {SHARED_VERSION_TABLE}"))
        if count:
            return
    _move(connection, found, VERSION_TABLE, SHARED_VERSION_TABLE)


def _move(connection: Connection, found: str, source: str, target: str) -> None:
    connection.execute(
        text(
            f"CREATE TABLE IF NOT EXISTS {target} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {target}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text(f"INSERT INTO {target} (version_num) VALUES (:found)"), {"found": found})
    connection.execute(text(f"DELETE FROM {source} WHERE version_num = :found"), {"found": found})
    if not connection.scalar(text(f"SELECT count(*) FROM {source}")):
        connection.execute(text(f"DROP TABLE {source}"))


connection: Connection = context.config.attributes["connection"]
# Alembic assumes that SQLite can't roll back DDL. It can, if the transaction begins in time.
context.configure(connection=connection, transactional_ddl=True, version_table=VERSION_TABLE)
with context.begin_transaction():
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CREATION_LOCK})
    _take_over(connection)
    needed(context.get_context().get_current_revision())
    context.run_migrations()
    _hand_back(connection, context.get_context().get_current_revision())
