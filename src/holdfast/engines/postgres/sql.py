"""Every statement that the engine sends but the one that saves, each written once.

Law: SQL only. A statement takes its rows as one array per column, whatever their number, so that its text
depends on what is asked and never on how much. What depends on the call is left out rather than disabled by
a parameter, since a plan is made once and must be able to use an index.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final

from holdfast.engines.postgres.columns import (
    BESIDE,
    CLOCK,
    COUNTERS,
    FIRST,
    RECORD,
    ROW,
    answered,
    in_time,
    instant,
    living,
    passed,
    row,
    type_of,
)
from holdfast.rows import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator

# The steps of a transaction.

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


def add_namespace(name: str, now: str) -> str:
    """Make the row of a namespace, unless it is there. What is given is SQL."""
    return (
        f"INSERT INTO holdfast_namespaces (name, {', '.join(FIRST)}) "
        f"VALUES ({name}, 0, 0, 0, 0, 0, {instant(f'{now}::bigint')}, timestamptz 'epoch') "
        "ON CONFLICT DO NOTHING"
    )


def commit_until(until: int) -> str:
    """Commit, unless the server's clock has passed a time: then the division fails, and so does the rest."""
    return f"SELECT 1 / {in_time(str(until))}; COMMIT"


def lock_namespace(name: str) -> str:
    """Keep all others from changing a namespace until the transaction ends. What is given is SQL."""
    return f"SELECT 1 FROM holdfast_namespaces WHERE name = {name} FOR UPDATE"


@cache
def load(*, kv: bool, others: bool, alike: bool) -> str:
    """The row of a namespace, at position 0, and rows by the position from 1 at which they are asked for.

    The row of the namespace comes with its mark and with what the server's clock says.

    Parameters: the namespace; with `kv` the plugin, keys, and whether each value is wanted; with `others` the
    namespace, spaces, keys, whether each value is wanted, and by how much to shift the positions. With
    `alike` there is one word on values for all of the keys, and not one for each.
    """
    parameters = _numbered()
    parts = [_load_namespace(parameters)]
    if kv:
        parts.append(_load_kv(parameters, alike=alike))
    if others:
        parts.append(_load_others(parameters, alike=alike))
    return "\nUNION ALL\n".join(parts)


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
"""The sums of plain entries past a deadline, of as many due entries as may be looked at.

Parameters: now; how many to look at; the plugin; how many to sum up.
"""


JOURNAL_BYTES: Final = (
    f"SELECT coalesce(sum({OVERHEAD} + length(key) + coalesce(length(last_writer), 0) "
    "+ coalesce(length(request_id), 0) + coalesce(length(purpose), 0) "
    "+ coalesce(octet_length(detail), 0)), 0)::bigint "
    "FROM holdfast_journal WHERE namespace = $1 AND version <= $2"
)
"""What a journal holds up to a version. Parameters: the namespace, the version."""

COUNT: Final = (
    "SELECT space, sum(rows)::bigint, sum(width)::bigint, sum(beside)::bigint FROM ("
    "SELECT 'kv' AS space, count(*) AS rows, "
    "coalesce(sum(octet_length(key) + octet_length(value_json)), 0) AS width, "
    f"coalesce(sum({BESIDE}), 0) AS beside FROM plugin_kv_storage WHERE plugin_name = $1 AND version > 0 "
    "UNION ALL SELECT space, count(*), sum(octet_length(key) + octet_length(value)), "
    f"sum({BESIDE}) FROM holdfast_rows WHERE namespace = $2 GROUP BY space) AS spaces GROUP BY space"
)
"""What the rows of a namespace come to, by space. Parameters: the plugin, the namespace."""

FALLING_DUE: Final = (
    f"SELECT plugin_name, key, {answered('expires_at')} FROM (SELECT plugin_name, key, expires_at "
    f"FROM plugin_kv_storage WHERE NOT {passed('$1')} AND {passed('$2')} "
    "AND (semantics IS NOT NULL OR plugin_name LIKE 'semantic/%') ORDER BY expires_at OFFSET 0) AS due "
    "ORDER BY expires_at LIMIT $3"
)
"""Entries that are to be noticed in time, by their deadline.

Parameters: the time that the deadline is later than, the time that it is not later than, the limit.
"""


MARK: Final = "xmin::text::bigint"
"""What tells a namespace's row from what it was before: every change of the namespace makes it another."""


def _numbered() -> Iterator[str]:
    return (f"${number}" for number in count(1))


def _load_namespace(parameters: Iterator[str]) -> str:
    nothing = ", ".join(f"NULL::{type_of(column)}" for column in ROW[1:])
    return (
        f"SELECT 0::bigint AS position, policy, {nothing}, "
        f"ARRAY[{', '.join([MARK, CLOCK, *map(answered, COUNTERS)])}] AS counters "
        f"FROM holdfast_namespaces WHERE name = {next(parameters)}"
    )


def _load_kv(parameters: Iterator[str], *, alike: bool) -> str:
    plugin, keys, wanted = (next(parameters) for _ in range(3))
    key = f"plugin_name = {plugin} AND key = asked_key"
    shown, asked = _asked("value_json", {"asked_key": f"{keys}::text[]"}, wanted, alike=alike)
    return (
        f"SELECT position, {', '.join(ROW)}, NULL::bigint[] FROM {asked} "
        f"CROSS JOIN LATERAL {looked_up(row('value_json', shown=shown), 'plugin_kv_storage', key)}"
    )


def _load_others(parameters: Iterator[str], *, alike: bool) -> str:
    namespace, spaces, keys, wanted, shift = (next(parameters) for _ in range(5))
    arrays = {"asked_space": f"{spaces}::text[]", "asked_key": f"{keys}::bytea[]"}
    shown, asked = _asked("value", arrays, wanted, alike=alike)
    key = f"namespace = {namespace} AND space = asked_space AND key = asked_key"
    return (
        f"SELECT position + {shift}::bigint, {', '.join(ROW)}, NULL::bigint[] FROM {asked} "
        f"CROSS JOIN LATERAL {looked_up(row('value', shown=shown), 'holdfast_rows', key)}"
    )


def _asked(value: str, arrays: dict[str, str], wanted: str, *, alike: bool) -> tuple[str, str]:
    """What is shown of a value, and the rows that are asked for: an array for each column."""
    if not alike:
        arrays, wanted = arrays | {"wanted": f"{wanted}::boolean[]"}, "wanted"
    return (
        f"CASE WHEN {wanted} OR expires_at IS NOT NULL THEN {value} END",
        f"unnest({', '.join(arrays.values())}) WITH ORDINALITY AS asked ({', '.join([*arrays, 'position'])})",
    )


def looked_up(columns: str, table: str, key: str) -> str:
    # As a plain join this could become a walk over all rows of the namespace, which is cheap in the eyes of a
    # planner that has seen a small table. An OFFSET keeps it a search by the whole key.
    return f"(SELECT {columns} FROM {table} WHERE {key} OFFSET 0) AS found"


# Reading.

_KV_KEY: Final = "plugin_name = asked_plugin AND key = asked_key"
READ_KV: Final = (
    f"SELECT position, {', '.join(ROW)} "
    "FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (asked_plugin, asked_key, position) "
    f"CROSS JOIN LATERAL {looked_up(row('value_json', shown='value_json'), 'plugin_kv_storage', _KV_KEY)}"
)
"""Parameters: arrays of plugins and of keys. The rows by position from 1, also those past their deadline."""

_OTHER_KEY: Final = "namespace = asked_namespace AND space = asked_space AND key = asked_key"
READ_OTHERS: Final = (
    f"SELECT position, {', '.join(ROW)} "
    "FROM unnest($1::text[], $2::text[], $3::bytea[]) "
    "WITH ORDINALITY AS asked (asked_namespace, asked_space, asked_key, position) "
    f"CROSS JOIN LATERAL {looked_up(row('value', shown='value'), 'holdfast_rows', _OTHER_KEY)}"
)
"""Parameters: arrays of namespaces, of spaces and of keys. The rows by position from 1, as above."""

OWNERS: Final = (
    "WITH RECURSIVE owner AS ((SELECT namespace FROM holdfast_rows ORDER BY namespace LIMIT 1) UNION ALL "
    "SELECT following.namespace FROM owner CROSS JOIN LATERAL (SELECT namespace FROM holdfast_rows AS other "
    "WHERE other.namespace > owner.namespace ORDER BY namespace LIMIT 1) AS following) "
    "SELECT owner.namespace FROM owner CROSS JOIN LATERAL (SELECT FROM holdfast_rows AS other "
    "WHERE other.namespace = owner.namespace AND space = $1 LIMIT 1) AS found"
)
"""The namespaces that have rows in a space: from each the next is searched, whatever lies between them. With
EXISTS the server would look at all rows of the space."""

_WEIGHT: Final = "CASE WHEN wanted OR expires_at IS NOT NULL THEN octet_length({}) ELSE 0 END AS weight"
WEIGH: Final = (
    "SELECT coalesce(sum(weight), 0)::bigint FROM ("
    "SELECT weight FROM unnest($2::text[], $3::boolean[]) AS asked (asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(_WEIGHT.format("value_json"), "plugin_kv_storage", "plugin_name = $1 AND key = asked_key")
    + " UNION ALL SELECT weight FROM unnest($5::text[], $6::bytea[], $7::boolean[]) "
    "AS asked (asked_space, asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(
        _WEIGHT.format("value"), "holdfast_rows", "namespace = $4 AND space = asked_space AND key = asked_key"
    )
    + ") AS weights"
)
"""How many bytes the values have that `load` would give, which PostgreSQL knows without reading them.

Parameters: the plugin, keys, and whether each value is wanted; the namespace, spaces, keys, and the same.
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
"""Parameter: the time. The latest that anybody has had remembered."""
KEPT_KEYS: Final = "SELECT value FROM holdfast_meta WHERE name = 'audit_key'"
KEEP_KEYS: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('audit_key', $1) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE holdfast_meta.value = $2"
)
"""Parameters: the names to keep, and those that must be kept now; a store that keeps none takes any."""


@cache
def scan_kv(*, values: bool, bounded: bool, after: bool, reverse: bool = False) -> str:
    """A walk over the keys of a plugin.

    Parameters: now, the limit, the most bytes, the first key, the plugin; with `bounded` the key to end
    before; with `after` the key to go on after. Answers the key, the sum of the sizes so far, and with
    `values` the row. One row more than fits is given, so that the caller knows of it: the one that takes the
    sum past the most, or the second if the first does.
    """
    owner = "plugin_name = $5" + _bounds(6, bounded=bounded, after=after, reverse=reverse)
    return _scan("plugin_kv_storage", owner, "value_json", values=values, reverse=reverse)


@cache
def scan_others(*, values: bool, bounded: bool, after: bool, reverse: bool = False) -> str:
    """A walk over the keys of a space, as `scan_kv`.

    Parameters: now, the limit, the most bytes, the first key, the namespace, the space; with `bounded` the
    key to end before; with `after` the key to go on after.
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
def due_kv(*, one: bool) -> str:
    """Rows past their deadline, the longest overdue first.

    Parameters: now, the limit; with `one` the plugin that is asked about. The inner OFFSET keeps the walk on
    the index of deadlines: that of the plugin's keys would lead through all that is alive.
    """
    return (
        f"SELECT plugin_name, key, {answered('expires_at')} FROM (SELECT plugin_name, key, expires_at "
        f"FROM plugin_kv_storage WHERE {passed('$1')} ORDER BY expires_at OFFSET 0) AS due "
        f"{'WHERE plugin_name = $3 ' if one else ''}ORDER BY expires_at LIMIT $2"
    )


@cache
def due_others(*, one: bool) -> str:
    """Rows of a space past their deadline, the longest overdue first.

    Parameters: now, the limit, the space; with `one` the namespace that is asked about.
    """
    return (
        f"SELECT name, key, {answered('expires_at')} FROM holdfast_namespaces CROSS JOIN LATERAL ("
        "SELECT key, expires_at FROM holdfast_rows "
        f"WHERE namespace = name AND space = $3 AND {passed('$1')} ORDER BY expires_at LIMIT $2) AS due "
        f"{'WHERE name = $4 ' if one else ''}ORDER BY expires_at LIMIT $2"
    )


@cache
def journal(*, bounded: bool, key: bool, newest_first: bool, most: int | None = None) -> str:
    """Records of a namespace, each after the store's epoch and the journal's floor and head.

    With `most` they end with the one that takes the bytes of their details past it, or the second.

    Parameters: the namespace, the version to begin after, the first key, the limit; with `bounded` the key
    to end before; with `key` the only key. Without any record there is one answer that lacks it.
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
    """The rows of namespaces, and what of their entries is past its deadline but still counted.

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
