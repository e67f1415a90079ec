"""The statements of a transaction that carries the groups of several namespaces.

Law: SQL only. Each statement takes one array per column, or one text where an array would cost the driver
more (see `columns.array_text`; names of namespaces have no commas), and its text never depends on how many
namespaces or rows there are. A statement waits for the row of a namespace only for a moment, and locks them
in the order of their names.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from holdfast.engines.postgres.save_sql import Parameters, add_records, drop_rows, put_rows
from holdfast.engines.postgres.sql import (
    CLOCK,
    COUNTERS,
    MARK,
    OTHER_KEY,
    ROW,
    answered,
    array_of,
    in_time,
    looked_up,
    row,
    stored,
    type_of,
)

if TYPE_CHECKING:
    from holdfast.engines.postgres.save_sql import Part

PATIENCE_MS: Final = 100
"""Milliseconds for which a statement waits for a namespace that another process has locked."""

_STATE: Final = f"policy, ARRAY[{', '.join([MARK, *map(answered, COUNTERS)])}]::text AS counters"
_STARTED: Final = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
_NOTHING: Final = ", ".join(f"NULL::{type_of(column)}" for column in ROW[1:])
_KV_KEY: Final = "plugin_name = asked_plugin AND key = asked_key"
_NAMES: Final = "unnest(string_to_array($1::text, ',')) "
_KV: Final = "unnest(string_to_array($2::text, ','), $3::text[], $4::text::boolean[]) "
_OTHERS: Final = "unnest(string_to_array($5::text, ','), $6::text[], $7::text::bytea[], $8::text::boolean[]) "
_WANTED: Final = "CASE WHEN wanted OR expires_at IS NOT NULL THEN {} END"

LOAD: Final = (
    f"SELECT 0::bigint AS position, NULL::text AS policy, {_NOTHING}, "
    f"ARRAY[{CLOCK}, {_STARTED}]::text AS counters "
    f"UNION ALL SELECT -position, policy, {_NOTHING}, counters "
    f"FROM {_NAMES} WITH ORDINALITY AS asked (asked_name, position) "
    f"CROSS JOIN LATERAL {looked_up(_STATE, 'holdfast_namespaces', 'name = asked_name')} "
    f"UNION ALL SELECT position, {', '.join(ROW)}, NULL::text "
    f"FROM {_KV} WITH ORDINALITY AS asked (asked_plugin, asked_key, wanted, position) CROSS JOIN LATERAL "
    + looked_up(row("value_json", shown=_WANTED.format("value_json")), "plugin_kv_storage", _KV_KEY)
)
"""The server's clock and the time of its start, at position 0; the rows of namespaces, each with its mark and
its counters, by position from -1 downwards; entries by position from 1.

Parameters: names; plugins, keys, and whether each value is wanted.
"""
LOAD_OTHERS: Final = (
    f"{LOAD} UNION ALL SELECT position + $9::bigint, {', '.join(ROW)}, NULL::text FROM {_OTHERS} "
    "WITH ORDINALITY AS asked (asked_namespace, asked_space, asked_key, wanted, position) CROSS JOIN LATERAL "
    + looked_up(row("value", shown=_WANTED.format("value")), "holdfast_rows", OTHER_KEY)
)
"""The same with other rows. Parameters: those of `LOAD`; namespaces, spaces, keys, and whether each value is
wanted; the offset of their positions."""


@cache
def save_together(*parts: Part) -> str:
    """Return one statement for all changes of several namespaces. Its parameters are those of its parts.

    The first part is `set_namespaces`. The statement returns the name and the new mark of each namespace. It
    fails with a division by zero and does nothing if a namespace has changed since it was loaded, or if the
    server's clock has passed the given time.
    """
    parameters = Parameters()
    first, *others = parts
    changes = [f"unchanged AS ({parameters.of(first, PARTS)})"]
    changes += [f"{part.name} AS ({parameters.of(part, PARTS)})" for part in others]
    whole = f"((SELECT count(*) FROM unchanged) = {next(parameters)}::bigint)::int"
    # The last row is there even if no namespace is unchanged, so that the division takes place.
    return f"WITH {', '.join(changes)} SELECT name, mark FROM unchanged UNION ALL SELECT '', 1 / {whole}"


def _set_namespaces(parameters: Parameters) -> str:
    """Update the rows of namespaces that have their marks, in the order of their names.

    Parameters: names; the marks when they were loaded; the time limit; the columns `COUNTERS`, except those
    that are the same as before. Plain changes of keys leave policies alone.
    """
    names, marks, until = _listed(next(parameters)), f"{next(parameters)}::text::xid[]", next(parameters)
    columns = [column for column in COUNTERS if column not in parameters.same]
    arrays = [array_of(column, next(parameters)) for column in columns]
    changes = ", ".join(f"{column} = {stored(column, f'given.{column}')}" for column in columns)
    patience = f"(SELECT set_config('lock_timeout', '{PATIENCE_MS}', true)) IS NOT NULL"
    given = f"given ({', '.join(['name', 'mark', *columns])})"
    return (
        f"UPDATE holdfast_namespaces AS stored SET {changes} "
        f"FROM unnest({', '.join([names, marks, *arrays])}) AS {given} "
        f"WHERE stored.name = given.name AND stored.xmin = given.mark AND {patience} "
        f"RETURNING stored.name, stored.{MARK} / {in_time(until)} AS mark"
    )


def _put_kv(parameters: Parameters) -> str:
    """Upsert entries. Parameters: plugins; an array of keys; the columns `PUT`."""
    key = {"plugin_name": _listed(next(parameters)), "key": f"{next(parameters)}::text[]"}
    return put_rows("plugin_kv_storage", {}, key, {"value": "value_json"}, parameters)


def _put_others(parameters: Parameters) -> str:
    """Upsert other rows. Parameters: namespaces; arrays of spaces and of keys; the columns `PUT`."""
    return put_rows("holdfast_rows", {}, _other_key(parameters), {}, parameters)


def _drop_kv(parameters: Parameters) -> str:
    """Delete entries. Parameters: plugins; an array of keys."""
    key = {"plugin_name": _listed(next(parameters)), "key": f"{next(parameters)}::text[]"}
    return drop_rows("plugin_kv_storage", key)


def _drop_others(parameters: Parameters) -> str:
    """Delete other rows. Parameters: namespaces; arrays of spaces and of keys."""
    return drop_rows("holdfast_rows", _other_key(parameters))


def _other_key(parameters: Parameters) -> dict[str, str]:
    namespace, space, key = (next(parameters) for _ in range(3))
    return {"namespace": _listed(namespace), "space": f"{space}::text[]", "key": f"{key}::text::bytea[]"}


def _listed(parameter: str) -> str:
    """Return SQL for an array of names, which are passed as one text with commas between them."""
    return f"string_to_array({parameter}::text, ',')"


def _add_records(parameters: Parameters) -> str:
    """Add records to the journals. Parameters: namespaces; the columns `RECORD`."""
    return add_records({"namespace": _listed(next(parameters))}, parameters)


PARTS: Final = {
    "set_namespaces": _set_namespaces,
    "put_kv": _put_kv,
    "put_others": _put_others,
    "drop_kv": _drop_kv,
    "drop_others": _drop_others,
    "add_records": _add_records,
}

_WEIGHT: Final = "CASE WHEN wanted OR expires_at IS NOT NULL THEN octet_length({}) ELSE 0 END AS weight"
WEIGH: Final = (
    "SELECT coalesce(sum(weight), 0)::bigint FROM ("
    "SELECT weight FROM unnest(string_to_array($1::text, ','), $2::text[], $3::text::boolean[]) "
    "AS asked (asked_plugin, asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(_WEIGHT.format("value_json"), "plugin_kv_storage", _KV_KEY)
    + " UNION ALL SELECT weight "
    "FROM unnest(string_to_array($4::text, ','), $5::text[], $6::text::bytea[], $7::text::boolean[]) "
    "AS asked (asked_namespace, asked_space, asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(_WEIGHT.format("value"), "holdfast_rows", OTHER_KEY)
    + ") AS weights"
)
"""The total size of the values that `LOAD_OTHERS` would return.

Parameters: plugins, keys, and whether each value is wanted; namespaces, spaces, keys, and whether each value
is wanted.
"""
