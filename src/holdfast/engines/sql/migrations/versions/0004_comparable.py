"""Times in the view `plugin_kv` that compare with the database's own CURRENT_TIMESTAMP.

Until now both databases showed times as text with a T and a Z. In SQLite that text sorts after every
CURRENT_TIMESTAMP of the same day, and PostgreSQL does not compare text with a timestamp at all.

A released migration never changes.
"""

from __future__ import annotations

from typing import Final

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COMPARABLE: Final = {
    "sqlite": (
        "replace(strftime('%Y-%m-%d %H:%M:%f', plugin_kv_storage.{0} / 1000.0, 'unixepoch'), '.000', '') "
        "AS {0}"
    ),
    "postgresql": "plugin_kv_storage.{0} AS {0}",
}
_ISO: Final = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', plugin_kv_storage.{0} / 1000.0, 'unixepoch') AS {0}",
    "postgresql": (
        """to_char(plugin_kv_storage.{0} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS {0}"""
    ),
}
_KEY: Final = {"sqlite": '"key"', "postgresql": "key"}

# PostgreSQL can't change the type of a view's column, so the view is dropped. Its owner, and the rights that
# an operator has granted on it, would be dropped with it.
_KEEPING_RIGHTS: Final = """
    DO $$
    DECLARE
        given text;
        rights text[] := (
            SELECT format('ALTER VIEW plugin_kv OWNER TO %I', pg_get_userbyid(relowner)) || ARRAY(
                SELECT format(
                    'GRANT %s ON plugin_kv TO %s%s',
                    privilege_type,
                    CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
                    CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
                )
                FROM aclexplode(relacl) WHERE grantee != relowner
            )
            FROM pg_class WHERE oid = 'plugin_kv'::regclass
        );
    BEGIN
        DROP VIEW plugin_kv;
        {view};
        FOREACH given IN ARRAY rights LOOP EXECUTE given; END LOOP;
    END $$
"""


def upgrade() -> None:
    """Show times as the database itself writes them."""
    _replace_view(_COMPARABLE)


def downgrade() -> None:
    """Show times as ISO 8601 again."""
    _replace_view(_ISO)


def _replace_view(times: dict[str, str]) -> None:
    dialect = op.get_context().dialect.name
    view = _view(times[dialect], dialect)
    if dialect == "postgresql":
        op.execute(_KEEPING_RIGHTS.format(view=view))
    else:
        op.execute("DROP VIEW plugin_kv")
        op.execute(view)


def _view(time: str, dialect: str) -> str:
    return f"""
        CREATE VIEW plugin_kv AS SELECT
            plugin_kv_storage.plugin_name,
            plugin_kv_storage.{_KEY[dialect]},
            plugin_kv_storage.value_json,
            {time.format("expires_at")},
            {time.format("created_at")},
            {time.format("updated_at")},
            plugin_kv_storage.version,
            plugin_kv_storage.last_writer,
            plugin_kv_storage.semantics,
            plugin_kv_storage.request_id,
            plugin_kv_storage.spec_ref
        FROM plugin_kv_storage
    """
