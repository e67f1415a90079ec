"""The first schema: plain keys and their view, rows of the other spaces, namespaces, journal and meta.

A released migration never changes. So it defines its tables itself and imports nothing of the schema, which
will change.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_COUNT: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT: Final = sa.TIMESTAMP(timezone=True).with_variant(sa.Integer(), "sqlite")
_NAME: Final = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
_STRICT: Final[dict[str, Any]] = {"sqlite_strict": True, "sqlite_with_rowid": False}

_NOW: Final = {
    "sqlite": "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))",
    "postgresql": "now()",
}
_READABLE: Final = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', plugin_kv_storage.{0} / 1000.0, 'unixepoch') AS {0}",
    "postgresql": (
        """to_char(plugin_kv_storage.{0} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS {0}"""
    ),
}
_KEY: Final = {"sqlite": '"key"', "postgresql": "key"}


def upgrade() -> None:
    """Create the tables and the view."""
    dialect = op.get_context().dialect.name
    _create_plugin_kv_storage(sa.text(_NOW[dialect]))
    _create_rows()
    _create_namespaces()
    _create_journal()
    _create_meta()
    _create_view(dialect)


def downgrade() -> None:
    """Drop the tables and the view, with all data."""
    op.execute("DROP VIEW plugin_kv")
    for table in ("meta", "journal", "namespaces", "rows"):
        op.drop_table(f"holdfast_{table}")
    op.drop_table("plugin_kv_storage")


def _create_plugin_kv_storage(now: sa.TextClause) -> None:
    op.create_table(
        "plugin_kv_storage",
        sa.Column("plugin_name", _NAME, primary_key=True),
        sa.Column("key", _NAME, primary_key=True),
        sa.Column("value_json", sa.Text, nullable=False),
        sa.Column("expires_at", _INSTANT),
        sa.Column("created_at", _INSTANT, server_default=now, nullable=False),
        sa.Column("updated_at", _INSTANT, server_default=now, nullable=False),
        sa.Column("version", _COUNT, server_default=sa.text("0"), nullable=False),
        sa.Column("last_writer", sa.Text, server_default="external", nullable=False),
        sa.Column("semantics", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("spec_ref", sa.Text),
        **_STRICT,
    )
    _create_deadline_index("idx_kv_expires_at", "plugin_kv_storage", ["expires_at"])


def _create_rows() -> None:
    op.create_table(
        "holdfast_rows",
        sa.Column("namespace", _NAME, primary_key=True),
        sa.Column("space", _NAME, primary_key=True),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("expires_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("updated_at", _INSTANT, nullable=False),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("last_writer", sa.Text, nullable=False),
        sa.Column("semantics", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("spec_ref", sa.Text),
        **_STRICT,
    )
    _create_deadline_index("idx_rows_expires_at", "holdfast_rows", ["namespace", "space", "expires_at"])


def _create_deadline_index(name: str, table: str, columns: list[str]) -> None:
    held = sa.text("expires_at IS NOT NULL")
    op.create_index(name, table, columns, sqlite_where=held, postgresql_where=held)


def _create_namespaces() -> None:
    op.create_table(
        "holdfast_namespaces",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("revision", _COUNT, nullable=False),
        sa.Column("keys", _COUNT, nullable=False),
        sa.Column("bytes", _COUNT, nullable=False),
        sa.Column("requests", _COUNT, nullable=False),
        sa.Column("journal_floor", _COUNT, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.Column("policy", sa.Text()),
        postgresql_with={"fillfactor": 20},
        **_STRICT,
    )


def _create_journal() -> None:
    op.create_table(
        "holdfast_journal",
        sa.Column("namespace", _NAME, primary_key=True),
        sa.Column("version", _COUNT, primary_key=True),
        sa.Column("op", sa.Text, nullable=False),
        sa.Column("key", _NAME, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("last_writer", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("purpose", sa.Text),
        sa.Column("lag_ms", _COUNT),
        sa.Column("expired_version", _COUNT),
        **_STRICT,
    )


def _create_meta() -> None:
    op.create_table(
        "holdfast_meta",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        **_STRICT,
    )


def _create_view(dialect: str) -> None:
    readable = _READABLE[dialect].format
    op.execute(
        f"""
        CREATE VIEW plugin_kv AS SELECT
            plugin_kv_storage.plugin_name,
            plugin_kv_storage.{_KEY[dialect]},
            plugin_kv_storage.value_json,
            {readable("expires_at")},
            {readable("created_at")},
            {readable("updated_at")},
            plugin_kv_storage.version,
            plugin_kv_storage.last_writer,
            plugin_kv_storage.semantics,
            plugin_kv_storage.request_id,
            plugin_kv_storage.spec_ref
        FROM plugin_kv_storage
        """
    )
