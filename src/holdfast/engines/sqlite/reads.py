"""The reads of the SQLite engine: queries that run to completion on one connection.

Law: a query never leaves a cursor or a transaction open, since that would prevent checkpoints of the
write-ahead log.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.decide.weights import summed
from holdfast.engine import JournalPage, JournalQuery, Scan, Scanned, Totals, fitting, loadable, row_size
from holdfast.engines.sql.layout import WALK, namespace_of, plugin_column
from holdfast.engines.sqlite import sql as statements
from holdfast.errors import DatabaseError
from holdfast.rows import KV, Address, Namespace, Overdue, Record, Row
from holdfast.work import too_much_loaded

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from holdfast.commands import Command

FEW_ROWS: Final = {True: 16, False: 64}
"""The most rows that a single command (True) or a part of a group (False) loads without counting bytes."""


class Room(msgspec.Struct, gc=False):
    """The number of bytes of values that a group of commands may still load."""

    commands: Sequence[Command]
    left: int = -1

    def for_rows(self, rows: dict[Address, bool]) -> Room | None:
        """Return this room if the bytes of these rows must be counted; None for a few rows."""
        if len(rows) <= FEW_ROWS[len(self.commands) == 1]:
            return None
        most = loadable(self.commands)
        if most is not None and self.left < 0:
            self.left = most
        return None if most is None else self


class Rest(Exception):
    """Loading stopped because the values are large. Carries the loaded rows and the remaining addresses."""

    def __init__(self, rows: dict[Address, Row], wanted: dict[Address, bool]) -> None:
        super().__init__()
        self.rows = rows
        self.wanted = wanted


def fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    """Run a query and return its rows unchanged."""
    return connection.execute(sql, parameters).fetchall()


def get(connection: sqlite3.Connection, address: Address) -> Row | None:
    """Load one entry."""
    found = connection.execute(statements.GET, (plugin_column(address.namespace), address.key)).fetchone()
    return None if found is None else statements.row(found)


def get_alive(connection: sqlite3.Connection, addresses: Sequence[Address], now: int) -> list[Row | None]:
    """Load entries by position. One that does not exist, or is past its deadline, is None."""
    rows: list[Row | None] = [None] * len(addresses)
    for start in range(0, len(addresses), statements.MAX_ROWS):
        some = addresses[start : start + statements.MAX_ROWS]
        for values in connection.execute(
            *statements.load(some, table="plugin_kv_storage", shown=True)
        ).fetchall():
            row = statements.row(values[2:], values[1])
            if row.expires_at is None or row.expires_at > now:
                rows[start + values[0]] = row
    return rows


def load_rows(
    connection: sqlite3.Connection, wanted: dict[Address, bool], room: Room | None = None, *, most: int = 0
) -> dict[Address, Row]:
    """Load rows by address. A row without a deadline comes with its value only if the value is wanted.

    Args:
        connection: The connection to use.
        wanted: The addresses, and whether each value is wanted.
        room: The number of bytes that may be loaded.
        most: The number of bytes after which to stop and raise `Rest`; 0 for no limit.

    Raises:
        TooExpensive: The values exceed `room`.
        Rest: Loading stopped at `most`.
    """
    if len(wanted) == 1:
        [address] = wanted
        if address.space == KV:  # the usual group of a sole writer
            row = get(connection, address)
            return {} if row is None else {address: row}
    alike: defaultdict[tuple[str, bool], list[Address]] = defaultdict(list)
    for address, shown in wanted.items():
        alike[statements.table_of(address.space), shown].append(address)
    rows: dict[Address, Row] = {}
    whole = True
    for (table, shown), addresses in alike.items():
        for start in range(0, len(addresses), statements.MAX_ROWS):
            some = addresses[start : start + statements.MAX_ROWS]
            sql, parameters = statements.load(some, table=table, shown=shown)
            if room is None and not (most and shown):
                found = connection.execute(sql, parameters).fetchall()
            else:
                found, whole = _bounded(connection.cursor().execute(sql, parameters), room, most)
            for values in found:
                if table == "holdfast_parts":
                    rows[some[values[0]]] = statements.part_row(values[1:])
                else:
                    rows[some[values[0]]] = statements.row(values[2:], values[1])
            if not whole:
                raise Rest(rows, {one: shown for one, shown in wanted.items() if one not in rows})
    return rows


def _bounded(cursor: sqlite3.Cursor, room: Room | None, most: int) -> tuple[list[Any], bool]:
    """Read rows until a limit is reached. Return them and whether these are all rows."""
    found: list[Any] = []
    loaded = 0
    try:
        for values in cursor:
            size = 0 if values[2] is None else len(values[2])
            loaded += size
            if room is not None:
                room.left -= size
                if room.left < 0:
                    raise too_much_loaded()
            found.append(values)
            if most and loaded > most:
                return found, False
    finally:
        cursor.close()
    return found, True


def scan_keys(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], query: Scan) -> Scanned:
    """Return the keys of a range."""
    keys = [key for (key,) in connection.execute(sql, parameters).fetchall()]
    room, fitting = query.max_bytes, 0
    for key in keys[: query.limit]:
        room -= row_size(key, None)
        if room < 0 and fitting:
            break
        fitting += 1
    return Scanned(keys=keys[:fitting], rows=[], more=fitting < len(keys))


def scan_rows(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], query: Scan) -> Scanned:
    """Return the keys and rows of a range, reading no further than the page."""
    keys: list[Any] = []
    rows: list[Row] = []
    room = query.max_bytes
    found = connection.cursor().execute(sql, parameters)
    try:
        for key, *values in found:
            row = statements.row(values)
            room -= row_size(key, row)
            if len(keys) == query.limit or (keys and room < 0):
                return Scanned(keys=keys, rows=rows, more=True)
            keys.append(key)
            rows.append(row)
    finally:
        found.close()
    return Scanned(keys=keys, rows=rows, more=False)


def journal(connection: sqlite3.Connection, query: JournalQuery, epoch: str) -> JournalPage:
    """Return records of a journal with its bounds, from one snapshot."""
    sql = statements.journal(
        key=query.key is not None, bounded=query.stop is not None, newest_first=query.newest_first
    )
    bounds = [bound for bound in (query.stop, query.key) if bound is not None]
    connection.execute("BEGIN")  # one snapshot for the records and the bounds
    try:
        found = connection.cursor().execute(
            sql, [query.namespace, query.since, query.start, *bounds, query.limit + 1]
        )
        records, complete = fitting(map(_record, found), query)
        found.close()
        floor, head = connection.execute(statements.JOURNAL_BOUNDS, [query.namespace]).fetchone() or (0, 0)
    finally:
        connection.execute("COMMIT")
    return JournalPage(
        records=records,
        complete=complete,
        floor=floor,
        head=head,
        epoch=epoch,
    )


def _record(values: Sequence[Any]) -> Record:
    namespace, version, op, key, at, writer, request_id, purpose, lag_ms, expired_version, detail = values
    return Record(
        namespace=namespace,
        version=version,
        op=op,
        key=key,
        at=at,
        last_writer=writer,
        request_id=request_id,
        purpose=purpose,
        lag_ms=lag_ms,
        expired_version=expired_version,
        detail=detail,
    )


def load_namespaces(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, Namespace]:
    """Load the rows of namespaces."""
    return {
        values[0]: _namespace(values)
        for sql, parameters in statements.load_namespaces(names)
        for values in connection.execute(sql, parameters).fetchall()
    }


def _namespace(values: Sequence[Any]) -> Namespace:
    return Namespace(**dict(zip(Namespace.__struct_fields__, values, strict=True)))


def overdue(connection: sqlite3.Connection, wanted: dict[str, int], now: int) -> dict[str, Overdue]:
    """Sum up plain expired entries by namespace. `wanted` has the maximum number of entries of each."""
    found = {}
    for namespace, limit in wanted.items():
        owner = plugin_column(namespace)
        sums = connection.execute(statements.OVERDUE, [now, max(WALK, limit), owner, limit]).fetchone()
        found[namespace] = Overdue(
            count=sums[0], bytes=sums[1], until=sums[2], envelope=sums[3], names=sums[4]
        )
    return found


def journal_bytes(connection: sqlite3.Connection, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the sizes of journals up to given versions, in bytes."""
    return {at: connection.execute(statements.JOURNAL_BYTES, at).fetchone()[0] for at in wanted}


def counts(connection: sqlite3.Connection, wanted: set[str]) -> dict[str, dict[str, int]]:
    """Compute the counters of namespaces from their rows and records."""
    found = {}
    for name in wanted:
        entries = connection.execute(statements.COUNT_ENTRIES, [plugin_column(name)]).fetchone()
        rows = connection.execute(statements.COUNT_ROWS, [name]).fetchall()
        rows += connection.execute(statements.COUNT_PARTS, [name]).fetchall()
        [journal] = connection.execute(statements.JOURNAL_BYTES, [name, rules.MAX_VERSION]).fetchone()
        found[name] = summed([(KV, *entries), *rows], journal=journal)
    return found


def totals(connection: sqlite3.Connection, now: int, namespace: str | None) -> list[Totals]:
    """See `Engine.totals`."""
    rows_sql, due_sql = statements.totals(owned=namespace is not None)
    owner = [] if namespace is None else [namespace]
    connection.execute("BEGIN")
    try:
        rows = connection.execute(rows_sql, owner).fetchall()
        due = connection.execute(due_sql, [now, *map(plugin_column, owner)]).fetchall()
    finally:
        connection.execute("COMMIT")
    overdue = {namespace_of(name): (count, size) for name, count, size in due}
    return [
        Totals(
            namespace=found,
            due_keys=overdue.get(found.name, (0, 0))[0],
            due_bytes=overdue.get(found.name, (0, 0))[1],
        )
        for found in map(_namespace, rows)
    ]


def remembered(connection: sqlite3.Connection) -> int:
    """See `Engine.remembered`."""
    [changed_at] = connection.execute(statements.LAST_CHANGE).fetchone()
    try:
        return max(int(changed_at), kept_time(connection))
    except ValueError:  # a corrupt page holds anything
        raise DatabaseError("the time that the store remembers can't be read: restore a backup") from None


def kept_time(connection: sqlite3.Connection) -> int:
    """Return the latest time that was stored by `remember`."""
    [kept] = connection.execute(statements.KEPT_TIME).fetchone()
    return int(kept)
