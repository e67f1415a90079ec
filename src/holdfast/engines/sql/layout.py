"""The layout of rows in a relational database, which both SQL engines and the schema share.

This module imports no driver and no SQLAlchemy, since opening an up-to-date
store must not pay for them.
"""

from __future__ import annotations

from typing import Final

from holdfast.families import plain

KNOWN_REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""All migrations, oldest first."""

SCHEMA_REVISION: Final = KNOWN_REVISIONS[-1]
"""The newest migration, which `VERSION_TABLE` holds in a store of this version."""

VERSION_TABLE: Final = "holdfast_alembic_version"
"""Alembic's table with the revision of a store."""

SHARED_VERSION_TABLE: Final = "alembic_version"
"""The table that held the revision up to `SHARED_REVISIONS`. It may be that of another program."""

SHARED_REVISIONS: Final = KNOWN_REVISIONS[: KNOWN_REVISIONS.index("0006")]
"""The revisions of stores whose table of revisions had the name that every program's has."""

PARTS: Final = (
    *("envelope_bytes", "trash_bytes", "journal_bytes", "letter_bytes"),
    *("request_bytes", "index_bytes", "other_bytes", "audit_bytes"),
)
"""The columns of a namespace's row that count everything except the keys and values of entries."""

_PLAIN: Final = plain("")

CREATION_LOCK: Final = int.from_bytes(b"holdfast", "big")
"""The advisory lock under which a PostgreSQL store is created or migrated."""

WALK: Final = 1_000
"""The number of due entries, of all namespaces, that a search for one namespace's run examines."""

OUTSIDE_WRITER: Final = "external"
"""The last writer of a row that was written without Holdfast."""

WRITER_MARK: Final = "holdfast"
"""The `application_name` of a store's connections to PostgreSQL, by which triggers know its own writes."""


def plugin_column(namespace: str) -> str:
    """Return a namespace's value of `plugin_kv_storage.plugin_name`.

    It is the plugin's name, or for other families the whole name of the namespace.
    """
    return namespace.removeprefix(_PLAIN)


def namespace_of(plugin_column: str) -> str:
    """Return the namespace of a row of `plugin_kv_storage`."""
    return plugin_column if "/" in plugin_column else plain(plugin_column)


def ddl(dialect: str) -> str:
    """Return the statements that create an empty store, as rendered for `sqlite` or `postgresql`."""
    # late: it takes 5 ms, and only a new store needs it
    from importlib import resources

    return (
        resources.files("holdfast.engines.sql").joinpath("ddl", f"{dialect}.sql").read_text(encoding="utf-8")
    )
