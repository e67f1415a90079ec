"""Opens a SQLite file: configures connections, creates, migrates or adopts the store, and resets its time.

Only a process that has the file for itself creates or migrates. The revision is compared first, and
SQLAlchemy and Alembic are imported only for a migration.

An adoption brings the rows of another program's table into a store (`engines.sql.adopting`). The rows are
inserted as any program inserts them, so that the store's triggers give them their versions and count them. A
dry run changes nothing: not the file, its mode, nor anything beside it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from holdfast import seams
from holdfast.clock import KeptLine
from holdfast.engines.sql import adopting
from holdfast.engines.sql.adopting import OLD_TABLE, TABLE, Found, NewRow, Report
from holdfast.engines.sql.layout import (
    SCHEMA_REVISION,
    SHARED_REVISIONS,
    SHARED_VERSION_TABLE,
    VERSION_TABLE,
    ddl,
)
from holdfast.engines.sql.migrate import Need, needed, upgrade_sqlite
from holdfast.engines.sqlite import sql
from holdfast.engines.sqlite.files import keep_private
from holdfast.errors import DatabaseError, Unavailable, Unsupported

OLDEST_SQLITE: Final = (3, 37, 0)
"""The first SQLite with STRICT tables."""
PATIENCE: Final = 30.0
"""Seconds for which an adoption waits for a locked file."""
WRITER_KIB: Final = 16_384
READER_KIB: Final = 2_048
"""The page cache of the connection that writes and of each reader, in KiB.

Every commit invalidates a reader's cache. So a larger cache would fill only once writes have ceased, and then
reading from the operating system's cache is as fast.
"""

_INSERT: Final = (
    f"INSERT INTO {TABLE} (plugin_name, key, value_json, expires_at, created_at, updated_at) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


class OneCursorConnection(sqlite3.Connection):
    """A connection whose statements share one cursor. Each must be read to its end before the next begins.

    The driver would create a cursor for each statement and keep it for a while. That burdens the garbage
    collector, and a full collection stalls a large program for tens of milliseconds.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._shared = self.cursor()
        self.execute = self._shared.execute  # type: ignore[method-assign]

    def close(self) -> None:
        """Close the connection and its files now, even if an exception still refers to it.

        The cursor holds its last statement, and while that exists, SQLite keeps the files open.
        """
        self._shared.close()
        super().close()


def connect(path: Path, *, patience: float) -> sqlite3.Connection:
    """Open a read-only connection, which waits up to `patience` seconds for a locked file."""
    connection = _connect(path, patience=patience, kib=READER_KIB)
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect_for_later(path: Path) -> sqlite3.Connection:
    """Open a read-only connection as `connect` does, whose schema is read once the connection is used.

    The file and its log are open from now on. To read the schema takes 2 ms, most of it for the triggers.
    """
    connection = _connect(path, patience=5, kib=None)
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect_writer(path: Path, *, sync: str) -> sqlite3.Connection:
    """Open a connection that writes to a file as it is."""
    connection = _connect(path, patience=5, kib=WRITER_KIB)
    try:
        connection.execute(f"PRAGMA synchronous = {sync}")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path, *, sync: str, epoch: str | None = None) -> sqlite3.Connection:
    """Open the connection that writes. The file is readable only by its owner and has the current schema.

    The caller has looked whether the file is another program's: see `require_own`.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise Unsupported(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed")
    keep_private(path)
    connection = connect_writer(path, sync=sync)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        match needed(revision(connection)):
            case Need.CREATE:
                _create(connection)
            case Need.MIGRATE:
                upgrade_sqlite(connection)
        connection.execute(
            "INSERT INTO holdfast_meta VALUES ('epoch', ?) ON CONFLICT DO NOTHING",
            [epoch or seams.token(8)],
        )
    except BaseException:
        connection.close()
        raise
    return connection


def remembered(connection: sqlite3.Connection) -> int:
    """See `Engine.remembered`."""
    [changed_at] = connection.execute(sql.LAST_CHANGE).fetchone()
    try:
        return max(int(changed_at), kept_time(connection))
    except ValueError:  # a corrupt page holds anything
        raise DatabaseError("the time that the store remembers can't be read: restore a backup") from None


def kept_time(connection: sqlite3.Connection) -> int:
    """Return the latest time that was stored by `remember`."""
    [kept] = connection.execute(sql.KEPT_TIME).fetchone()
    return int(kept)


def kept_line(connection: sqlite3.Connection) -> KeptLine | None:
    """Return the line of the clock that the store was or is open with, or None if none is kept."""
    found = connection.execute(sql.KEPT_LINE).fetchone()
    try:
        return msgspec.json.decode(found[0], type=KeptLine) if found else None
    except msgspec.DecodeError:  # a later version of Holdfast has kept it
        return None


def opened(connection: sqlite3.Connection) -> str:
    """Return the name of the processes that have the store open together."""
    found = connection.execute(sql.OPENED_AS).fetchone()
    return "" if found is None else str(found[0])


def agreed_line(connection: sqlite3.Connection) -> KeptLine | None:
    """Return the line that the processes that have the store open agreed on; None if they have not yet."""
    line = kept_line(connection)
    return line if line is not None and line.opened == opened(connection) else None


def reset_clock(path: Path, now: int) -> tuple[int, int, int]:
    """Reset a store's time to `now`, if it is ahead. The caller must have the file for itself.

    Returns:
        The time before, the time after, and the number of namespaces whose time was reset.
    """
    require_own(path)
    connection = prepare(path, sync="FULL")
    try:
        connection.execute("BEGIN IMMEDIATE")
        before = remembered(connection)
        after = min(before, now)
        moved = connection.execute(sql.CHANGES_BEFORE, [after, after]).rowcount
        connection.execute(sql.RESET_CLOCK, [str(after)])
        closed = KeptLine(machine=None, line=0.0, at=after, open=False)
        connection.execute(sql.KEEP_LINE, [msgspec.json.encode(closed).decode()])
        connection.execute("COMMIT")
    finally:
        connection.close()
    return before, after, moved


def require_current(connection: sqlite3.Connection, where: str, holder: Callable[[], str]) -> None:
    """Make sure that a file has the current schema, in case another process has it open.

    Raises:
        Unavailable: It has another schema.
    """
    found = revision(connection)
    if needed(found) is not Need.NOTHING:
        raise Unavailable(
            f"{where} has the schema {found or 'of no store'} and this version needs {SCHEMA_REVISION}, "
            f"but {holder()} has it open: stop it and try again"
        )


def require_own(path: Path) -> None:
    """Refuse a file with a table of another program in the place of ours. Nothing is changed.

    Raises:
        Unsupported: There is such a table; the message says how to bring its rows.
    """
    found = found_in(path)
    if found is not None:
        raise adopting.refusal(str(path), found.rows)


def found_in(path: Path) -> Found | None:
    """Return the table of another program in a file that is no store; None if there is none."""
    try:
        if not path.exists() or not path.stat().st_size:
            return None
        with contextlib.closing(connect_without_changes(path)) as connection:
            return foreign_table(connection)
    except (OSError, sqlite3.Error):  # whoever opens the file is told why it can't be read
        return None


def connect_without_changes(path: Path) -> sqlite3.Connection:
    """Open a connection that changes nothing: not the file, nor its mode."""
    place = quote(str(path.absolute()))
    return sqlite3.connect(f"file:{place}?mode=ro", uri=True, timeout=PATIENCE, isolation_level=None)


def foreign_table(connection: sqlite3.Connection) -> Found | None:
    """Return the table of another program in the place of ours; None if there is none."""
    if revision(connection) is not None:
        return None
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", [TABLE])]
    if adopting.shape(columns, 0) is None:
        return None
    [count] = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
    return adopting.shape(columns, count)


def revision(connection: sqlite3.Connection) -> str | None:
    """Return the schema's revision, or None if the file is not a store yet.

    An older store has it in `alembic_version`, which may also be another program's.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if VERSION_TABLE in tables:
        found = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        return None if found is None else str(found[0])
    if SHARED_VERSION_TABLE not in tables or "holdfast_namespaces" not in tables:
        return None
    every = connection.execute(f"SELECT version_num FROM {SHARED_VERSION_TABLE}").fetchall()
    return next((str(found) for (found,) in every if found in SHARED_REVISIONS), None)


def _connect(path: Path, *, patience: float, kib: int | None) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=OneCursorConnection,
    )
    try:
        # Either one opens the log, but the first one reads the schema too.
        connection.execute(f"PRAGMA cache_size = -{kib}" if kib else "PRAGMA data_version")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA trusted_schema = OFF")
    except UnicodeDecodeError:  # the driver can't read the text of an error, which quotes a corrupt schema
        connection.close()
        corrupt = sqlite3.DatabaseError("the schema is corrupt")
        corrupt.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise corrupt from None
    return connection


def _create(connection: sqlite3.Connection) -> None:
    """Create an empty store in one transaction."""
    connection.executescript(f"BEGIN IMMEDIATE;\n{ddl('sqlite')}\nCOMMIT;")


def adopt(path: Path, *, dry_run: bool) -> Report:
    """Bring the rows of another program's table into a store. The caller holds the right to write."""
    report = Report(place=str(path), dry_run=dry_run)
    if not path.exists():
        return report
    if dry_run:
        with contextlib.closing(connect_without_changes(path)) as connection:
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
            _adopt(connection, report)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    return report


def _adopt(connection: sqlite3.Connection, report: Report) -> None:
    found = foreign_table(connection)
    if found is None:
        return
    report.found = True
    _make_room(connection)
    _create_within(connection)
    connection.execute("INSERT INTO holdfast_meta VALUES ('epoch', ?)", [seams.token(8)])
    for row in _rows(connection, OLD_TABLE, found, report):
        if not connection.execute(_INSERT, row).rowcount:
            report.adopted -= 1
            report.skip(row.plugin, row.key, "the table has this key more than once")


def _rows(connection: sqlite3.Connection, table: str, found: Found, report: Report) -> Iterator[NewRow]:
    """Yield the rows that can be brought."""
    now = seams.wall_ns() // 1_000_000
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


def _create_within(connection: sqlite3.Connection) -> None:
    """Create the store in the running transaction: `executescript` would commit it first."""
    statement = ""
    for line in ddl("sqlite").splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
