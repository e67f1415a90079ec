"""On PostgreSQL a program that writes with SQL of its own no longer holds up the store in other namespaces.

A released migration never changes.
"""

from __future__ import annotations

from typing import Final

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TURN: Final = """\
CREATE OR REPLACE FUNCTION holdfast_outside_turn() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
    EXECUTE format('LOCK TABLE %I.holdfast_namespaces IN {} MODE', TG_TABLE_SCHEMA);
    RETURN NULL;
END $holdfast$"""


def upgrade() -> None:
    """Let such a program wait for others of its kind only."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(_TURN.format("SHARE UPDATE EXCLUSIVE"))


def downgrade() -> None:
    """Let it wait for the store too, and the store for it."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(_TURN.format("EXCLUSIVE"))
