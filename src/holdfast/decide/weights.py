"""What each thing that a namespace keeps counts for, in bytes.

A row counts for its key, its value, the texts that go with it (writer, request id, semantics, spec_ref) and
`OVERHEAD` for all else: times, versions, its place in an index of the database. A record of the journal
counts for its names, its detail and the same. Keys and values count in bytes; the texts beside them count in
characters, since to encode them would cost every write something, and most have as many bytes.

Law: what is counted when it comes is counted alike when it goes. An engine says the same in SQL, for what it
sums up (`Overdue`, `Loaded.trims`, `Loaded.counts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.rows import AUDIT, DROPPED, GUARD, KV, LETTER, OVERHEAD, REQUEST, TABLE, TRASH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.rows import Record, Row

COUNTER: Final = {
    TRASH: "trash_bytes",
    LETTER: "letter_bytes",
    REQUEST: "request_bytes",
    AUDIT: "audit_bytes",
    GUARD: "other_bytes",
    TABLE: "other_bytes",
    DROPPED: "other_bytes",
}
"""Which counter of a namespace a space belongs to; entries, items and indexes are counted by their verbs."""


COUNTED: Final = (
    *("keys", "bytes", "requests", "envelope_bytes", "trash_bytes", "journal_bytes"),
    *("letter_bytes", "request_bytes", "index_bytes", "other_bytes", "audit_bytes"),
)
"""The counters of a namespace that can be found anew by counting what there is."""


def summed(spaces: Iterable[tuple[str, int, int, int]], *, journal: int) -> dict[str, int]:
    """The counters of a namespace, from sums by space and from what its journal counts for.

    Of each space there is how many rows it has, the bytes of their keys and values, and of what goes along.
    """
    counts = dict.fromkeys(COUNTED, 0) | {"journal_bytes": journal}
    for space, rows, size, beside in spaces:
        if space == KV or space.startswith("item/"):
            for counter, by in (("keys", rows), ("bytes", size), ("envelope_bytes", beside)):
                counts[counter] += by
        else:
            counts[COUNTER.get(space, "index_bytes")] += OVERHEAD * rows + size + beside
        if space == REQUEST:
            counts["requests"] += rows
    return counts


def envelope(row: Row) -> int:
    """What goes with the key and the value of a row."""
    return len(f"{row.last_writer}{row.request_id or ''}{row.semantics or ''}{row.spec_ref or ''}")


def row_weight(key: str | bytes, row: Row) -> int:
    """What a row counts for."""
    width = len(key) if isinstance(key, bytes) else len(key.encode())
    return OVERHEAD + width + row.size + envelope(row)


def record_weight(record: Record) -> int:
    """What a record of the journal counts for."""
    names = len(f"{record.key}{record.last_writer or ''}{record.request_id or ''}{record.purpose or ''}")
    return OVERHEAD + names + (0 if record.detail is None else len(record.detail.encode()))
