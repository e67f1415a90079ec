"""The table of the parts of blobs.

A released migration never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TEXT as POSTGRESQL_TEXT

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(POSTGRESQL_TEXT(collation="C"), "postgresql")
_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.TIMESTAMP(timezone=True).with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "holdfast_parts",
        sa.Column("namespace", _NAME, primary_key=True),
        sa.Column("space", _NAME, primary_key=True),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("updated_at", _INSTANT, nullable=False),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("last_writer", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sqlite_strict=True,
    )


def downgrade() -> None:
    """Drop the table, with all blobs and the records that only blobs have."""
    op.execute("DELETE FROM plugin_kv_storage WHERE plugin_name LIKE 'blob/%'")
    op.execute("DELETE FROM holdfast_rows WHERE namespace LIKE 'blob/%'")
    op.execute("DELETE FROM holdfast_journal WHERE namespace LIKE 'blob/%'")
    op.execute("DELETE FROM holdfast_namespaces WHERE name LIKE 'blob/%'")
    op.drop_table("holdfast_parts")
