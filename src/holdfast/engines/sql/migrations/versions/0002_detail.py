"""The journal's column `detail`: more about a change, as JSON.

A released migration never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty in existing records."""
    op.add_column("holdfast_journal", sa.Column("detail", sa.Text))


def downgrade() -> None:
    """Drop the column, with its data."""
    op.drop_column("holdfast_journal", "detail")
