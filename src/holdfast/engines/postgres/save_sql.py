"""The statement that saves all changes of a group, provided that the namespace has not changed since.

Law: SQL only. The statement takes its rows as one array per column, or one value if all rows have the same.
So its text depends on which kinds of changes it makes, never on how many. It reads nothing that another
process may change while it waits for the namespace's row. Where it must, as for a run of expired entries,
that row is locked first.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.engines.postgres.columns import (
    COUNTERS,
    PUT,
    PUT_PART,
    RECORD,
    answered,
    array_of,
    in_time,
    instant,
    passed,
    stored,
    type_of,
)
from holdfast.engines.postgres.sql import MARK, looked_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Part(NamedTuple):
    """A part of the statement, and its columns that have the same value in all rows."""

    name: str
    same: tuple[str, ...] = ()


@cache
def save(*parts: Part) -> str:
    """Return one statement for all changes of a group. Its parameters are those of its parts, in order.

    The first part updates the namespace's row. If the row is unchanged since it was loaded, the statement
    returns its new mark. Otherwise the statement does nothing and returns no row. If the server's clock has
    passed the given time, the statement fails with a division by zero and does nothing.
    """
    parameters = Parameters()
    first, *others = parts
    changes = [f"unchanged AS ({parameters.of(first)})"]
    changes += [f"{part.name} AS ({parameters.of(part)})" for part in others]
    return f"WITH {', '.join(changes)} SELECT mark FROM unchanged"


_UNCHANGED: Final = "EXISTS (SELECT FROM unchanged)"


class Parameters:
    """The numbered parameters of the statement, and the single-value columns of the current part."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.same: tuple[str, ...] = ()

    def __next__(self) -> str:
        return f"${next(self._numbers)}"

    def of(self, part: Part, parts: Mapping[str, Callable[[Parameters], str]] | None = None) -> str:
        """Return the SQL of a part, which is one of `parts`, or of those of one namespace."""
        self.same = part.same
        return (_PARTS if parts is None else parts)[part.name](self)


def _put_kv(parameters: Parameters) -> str:
    """Upsert entries. Parameters: the plugin; an array of keys; the columns `PUT`."""
    owner = {"plugin_name": next(parameters)}
    key = {"key": f"{next(parameters)}::text[]"}
    return put_rows("plugin_kv_storage", owner, key, {"value": "value_json"}, parameters)


def _put_others(parameters: Parameters) -> str:
    """Upsert other rows. Parameters: the namespace; arrays of spaces and of keys; the columns `PUT`."""
    owner = {"namespace": next(parameters)}
    key = {"space": f"{next(parameters)}::text[]", "key": f"{next(parameters)}::text::bytea[]"}
    return put_rows("holdfast_rows", owner, key, {}, parameters)


def _put_parts(parameters: Parameters) -> str:
    """Upsert parts of blobs. Parameters: as for `_put_others`, with the columns `PUT_PART`."""
    owner = {"namespace": next(parameters)}
    key = {"space": f"{next(parameters)}::text[]", "key": f"{next(parameters)}::text::bytea[]"}
    return put_rows("holdfast_parts", owner, key, {}, parameters, columns=PUT_PART)


def put_rows(
    table: str,
    owner: dict[str, str],
    key: dict[str, str],
    names: dict[str, str],
    parameters: Parameters,
    *,
    columns: Sequence[str] = PUT,
) -> str:
    """Upsert rows into a table. `names` has the columns that have other names there."""
    written = [names.get(column, column) for column in columns]
    selected, rows = _given(key, columns, parameters)
    return (
        f"INSERT INTO {table} ({', '.join([*owner, *key, *written])}) "
        f"SELECT {', '.join([*owner.values(), *key, *selected])} FROM {rows} WHERE {_UNCHANGED} "
        f"ON CONFLICT ({', '.join([*owner, *key])}) "
        f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in written)}"
    )


def _drop_kv(parameters: Parameters) -> str:
    """Delete entries. Parameters: the plugin; an array of keys."""
    plugin, keys = next(parameters), next(parameters)
    return (
        f"DELETE FROM plugin_kv_storage WHERE plugin_name = {plugin} AND key = ANY ({keys}::text[]) "
        f"AND {_UNCHANGED}"
    )


def _drop_others(parameters: Parameters, table: str = "holdfast_rows") -> str:
    """Delete other rows. Parameters: the namespace; arrays of spaces and of keys."""
    namespace, spaces, keys = (next(parameters) for _ in range(3))
    key = f"namespace = {namespace} AND space = gone_space AND key = gone_key"
    return (
        f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT found.ctid "
        f"FROM unnest({spaces}::text[], {keys}::text::bytea[]) AS gone (gone_space, gone_key) "
        f"CROSS JOIN LATERAL {looked_up('ctid', table, key)})) AND {_UNCHANGED}"
    )


def _drop_parts(parameters: Parameters) -> str:
    """Delete parts of blobs. Parameters: as for `_drop_others`."""
    return _drop_others(parameters, "holdfast_parts")


def _drop_run(parameters: Parameters) -> str:
    """Delete a run of expired entries, in the order of `OVERDUE`.

    Parameters: the plugin; the last deadline; the number of entries.
    """
    plugin, until, most = (next(parameters) for _ in range(3))
    return (
        f"DELETE FROM plugin_kv_storage WHERE plugin_name = {plugin} AND key = ANY (ARRAY("
        f"SELECT key FROM (SELECT * FROM plugin_kv_storage WHERE {passed(until)} OFFSET 0) AS due "
        f"WHERE plugin_name = {plugin} AND version > 0 AND semantics IS NULL "
        f"ORDER BY expires_at, key LIMIT {most})) AND {_UNCHANGED} "
        "RETURNING key, version, last_writer, expires_at"
    )


def _record_run(parameters: Parameters) -> str:
    """Add records for what `_drop_run` removed. Parameters: the namespace; the version before; the time."""
    namespace, before, at = (next(parameters) for _ in range(3))
    return (
        "INSERT INTO holdfast_journal "
        "(namespace, op, version, key, at, last_writer, lag_ms, expired_version) "
        f"SELECT {namespace}, 'expired', {before}::bigint + row_number() OVER (ORDER BY expires_at, key), "
        f"key, {instant(f'{at}::bigint')}, last_writer, {at}::bigint - {answered('expires_at')}, version "
        "FROM drop_run"
    )


def _add_records(parameters: Parameters) -> str:
    """Add records to the journal. Parameters: the namespace; the columns `RECORD`."""
    namespace = next(parameters)
    return add_records({}, parameters, namespace=namespace)


def add_records(arrays: dict[str, str], parameters: Parameters, *, namespace: str = "namespace") -> str:
    """Add records to journals. `arrays` may have the namespace of each."""
    selected, rows = _given(arrays, RECORD, parameters)
    return (
        f"INSERT INTO holdfast_journal (namespace, {', '.join(RECORD)}) "
        f"SELECT {', '.join([namespace, *selected])} FROM {rows} WHERE {_UNCHANGED}"
    )


def drop_rows(table: str, key: dict[str, str]) -> str:
    """Delete rows of several owners. `key` has an array for each column of the key."""
    asked = " AND ".join(f"{column} = gone_{column}" for column in key)
    return (
        f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT found.ctid "
        f"FROM unnest({', '.join(key.values())}) AS gone ({', '.join(f'gone_{column}' for column in key)}) "
        f"CROSS JOIN LATERAL {looked_up('ctid', table, asked)})) AND {_UNCHANGED}"
    )


def _given(first: dict[str, str], columns: Sequence[str], parameters: Parameters) -> tuple[list[str], str]:
    """Return the expressions to select for `columns`, and the FROM item that unnests their arrays.

    A column with the same value in all rows is a single parameter instead, since each element of an array
    costs the driver and the server time. `first` holds the arrays of other columns, by name.
    """
    arrays, selected = dict(first), []
    for column in columns:
        parameter = next(parameters)
        if column in parameters.same:
            selected.append(stored(column, f"{parameter}::{type_of(column)}"))
        else:
            arrays[column] = array_of(column, parameter)
            selected.append(stored(column))
    return selected, f"unnest({', '.join(arrays.values())}) AS given ({', '.join(arrays)})"


def _drop_records(parameters: Parameters) -> str:
    """Delete records from the journal. Parameters: the namespace; the last version to drop."""
    namespace, upto = next(parameters), next(parameters)
    return (
        f"DELETE FROM holdfast_journal WHERE namespace = {namespace} AND version <= {upto} AND {_UNCHANGED}"
    )


def _set_namespace(parameters: Parameters) -> str:
    """Update the namespace's row if its mark is unchanged.

    Parameters: the name; the mark when it was loaded; the time limit; the columns `COUNTERS`; the policy.
    """
    row, mark = _the_same(parameters), _mark_in_time(parameters)
    changes = [f"{column} = {stored(column, f'{next(parameters)}::bigint')}" for column in COUNTERS]
    changes.append(f"policy = {next(parameters)}::text")
    return f"UPDATE holdfast_namespaces SET {', '.join(changes)} WHERE {row} RETURNING {mark}"


def _touch_namespace(parameters: Parameters) -> str:
    """Renew only the mark of the namespace's row.

    Parameters: the name; the mark when it was loaded; the time limit.
    """
    row, mark = _the_same(parameters), _mark_in_time(parameters)
    return f"UPDATE holdfast_namespaces SET name = name WHERE {row} RETURNING {mark}"


def _the_same(parameters: Parameters) -> str:
    name, mark = next(parameters), next(parameters)
    return f"name = {name} AND xmin = {mark}::bigint::text::xid"


def _mark_in_time(parameters: Parameters) -> str:
    """Return SQL for the new mark, which fails once the time limit has passed.

    RETURNING is evaluated after the row is locked; a condition in WHERE would be evaluated before that wait.
    """
    return f"{MARK} / {in_time(next(parameters))} AS mark"


_PARTS: Final = {
    "put_kv": _put_kv,
    "put_others": _put_others,
    "put_parts": _put_parts,
    "drop_kv": _drop_kv,
    "drop_others": _drop_others,
    "drop_parts": _drop_parts,
    "drop_run": _drop_run,
    "record_run": _record_run,
    "add_records": _add_records,
    "drop_records": _drop_records,
    "set_namespace": _set_namespace,
    "touch_namespace": _touch_namespace,
}
