"""Alembic's environment: runs the migrations on the connection that `holdfast.engines.sql.migrate` passes in.

Law: on both databases, one transaction covers all steps from one revision to the other. If several processes
migrate the same store, they run one after the other. Nothing here reads settings or opens a connection.
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
# Alembic assumes that SQLite can't roll back DDL. It can, if the transaction begins in time.
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CREATION_LOCK})
    needed(context.get_context().get_current_revision())
    context.run_migrations()
