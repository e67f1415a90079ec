"""Size counters in a namespace's row for everything that it keeps, not only its entries.

The upgrade counts existing data once, which reads all rows and records.

A released migration never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OVERHEAD = 128
_SPACES = {
    "trash_bytes": "space = 'trash'",
    "letter_bytes": "space = 'letter'",
    "request_bytes": "space = 'request'",
    "audit_bytes": "space = 'audit'",
    "other_bytes": "space IN ('guard', 'table', 'dropped')",
    "index_bytes": "space LIKE 'index/%'",
}
_PARTS = (
    *("envelope_bytes", "trash_bytes", "journal_bytes", "letter_bytes"),
    *("request_bytes", "index_bytes", "other_bytes", "audit_bytes"),
)
_BYTES = {"sqlite": "length(CAST({} AS BLOB))", "postgresql": "octet_length({})"}
_POSITION = {"sqlite": "instr", "postgresql": "strpos"}


def upgrade() -> None:
    """Add the columns and count existing data."""
    for name in _PARTS:
        op.add_column(
            "holdfast_namespaces",
            sa.Column(name, _COUNT, server_default=sa.text("0"), nullable=False),
        )
    dialect = op.get_context().dialect.name
    size, position = _BYTES[dialect].format, _POSITION[dialect]
    envelope = "length(last_writer) + " + " + ".join(
        f"coalesce(length({text}), 0)" for text in ("request_id", "semantics", "spec_ref")
    )
    weight = f"{_OVERHEAD} + {size('key')} + {size('value')} + {envelope}"
    for name, spaces in _SPACES.items():
        _count(f"SELECT namespace AS owner, sum({weight}) AS width FROM holdfast_rows WHERE {spaces}", name)
    texts = ("key", "last_writer", "request_id", "purpose")
    names = " + ".join(f"coalesce(length({text}), 0)" for text in texts)
    record = f"{_OVERHEAD} + {names} + coalesce({size('detail')}, 0)"
    _count(f"SELECT namespace AS owner, sum({record}) AS width FROM holdfast_journal", "journal_bytes")
    owner = f"CASE WHEN {position}(plugin_name, '/') > 0 THEN plugin_name ELSE 'kv/' || plugin_name END"
    entries = f"SELECT {owner} AS owner, {envelope} AS width FROM plugin_kv_storage WHERE version > 0"
    items = f"SELECT namespace, {envelope} FROM holdfast_rows WHERE space LIKE 'item/%'"
    both = f"SELECT owner, sum(width) AS width FROM ({entries} UNION ALL {items}) AS held"
    _count(both, "envelope_bytes")


def _count(sums: str, name: str) -> None:
    op.execute(
        f"UPDATE holdfast_namespaces SET {name} = counted.width "
        f"FROM ({sums} GROUP BY 1) AS counted WHERE holdfast_namespaces.name = counted.owner"
    )


def downgrade() -> None:
    """Drop the columns."""
    for name in _PARTS:
        op.drop_column("holdfast_namespaces", name)
