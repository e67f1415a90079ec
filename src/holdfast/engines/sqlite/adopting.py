"""Bringing the rows of another program's table into a store, in a SQLite file; see `engines.sql.adopting`.

Law: looking changes nothing: not the file, its mode, nor anything beside it. The rows are inserted as any
program inserts them, so that the store's triggers give them their versions and count them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Final

from holdfast.engines.sql import adopting
from holdfast.engines.sql.adopting import OLD_TABLE, TABLE, Report
from holdfast.engines.sql.layout import ddl
from holdfast.engines.sqlite.setup import PATIENCE, foreign_table, looking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.engines.sql.adopting import Found, NewRow

_INSERT: Final = (
    f"INSERT INTO {TABLE} (plugin_name, key, value_json, expires_at, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


def adopt(path: Path, *, dry_run: bool) -> Report:
    """Bring the rows of another program's table into a store. The caller holds the right to write."""
    report = Report(place=str(path), dry_run=dry_run)
    if not path.exists():
        return report
    if dry_run:
        with contextlib.closing(looking(path)) as connection:
            found = foreign_table(connection)
            if found is not None:
                report.found = True
                for _ in _rows(connection, TABLE, found, report):
                    pass
        return report
    with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            _bring(connection, report)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return report


def _bring(connection: sqlite3.Connection, report: Report) -> None:
    found = foreign_table(connection)
    if found is None:
        return
    report.found = True
    _make_room(connection)
    _create(connection)
    connection.execute("INSERT INTO holdfast_meta VALUES ('epoch', ?)", [os.urandom(8).hex()])
    for row in _rows(connection, OLD_TABLE, found, report):
        if not connection.execute(_INSERT, row).rowcount:
            report.adopted -= 1
            report.skip(row.plugin, row.key, "the table has this key more than once")


def _rows(connection: sqlite3.Connection, table: str, found: Found, report: Report) -> Iterator[NewRow]:
    """Yield the rows that can be brought."""
    now = time.time_ns() // 1_000_000
    columns = ", ".join(["plugin_name", "key", found.value, *found.times])
    # Until the cursor is closed, its statement keeps the file open.
    with contextlib.closing(connection.cursor()) as cursor:
        for row in cursor.execute(f"SELECT {columns} FROM {table}"):
            new = adopting.judged(report, found, row, now)
            if new is not None:
                yield new


def _make_room(connection: sqlite3.Connection) -> None:
    """Rename the table, and drop its indexes, whose names the store's own may need."""
    indexes = connection.execute("SELECT name FROM pragma_index_list(?) WHERE origin = 'c'", [TABLE])
    for (name,) in indexes.fetchall():
        quoted = name.replace('"', '""')
        connection.execute(f'DROP INDEX "{quoted}"')
    connection.execute(f"ALTER TABLE {TABLE} RENAME TO {OLD_TABLE}")


def _create(connection: sqlite3.Connection) -> None:
    """Create the store in the transaction: `executescript` would commit it first."""
    statement = ""
    for line in ddl("sqlite").splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
