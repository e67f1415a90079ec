"""The columns that statements use, the conversion of times, and the conversion of answers to rows.

Law: this module holds no whole statement. Times are integer milliseconds outside the statements and
`timestamptz` inside the database. The conversion is exact and happens here, in SQL. Arrays other than of
texts go in and out as text: the driver asks the server about every type that it does not know, on every
connection anew, and that takes the server longer than the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.engines.sql.layout import PARTS
from holdfast.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.rows import Address

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
