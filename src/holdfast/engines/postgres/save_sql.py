"""The statement that saves all changes of a group, provided that the namespace has not changed since.

The statement takes its rows as one array per column, or one value if all rows have the same.
So its text depends on which kinds of changes it makes, never on how many. It reads nothing that another
process may change while it waits for the namespace's row. Where it must, as for a run of expired entries,
that row is locked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast.decide import Outcome
from holdfast.engines.postgres.sql import (
    COUNTERS,
    MARK,
    PUT,
    PUT_PART,
    RECORD,
    answered,
    array_of,
    array_text,
    in_time,
    instant,
    keys_text,
    looked_up,
    passed,
    stored,
    type_of,
)
from holdfast.engines.sql.layout import plugin_column
from holdfast.rows import KV, PARTS, Address, Row

ENTRY_WAIT_MS: Final = 200
"""Milliseconds for which the statement waits for an entry that another program has locked.

Only a program that writes with SQL of its own locks an entry without its namespace. It locks the entry first
and the namespace afterwards, in a trigger, and the store locks them in the other order. So the store gives
way: it rolls back, which lets the other one have the namespace, and begins anew. It does so before the server
looks for a deadlock, which takes a second and might end the other program's transaction.
"""


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
    """Update the namespace's row if its mark is unchanged, and wait only for a moment for what follows.

    Parameters: the name; the mark when it was loaded; the time limit; the columns `COUNTERS`; the policy.
    """
    row, mark = _the_same(parameters), _mark_in_time(parameters)
    changes = [f"{column} = {stored(column, f'{next(parameters)}::bigint')}" for column in COUNTERS]
    changes.append(f"policy = {next(parameters)}::text")
    return f"UPDATE holdfast_namespaces SET {', '.join(changes)} WHERE {row} RETURNING {mark}"


def _touch_namespace(parameters: Parameters) -> str:
    """Renew only the mark of the namespace's row; otherwise as `_set_namespace`.

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
    So it is also the place to limit the wait for entries (see `ENTRY_WAIT_MS`).
    """
    patience = f"set_config('lock_timeout', '{ENTRY_WAIT_MS}', true) AS patience"
    return f"{MARK} / {in_time(next(parameters))} AS mark, {patience}"


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


# The changes of an outcome as parts of the statement, with their parameters.

_put_columns: Final = attrgetter(*PUT)
_part_columns: Final = attrgetter(*PUT_PART)
_record_columns: Final = attrgetter(*RECORD)
_counters: Final = attrgetter(*COUNTERS)

_OFTEN_SAME: Final = frozenset(
    {
        *("updated_at", "expires_at", "last_writer", "semantics", "spec_ref"),
        *("op", "at", "purpose", "lag_ms", "expired_version", "detail"),
    }
)
"""Columns that often have the same value in all rows of a group. In other columns that would be a
coincidence, and each case would add another variant of the statement."""


class SaveParts:
    """Parts of the statement and their parameters, in the same order."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.parameters: list[Any] = []

    def add(self, name: str, *parameters: Any) -> None:
        """Add a part."""
        self.parts.append(Part(name))
        self.parameters += parameters

    def add_rows(
        self, name: str, *parameters: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        """Add a part that takes rows."""
        same: list[str] = []
        self.parameters += parameters
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            if column in _OFTEN_SAME and values.count(values[0]) == len(values):
                same.append(column)
                self.parameters.append(values[0])
            else:
                self.parameters.append(array_text(values) if type_of(column) == "bigint" else values)
        self.parts.append(Part(name, tuple(same)))


def changes(name: str, outcome: Outcome, mark: int, *, until: int | None = None) -> SaveParts:
    """Return the changes of an outcome to a namespace whose row had this mark when it was loaded.

    `until` is the time on the server's clock after which nothing may be changed.
    """
    made = SaveParts()
    if outcome.namespaces:
        [namespace] = outcome.namespaces
        made.add("set_namespace", name, mark, until, *_counters(namespace), namespace.policy)
    else:
        made.add("touch_namespace", name, mark, until)
    _add_kv(made, name, {at.key: row for at, row in outcome.rows.items() if at.space == KV})
    _add_others(made, name, {address: row for address, row in outcome.rows.items() if address.space != KV})
    for run in outcome.runs:
        made.add("drop_run", plugin_column(name), run.until, run.count)
        made.add("record_run", name, run.first - 1, run.at)
    upto = outcome.trims.get(name)
    if upto is not None:
        made.add("drop_records", name, upto)
    # The parts of a statement don't see each other's effects: don't add records that are to be dropped.
    records = [record for record in outcome.journal if upto is None or record.version > upto]
    if records:
        made.add_rows("add_records", name, columns=RECORD, rows=map(_record_columns, records))
    return made


def _add_kv(made: SaveParts, name: str, rows: dict[str | bytes, Row | None]) -> None:
    puts = {key: row for key, row in rows.items() if row is not None}
    plugin = plugin_column(name)
    if puts:
        made.add_rows("put_kv", plugin, list(puts), columns=PUT, rows=map(_put_columns, puts.values()))
    if len(puts) < len(rows):
        made.add("drop_kv", plugin, [key for key, row in rows.items() if row is None])


def _add_others(made: SaveParts, name: str, rows: dict[Address, Row | None]) -> None:
    puts = {address: row for address, row in rows.items() if row is not None and row.data is None}
    if puts:
        spaces, keys = [at.space for at in puts], keys_text(puts)
        made.add_rows("put_others", name, spaces, keys, columns=PUT, rows=map(_put_columns, puts.values()))
    if len(puts) < len(rows):
        _add_parts(made, name, rows)
        gone = [at for at, row in rows.items() if row is None and not at.space.startswith(PARTS)]
        if gone:
            made.add("drop_others", name, [at.space for at in gone], keys_text(gone))


def _add_parts(made: SaveParts, name: str, rows: dict[Address, Row | None]) -> None:
    """Add the changes of parts of blobs."""
    puts = {address: row for address, row in rows.items() if row is not None and row.data is not None}
    if puts:
        spaces, keys = [at.space for at in puts], keys_text(puts)
        columns = map(_part_columns, puts.values())
        made.add_rows("put_parts", name, spaces, keys, columns=PUT_PART, rows=columns)
    gone = [at for at, row in rows.items() if row is None and at.space.startswith(PARTS)]
    if gone:
        made.add("drop_parts", name, [at.space for at in gone], keys_text(gone))
