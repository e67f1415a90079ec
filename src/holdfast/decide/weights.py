"""The size in bytes that each part of a namespace counts for.

A row counts for its key, its value, its other texts (writer, request id, semantics, spec_ref) and `OVERHEAD`
for the rest: times, versions, its place in an index of the database. A journal record counts for its names,
its detail and the same overhead. Keys and values count in bytes. The other texts count in characters, because
encoding them would slow down every write, and most have as many bytes.

A thing counts the same when it is added and when it is removed. Engines use the same formulas in SQL for the
sums they compute (`Overdue`, `Loaded.trims`, `Loaded.counts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.rows import (
    AUDIT,
    DROPPED,
    GUARD,
    KV,
    LETTER,
    LOG,
    OVERHEAD,
    PARTS,
    REQUEST,
    TABLE,
    TRASH,
    UPLOAD,
    Record,
    Row,
)

COUNTER: Final = {
    TRASH: "trash_bytes",
    LETTER: "letter_bytes",
    REQUEST: "request_bytes",
    AUDIT: "audit_bytes",
    GUARD: "other_bytes",
    LOG: "other_bytes",
    TABLE: "other_bytes",
    DROPPED: "other_bytes",
    UPLOAD: "other_bytes",
}
"""The namespace counter of each space. The verbs count entries, items, indexes and parts themselves."""


COUNTED: Final = (
    *("keys", "bytes", "requests", "envelope_bytes", "trash_bytes", "journal_bytes"),
    *("letter_bytes", "request_bytes", "index_bytes", "other_bytes", "audit_bytes"),
)
"""The counters of a namespace that can be recomputed from its contents."""


def summed(spaces: Iterable[tuple[str, int, int, int]], *, journal: int) -> dict[str, int]:
    """Return the counters of a namespace, from the sums by space and the size of its journal.

    The sums of a space are its number of rows, the bytes of their keys and values, and the size of their
    envelopes.
    """
    counts = dict.fromkeys(COUNTED, 0) | {"journal_bytes": journal}
    for space, rows, size, beside in spaces:
        if space == KV or space.startswith("item/"):
            for counter, by in (("keys", rows), ("bytes", size), ("envelope_bytes", beside)):
                counts[counter] += by
        elif space.startswith(PARTS):
            counts["bytes"] += size
            counts["envelope_bytes"] += OVERHEAD * rows + beside
        else:
            counts[COUNTER.get(space, "index_bytes")] += OVERHEAD * rows + size + beside
        if space == REQUEST:
            counts["requests"] += rows
    return counts


def envelope(row: Row) -> int:
    """Return the size of a row's texts other than its key and value."""
    return len(f"{row.last_writer}{row.request_id or ''}{row.semantics or ''}{row.spec_ref or ''}")


def row_weight(key: str | bytes, row: Row) -> int:
    """Return the size that a row counts for."""
    width = len(key) if isinstance(key, bytes) else len(key.encode())
    return OVERHEAD + width + row.size + envelope(row)


def record_weight(record: Record) -> int:
    """Return the size that a journal record counts for."""
    names = len(f"{record.key}{record.last_writer or ''}{record.request_id or ''}{record.purpose or ''}")
    return OVERHEAD + names + (0 if record.detail is None else len(record.detail.encode()))
