"""How Alembic runs the migrations: on the connection that `holdfast.engines.sql.migrate` hands over.

Law: one transaction holds the whole way from one revision to the other, on both databases, and of several
processes that migrate the same store one goes first. Nothing here reads settings or connects to anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context
from sqlalchemy import text

from holdfast.engines.sql.layout import CREATION_LOCK
from holdfast.engines.sql.migrate import needed

if TYPE_CHECKING:
    from sqlalchemy import Connection


connection: Connection = context.config.attributes["connection"]
# Alembic takes SQLite to be unable to roll back DDL. It is able, if the transaction is begun in time.
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CREATION_LOCK})
    needed(context.get_context().get_current_revision())
    context.run_migrations()
