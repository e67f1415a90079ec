"""The data that an engine stores: rows by address, the namespace's own row, and records of the journal.

Plain data, with times as integer milliseconds since 1970 and values as compact JSON text. An engine moves
these in and out of its storage without reading them. Only `holdfast.decide` knows what they mean.
"""

from __future__ import annotations

from typing import Final

import msgspec

KV: Final = "kv"
"""The space of entries. Its keys are text; the keys of every other space are bytes."""
TRASH: Final = "trash"
GUARD: Final = "guard"
REQUEST: Final = "request"
LOG: Final = "log"
"""The space of the heads of logs, by name: the number of the newest item."""
LETTER: Final = "letter"
AUDIT: Final = "audit"
TABLE: Final = "table"
"""The space of table definitions, by name."""
DROPPED: Final = "dropped"
"""The space of the names of spaces whose rows are to be removed."""
SYSTEM: Final = "system/"
"""The beginning of the names of namespaces that belong to the store itself. No door leads to them."""
UPLOAD: Final = "upload"
"""The space of the records of uploads, by id."""
PARTS: Final = "part/"
"""Beginning of the spaces whose rows hold bytes, one space per upload."""
OVERHEAD: Final = 128
"""Bytes that a row or a record counts for, in addition to its key, its value and its other texts."""


class Address(msgspec.Struct, frozen=True, gc=False):
    """The location of a row. Keys are ordered by their bytes within a namespace and a space."""

    namespace: str
    space: str
    key: str | bytes


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored row. `version` 0 marks an entry that another program wrote past the store's triggers.

    `value` is None only where a load left it out; `size` is its length in UTF-8 bytes even then. Rows of the
    spaces `PARTS` also hold bytes, as `data`: `size` includes them, and only `Engine.read` returns them.
    """

    value: str | None
    size: int
    version: int
    created_at: int
    updated_at: int
    expires_at: int | None = None
    last_writer: str = ""
    semantics: str | None = None
    request_id: str | None = None
    spec_ref: str | None = None
    data: bytes | None = None

    def alive(self, now: int) -> bool:
        """Return whether a reader at `now` still sees the row. At its deadline it is no longer seen."""
        return self.expires_at is None or self.expires_at > now


class Namespace(msgspec.Struct, kw_only=True, gc=False):
    """The row of a namespace: the source of its versions, and the size of its contents.

    `revision` is the last version given. `keys` and `bytes` count the rows of the space `kv`, or the items of
    a namespace of tables, including those past their deadline that have not been expired yet. `journal_floor`
    is the newest version whose record has been dropped. `policy` is JSON text, or None if no policy was ever
    set.

    The other byte counts cover the rest (`holdfast.decide.weights`): `envelope_bytes` the envelopes of
    entries and items, and the others all the contents of a space or of the journal.
    """

    name: str
    revision: int = 0
    keys: int = 0
    bytes: int = 0
    requests: int = 0
    journal_floor: int = 0
    created_at: int = 0
    changed_at: int = 0
    envelope_bytes: int = 0
    trash_bytes: int = 0
    journal_bytes: int = 0
    letter_bytes: int = 0
    request_bytes: int = 0
    index_bytes: int = 0
    other_bytes: int = 0
    audit_bytes: int = 0
    policy: str | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes that the entries and items count for."""
        return self.bytes + self.envelope_bytes + OVERHEAD * self.keys

    @property
    def kept_bytes(self) -> int:
        """Bytes that a quota counts: everything that the namespace keeps except its audit."""
        return (
            self.held_bytes
            + self.trash_bytes
            + self.journal_bytes
            + self.letter_bytes
            + self.request_bytes
            + self.index_bytes
            + self.other_bytes
        )


class FirstAndLast(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first and the last row of a space, with their keys."""

    first: tuple[bytes, Row]
    last: tuple[bytes, Row]


class Overdue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Totals of the longest overdue plain entries of a namespace, up to the number asked for.

    A plain entry was written through Holdfast (its version is not 0) and has no semantics. `bytes` is the
    size of their keys and values, `until` the latest of their deadlines. `envelope` is the number of
    characters of their writers, request ids and spec_refs, `names` that of their keys and writers.
    """

    count: int = 0
    bytes: int = 0
    until: int = 0
    envelope: int = 0
    names: int = 0


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Plain entries that expire together: the `count` longest overdue whose deadline is not after `until`.

    Each gets a version, from `first` on in the order of their deadlines, and a record with the op `expired`:
    its key, last writer and version (as `expired_version`), `at`, and how long before that the deadline was
    (`lag_ms`). Nothing else remains of it. The counters in the namespace's row already include the change.
    """

    namespace: str
    first: int
    count: int
    at: int
    until: int


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of a namespace's journal. `detail` is JSON text with fields of its kind of change only."""

    namespace: str
    version: int
    op: str
    key: str
    at: int
    last_writer: str | None = None
    request_id: str | None = None
    purpose: str | None = None
    lag_ms: int | None = None
    expired_version: int | None = None
    detail: str | None = None
