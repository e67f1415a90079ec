"""The SQL of the SQLite engine. It is set-based, so that a group costs a handful of statements.

Values reach SQL only as parameters. A statement over many rows has one of a few standard lengths, a power of
two or three quarters of one, so that few statements exist and each is compiled once. Columns that are mostly
empty come last, and rows that are empty there omit them. Keys in bytes are bound as bytearrays: the driver
binds text, numbers and bytearrays directly. For anything else, including None and bytes, it first searches
for an adapter, which takes longer than storing the value. Copies and backups have theirs in `raw`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import astuple

from holdfast.decide import Outcome
from holdfast.engines.sql.layout import plugin_column
from holdfast.rows import KV, OVERHEAD, Address, Namespace, Record, Row, Run
from holdfast.rows import PARTS as PART_SPACES

Statement: TypeAlias = "tuple[str, Sequence[Any]]"

MAX_ROWS: Final = 1024
"""The maximum number of rows of a statement: 12 parameters each stay within SQLite's limit of 32,766."""

_ENVELOPE: Final = "version, created_at, updated_at, last_writer, request_id, expires_at, semantics, spec_ref"
KV_COLUMNS: Final = f"plugin_name, key, value_json, {_ENVELOPE}"
ROW_COLUMNS: Final = f"namespace, space, key, value, {_ENVELOPE}"
PART_COLUMNS: Final = "namespace, space, key, value, version, created_at, updated_at, last_writer, data"
JOURNAL_COLUMNS: Final = ", ".join(Record.__struct_fields__)
NAMESPACE_COLUMNS: Final = ", ".join(Namespace.__struct_fields__)

_BESIDE: Final = (
    "length(last_writer) + coalesce(length(request_id), 0) + coalesce(length(semantics), 0) "
    "+ coalesce(length(spec_ref), 0)"
)
_NOBODY: Final = bytearray()
"""A filler that matches no plugin and no namespace, since their names are text."""

BY_DEADLINE: Final = "plugin_kv_storage INDEXED BY idx_kv_expires_at"
"""The table with a forced index: SQLite would rather read all keys of a plugin than the few due ones."""

GET: Final = f"SELECT value_json, {_ENVELOPE} FROM plugin_kv_storage WHERE plugin_name = ? AND key = ?"
GET_ROW: Final = f"SELECT value, {_ENVELOPE} FROM holdfast_rows WHERE namespace = ? AND space = ? AND key = ?"
FALLING_DUE: Final = (
    f"SELECT plugin_name, key, expires_at FROM {BY_DEADLINE} WHERE expires_at > ? AND expires_at <= ? "
    "AND (semantics IS NOT NULL OR (plugin_name >= 'semantic/' AND plugin_name < 'semantic0')) "
    "ORDER BY expires_at LIMIT ?"
)
OVERDUE: Final = (
    "SELECT count(*), coalesce(sum(width), 0), coalesce(max(expires_at), 0), coalesce(sum(envelope), 0), "
    "coalesce(sum(names), 0) FROM (SELECT expires_at, "
    f"length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB)) AS width, {_BESIDE} AS envelope, "
    "length(key) + length(last_writer) AS names FROM ("
    "SELECT plugin_name AS owner, key AS name "
    f"FROM {BY_DEADLINE} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?) "
    "CROSS JOIN plugin_kv_storage ON plugin_name = owner AND key = name "
    "WHERE owner = ? AND version > 0 AND semantics IS NULL LIMIT ?)"
)
"""Sums over plain expired entries. Entries with the same deadline come in the order of their index. An ORDER
BY could not express that order without sorting all of them, which may be very many."""
JOURNAL_BYTES: Final = (
    f"SELECT coalesce(sum({OVERHEAD} + length(key) + coalesce(length(last_writer), 0) "
    "+ coalesce(length(request_id), 0) + coalesce(length(purpose), 0) "
    "+ coalesce(length(CAST(detail AS BLOB)), 0)), 0) "
    "FROM holdfast_journal WHERE namespace = ? AND version <= ?"
)
COUNT_ENTRIES: Final = (
    "SELECT count(*), coalesce(sum(length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))), 0), "
    f"coalesce(sum({_BESIDE}), 0) FROM plugin_kv_storage WHERE plugin_name = ? AND version > 0"
)
COUNT_ROWS: Final = (
    f"SELECT space, count(*), sum(length(key) + length(CAST(value AS BLOB))), sum({_BESIDE}) "
    "FROM holdfast_rows WHERE namespace = ? GROUP BY space"
)
"""By space of a namespace: the number of rows, the size of keys and values, and that of their other texts."""
COUNT_PARTS: Final = (
    "SELECT space, count(*), sum(length(key) + length(CAST(value AS BLOB)) + length(data)), "
    "sum(length(last_writer)) FROM holdfast_parts WHERE namespace = ? GROUP BY space"
)
"""The same for the parts of blobs."""
OWNERS: Final = (
    "WITH RECURSIVE wanted (name) AS (SELECT min(namespace) FROM holdfast_rows UNION ALL "
    "SELECT (SELECT min(namespace) FROM holdfast_rows WHERE namespace > name) FROM wanted "
    "WHERE name IS NOT NULL) SELECT name FROM wanted "
    "WHERE EXISTS (SELECT 1 FROM holdfast_rows WHERE namespace = name AND space = ?)"
)
"""The namespaces that have rows in a space. The query jumps from each namespace to the next."""
HEADS: Final = "SELECT name, revision FROM holdfast_namespaces"
EPOCH: Final = "SELECT value FROM holdfast_meta WHERE name = 'epoch'"
KEPT_TIME: Final = "SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM holdfast_meta WHERE name = 'clock'"
LAST_CHANGE: Final = "SELECT coalesce(max(changed_at), 0) FROM holdfast_namespaces"
REMEMBER: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('clock', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE CAST(value AS INTEGER) < CAST(excluded.value AS INTEGER)"
)
KEPT_LINE: Final = "SELECT value FROM holdfast_meta WHERE name = 'clock_line'"
KEEP_LINE: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('clock_line', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value"
)
OPENED: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('opened', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value"
)
"""Names the processes that have the file open together. Whoever opens it while nobody else has it open writes
a new name."""
OPENED_AS: Final = "SELECT value FROM holdfast_meta WHERE name = 'opened'"
KEPT_KEYS: Final = "SELECT value FROM holdfast_meta WHERE name = 'audit_key'"
KEEP_KEYS: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('audit_key', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE value = ?"
)
CHANGES_BEFORE: Final = "UPDATE holdfast_namespaces SET changed_at = ? WHERE changed_at > ?"
RESET_CLOCK: Final = "UPDATE holdfast_meta SET value = ? WHERE name = 'clock'"
JOURNAL_BOUNDS: Final = "SELECT journal_floor, revision FROM holdfast_namespaces WHERE name = ?"

ADD_FACT: Final = "INSERT INTO holdfast_meta (name, value) VALUES (?, ?)"
DROP_FACT: Final = "DELETE FROM holdfast_meta WHERE name = ?"
INSIDE: Final = ("inside", "")
"""The mark of a transaction whose changes of entries are the store's own, in the table of facts.

It keeps the triggers quiet that look after what other programs write (`holdfast.engines.sql.outside`), and is
removed at the end of the transaction.
"""


def row(values: Sequence[Any], size: int | None = None) -> Row:
    """Build a row from its value and the envelope's columns. By default the size is that of the value."""
    value, version, created_at, updated_at, writer, request_id, expires_at, semantics, spec_ref = values
    if size is None:
        size = len(value) if value.isascii() else len(value.encode())
    return Row(
        value=value,
        size=size,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        last_writer=writer,
        request_id=request_id,
        expires_at=expires_at,
        semantics=semantics,
        spec_ref=spec_ref,
    )


def part_row(values: Sequence[Any]) -> Row:
    """Build the row of a part from its size and its columns. The bytes are None unless they were loaded."""
    size, value, version, created_at, updated_at, writer, data = values
    return Row(
        value=value,
        size=size,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        last_writer=writer,
        data=data,
    )


def chunks(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Split rows into chunks of standard lengths. Yield each length with the parameters of its rows."""
    if len(rows) == 1:
        yield 1, rows[0]
        return
    start = 0
    while start < len(rows):
        length = min(MAX_ROWS, _filled(len(rows) - start))
        yield length, list(chain.from_iterable(rows[start : start + length]))
        start += length


def table_of(space: str) -> str:
    """Return the table that holds the rows of a space."""
    if space == KV:
        return "plugin_kv_storage"
    return "holdfast_parts" if space.startswith(PART_SPACES) else "holdfast_rows"


def load(wanted: Sequence[Address], *, table: str, shown: bool) -> Statement:
    """Load rows of a table by address, at most `MAX_ROWS`, each with its position.

    If values need not be shown, a row without a deadline comes with the length of its value instead.
    """
    length = _room(len(wanted))
    parameters: list[Any] = []
    entries = table == "plugin_kv_storage"
    for at in wanted:
        if entries:
            parameters += (plugin_column(at.namespace), at.key)
        else:
            parameters += (at.namespace, at.space, bound(at.key))
    text = _LOAD[table]
    parameters += [_NOBODY] * ((2 if entries else 3) * (length - len(wanted)))
    return text(length, shown), parameters


def bound(key: str | bytes) -> str | bytearray:
    """Convert a key to the form in which it is bound."""
    return bytearray(key) if isinstance(key, bytes) else key


def _room(count: int) -> int:
    """Return the smallest standard length that fits this many rows."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if count <= power * 3 // 4 else power


def _filled(count: int) -> int:
    """Return the largest standard length that this many rows fill."""
    power = 1 << (count.bit_length() - 1)
    return power * 3 // 2 if count >= power * 3 // 2 and power > 1 else power


def load_namespaces(names: Sequence[str]) -> Iterator[Statement]:
    """Load the rows of namespaces."""
    for length, parameters in chunks([(name,) for name in names]):
        yield _load_namespaces(length), parameters


_ALIVE: Final = " AND (expires_at IS NULL OR expires_at > ?)"


def scan(space: str, *, values: bool, bounded: bool, after: bool, reverse: bool = False) -> str:
    """Select the living rows of a range in key order. Parameters: see `SqliteEngine.scan`.

    With `after`, the range excludes its first key.
    """
    table = table_of(space)
    if space == KV:
        owner, value, alive = "plugin_name = ?", "value_json", _ALIVE
    else:
        owner, value = "namespace = ? AND space = ?", "value"
        alive = _ALIVE if table == "holdfast_rows" else " AND ? IS NOT NULL"  # parts have no deadlines
    shown = f"key, {value}, {_ENVELOPE}" if values else "key"
    return (
        f"SELECT {shown} FROM {table} WHERE {owner} AND key {'>' if after else '>='} ?"
        + (" AND key < ?" if bounded else "")
        + f"{alive} ORDER BY key{' DESC' if reverse else ''} LIMIT ?"
    )


def due(space: str, *, owned: bool) -> str:
    """Select expired rows, longest overdue first."""
    if space == KV:
        owner = " AND plugin_name = ?" if owned else ""
        return (
            f"SELECT plugin_name, key, expires_at FROM {BY_DEADLINE} "
            f"WHERE expires_at <= ?{owner} ORDER BY expires_at LIMIT ?"
        )
    owner = " AND namespace = ?" if owned else ""
    return (
        "SELECT namespace, key, expires_at FROM holdfast_rows "
        f"WHERE expires_at <= ?{owner} AND space = ? ORDER BY expires_at LIMIT ?"
    )


def journal(*, key: bool, bounded: bool, newest_first: bool) -> str:
    """Select the records of a journal after a version, of one key or of a range of keys."""
    return (
        f"SELECT {JOURNAL_COLUMNS} FROM holdfast_journal WHERE namespace = ? AND version > ? AND key >= ?"
        + (" AND key < ?" if bounded else "")
        + (" AND key = ?" if key else "")
        + (" ORDER BY version DESC LIMIT ?" if newest_first else " ORDER BY version LIMIT ?")
    )


def totals(*, owned: bool) -> tuple[str, str]:
    """Select the rows of namespaces, and the number and size of their expired entries that still count."""
    return (
        f"SELECT {NAMESPACE_COLUMNS} FROM holdfast_namespaces"
        + (" WHERE name = ?" if owned else " ORDER BY name"),
        "SELECT plugin_name, count(*), "
        f"sum(length(CAST(key AS BLOB)) + length(CAST(value_json AS BLOB))) FROM {BY_DEADLINE} "
        "WHERE expires_at <= ? AND version > 0"
        + (" AND plugin_name = ?" if owned else "")
        + " GROUP BY plugin_name",
    )


def places(length: int, width: int) -> str:
    one = "(" + ", ".join("?" * width) + ")"
    return "VALUES " + ", ".join([one] * length)


@cache
def _load_kv(length: int, shown: bool) -> str:
    return (
        f"WITH wanted(number, plugin, name) AS ({_numbered(length, 2)}) "
        f"SELECT number, {_shown('value_json', shown)}, {_ENVELOPE} "
        "FROM wanted CROSS JOIN plugin_kv_storage ON plugin_name = plugin AND key = name"
    )


@cache
def _load_rows(length: int, shown: bool) -> str:
    return (
        f"WITH wanted(number, owner, room, name) AS ({_numbered(length, 3)}) "
        f"SELECT number, {_shown('value', shown)}, {_ENVELOPE} "
        "FROM wanted CROSS JOIN holdfast_rows ON namespace = owner AND space = room AND key = name"
    )


@cache
def _load_parts(length: int, shown: bool) -> str:
    return (
        f"WITH wanted(number, owner, room, name) AS ({_numbered(length, 3)}) "
        "SELECT number, length(CAST(value AS BLOB)) + length(data), value, version, created_at, updated_at, "
        f"last_writer, {'data' if shown else 'NULL'} "
        "FROM wanted CROSS JOIN holdfast_parts ON namespace = owner AND space = room AND key = name"
    )


_LOAD: Final = {
    "plugin_kv_storage": _load_kv,
    "holdfast_rows": _load_rows,
    "holdfast_parts": _load_parts,
}


def _numbered(length: int, width: int) -> str:
    """Return rows of parameters, each after its position."""
    return "VALUES " + ", ".join(f"({number}{', ?' * width})" for number in range(length))


def _shown(value: str, shown: bool) -> str:
    """Return SQL for length and value: the length if the value may be omitted, else NULL and the value."""
    if shown:
        return f"NULL, {value}"
    return f"length(CAST({value} AS BLOB)), CASE WHEN expires_at IS NOT NULL THEN {value} END"


@cache
def _load_namespaces(length: int) -> str:
    return f"SELECT {NAMESPACE_COLUMNS} FROM holdfast_namespaces WHERE name IN ({', '.join('?' * length)})"


# Saving.

_NOTHING_MORE: Final = (None,) * 4
_USUAL_OF_RECORD: Final = len(Record.__struct_fields__) - len(_NOTHING_MORE)
_RUN: Final = (
    f"INSERT INTO holdfast_journal ({JOURNAL_COLUMNS}) "
    "SELECT ?, ? + row_number() OVER (), 'expired', key, ?, last_writer, NULL, NULL, "
    "? - expires_at, version, NULL "
    f"FROM (SELECT key, last_writer, version, expires_at FROM {BY_DEADLINE} "
    "WHERE plugin_name = ? AND expires_at <= ? AND version > 0 AND semantics IS NULL "
    "ORDER BY expires_at LIMIT ?)"
)
_RUN_GONE: Final = (
    "DELETE FROM plugin_kv_storage WHERE plugin_name = ? AND key IN ("
    "SELECT key FROM holdfast_journal WHERE namespace = ? AND version >= ? AND version < ?)"
)


def save(outcome: Outcome) -> list[Statement]:
    """Return the statements that save an outcome."""
    puts: list[tuple[Any, ...]] = []
    others: list[tuple[Any, ...]] = []
    parts: list[tuple[Any, ...]] = []
    gone: list[Address] = []
    removes = bool(outcome.runs)
    for at, new in outcome.rows.items():
        if new is None:
            gone.append(at)
            removes = removes or at.space == KV
        elif at.space == KV:
            puts.append((plugin_column(at.namespace), at.key, *_columns(new)))
        elif new.data is None:
            others.append((at.namespace, at.space, bound(at.key), *_columns(new)))
        else:
            parts.append((at.namespace, at.space, bound(at.key), *_columns(new)[:5], new.data))
    plan: list[Statement] = []
    if removes:
        plan.append((ADD_FACT, INSIDE))
    if outcome.runs:
        plan += [step for run in outcome.runs for step in _expire(run)]
    records = [*map(_record_columns, outcome.journal)]
    namespaces = [*map(_namespace_columns, outcome.namespaces)]
    for rows, text in (
        (puts, _put_kv),
        (others, _put_rows),
        (records, _put_journal),
        (namespaces, _put_namespaces),
    ):
        if len(rows) == 1:  # the usual group of a sole writer
            plan.append((text(1, len(rows[0])), rows[0]))
        elif rows:
            plan += _puts(rows, text)
    # One by one: the driver copies all parameters of a statement at once.
    for part in parts:
        plan.append((_put_parts(1, len(part)), part))
    if gone:
        plan += _removals(gone)
    if removes:
        plan.append((DROP_FACT, INSIDE[:1]))
    for trim in outcome.trims.items():
        plan.append(("DELETE FROM holdfast_journal WHERE namespace = ? AND version <= ?", trim))
    return plan


def _removals(gone: Iterable[Address]) -> Iterator[Statement]:
    by_owner: defaultdict[tuple[str, ...], list[tuple[Any]]] = defaultdict(list)
    for at in gone:
        if at.space == KV:
            by_owner[plugin_column(at.namespace),].append((at.key,))
        else:
            by_owner[at.namespace, at.space].append((bound(at.key),))
    for owner, keys in by_owner.items():
        for length, some in chunks(keys):
            drop = _drop_kv(length) if len(owner) == 1 else _drop_rows(table_of(owner[1]), length)
            yield drop, [*owner, *some]


def split(outcome: Outcome, most: int) -> Iterator[Outcome]:
    """Yield parts of an outcome with at most so many rows and records each, to be saved in this order."""
    rows, journal = list(outcome.rows.items()), outcome.journal
    yield msgspec.structs.replace(outcome, rows={}, journal=[], trims={})
    for start in range(0, max(len(rows), len(journal)), most):
        stop = start + most
        yield Outcome([], [], rows=dict(rows[start:stop]), journal=journal[start:stop], trims={})
    if outcome.trims:
        yield Outcome([], [], rows={}, journal=[], trims=outcome.trims)


def _expire(run: Run) -> Iterator[Statement]:
    """Write the records of a run, then delete their entries."""
    owner = plugin_column(run.namespace)
    yield _RUN, (run.namespace, run.first - 1, run.at, run.at, owner, run.until, run.count)
    yield _RUN_GONE, (owner, run.namespace, run.first, run.first + run.count)


def pages(outcome: Outcome) -> int:
    """Estimate, rather too high than too low, how many pages of 4 KiB an outcome adds to the log."""
    count = 4 + 2 * len(outcome.rows) + len(outcome.journal) // 8 + len(outcome.namespaces)
    for row in outcome.rows.values():
        if row is not None:
            count += row.size // 4096 + 1
    for run in outcome.runs:
        count += 2 * run.count + run.count // 8 + 1
    return count


def _puts(rows: list[tuple[Any, ...]], text: Callable[[int, int], str]) -> list[Statement]:
    """Return the statements that put rows. `text` makes one from the numbers of rows and of columns."""
    by_width: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        by_width[len(row)].append(row)
    return [
        (text(length, width), parameters)
        for width, alike in by_width.items()
        for length, parameters in chunks(alike)
    ]


def _columns(new: Row) -> tuple[Any, ...]:
    usual = (new.value, new.version, new.created_at, new.updated_at, new.last_writer, new.request_id)
    if new.semantics is not None or new.spec_ref is not None:
        return *usual, new.expires_at, new.semantics, new.spec_ref
    return usual if new.expires_at is None else (*usual, new.expires_at)


def _record_columns(record: Record) -> tuple[Any, ...]:
    columns = astuple(record)
    return columns[:_USUAL_OF_RECORD] if columns[_USUAL_OF_RECORD:] == _NOTHING_MORE else columns


def _namespace_columns(namespace: Namespace) -> tuple[Any, ...]:
    columns = astuple(namespace)
    return columns[:-1] if namespace.policy is None else columns


@cache
def _put_kv(length: int, width: int) -> str:
    return _upsert("plugin_kv_storage", KV_COLUMNS, "plugin_name, key", length, width)


@cache
def _put_rows(length: int, width: int) -> str:
    return _upsert("holdfast_rows", ROW_COLUMNS, "namespace, space, key", length, width)


@cache
def _put_parts(length: int, width: int) -> str:
    return _upsert("holdfast_parts", PART_COLUMNS, "namespace, space, key", length, width)


@cache
def _put_namespaces(length: int, width: int) -> str:
    return _upsert("holdfast_namespaces", NAMESPACE_COLUMNS, "name", length, width)


@cache
def _put_journal(length: int, width: int) -> str:
    return f"INSERT INTO holdfast_journal ({_first(JOURNAL_COLUMNS, width)}) {places(length, width)}"


@cache
def _drop_kv(length: int) -> str:
    return f"DELETE FROM plugin_kv_storage WHERE plugin_name = ? AND key IN ({', '.join('?' * length)})"


@cache
def _drop_rows(table: str, length: int) -> str:
    return f"DELETE FROM {table} WHERE namespace = ? AND space = ? AND key IN ({', '.join('?' * length)})"


def _upsert(table: str, columns: str, key: str, length: int, width: int) -> str:
    """Return an upsert of rows. The columns after the first `width` become NULL."""
    names = columns.split(", ")
    new = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key.split(", "))
    return (
        f"INSERT INTO {table} ({_first(columns, width)}) {places(length, width)} "
        f"ON CONFLICT ({key}) DO UPDATE SET {new}"
    )


def _first(columns: str, width: int) -> str:
    return ", ".join(columns.split(", ")[:width])
