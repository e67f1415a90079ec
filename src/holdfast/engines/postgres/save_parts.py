"""Conversion of an outcome to the parts of the statement that saves it, with their parameters.

Law: this module turns rows into columns. It decides nothing and holds no SQL.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from holdfast.engines.postgres.columns import (
    COUNTERS,
    PUT,
    PUT_PART,
    RECORD,
    array_text,
    keys_text,
    type_of,
)
from holdfast.engines.postgres.save_sql import Part
from holdfast.engines.sql.layout import plugin_column
from holdfast.rows import KV, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.decide import Outcome
    from holdfast.rows import Address, Row

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
