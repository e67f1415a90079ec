"""The statement that saves: all that a group changes, and only if the namespace is still the one it was.

Law: SQL only. It takes its rows as one array per column, or one value where that is the same in all rows, so
that its text depends on what changes and never on how much. It reads nothing that somebody else may have
changed while it waited for the namespace's row; where it has to, as for a run of expired entries, that row is
locked before.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.engines.postgres.columns import (
    COUNTERS,
    PUT,
    RECORD,
    answered,
    in_time,
    instant,
    passed,
    stored,
    type_of,
)
from holdfast.engines.postgres.sql import MARK, looked_up

if TYPE_CHECKING:
    from collections.abc import Sequence


class Part(NamedTuple):
    """A part of what is saved, and those of its columns that have the same value in all of its rows."""

    name: str
    same: tuple[str, ...] = ()


@cache
def save(*parts: Part) -> str:
    """All of a group's changes in one statement. Its parameters are those of its parts, in their order.

    The first part is that of the namespace's row. If the row is still the one that was loaded, the answer is
    its new mark; if not, nothing is done and nothing answered. If the server's clock has passed the time that
    is given for it, the statement fails with a division by zero and does nothing.
    """
    parameters = _Parameters()
    first, *others = parts
    changes = [f"unchanged AS ({parameters.of(first)})"]
    changes += [f"{part.name} AS ({parameters.of(part)})" for part in others]
    return f"WITH {', '.join(changes)} SELECT mark FROM unchanged"


_UNCHANGED: Final = "EXISTS (SELECT FROM unchanged)"


class _Parameters:
    """The parameters of the statement in their order, and the columns of the part at hand with one value."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.same: tuple[str, ...] = ()

    def __next__(self) -> str:
        return f"${next(self._numbers)}"

    def of(self, part: Part) -> str:
        """The text of a part."""
        self.same = part.same
        return _PARTS[part.name](self)


def _put_kv(parameters: _Parameters) -> str:
    """Parameters: the plugin; an array of keys; the columns `PUT`."""
    owner = {"plugin_name": next(parameters)}
    key = {"key": f"{next(parameters)}::text[]"}
    return _put("plugin_kv_storage", owner, key, "value_json", parameters)


def _put_others(parameters: _Parameters) -> str:
    """Parameters: the namespace; arrays of spaces and of keys; the columns `PUT`."""
    owner = {"namespace": next(parameters)}
    key = {"space": f"{next(parameters)}::text[]", "key": f"{next(parameters)}::bytea[]"}
    return _put("holdfast_rows", owner, key, "value", parameters)


def _put(table: str, owner: dict[str, str], key: dict[str, str], value: str, parameters: _Parameters) -> str:
    written = (value, *PUT[1:])
    selected, rows = _given(key, PUT, parameters)
    return (
        f"INSERT INTO {table} ({', '.join([*owner, *key, *written])}) "
        f"SELECT {', '.join([*owner.values(), *key, *selected])} FROM {rows} WHERE {_UNCHANGED} "
        f"ON CONFLICT ({', '.join([*owner, *key])}) "
        f"DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in written)}"
    )


def _drop_kv(parameters: _Parameters) -> str:
    """Parameters: the plugin; an array of keys."""
    plugin, keys = next(parameters), next(parameters)
    return (
        f"DELETE FROM plugin_kv_storage WHERE plugin_name = {plugin} AND key = ANY ({keys}::text[]) "
        f"AND {_UNCHANGED}"
    )


def _drop_others(parameters: _Parameters) -> str:
    """Parameters: the namespace; arrays of spaces and of keys."""
    namespace, spaces, keys = (next(parameters) for _ in range(3))
    key = f"namespace = {namespace} AND space = gone_space AND key = gone_key"
    return (
        "DELETE FROM holdfast_rows WHERE ctid = ANY (ARRAY(SELECT found.ctid "
        f"FROM unnest({spaces}::text[], {keys}::bytea[]) AS gone (gone_space, gone_key) "
        f"CROSS JOIN LATERAL {looked_up('ctid', 'holdfast_rows', key)})) AND {_UNCHANGED}"
    )


def _drop_run(parameters: _Parameters) -> str:
    """Parameters: the plugin; the last deadline; how many. The order is that of `OVERDUE`."""
    plugin, until, most = (next(parameters) for _ in range(3))
    return (
        f"DELETE FROM plugin_kv_storage WHERE plugin_name = {plugin} AND key = ANY (ARRAY("
        f"SELECT key FROM (SELECT * FROM plugin_kv_storage WHERE {passed(until)} OFFSET 0) AS due "
        f"WHERE plugin_name = {plugin} AND version > 0 AND semantics IS NULL "
        f"ORDER BY expires_at, key LIMIT {most})) AND {_UNCHANGED} "
        "RETURNING key, version, last_writer, expires_at"
    )


def _record_run(parameters: _Parameters) -> str:
    """What `_drop_run` removed becomes records. Parameters: the namespace; the version before; the time."""
    namespace, before, at = (next(parameters) for _ in range(3))
    return (
        "INSERT INTO holdfast_journal "
        "(namespace, op, version, key, at, last_writer, lag_ms, expired_version) "
        f"SELECT {namespace}, 'expired', {before}::bigint + row_number() OVER (ORDER BY expires_at, key), "
        f"key, {instant(f'{at}::bigint')}, last_writer, {at}::bigint - {answered('expires_at')}, version "
        "FROM drop_run"
    )


def _add_records(parameters: _Parameters) -> str:
    """Parameters: the namespace; the columns `RECORD`."""
    namespace = next(parameters)
    selected, rows = _given({}, RECORD, parameters)
    return (
        f"INSERT INTO holdfast_journal (namespace, {', '.join(RECORD)}) "
        f"SELECT {', '.join([namespace, *selected])} FROM {rows} WHERE {_UNCHANGED}"
    )


def _given(first: dict[str, str], columns: Sequence[str], parameters: _Parameters) -> tuple[list[str], str]:
    """What to select as columns of the rows that are given, and these rows: an array for each column.

    A column that is the same in all rows is one value instead: an array costs the driver and the server
    something for every element. `first` are arrays of other columns, by name.
    """
    arrays, selected = dict(first), []
    for column in columns:
        parameter = f"{next(parameters)}::{type_of(column)}"
        if column in parameters.same:
            selected.append(stored(column, parameter))
        else:
            arrays[column] = f"{parameter}[]"
            selected.append(stored(column))
    return selected, f"unnest({', '.join(arrays.values())}) AS given ({', '.join(arrays)})"


def _drop_records(parameters: _Parameters) -> str:
    """Parameters: the namespace; the last version to drop."""
    namespace, upto = next(parameters), next(parameters)
    return (
        f"DELETE FROM holdfast_journal WHERE namespace = {namespace} AND version <= {upto} AND {_UNCHANGED}"
    )


def _set_namespace(parameters: _Parameters) -> str:
    """Parameters: the name; its mark when it was loaded; the time; the columns `COUNTERS`; the policy."""
    row, mark = _the_same(parameters), _mark_in_time(parameters)
    changes = [f"{column} = {stored(column, f'{next(parameters)}::bigint')}" for column in COUNTERS]
    changes.append(f"policy = {next(parameters)}::text")
    return f"UPDATE holdfast_namespaces SET {', '.join(changes)} WHERE {row} RETURNING {mark}"


def _touch_namespace(parameters: _Parameters) -> str:
    """Leave a mark where nothing else changes. Parameters: the name; the mark that it had; the time."""
    row, mark = _the_same(parameters), _mark_in_time(parameters)
    return f"UPDATE holdfast_namespaces SET name = name WHERE {row} RETURNING {mark}"


def _the_same(parameters: _Parameters) -> str:
    name, mark = next(parameters), next(parameters)
    return f"name = {name} AND xmin = {mark}::bigint::text::xid"


def _mark_in_time(parameters: _Parameters) -> str:
    """The new mark. It is answered once the row is locked: a condition would be judged before that wait."""
    return f"{MARK} / {in_time(next(parameters))} AS mark"


_PARTS: Final = {
    "put_kv": _put_kv,
    "put_others": _put_others,
    "drop_kv": _drop_kv,
    "drop_others": _drop_others,
    "drop_run": _drop_run,
    "record_run": _record_run,
    "add_records": _add_records,
    "drop_records": _drop_records,
    "set_namespace": _set_namespace,
    "touch_namespace": _touch_namespace,
}
