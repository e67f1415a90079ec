"""The columns that statements are made of, how times pass through them, and how rows come out.

Law: no statement stands here. Times are integer milliseconds outside of the statements and `timestamptz`
inside the database; the conversion is exact and happens here, in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.engines.sql.layout import PARTS
from holdfast.rows import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW: Final = (
    *("value", "size", "version", "created_at", "updated_at", "expires_at"),
    *("last_writer", "semantics", "request_id", "spec_ref"),
)
"""The columns of a row in every answer: the fields of `Row`, in their order."""

PUT: Final = tuple(column for column in ROW if column != "size")
"""The columns of a row as it is written, after its key."""

RECORD: Final = (
    *("version", "op", "key", "at", "last_writer", "request_id"),
    *("purpose", "lag_ms", "expired_version", "detail"),
)
"""The columns of the journal, after the namespace."""

FIRST: Final = ("revision", "keys", "bytes", "requests", "journal_floor", "created_at", "changed_at")
COUNTERS: Final = (*FIRST, *PARTS)
"""The columns of a namespace's row, after its name; the first ones have no default."""

BESIDE: Final = (
    "length(last_writer) + coalesce(length(request_id), 0) + coalesce(length(semantics), 0) "
    "+ coalesce(length(spec_ref), 0)"
)
"""What goes with the key and the value of a row."""

_TIMES: Final = frozenset({"created_at", "updated_at", "expires_at", "changed_at", "at"})
_NUMBERS: Final = _TIMES | set(COUNTERS) | {"size", "version", "lag_ms", "expired_version"}


def type_of(column: str) -> str:
    """The type of a column outside of the database."""
    return "bigint" if column in _NUMBERS else "text"


def instant(milliseconds: str) -> str:
    """A time from milliseconds."""
    return f"(timestamptz 'epoch' + {milliseconds} * interval '1 millisecond')"


def stored(column: str, given: str | None = None) -> str:
    """What goes into a column, from what is given for it: by default a column of the same name."""
    given = column if given is None else given
    return instant(given) if column in _TIMES else given


def answered(column: str) -> str:
    """What comes out of a column."""
    if column not in _TIMES:
        return column
    # Somebody who writes past Holdfast may leave an infinity, which no calendar of ours can hold.
    bounded = f"least(greatest({column}, timestamptz 'epoch'), timestamptz '9999-12-31 00:00:00Z')"
    return f"CASE WHEN {column} IS NOT NULL THEN floor(extract(epoch FROM {bounded}) * 1000)::bigint END"


CLOCK: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""What the server's clock says at this moment of a statement, not when its transaction began."""


def in_time(until: str) -> str:
    """1 until the server's clock has passed a time, in milliseconds; then 0. Without a time always 1."""
    return f"coalesce(clock_timestamp() <= {instant(f'{until}::bigint')}, true)::int"


def row(value: str, *, shown: str) -> str:
    """The columns of a row whose value is in column `value` and goes out as `shown`."""
    rest = (f"{answered(column)} AS {column}" for column in ROW[2:])
    return ", ".join([f"{shown} AS value", f"octet_length({value})::bigint AS size", *rest])


def passed(now: str) -> str:
    """Whether the deadline of a row is not later than `now`."""
    # It counts in whole milliseconds, as it does for `Row.alive`: a fraction of one that is left is nothing.
    return f"expires_at < {instant(f'({now}::bigint + 1)')}"


def living(now: str) -> str:
    """Whether a row is still there for a reader at `now`."""
    return f"(expires_at IS NULL OR NOT {passed(now)})"


def row_of(values: Sequence[Any]) -> Row:
    """A row from the columns `ROW`."""
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
    )
