"""Bringing the rows of a `plugin_kv_storage` that another program made into a store, in the same database.

This module judges rows and knows no database. Each engine renames the old table, creates the store and
inserts the rows in one transaction, so that after a kill all of it is done or nothing. The old table stays as
`OLD_TABLE`, with every row, also those that were left out.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from holdfast import rules
from holdfast.errors import HoldfastError, Unsupported

TABLE: Final = "plugin_kv_storage"
OLD_TABLE: Final = "holdfast_adopted"
"""The name under which the other program's table stays in the database."""

VALUES: Final = ("value_json", "value")
"""The names that the column of values has had."""
TIMES: Final = ("expires_at", "created_at", "updated_at")
LISTED: Final = 1_000
"""The largest number of rows that a report names. All are counted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_IN_SECONDS: Final = 100_000_000_000
"""Numbers below this are seconds since 1970, others milliseconds."""


class Found(msgspec.Struct, frozen=True):
    """A table that another program made: its number of rows, and the names of its columns."""

    rows: int
    columns: tuple[str, ...]

    @property
    def value(self) -> str:
        """The name of the column of values."""
        return next(name for name in VALUES if name in self.columns)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of times that the table has."""
        return tuple(name for name in TIMES if name in self.columns)


class Skipped(msgspec.Struct, frozen=True):
    """A row that was left out, and why."""

    plugin: str
    key: str
    reason: str


class Report(msgspec.Struct, kw_only=True):
    """What an adoption did, or would do. `found` says whether there was a table of another program.

    `expired` rows were past their deadline and are left out. `skipped` counts the rows that break a rule, by
    plugin in `plugins`, and `left_out` names the first of them.
    """

    place: str
    dry_run: bool
    found: bool = False
    rows: int = 0
    adopted: int = 0
    expired: int = 0
    skipped: int = 0
    plugins: dict[str, int] = {}
    left_out: list[Skipped] = []

    def skip(self, plugin: object, key: object, reason: str) -> None:
        """Note a row that is left out."""
        name = str(plugin)
        self.skipped += 1
        self.plugins[name] = self.plugins.get(name, 0) + 1
        if len(self.left_out) < LISTED:
            self.left_out.append(Skipped(name, str(key), reason))


class NewRow(NamedTuple):
    """A row as it is inserted; times in milliseconds, None where the database's own time is to be taken."""

    plugin: str
    key: str
    value: str
    expires_at: int | None
    created_at: int
    updated_at: int


def shape(columns: Collection[str], rows: int) -> Found | None:
    """Return the table of another program with these columns; None if it is not of the known shape."""
    known = {"plugin_name", "key"} <= set(columns) and any(name in columns for name in VALUES)
    return Found(rows, tuple(columns)) if known and "version" not in columns else None


def advice(place: str, rows: int) -> str:
    """Return what to tell the user of a database with a table of another program."""
    return (
        f"{place} already has a table {TABLE} with {rows} rows that another program made. Nothing was "
        "changed. See what can be brought into a store with holdfast adopt --dry-run, then run holdfast adopt"
    )


def refusal(place: str, rows: int) -> Unsupported:
    """Return the error for opening such a database."""
    return Unsupported(advice(place, rows))


def judged(report: Report, found: Found, row: Any, now: int) -> NewRow | None:
    """Judge a row: its plugin, key, value and `Found.times`. Return it as it is to be stored, if it is.

    A row that is left out is noted in the report.
    """
    plugin, key, value, *times = row
    report.rows += 1
    try:
        rules.plugin_name(plugin)
        rules.key(key)
        text, _ = rules.encode_value(_decoded(value), most=rules.MAX_VALUE_BYTES)
        at = {name: _milliseconds(name, time) for name, time in zip(found.times, times, strict=True)}
    except HoldfastError as error:
        report.skip(plugin, key, error.message)
        return None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        report.skip(plugin, key, str(error) or "it can't be read")
        return None
    expires_at = at.get("expires_at")
    if expires_at is not None and expires_at <= now:
        report.expired += 1
        return None
    created_at = at.get("created_at")
    updated_at = at.get("updated_at")
    created_at = min(now, created_at if created_at is not None else updated_at or now)
    updated_at = min(now, created_at if updated_at is None else updated_at)
    report.adopted += 1
    return NewRow(plugin, key, text, expires_at, created_at, updated_at)


def _decoded(value: object) -> Any:
    # late: every command that opens a file imports this module
    import json

    if isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, str):
        raise ValueError("the value is not text")
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("the value is not JSON") from None


def _milliseconds(name: str, time: object) -> int | None:
    """Return a time in milliseconds. Text and times without a timezone are in UTC."""
    if time is None or time == "":
        return None
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time.strip())
        except ValueError:
            raise ValueError(f"{name} is no time: {rules.shown(time)}") from None
    if isinstance(time, (int, float)) and not isinstance(time, bool):
        return round(time * 1000 if abs(time) < _IN_SECONDS else time)
    if not isinstance(time, datetime):
        raise ValueError(f"{name} is no time: {rules.shown(time)}")
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND
