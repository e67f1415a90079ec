"""The reads of the SQLite engine: the queries, and the threads and connections that run them.

A query runs to completion on one connection. It never leaves a cursor or a transaction open, since that would
prevent checkpoints of the write-ahead log.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast import rules, seams
from holdfast.commands import Command
from holdfast.decide.weights import summed
from holdfast.engine import (
    LATER,
    JournalPage,
    JournalQuery,
    Later,
    Scan,
    Scanned,
    Totals,
    fitting,
    loadable,
    row_size,
)
from holdfast.engines.sql.layout import WALK, namespace_of, plugin_column
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.setup import connect, kept_time
from holdfast.rows import KV, PARTS, Address, Namespace, Overdue, Record, Row
from holdfast.work import too_much_loaded

T = TypeVar("T")

FEW_ROWS: Final = {True: 16, False: 64}
"""The most rows that a single command (True) or a part of a group (False) loads without counting bytes."""
BRIEF_ROWS: Final = 128
BRIEF_BYTES: Final = 131_072
BRIEF_STEPS: Final = 10_000
"""The most rows, bytes and half of the steps of SQLite of a scan that the loop does itself: about a
millisecond. The hop to the reader's thread takes as long as a scan of 100 rows."""
FIRST_ROWS: Final = 32
"""The number of rows that the loop looks for where a page may have more than `BRIEF_ROWS`. Most ranges have
fewer. If there are more, reading these once more adds a fiftieth to the time of a page of 1,000."""
MOST_THREADS: Final = 16
"""The number of threads with a connection, which takes three file descriptors. Others ask the loop."""


class ByteBudget(msgspec.Struct, gc=False):
    """The number of bytes of values that a group of commands may still load."""

    commands: Sequence[Command]
    left: int = -1

    def for_rows(self, rows: dict[Address, bool]) -> ByteBudget | None:
        """Return this budget if the bytes of these rows must be counted; None for a few rows."""
        if len(rows) <= FEW_ROWS[len(self.commands) == 1]:
            return None
        most = loadable(self.commands)
        if most is not None and self.left < 0:
            self.left = most
        return None if most is None else self


class TooLargeToLoad(Exception):
    """Loading stopped because the values are large. Carries the loaded rows and the remaining addresses."""

    def __init__(self, rows: dict[Address, Row], wanted: dict[Address, bool]) -> None:
        super().__init__()
        self.rows = rows
        self.wanted = wanted


def fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    """Run a query and return its rows unchanged."""
    return connection.execute(sql, parameters).fetchall()


def get(connection: sqlite3.Connection, address: Address) -> Row | None:
    """Load one row, which is no part of a blob."""
    namespace, space, key = address.namespace, address.space, address.key
    if space == KV:
        found = connection.execute(statements.GET, (plugin_column(namespace), key)).fetchone()
    else:
        at = (namespace, space, statements.bound(key))
        found = connection.execute(statements.GET_ROW, at).fetchone()
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
    connection: sqlite3.Connection,
    wanted: dict[Address, bool],
    budget: ByteBudget | None = None,
    *,
    most: int = 0,
) -> dict[Address, Row]:
    """Load rows by address. A row without a deadline comes with its value only if the value is wanted.

    Args:
        connection: The connection to use.
        wanted: The addresses, and whether each value is wanted.
        budget: The number of bytes that may be loaded.
        most: The number of bytes after which to stop and raise `TooLargeToLoad`; 0 for no limit.

    Raises:
        TooExpensive: The values exceed `budget`.
        TooLargeToLoad: Loading stopped at `most`.
    """
    if len(wanted) == 1:
        [address] = wanted
        if not address.space.startswith(PARTS):  # the usual group of a sole writer
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
            if budget is None and not (most and shown):
                found = connection.execute(sql, parameters).fetchall()
            else:
                found, whole = _bounded(connection.cursor().execute(sql, parameters), budget, most)
            for values in found:
                if table == "holdfast_parts":
                    rows[some[values[0]]] = statements.part_row(values[1:])
                else:
                    rows[some[values[0]]] = statements.row(values[2:], values[1])
            if not whole:
                raise TooLargeToLoad(rows, {one: shown for one, shown in wanted.items() if one not in rows})
    return rows


def _bounded(cursor: sqlite3.Cursor, budget: ByteBudget | None, most: int) -> tuple[list[Any], bool]:
    """Read rows until a limit is reached. Return them and whether these are all rows."""
    found: list[Any] = []
    loaded = 0
    try:
        for values in cursor:
            size = 0 if values[2] is None else len(values[2])
            loaded += size
            if budget is not None:
                budget.left -= size
                if budget.left < 0:
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


def scan(connection: sqlite3.Connection, query: Scan, now: int) -> Scanned:
    """Return the live rows of a range of keys; see `Engine.scan`."""
    # With two bounds on one side, SQLite seeks to the first and reads all rows between them.
    first, stop, after = query.start, query.stop, query.after
    beyond = after is not None and not query.reverse and _later(after, first)
    if after is not None and beyond:
        first = after
    elif after is not None and query.reverse and (stop is None or _later(stop, after)):
        stop = after
    sql = statements.scan(
        query.space, values=query.values, bounded=stop is not None, after=beyond, reverse=query.reverse
    )
    owner = [plugin_column(query.namespace)] if query.space == KV else [query.namespace, query.space]
    bounds = [first] if stop is None else [first, stop]
    walk = scan_rows if query.values else scan_keys
    return walk(connection, sql, [*owner, *bounds, now, query.limit + 1], query)


def scan_briefly(connection: sqlite3.Connection, query: Scan, now: int) -> Scanned | None:
    """Return the live rows of a range of keys, or None if that takes long.

    Rows that have expired are passed over, and there may be very many of them. Values may be large.
    """
    most = min(query.max_bytes, BRIEF_BYTES)
    # SQLite counts over all uses of a statement: the first call may come at once, the second does not.
    connection.set_progress_handler(count().__next__, BRIEF_STEPS)
    try:
        found = scan(connection, msgspec.structs.replace(query, max_bytes=most), now)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        connection.set_progress_handler(None, 0)
    cut = most < query.max_bytes and found.more and len(found.keys) < query.limit
    return None if cut else found


def _later(one: Any, other: Any) -> bool:
    """Return whether a key is not before another. Within a space, keys are all text or all bytes."""
    return bool(one >= other)


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


def journal(connection: sqlite3.Connection, query: JournalQuery, epoch: str | None) -> JournalPage:
    """Return records of a journal with its bounds, from one snapshot.

    If no epoch is given, it is read too: a process that only reads does not keep another one from restoring a
    backup.
    """
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
        if epoch is None:
            [epoch] = connection.execute(statements.EPOCH).fetchone()
    finally:
        if connection.in_transaction:  # some errors of the disk end it
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
        if connection.in_transaction:  # some errors of the disk end it
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


class ReaderThread(Executor):
    """A thread that starts with its first read, and runs one read after the other.

    Unlike the executors of the standard library, it also serves while the process is ending, so that what
    follows a store does not fail before the store is closed.
    """

    def __init__(self) -> None:
        self._jobs: seams.SimpleQueue[Callable[[], None] | None] = seams.SimpleQueue()
        self._thread: seams.Thread | None = None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a read after those submitted before it. Call this from one thread only."""
        future: Future[T] = Future()
        if self._thread is None:
            self._thread = seams.Thread(target=self._work, name="holdfast reader", daemon=True)
            self._thread.start()
        self._jobs.put(partial(_run, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish the reads that were submitted, and stop."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _run(future: Future[T], read: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except BaseException as error:
        future.set_exception(error)


class ThreadConnection:
    """The connection of one thread, and the lock that keeps it from being closed in the middle of a read."""

    __slots__ = ("__weakref__", "connection", "lock")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: sqlite3.Connection | None = connection
        self.lock: seams.Lock = seams.Lock()

    def close(self) -> None:
        """Close the connection, once no read is under way."""
        with self.lock:
            connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()


class ThreadConnections:
    """Reads of single entries on threads other than the event loop's.

    Every thread has a connection of its own. A connection that threads shared would keep the snapshot of
    whichever of them is reading, so that another could miss its own last write. All of them read the file
    that the store has open, whatever is at its path by now.

    Args:
        path: The file.
        there: Returns whether the file at that path is the one that the store has open.
    """

    def __init__(self, path: Path, there: Callable[[], bool]) -> None:
        self._path = path
        self._there = there
        self._mine = threading.local()
        self._all: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        self._adding = seams.Lock()
        self._closed = False

    def get(self, address: Address) -> Row | Later | None:
        """Load one entry, or return `LATER` if the loop has to be asked."""
        own: ThreadConnection | None = getattr(self._mine, "own", None)
        if own is None:
            own = self._add()
            if own is None:
                return LATER
        with own.lock:
            if own.connection is None:
                return LATER
            try:
                return get(own.connection, address)
            except sqlite3.Error:
                return LATER

    def close(self) -> None:
        """Close all connections."""
        with self._adding:
            self._closed = True
            known = list(self._all)
        for own in known:
            own.close()

    def _add(self) -> ThreadConnection | None:
        """Give the current thread a connection, unless too many have one."""
        with self._adding:
            if self._closed or len(self._all) >= MOST_THREADS or not self._there():
                return None
            try:
                connection = connect(self._path, patience=0)
                own = ThreadConnection(connection)
                kept_time(connection)  # opens the log as well
            except sqlite3.Error:
                return None
            if not self._there():  # it was replaced meanwhile
                return None
            self._all.add(own)
        self._mine.own = own
        return own
