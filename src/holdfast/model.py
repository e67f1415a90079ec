"""The values that users work with: entries, pages, changes.

This module holds only frozen values. It validates nothing, decides nothing, does no I/O and imports no other
part of the library. `holdfast.stored` makes these values from stored rows.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

import msgspec


class Keep(Enum):
    """The type of `KEEP`, the one value of a ttl that is neither a number nor None."""

    KEEP = "keep"

    def __repr__(self) -> str:
        return "holdfast.KEEP"


KEEP: Final = Keep.KEEP
"""Given as `ttl` to a set: the entry keeps the deadline that it has."""


class Semantics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why an entry exists, and its audience. All fields are optional."""

    purpose: str | None = None
    producer: str | None = None
    consumer_hints: tuple[str, ...] = ()
    ttl_seconds: int | None = None


NUMBER_DIGITS: Final = 12
"""The number of digits in the key of an item of a log."""


def number_in(key: str) -> int | None:
    """Return the number that the key of an item of a log ends with; None if it is no such key."""
    digits = key[-NUMBER_DIGITS:]
    if key[-NUMBER_DIGITS - 1 : -NUMBER_DIGITS] == "/" and digits.isascii() and digits.isdecimal():
        return int(digits)
    return None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its envelope. Times are timezone-aware UTC.

    The value is `msgspec.UNSET` in a conflict if the answer had no room for the values of all conflicts.
    """

    key: str
    value: Any
    version: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    last_writer: str
    semantics: Semantics | None
    request_id: str | None
    spec_ref: str | None

    @property
    def number(self) -> int | None:
        """The number that `append` gave to the item, which its key ends with; None for any other entry."""
        return number_in(self.key)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a listing. `cursor` continues it and is None at the end; `entries` are given on request."""

    keys: list[str]
    truncated: bool
    cursor: str | None
    entries: list[Entry] | None = None

    @property
    def count(self) -> int:
        """The number of keys in this page."""
        return len(self.keys)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the journal. It carries no value.

    `op` is `set`, `deleted`, `expired`, `restored` or `escalated`; a watch may also yield `gap`, which says
    that changes up to and including `version` are no longer known. Only `expired` has `expired_version` and
    `lag_ms` (the delay before the expiry was noticed). Only `escalated` has `error_code`, `attempts` and
    `value_hash` (the keyed hash of the value that was not written).
    """

    op: str
    key: str
    version: int
    at: datetime
    last_writer: str | None = None
    request_id: str | None = None
    purpose: str | None = None
    lag_ms: int | None = None
    expired_version: int | None = None
    error_code: str | None = None
    attempts: int | None = None
    value_hash: str | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the journal. `next` is the `since` of the following call.

    `gap` says that records after `since` have been dropped, or that `since` is not from this store. Then
    `oldest` is the first version that is still known, and `changes` begin there.
    """

    changes: list[Change]
    next: int
    gap: bool = False
    oldest: int | None = None


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The version of each write of a batch by position; None for a delete that found nothing.

    `numbers` are the numbers of the items that the batch has appended, by position; None for other writes.
    """

    versions: list[int | None]
    numbers: list[int | None] = []


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A check that failed: the expected version of the key, and the current entry."""

    key: str
    expected_version: int
    current: Entry | None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that a namespace keeps, by kind, including expired data that was not removed yet.

    Everything counts with its envelope, and 128 bytes for each row. `requests` are remembered requests,
    `other` are the tokens of locks and the definitions of tables. A quota counts everything except the audit.
    """

    entries: int = 0
    items: int = 0
    indexes: int = 0
    journal: int = 0
    trash: int = 0
    letters: int = 0
    requests: int = 0
    other: int = 0
    audit: int = 0
    blobs: int = 0

    @property
    def counted(self) -> int:
        """The number of bytes that a quota counts."""
        kinds: tuple[int, ...] = msgspec.structs.astuple(self)
        return sum(kinds) - self.audit


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a namespace: live keys, bytes of their keys and values, and its last version.

    `kept_bytes` is what a quota of bytes counts, and `parts` are its kinds.
    """

    namespace: str
    keys: int
    bytes: int
    version: int
    changed_at: datetime
    kept_bytes: int = 0
    parts: Parts = Parts()


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a whole store: its path, its size, and its numbers of namespaces and entries.

    Entries whose expiry was not noticed yet are counted too. `trouble` describes a problem of the copy, which
    the original has too; it is None if there is none.
    """

    path: str
    bytes: int
    pages: int
    namespaces: int
    entries: int
    trouble: str | None = None


class TrashEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was removed and can be restored until `purged_at`.

    `op` is `deleted` or `expired`, and `at` the time of that. `by` is the writer that deleted the entry, or
    the last writer of an expired one. `version` and `expires_at` are those that the entry had. The value is
    given on request, else it is `msgspec.UNSET`.
    """

    key: str
    op: str
    at: datetime
    by: str
    version: int
    purpose: str | None
    expires_at: datetime | None
    purged_at: datetime
    value: Any = msgspec.UNSET


class TrashPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the trash, in the order of the keys. `cursor` continues it and is None at the end."""

    entries: list[TrashEntry]
    truncated: bool
    cursor: str | None


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A slow request of a service. It has no value, and only the first of several keys.

    `plugin` is the caller: a plugin, `tenant/project`, or `OPERATOR`. `error_code` is None for a success.
    `trace_id` is None if the request belongs to no trace.
    """

    number: int
    at: datetime
    plugin: str
    verb: str
    key: str
    milliseconds: float
    error_code: str | None
    request_id: str | None
    trace_id: str | None = None


class SlowPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the slow log of one instance of a service, the newest first.

    `next` is the `before` of the following page, or None at the end. `slow` counts all slow requests since
    the instance was started, including those that are not kept.
    """

    requests: list[SlowRequest]
    next: int | None
    slow: int
    instance: str


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a table: its attributes, its version and its deadline.

    The value is `msgspec.UNSET` in a conflict if the answer had no room for the values of all conflicts.
    """

    value: dict[str, Any]
    version: int
    expires_at: datetime | None


class ItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a query or scan. `cursor` continues it and is None at the end."""

    items: list[Item]
    truncated: bool
    cursor: str | None

    @property
    def count(self) -> int:
        """The number of items in this page."""
        return len(self.items)


class ItemChange(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a table's journal.

    `op` is `set`, `deleted` or `expired`. `old` and `new` are the item before and after the change, if
    requested. Only `expired` has `lag_ms` and `expired_version`.
    """

    op: str
    table: str
    partition_key: Any
    sort_key: Any = None
    version: int
    at: datetime
    last_writer: str | None = None
    request_id: str | None = None
    lag_ms: int | None = None
    expired_version: int | None = None
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None


class ItemChanges(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a table's journal; see `Changes`."""

    changes: list[ItemChange]
    next: int
    gap: bool = False
    oldest: int | None = None


class ItemConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a transaction whose expectation was not met: its position, and the current item."""

    position: int
    current: Item | None


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob without its bytes.

    `size` is in bytes. `checksum` is made of the SHA-256 of its parts; that of a blob with at most 262,144
    bytes is the SHA-256 of its bytes. Everything else is as in `Entry`.
    """

    name: str
    size: int
    content_type: str
    metadata: dict[str, str]
    checksum: str
    version: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    last_writer: str
    request_id: str | None
    spec_ref: str | None


class BlobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a listing of blobs. `cursor` continues it and is None at the end."""

    blobs: list[Blob]
    truncated: bool
    cursor: str | None

    @property
    def count(self) -> int:
        """The number of blobs in this page."""
        return len(self.blobs)


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: a write that was given up, kept whole.

    `verb` and `request` are the call as sent over NATS in the plugin dialect, including its request id and
    writer. `error_code` and `message` are those of the last error, after this number of `attempts`.
    """

    number: int
    at: datetime
    key: str
    verb: str
    request: dict[str, Any]
    error_code: str
    message: str
    attempts: int
    writer: str
    request_id: str


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the dead letters, the oldest first. `next` is the `after` of the following call, if any."""

    letters: list[Letter]
    next: int | None


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits and lifetimes that an operator sets for a namespace. A field that is None has its default.

    Attributes:
        quota_keys: Largest number of keys.
        quota_bytes: Largest number of bytes kept, of all kinds but the audit.
        max_value_bytes: Largest size of a value as compact JSON, from 65,536 to 524,288 bytes.
        rate_limit: Requests a second that each process which serves the namespace accepts.
        ttl_default: Seconds until an entry expires that is put without a ttl.
        ttl_min: Shortest ttl that is accepted.
        ttl_max: Longest ttl that is accepted.
        ttl_required: Whether every entry must have a deadline.
        trash: Whether entries that are deleted or expire can be restored; by default, those with semantics
            can.
        trash_retention: Seconds for which they can be restored.
        journal_retention: Seconds for which the journal keeps a change.
        audit: Whether changes are audited; by default, those of the semantic family are.
        audit_retention: Seconds for which the audit keeps a record; for ever if None.
        reveal: How the console shows values to people: `open`, `audited` (with a reason, which the audit
            records) or `never`; by default, `audited` where changes are audited and `open` elsewhere.
    """

    quota_keys: int | None = None
    quota_bytes: int | None = None
    max_value_bytes: int | None = None
    rate_limit: int | None = None
    ttl_default: int | None = None
    ttl_min: int | None = None
    ttl_max: int | None = None
    ttl_required: bool | None = None
    trash: bool | None = None
    trash_retention: int | None = None
    journal_retention: int | None = None
    audit: bool | None = None
    audit_retention: int | None = None
    reveal: Literal["open", "audited", "never"] | None = None
