"""The statements that save an outcome in SQLite, and an estimate of the pages that they write.

Law: as in `sql`, whose lengths and columns these statements share. Rows are put and dropped whole.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.decide import Outcome
from holdfast.engines.sql.layout import plugin_column
from holdfast.engines.sqlite.load_sql import FORGET, INSIDE, REMEMBER
from holdfast.engines.sqlite.sql import (
    BY_DEADLINE,
    JOURNAL_COLUMNS,
    KV_COLUMNS,
    NAMESPACE_COLUMNS,
    PART_COLUMNS,
    ROW_COLUMNS,
    bound,
    chunks,
    places,
    table_of,
)
from holdfast.rows import KV, Address, Namespace, Record, Row, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.engines.sqlite.sql import Statement

_NOTHING_MORE: Final = (None,) * 4
_RUN: Final = (
    f"INSERT INTO holdfast_journal ({JOURNAL_COLUMNS}) "
    "SELECT ?, ? + row_number() OVER (), 'expired', key, ?, last_writer, NULL, NULL, "
    "? - expires_at, version, NULL "
    f"FROM (SELECT key, last_writer, version, expires_at FROM {BY_DEADLINE} "
    "WHERE plugin_name = ? AND expires_at <= ? AND version > 0 AND semantics IS NULL "
    "ORDER BY expires_at LIMIT ?)"
)
_RUN_GONE: Final = (
    "DELETE FROM plugin_kv_storage WHERE plugin_name = ? AND key IN ("
    "SELECT key FROM holdfast_journal WHERE namespace = ? AND version >= ? AND version < ?)"
)


def save(outcome: Outcome) -> list[Statement]:
    """Return the statements that save an outcome."""
    puts: list[tuple[Any, ...]] = []
    others: list[tuple[Any, ...]] = []
    parts: list[tuple[Any, ...]] = []
    gone: list[Address] = []
    for at, new in outcome.rows.items():
        if new is None:
            gone.append(at)
        elif at.space == KV:
            puts.append((plugin_column(at.namespace), at.key, *_columns(new)))
        elif new.data is None:
            others.append((at.namespace, at.space, bound(at.key), *_columns(new)))
        else:
            parts.append((at.namespace, at.space, bound(at.key), *_columns(new)[:5], new.data))
    plan: list[Statement] = []
    removes = bool(outcome.runs) or any(at.space == KV for at in gone)
    if removes:
        plan.append((REMEMBER, INSIDE))
    if outcome.runs:
        plan += [step for run in outcome.runs for step in _expire(run)]
    if puts:
        plan += _puts(puts, _put_kv)
    if others:
        plan += _puts(others, _put_rows)
    if outcome.journal:
        plan += _puts([*map(_record, outcome.journal)], _put_journal)
    if outcome.namespaces:
        plan += _puts([*map(_namespace, outcome.namespaces)], _put_namespaces)
    # One by one: the driver copies all parameters of a statement at once.
    for part in parts:
        plan.append((_put_parts(1, len(part)), part))
    if gone:
        plan += _removals(gone)
    if removes:
        plan.append((FORGET, INSIDE[:1]))
    for trim in outcome.trims.items():
        plan.append(("DELETE FROM holdfast_journal WHERE namespace = ? AND version <= ?", trim))
    return plan


def _removals(gone: Iterable[Address]) -> Iterator[Statement]:
    by_owner: defaultdict[tuple[str, ...], list[tuple[Any]]] = defaultdict(list)
    for at in gone:
        if at.space == KV:
            by_owner[plugin_column(at.namespace),].append((at.key,))
        else:
            by_owner[at.namespace, at.space].append((bound(at.key),))
    for owner, keys in by_owner.items():
        for length, some in chunks(keys):
            drop = _drop_kv(length) if len(owner) == 1 else _drop_rows(table_of(owner[1]), length)
            yield drop, [*owner, *some]


def split(outcome: Outcome, most: int) -> Iterator[Outcome]:
    """Yield parts of an outcome with at most so many rows and records each, to be saved in this order."""
    rows, journal = list(outcome.rows.items()), outcome.journal
    yield msgspec.structs.replace(outcome, rows={}, journal=[], trims={})
    for start in range(0, max(len(rows), len(journal)), most):
        stop = start + most
        yield Outcome([], [], rows=dict(rows[start:stop]), journal=journal[start:stop], trims={})
    if outcome.trims:
        yield Outcome([], [], rows={}, journal=[], trims=outcome.trims)


def _expire(run: Run) -> Iterator[Statement]:
    """Write the records of a run, then delete their entries."""
    owner = plugin_column(run.namespace)
    yield _RUN, (run.namespace, run.first - 1, run.at, run.at, owner, run.until, run.count)
    yield _RUN_GONE, (owner, run.namespace, run.first, run.first + run.count)


def pages(outcome: Outcome) -> int:
    """Estimate, rather too high than too low, how many pages of 4 KiB an outcome adds to the log."""
    count = 4 + 2 * len(outcome.rows) + len(outcome.journal) // 8 + len(outcome.namespaces)
    for row in outcome.rows.values():
        if row is not None:
            count += row.size // 4096 + 1
    for run in outcome.runs:
        count += 2 * run.count + run.count // 8 + 1
    return count


def _puts(rows: list[tuple[Any, ...]], text: Callable[[int, int], str]) -> list[Statement]:
    """Return the statements that put rows. `text` makes one from the numbers of rows and of columns."""
    if len(rows) == 1:  # the usual group of a sole writer
        return [(text(1, len(rows[0])), rows[0])]
    by_width: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        by_width[len(row)].append(row)
    return [
        (text(length, width), parameters)
        for width, alike in by_width.items()
        for length, parameters in chunks(alike)
    ]


def _columns(new: Row) -> tuple[Any, ...]:
    usual = (
        new.value,
        new.version,
        new.created_at,
        new.updated_at,
        new.last_writer,
        new.request_id,
    )
    if new.semantics is not None or new.spec_ref is not None:
        return *usual, new.expires_at, new.semantics, new.spec_ref
    return usual if new.expires_at is None else (*usual, new.expires_at)


def _record(record: Record) -> tuple[Any, ...]:
    usual = (
        record.namespace,
        record.version,
        record.op,
        record.key,
        record.at,
        record.last_writer,
        record.request_id,
    )
    seldom = (record.purpose, record.lag_ms, record.expired_version, record.detail)
    return usual if seldom == _NOTHING_MORE else usual + seldom


def _namespace(namespace: Namespace) -> tuple[Any, ...]:
    usual = (
        namespace.name,
        namespace.revision,
        namespace.keys,
        namespace.bytes,
        namespace.requests,
        namespace.journal_floor,
        namespace.created_at,
        namespace.changed_at,
        namespace.envelope_bytes,
        namespace.trash_bytes,
        namespace.journal_bytes,
        namespace.letter_bytes,
        namespace.request_bytes,
        namespace.index_bytes,
        namespace.other_bytes,
        namespace.audit_bytes,
    )
    return usual if namespace.policy is None else (*usual, namespace.policy)


@cache
def _put_kv(length: int, width: int) -> str:
    return _upsert("plugin_kv_storage", KV_COLUMNS, "plugin_name, key", length, width)


@cache
def _put_rows(length: int, width: int) -> str:
    return _upsert("holdfast_rows", ROW_COLUMNS, "namespace, space, key", length, width)


@cache
def _put_parts(length: int, width: int) -> str:
    return _upsert("holdfast_parts", PART_COLUMNS, "namespace, space, key", length, width)


@cache
def _put_namespaces(length: int, width: int) -> str:
    return _upsert("holdfast_namespaces", NAMESPACE_COLUMNS, "name", length, width)


@cache
def _put_journal(length: int, width: int) -> str:
    return f"INSERT INTO holdfast_journal ({_first(JOURNAL_COLUMNS, width)}) {places(length, width)}"


@cache
def _drop_kv(length: int) -> str:
    return f"DELETE FROM plugin_kv_storage WHERE plugin_name = ? AND key IN ({', '.join('?' * length)})"


@cache
def _drop_rows(table: str, length: int) -> str:
    return f"DELETE FROM {table} WHERE namespace = ? AND space = ? AND key IN ({', '.join('?' * length)})"


def _upsert(table: str, columns: str, key: str, length: int, width: int) -> str:
    """Return an upsert of rows. The columns after the first `width` become NULL."""
    names = columns.split(", ")
    new = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key.split(", "))
    return (
        f"INSERT INTO {table} ({_first(columns, width)}) {places(length, width)} "
        f"ON CONFLICT ({key}) DO UPDATE SET {new}"
    )


def _first(columns: str, width: int) -> str:
    return ", ".join(columns.split(", ")[:width])
