"""How rows lie in a relational database: what both SQL engines and the schema agree on.

Law: names and mappings only. This module imports no driver and no SQLAlchemy, since opening a store that is
up to date must not pay for them.
"""

from __future__ import annotations

from typing import Final

KNOWN_REVISIONS: Final = ("0001", "0002", "0003")
"""Every migration there is, the oldest first."""

SCHEMA_REVISION: Final = KNOWN_REVISIONS[-1]
"""The newest migration: what `alembic_version` holds in a store of this version."""

PARTS: Final = (
    *("envelope_bytes", "trash_bytes", "journal_bytes", "letter_bytes"),
    *("request_bytes", "index_bytes", "other_bytes", "audit_bytes"),
)
"""The columns of a namespace's row that say what it keeps beside the keys and values of entries."""

CREATION_LOCK: Final = int.from_bytes(b"holdfast", "big")
"""The advisory lock under which a PostgreSQL store is created or migrated."""

WALK: Final = 1_000
"""How many due entries, whosesoever, a search for those of one namespace that may go in a run looks at."""

OUTSIDE_WRITER: Final = "external"
"""The last writer of a row that was written past Holdfast."""


def plugin_column(namespace: str) -> str:
    """What `plugin_kv_storage.plugin_name` holds: the plugin's name, or for other families all of it."""
    return namespace.removeprefix("kv/")


def namespace_of(plugin_column: str) -> str:
    """The namespace of a row of `plugin_kv_storage`."""
    return plugin_column if "/" in plugin_column else f"kv/{plugin_column}"


def ddl(dialect: str) -> str:
    """The statements that make an empty store, rendered from the schema for `sqlite` or `postgresql`."""
    from importlib import resources

    return (
        resources.files("holdfast.engines.sql").joinpath("ddl", f"{dialect}.sql").read_text(encoding="utf-8")
    )
