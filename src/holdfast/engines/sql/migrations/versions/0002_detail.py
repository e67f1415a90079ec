"""Records of the journal may say more than their columns do: what a kind of change needs is told as JSON.

Law: a migration that has been released never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for what is there."""
    op.add_column("holdfast_journal", sa.Column("detail", sa.Text))


def downgrade() -> None:
    """Remove the column, with what it holds."""
    op.drop_column("holdfast_journal", "detail")
