"""The SQL of the PostgreSQL engine, except the statement that saves, and the conversion of columns to rows.

A statement takes its rows as one array per column, so that its text depends on what is asked and never on how
much. Optional conditions are omitted from the text rather than disabled by a parameter, since a plan is made
once and must be able to use an index.

Times are integer milliseconds outside the statements and `timestamptz` inside the database. The conversion is
exact and happens in SQL. Arrays other than of texts go in and out as text: the driver asks the server about
every type that it does not know, on every connection anew, and that takes the server longer than the first
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, Final, cast

from holdfast.engines.sql.layout import PARTS
from holdfast.rows import OVERHEAD, Address, Row

# Columns.

ROW: Final = (
    *("value", "size", "version", "created_at", "updated_at", "expires_at"),
    *("last_writer", "semantics", "request_id", "spec_ref"),
)
"""The columns of a row in every answer: the fields of `Row`, in order."""

PUT: Final = tuple(column for column in ROW if column != "size")
"""The columns that are written for a row, after its key."""

PUT_PART: Final = ("value", "version", "created_at", "updated_at", "last_writer", "data")
"""The columns that are written for a part of a blob, after its key."""

RECORD: Final = (
    *("version", "op", "key", "at", "last_writer", "request_id"),
    *("purpose", "lag_ms", "expired_version", "detail"),
)
"""The columns of the journal, after the namespace."""

FIRST: Final = ("revision", "keys", "bytes", "requests", "journal_floor", "created_at", "changed_at")
COUNTERS: Final = (*FIRST, *PARTS)
"""The columns of a namespace's row, after its name. Those in `FIRST` have no default."""

BESIDE: Final = (
    "length(last_writer) + coalesce(length(request_id), 0) + coalesce(length(semantics), 0) "
    "+ coalesce(length(spec_ref), 0)"
)
"""The size of a row's texts besides its key and value, in characters."""

_NOT_OF_PARTS: Final = ("expires_at", "semantics", "request_id", "spec_ref")
_TIMES: Final = frozenset({"created_at", "updated_at", "expires_at", "changed_at", "at"})
_NUMBERS: Final = _TIMES | set(COUNTERS) | {"size", "version", "lag_ms", "expired_version"}


def type_of(column: str) -> str:
    """Return the SQL type in which a column is passed in and out of the database."""
    if column == "data":
        return "bytea"
    return "bigint" if column in _NUMBERS else "text"


def array_of(column: str, parameter: str) -> str:
    """Return SQL for an array of a column's values. Numbers are passed as text: see `array_text`."""
    kind = type_of(column)
    return f"{parameter}::text::bigint[]" if kind == "bigint" else f"{parameter}::{kind}[]"


def array_text(numbers: Iterable[int | None]) -> str:
    """Return an array of numbers as text.

    This saves the driver work: it asks of each element of an array whether it is an array too.
    """
    return f"{{{','.join(map(str, numbers))}}}".replace("None", "NULL")


def keys_text(addresses: Iterable[Address]) -> str:
    """Return the keys of addresses that are not those of entries as text, for an array of bytes."""
    keys = [r"\\x" + cast("bytes", address.key).hex() for address in addresses]
    return f"{{{','.join(keys)}}}"


def flags_text(flags: Iterable[bool]) -> str:
    """Return an array of flags as text."""
    return f"{{{','.join('t' if flag else 'f' for flag in flags)}}}"


def numbers_of(text: str) -> list[int]:
    """Return the numbers of an array that was answered as text."""
    return [*map(int, text[1:-1].split(","))]


def instant(milliseconds: str) -> str:
    """Return SQL that converts milliseconds to a time."""
    return f"(timestamptz 'epoch' + {milliseconds} * interval '1 millisecond')"


def stored(column: str, given: str | None = None) -> str:
    """Return SQL that converts a value for storing in a column. `given` is by default the column's name."""
    given = column if given is None else given
    return instant(given) if column in _TIMES else given


def answered(column: str) -> str:
    """Return SQL that converts a stored column for an answer."""
    if column not in _TIMES:
        return column
    # A client that writes around Holdfast may store an infinity, which our times can't represent.
    bounded = f"least(greatest({column}, timestamptz 'epoch'), timestamptz '9999-12-31 00:00:00Z')"
    return f"CASE WHEN {column} IS NOT NULL THEN floor(extract(epoch FROM {bounded}) * 1000)::bigint END"


CLOCK: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The server's clock at this point of a statement, not at the start of its transaction."""


def in_time(until: str) -> str:
    """Return SQL that is 1 until the server's clock has passed a time in milliseconds, then 0.

    Without a time (NULL) it is always 1.
    """
    return f"coalesce(clock_timestamp() <= {instant(f'{until}::bigint')}, true)::int"


def row(value: str, *, shown: str) -> str:
    """Return SQL for the columns of a row. Its value is in column `value` and is returned as `shown`."""
    rest = (f"{answered(column)} AS {column}" for column in ROW[2:])
    return ", ".join([f"{shown} AS value", f"octet_length({value})::bigint AS size", *rest])


def part() -> str:
    """Return SQL for the columns of a part of a blob, in the order of a row, without its bytes."""
    given = {"size": "octet_length(value)::bigint + octet_length(data)", "value": "value"}
    given |= {column: f"NULL::{type_of(column)}" for column in _NOT_OF_PARTS}
    return ", ".join(f"{given.get(column, answered(column))} AS {column}" for column in ROW)


def passed(now: str) -> str:
    """Return SQL that tests whether a row's deadline is not later than `now`."""
    # Deadlines count in whole milliseconds, as in `Row.alive`: a remaining fraction is ignored.
    return f"expires_at < {instant(f'({now}::bigint + 1)')}"


def living(now: str) -> str:
    """Return SQL that tests whether a row is visible to a reader at `now`."""
    return f"(expires_at IS NULL OR NOT {passed(now)})"


def row_of(values: Sequence[Any], data: bytes | None = None) -> Row:
    """Build a row from the columns `ROW`, and from the bytes of a part."""
    value, size, version, created_at, updated_at, expires_at, writer, semantics, request_id, spec_ref = values
    return Row(
        value=value,
        size=size,
        version=version,
        created_at=created_at,
        updated_at=updated_at,
        expires_at=expires_at,
        last_writer=writer,
        semantics=semantics,
        request_id=request_id,
        spec_ref=spec_ref,
        data=data,
    )


# The steps of a transaction.

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


def add_namespace(name: str, now: str) -> str:
    """Create the row of a namespace if it does not exist. The arguments are SQL."""
    return (
        f"INSERT INTO holdfast_namespaces (name, {', '.join(FIRST)}) "
        f"VALUES ({name}, 0, 0, 0, 0, 0, {instant(f'{now}::bigint')}, timestamptz 'epoch') "
        "ON CONFLICT DO NOTHING"
    )


def commit_until(until: int) -> str:
    """Commit, unless the server's clock has passed a time: then the division fails and prevents it."""
    return f"SELECT 1 / {in_time(str(until))}; COMMIT"


def lock_namespace(name: str) -> str:
    """Lock a namespace against all other writers until the transaction ends. The argument is SQL."""
    return f"SELECT 1 FROM holdfast_namespaces WHERE name = {name} FOR UPDATE"


@cache
def load(*, kv: bool, others: bool, alike: bool, parts: bool = False) -> str:
    """Load the row of a namespace, at position 0, and other rows by their position in the request, from 1.

    The row of the namespace comes with its mark and the server's clock.

    Parameters: the namespace; with `kv` the plugin, keys, and whether each value is wanted; with `others` the
    namespace, spaces, keys, whether each value is wanted, and the offset of the positions. With `alike`,
    whether values are wanted is one parameter for all keys instead of an array. With `parts`, for parts of
    blobs: the namespace, spaces, keys, and the offset of the positions. They come without their bytes.
    """
    parameters = _numbered()
    pieces = [_load_namespace(parameters)]
    if kv:
        pieces.append(_load_kv(parameters, alike=alike))
    if others:
        pieces.append(_load_others(parameters, alike=alike))
    if parts:
        pieces.append(_load_parts(parameters))
    return "\nUNION ALL\n".join(pieces)


OVERDUE: Final = (
    "SELECT count(*), coalesce(sum(width), 0)::bigint, max(expires_at), "
    "coalesce(sum(envelope), 0)::bigint, coalesce(sum(names), 0)::bigint FROM ("
    f"SELECT octet_length(key) + octet_length(value_json) AS width, {BESIDE} AS envelope, "
    f"length(key) + length(last_writer) AS names, {answered('expires_at')} AS expires_at "
    f"FROM (SELECT * FROM plugin_kv_storage WHERE {passed('$1')} "
    "ORDER BY expires_at, plugin_name, key LIMIT $2) AS due "
    "WHERE plugin_name = $3 AND version > 0 AND semantics IS NULL "
    "ORDER BY due.expires_at, key LIMIT $4) AS plain"
)
"""Sums over plain expired entries, among a limited number of due entries.

Parameters: now; the number of due entries to examine; the plugin; the number of entries to sum up.
"""


JOURNAL_BYTES: Final = (
    f"SELECT coalesce(sum({OVERHEAD} + length(key) + coalesce(length(last_writer), 0) "
    "+ coalesce(length(request_id), 0) + coalesce(length(purpose), 0) "
    "+ coalesce(octet_length(detail), 0)), 0)::bigint "
    "FROM holdfast_journal WHERE namespace = $1 AND version <= $2"
)
"""The size of a journal up to a version, in bytes. Parameters: the namespace, the version."""

COUNT: Final = (
    "SELECT space, sum(rows)::bigint, sum(width)::bigint, sum(beside)::bigint FROM ("
    "SELECT 'kv' AS space, count(*) AS rows, "
    "coalesce(sum(octet_length(key) + octet_length(value_json)), 0) AS width, "
    f"coalesce(sum({BESIDE}), 0) AS beside FROM plugin_kv_storage WHERE plugin_name = $1 AND version > 0 "
    "UNION ALL SELECT space, count(*), sum(octet_length(key) + octet_length(value)), "
    f"sum({BESIDE}) FROM holdfast_rows WHERE namespace = $2 GROUP BY space "
    "UNION ALL SELECT space, count(*), sum(octet_length(key) + octet_length(value) + octet_length(data)), "
    "sum(length(last_writer)) FROM holdfast_parts WHERE namespace = $2 GROUP BY space) AS spaces "
    "GROUP BY space"
)
"""Counts and sizes of the rows of a namespace, by space. Parameters: the plugin, the namespace."""

FALLING_DUE: Final = (
    f"SELECT plugin_name, key, {answered('expires_at')} FROM (SELECT plugin_name, key, expires_at "
    f"FROM plugin_kv_storage WHERE NOT {passed('$1')} AND {passed('$2')} "
    "AND (semantics IS NOT NULL OR plugin_name LIKE 'semantic/%') ORDER BY expires_at OFFSET 0) AS due "
    "ORDER BY expires_at LIMIT $3"
)
"""Entries with semantics, or of the semantic family, in the order of their deadlines.

Parameters: the time after which the deadline lies, the latest deadline, the limit.
"""


MARK: Final = "xmin::text::bigint"
"""The mark of a namespace's row. Every change of the namespace gives it a new one."""


def _numbered() -> Iterator[str]:
    return (f"${number}" for number in count(1))


def _load_namespace(parameters: Iterator[str]) -> str:
    nothing = ", ".join(f"NULL::{type_of(column)}" for column in ROW[1:])
    return (
        f"SELECT 0::bigint AS position, policy, {nothing}, "
        f"ARRAY[{', '.join([MARK, CLOCK, *map(answered, COUNTERS)])}]::text AS counters "
        f"FROM holdfast_namespaces WHERE name = {next(parameters)}"
    )


def _load_kv(parameters: Iterator[str], *, alike: bool) -> str:
    plugin, keys, wanted = (next(parameters) for _ in range(3))
    key = f"plugin_name = {plugin} AND key = asked_key"
    shown, asked = _asked("value_json", {"asked_key": f"{keys}::text[]"}, wanted, alike=alike)
    return (
        f"SELECT position, {', '.join(ROW)}, NULL::text FROM {asked} "
        f"CROSS JOIN LATERAL {looked_up(row('value_json', shown=shown), 'plugin_kv_storage', key)}"
    )


def _load_others(parameters: Iterator[str], *, alike: bool) -> str:
    namespace, spaces, keys, wanted, shift = (next(parameters) for _ in range(5))
    arrays = {"asked_space": f"{spaces}::text[]", "asked_key": f"{keys}::text::bytea[]"}
    shown, asked = _asked("value", arrays, wanted, alike=alike)
    key = f"namespace = {namespace} AND space = asked_space AND key = asked_key"
    return (
        f"SELECT position + {shift}::bigint, {', '.join(ROW)}, NULL::text FROM {asked} "
        f"CROSS JOIN LATERAL {looked_up(row('value', shown=shown), 'holdfast_rows', key)}"
    )


def _load_parts(parameters: Iterator[str]) -> str:
    namespace, spaces, keys, shift = (next(parameters) for _ in range(4))
    asked = (
        f"unnest({spaces}::text[], {keys}::text::bytea[]) "
        "WITH ORDINALITY AS asked (asked_space, asked_key, position)"
    )
    key = f"namespace = {namespace} AND space = asked_space AND key = asked_key"
    return (
        f"SELECT position + {shift}::bigint, {', '.join(ROW)}, NULL::text FROM {asked} "
        f"CROSS JOIN LATERAL {looked_up(part(), 'holdfast_parts', key)}"
    )


def _asked(value: str, arrays: dict[str, str], wanted: str, *, alike: bool) -> tuple[str, str]:
    """Return the expression for the value, and the FROM item for the requested rows (an array per column)."""
    if not alike:
        arrays, wanted = arrays | {"wanted": f"{wanted}::text::boolean[]"}, "wanted"
    return (
        f"CASE WHEN {wanted} OR expires_at IS NOT NULL THEN {value} END",
        f"unnest({', '.join(arrays.values())}) WITH ORDINALITY AS asked ({', '.join([*arrays, 'position'])})",
    )


def looked_up(columns: str, table: str, key: str) -> str:
    # The planner could turn a plain join into a walk over all rows of the namespace, which looks cheap if it
    # has seen a small table. The OFFSET forces a lookup by the whole key.
    return f"(SELECT {columns} FROM {table} WHERE {key} OFFSET 0) AS found"


# Reading.

_KV_KEY: Final = "plugin_name = asked_plugin AND key = asked_key"
READ_KV: Final = (
    f"SELECT position, {', '.join(ROW)} "
    "FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (asked_plugin, asked_key, position) "
    f"CROSS JOIN LATERAL {looked_up(row('value_json', shown='value_json'), 'plugin_kv_storage', _KV_KEY)}"
)
"""Entries by position from 1, including expired ones. Parameters: arrays of plugins and of keys."""

OTHER_KEY: Final = "namespace = asked_namespace AND space = asked_space AND key = asked_key"
READ_OTHERS: Final = (
    f"SELECT position, {', '.join(ROW)} "
    "FROM unnest($1::text[], $2::text[], $3::text::bytea[]) "
    "WITH ORDINALITY AS asked (asked_namespace, asked_space, asked_key, position) "
    f"CROSS JOIN LATERAL {looked_up(row('value', shown='value'), 'holdfast_rows', OTHER_KEY)}"
)
"""Other rows by position from 1, including expired ones.

Parameters: arrays of namespaces, of spaces and of keys.
"""

READ_PARTS: Final = (
    f"SELECT position, {', '.join(ROW)}, data "
    "FROM unnest($1::text[], $2::text[], $3::text::bytea[]) "
    "WITH ORDINALITY AS asked (asked_namespace, asked_space, asked_key, position) "
    f"CROSS JOIN LATERAL {looked_up(f'{part()}, data', 'holdfast_parts', OTHER_KEY)}"
)
"""Parts of blobs with their bytes, by position from 1. Parameters: as for `READ_OTHERS`."""

OWNERS: Final = (
    "WITH RECURSIVE owner AS ((SELECT namespace FROM holdfast_rows ORDER BY namespace LIMIT 1) UNION ALL "
    "SELECT following.namespace FROM owner CROSS JOIN LATERAL (SELECT namespace FROM holdfast_rows AS other "
    "WHERE other.namespace > owner.namespace ORDER BY namespace LIMIT 1) AS following) "
    "SELECT owner.namespace FROM owner CROSS JOIN LATERAL (SELECT FROM holdfast_rows AS other "
    "WHERE other.namespace = owner.namespace AND space = $1 LIMIT 1) AS found"
)
"""The namespaces that have rows in a space. The query jumps from each namespace to the next. With EXISTS the
server would read all rows of the space. Parameter: the space."""

_WEIGHT: Final = "CASE WHEN wanted OR expires_at IS NOT NULL THEN octet_length({}) ELSE 0 END AS weight"
WEIGH: Final = (
    "SELECT coalesce(sum(weight), 0)::bigint FROM ("
    "SELECT weight FROM unnest($2::text[], $3::text::boolean[]) AS asked (asked_key, wanted) "
    "CROSS JOIN LATERAL "
    + looked_up(_WEIGHT.format("value_json"), "plugin_kv_storage", "plugin_name = $1 AND key = asked_key")
    + " UNION ALL SELECT weight FROM unnest($5::text[], $6::text::bytea[], $7::text::boolean[]) "
    "AS asked (asked_space, asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(
        _WEIGHT.format("value"), "holdfast_rows", "namespace = $4 AND space = asked_space AND key = asked_key"
    )
    + ") AS weights"
)
"""The total size of the values that `load` would return. PostgreSQL knows it without reading them.

Parameters: the plugin, keys, and whether each value is wanted; the namespace, spaces, keys, and whether each
value is wanted.
"""

READ_CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8 * 1000"
REMEMBERED: Final = (
    "SELECT greatest(0, (SELECT value::bigint FROM holdfast_meta WHERE name = 'clock'), "
    "(SELECT (extract(epoch FROM max(changed_at)) * 1000)::bigint FROM holdfast_namespaces))"
)
REMEMBER: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('clock', $1) ON CONFLICT (name) DO UPDATE "
    "SET value = greatest(holdfast_meta.value::bigint, excluded.value::bigint)::text RETURNING value"
)
"""Remember a time; returns the latest time that any process has stored. Parameter: the time."""
KEPT_KEYS: Final = "SELECT value FROM holdfast_meta WHERE name = 'audit_key'"
KEEP_KEYS: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('audit_key', $1) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE holdfast_meta.value = $2"
)
"""Replace the stored names of keys. A store without names accepts any.

Parameters: the new names, and the names that must be stored now.
"""


@cache
def scan_kv(*, values: bool, bounded: bool, after: bool, reverse: bool = False) -> str:
    """Scan the keys of a plugin.

    Parameters: now, the limit, the byte limit, the first key, the plugin; with `bounded` the key to stop
    before; with `after` the key to continue after. Returns the key, the running total of sizes, and with
    `values` the row. The answer includes one row beyond the byte limit, so that the caller knows that there
    is more: the row that exceeds the limit, or the second row if the first exceeds it.
    """
    owner = "plugin_name = $5" + _bounds(6, bounded=bounded, after=after, reverse=reverse)
    return _scan("plugin_kv_storage", owner, "value_json", values=values, reverse=reverse)


@cache
def scan_others(*, values: bool, bounded: bool, after: bool, reverse: bool = False) -> str:
    """Scan the keys of a space; see `scan_kv`.

    Parameters: now, the limit, the byte limit, the first key, the namespace, the space; with `bounded` the
    key to stop before; with `after` the key to continue after.
    """
    owner = "namespace = $5 AND space = $6" + _bounds(7, bounded=bounded, after=after, reverse=reverse)
    return _scan("holdfast_rows", owner, "value", values=values, reverse=reverse)


def _bounds(first: int, *, bounded: bool, after: bool, reverse: bool = False) -> str:
    stop = f" AND key < ${first}" if bounded else ""
    return stop + (f" AND key {'<' if reverse else '>'} ${first + bounded}" if after else "")


def _scan(table: str, owner: str, value: str, *, values: bool, reverse: bool) -> str:
    order = "key DESC" if reverse else "key"
    size = f"octet_length(key) + octet_length({value}) + 256" if values else "octet_length(key)"
    columns = f", {row(value, shown=value)}" if values else ""
    return (
        f"SELECT {', '.join(['key', 'total', *(ROW if values else ())])} FROM ("
        "SELECT *, sum(width) OVER walk AS total, row_number() OVER walk AS place FROM ("
        f"SELECT key, {size} AS width{columns} FROM {table} "
        f"WHERE {owner} AND key >= $4 AND {living('$1')} "
        f"ORDER BY {order} LIMIT $2) AS reached "
        f"WINDOW walk AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)) AS summed "
        f"WHERE total - width <= $3::bigint OR place = 2 ORDER BY {order}"
    )


@cache
def scan_parts(*, after: bool) -> str:
    """Scan the keys of the parts of an upload. Their rows are read by address.

    Parameters: the namespace, the space, the first key, the limit; with `after` the key to continue after.
    """
    return (
        "SELECT key FROM holdfast_parts WHERE namespace = $1 AND space = $2 AND key >= $3"
        f"{' AND key > $5' if after else ''} ORDER BY key LIMIT $4"
    )


@cache
def due_kv(*, one: bool) -> str:
    """Find expired entries, longest overdue first.

    Parameters: now, the limit; with `one` the plugin. The inner OFFSET forces the use of the index on
    deadlines: the index on the plugin's keys would read all living entries.
    """
    return (
        f"SELECT plugin_name, key, {answered('expires_at')} FROM (SELECT plugin_name, key, expires_at "
        f"FROM plugin_kv_storage WHERE {passed('$1')} ORDER BY expires_at OFFSET 0) AS due "
        f"{'WHERE plugin_name = $3 ' if one else ''}ORDER BY expires_at LIMIT $2"
    )


@cache
def due_others(*, one: bool) -> str:
    """Find expired rows of a space, longest overdue first.

    Parameters: now, the limit, the space; with `one` the namespace.
    """
    return (
        f"SELECT name, key, {answered('expires_at')} FROM holdfast_namespaces CROSS JOIN LATERAL ("
        "SELECT key, expires_at FROM holdfast_rows "
        f"WHERE namespace = name AND space = $3 AND {passed('$1')} ORDER BY expires_at LIMIT $2) AS due "
        f"{'WHERE name = $4 ' if one else ''}ORDER BY expires_at LIMIT $2"
    )


@cache
def journal(*, bounded: bool, key: bool, newest_first: bool, most: int | None = None) -> str:
    """Read records of a namespace. Each comes with the store's epoch and the journal's floor and head.

    With `most`, the answer ends with the record that takes the size of the details past it, but not before
    the second record. If there are no records, the answer is one row without a record.

    Parameters: the namespace, the version to begin after, the first key, the limit; with `bounded` the key
    to stop before; with `key` the only key.
    """
    order = "version DESC" if newest_first else "version"
    columns = ", ".join(f"{answered(column)} AS {column}" for column in RECORD)
    records = (
        f"SELECT {columns} FROM holdfast_journal WHERE namespace = $1 AND version > $2 "
        f"AND key >= $3{' AND key < $5' if bounded else ''}{f' AND key = ${5 + bounded}' if key else ''} "
        f"ORDER BY {order} LIMIT $4"
    )
    if most is not None:
        records = (
            f"SELECT {', '.join(RECORD)} FROM (SELECT *, sum(width) OVER walk AS total, "
            "row_number() OVER walk AS place FROM ("
            f"SELECT *, coalesce(octet_length(detail), 0) AS width FROM ({records}) AS asked) AS reached "
            f"WINDOW walk AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)) AS summed "
            f"WHERE total - width <= {most} OR place = 2"
        )
    return (
        f"SELECT epoch.value, coalesce(journal_floor, 0), coalesce(revision, 0), {', '.join(RECORD)} "
        "FROM holdfast_meta AS epoch LEFT JOIN holdfast_namespaces ON holdfast_namespaces.name = $1 "
        f"LEFT JOIN LATERAL ({records}) AS record ON true "
        f"WHERE epoch.name = 'epoch' ORDER BY {order}"
    )


@cache
def totals(*, one: bool) -> str:
    """Read the rows of namespaces, with the number and size of their expired entries that still count.

    Parameters: now; with `one` the name of the namespace.
    """
    return (
        f"SELECT name, policy, {', '.join(map(answered, COUNTERS))}, "
        "coalesce(due_keys, 0), coalesce(due_bytes, 0) FROM holdfast_namespaces LEFT JOIN ("
        "SELECT plugin_name, count(*) AS due_keys, "
        "sum(octet_length(key) + octet_length(value_json)) AS due_bytes "
        f"FROM plugin_kv_storage WHERE {passed('$1')} AND version > 0 GROUP BY plugin_name) AS due "
        "ON name = CASE WHEN strpos(plugin_name, '/') > 0 THEN plugin_name ELSE 'kv/' || plugin_name END "
        f"{'WHERE name = $2 ' if one else ''}ORDER BY name"
    )
