"""The nouns that users hold in their hands: entries, pages, changes.

Law: only frozen values live here, and the conversion of a stored row into them. Nothing in this module
validates, decides or does I/O. It is long because every noun of the library is in it and nowhere else.
"""

from __future__ import annotations

import gc
import json
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Set

    from holdfast.rows import Record, Row

_ITEM: Final = "of an item"
LONG: Final = 32_768
"""From how many characters on a value is read without looking for garbage meanwhile."""
_LOOK_OVER: Final = msgspec.json.Decoder(msgspec.Raw).decode
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LONGEST_NEGATIVE: Final = re.compile(r"-[0-9]{4300}(?![0-9])")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = 1000 * 2**32
"""Up to how many milliseconds a float tells seconds to the microsecond, and makes a datetime sooner."""


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


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a listing. `cursor` continues it and is None at the end; `entries` are there on request."""

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
    that changes up to and including `version` are no longer known. `expired_version` and `lag_ms` (how late
    the expiry was noticed) are there for `expired` alone; `error_code`, `attempts` and `value_hash` (the
    keyed hash of the value that was not written) for `escalated` alone.
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

    `gap` says that records after `since` have been dropped (or that `since` is not of this store); `oldest`
    is then the first version that is still known, and `changes` begin there.
    """

    changes: list[Change]
    next: int
    gap: bool = False
    oldest: int | None = None


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The version of each write of a batch by position; None for a delete that found nothing."""

    versions: list[int | None]


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A check that failed: what was expected of the key and what is there instead."""

    key: str
    expected_version: int
    current: Entry | None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that a namespace keeps, by kind, including what has expired and was not removed yet.

    Everything counts with its envelope, and 128 bytes for each row. `requests` are remembered requests,
    `other` are the tokens of locks and the definitions of tables. A quota counts all but the audit.
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
    """A copy of a whole store: where it is, its size, and the numbers of its namespaces and entries.

    Entries whose expiry was not noticed yet are counted too. `trouble` says what is wrong with the copy, as
    it was with the original; it is None if nothing is.
    """

    path: str
    bytes: int
    pages: int
    namespaces: int
    entries: int
    trouble: str | None = None


class TrashEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was removed and can be restored until `purged_at`.

    `op` is `deleted` or `expired`, `at` is when that was and `by` is who deleted it, or wrote it last. The
    `version` is the one that it had, and `expires_at` the deadline. The value is there on request, else
    `msgspec.UNSET`.
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
    """A request that took a service long. It has no value, and of several keys only the first.

    `plugin` is who asked: a plugin, `tenant/project`, or `OPERATOR`. `error_code` is None for a success.
    """

    number: int
    at: datetime
    plugin: str
    verb: str
    key: str
    milliseconds: float
    error_code: str | None
    request_id: str | None


class SlowPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the slow log of one instance of a service, the newest first.

    `next` is the `before` of the following page, or None at the end. `slow` counts all slow requests since
    the instance was started, also those that are not kept.
    """

    requests: list[SlowRequest]
    next: int | None
    slow: int
    instance: str


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the audit: who changed what, and when.

    `writer` is who says to have made the change, and `principal` who is known to have asked for it; records
    of earlier versions have neither that nor a `form`.

    `before` and `after` are keyed hashes (HMAC-SHA-256) of the values, None where there was none. `signature`
    is that of the record, made with the key named `signed_by`; `previous` is that of the record before it.
    """

    number: int
    at: datetime
    writer: str
    op: str
    key: str
    version_before: int | None
    version: int
    purpose: str | None
    request_id: str | None
    spec_ref: str | None
    before: str | None
    after: str | None
    signed_by: str
    previous: str
    signature: str
    principal: str | None = None
    form: int | None = None


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the audit. `next` is the `after` of the following call; None at the end."""

    records: list[AuditEntry]
    next: int | None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying the audit of a namespace.

    `head` names its end as `number:signature`. If the audit is not whole, `broken_at` is the number of the
    first record that is wrong and `reason` says what is wrong with it. `records` counts those that are whole.
    """

    whole: bool
    records: int
    head: str
    broken_at: int | None = None
    reason: str | None = None


class Discrepancy(msgspec.Struct, frozen=True, kw_only=True):
    """An entry or an item that does not match its last record in the audit.

    It was `changed`, `deleted` or `inserted` past Holdfast. `number` is that of its last record.
    """

    key: str
    what: str
    number: int | None
    reason: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a namespace, compared with its audit.

    `entries` counts those that match their last record, `unrecorded` those that are older than the audit or
    were written while it was off, and `expired` those that are past their deadline and still stored. `found`
    has the first 1,000 others.
    """

    whole: bool
    entries: int
    unrecorded: int
    expired: int
    found: list[Discrepancy]


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

    `op` is `set`, `deleted` or `expired`. `old` and `new` are the item before and after it, if they were
    asked for; `lag_ms` and `expired_version` are there for `expired` alone.
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
    """A part of a transaction that was not as expected: which one, and the item that is there instead."""

    position: int
    current: Item | None


class Escalation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the record of an escalation says besides: why it was given up, and the keyed hash of the value."""

    error_code: str
    attempts: int
    value_hash: str | None = None


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: a write that was given up, kept whole.

    `verb` and `request` are the call as it goes over NATS in the plugin dialect, its request id and writer
    included. `error_code` and `message` say what it failed with in the end, after so many `attempts`.
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
    """

    quota_keys: int | None = None
    quota_bytes: int | None = None
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


def moment(ms: int) -> datetime:
    """The instant of a stored time, which is milliseconds since 1970."""
    if -_EXACT < ms < _EXACT:
        return datetime.fromtimestamp(ms / 1000, UTC)
    return EPOCH + timedelta(milliseconds=ms)


def instant(at: datetime | str) -> datetime:
    """A time of an answer, which a service spells as ISO 8601."""
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def milliseconds(at: datetime) -> int:
    """A time as it is stored; a naive one is taken as UTC."""
    since = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - EPOCH
    return since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text} is no number that can be held")
    return number


def value_of(key: str, row: Row) -> Any:
    """The value in a row of the space `kv`.

    Raises:
        DatabaseError: It can't be read.
    """
    return _value(row.value or "", key)


def look_over(key: str, row: Row) -> msgspec.Raw:
    """The value in a row as JSON, found to be legal but not made into anything.

    Raises:
        DatabaseError: It is none; somebody has written past Holdfast.
    """
    try:
        return _LOOK_OVER(row.value or "")
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(key) from None


def _value(text: str, key: str) -> Any:
    try:
        return msgspec.json.decode(text) if len(text) < LONG else _decoded(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    if _LONGEST_NEGATIVE.search(text):  # msgspec takes the sign for one digit too many
        try:
            return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    raise _unreadable(key)


def _decoded(text: str) -> Any:
    """A long value. Of a hundred thousand new lists none is garbage, and to look for it doubles the time."""
    if not gc.isenabled():
        return msgspec.json.decode(text)
    gc.disable()
    try:
        return msgspec.json.decode(text)
    finally:
        gc.enable()


def _unreadable(key: str) -> DatabaseError:
    return DatabaseError(f"the stored value of key {key!r} can't be read", field="key")


def semantics_of(text: str | None) -> Semantics | None:
    """The semantics in a row; what can't be read as such was written past Holdfast and means nothing."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Semantics)
    except msgspec.DecodeError:
        return None


@lru_cache(maxsize=1024)
def purpose_of(semantics: str | None) -> str | None:
    """The purpose that the semantics in a row name."""
    meaning = None if semantics is None else semantics_of(semantics)
    return None if meaning is None else meaning.purpose


def entry_of(key: str, row: Row, *, value: bool = True) -> Entry:
    """The entry that a row of the space `kv` stands for; without its value if that is not wanted."""
    return Entry(
        key=key,
        value=value_of(key, row) if value else msgspec.UNSET,
        version=row.version,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        expires_at=None if row.expires_at is None else moment(row.expires_at),
        last_writer=row.last_writer,
        semantics=None if row.semantics is None else semantics_of(row.semantics),
        request_id=row.request_id,
        spec_ref=row.spec_ref,
    )


def item_of(row: Row) -> Item:
    """The item that a row stands for.

    Raises:
        DatabaseError: It can't be read.
    """
    return Item(
        value=attributes_of(row),
        version=row.version,
        expires_at=None if row.expires_at is None else moment(row.expires_at),
    )


def stored_item(row: Row, *, value: bool = True) -> Item:
    """The item that a row stands for, its attributes still as JSON, or left out if they are not wanted.

    Raises:
        DatabaseError: It can't be read.
    """
    shown: Any = look_over(_ITEM, row) if value else msgspec.UNSET
    if value and not (row.value or "").startswith("{"):
        raise DatabaseError("a stored item can't be read")
    return Item(
        value=shown,
        version=row.version,
        expires_at=None if row.expires_at is None else moment(row.expires_at),
    )


def made(value: Any) -> Any:
    """What an answer holds, also where it holds it as JSON still."""
    return _value(bytes(value).decode(), _ITEM) if isinstance(value, msgspec.Raw) else value


def some_attributes(text: str, names: Set[str]) -> dict[str, Any]:
    """Of an item's text the attributes of these names; of a list or an object only that it is one.

    Neither can be a key or a deadline, and to make one takes up to 30 ms.

    Raises:
        DatabaseError: It can't be read.
    """
    try:
        found = _MEMBERS(text)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("a stored item can't be read") from None
    return {name: _scalar(bytes(found[name]).decode()) for name in found.keys() & names}


def _scalar(text: str) -> Any:
    """A value as JSON; an empty list or object where it is one."""
    if text.startswith("["):
        return []
    return {} if text.startswith("{") else _value(text, _ITEM)


def attributes_of(row: Row) -> dict[str, Any]:
    """What the item is that a row stands for, without its envelope.

    Raises:
        DatabaseError: It can't be read.
    """
    value = value_of(_ITEM, row)
    if not isinstance(value, dict):
        raise DatabaseError("a stored item can't be read")
    return value


class SeenEntry:
    """An entry that a refusal shows: made when somebody looks at it, and passed on over a wire without that.

    Args:
        row: The row that was seen.
        key: The entry's.
        value: Whether its value is shown.

    Raises:
        DatabaseError: The value can't be read.
    """

    __slots__ = ("_made", "json", "key", "row")

    def __init__(self, row: Row, *, key: str, value: bool = True) -> None:
        self.row = row
        self.key = key
        self.json = look_over(key, row) if value else msgspec.UNSET
        self._made: Entry | None = None

    @property
    def version(self) -> int:
        """The entry's, without making it."""
        return self.row.version

    @property
    def semantics(self) -> Semantics | None:
        """The entry's, without making it."""
        return semantics_of(self.row.semantics)

    def __call__(self) -> Entry:
        """The entry: the same one whenever it is looked at."""
        if self._made is None:
            self._made = entry_of(self.key, self.row, value=self.json is not msgspec.UNSET)
        return self._made


class SeenItem:
    """An item that a refusal shows; see `SeenEntry`."""

    __slots__ = ("_made", "stored")

    def __init__(self, row: Row, *, value: bool = True) -> None:
        self.stored = stored_item(row, value=value)
        self._made: Item | None = None

    @property
    def version(self) -> int:
        """The item's, without making it."""
        return self.stored.version

    def __call__(self) -> Item:
        """The item: the same one whenever it is looked at."""
        if self._made is None:
            self._made = msgspec.structs.replace(self.stored, value=made(self.stored.value))
        return self._made


def change_of(record: Record) -> Change:
    """The change that a record of the journal stands for."""
    escalation = _escalation_of(record)
    return Change(
        op=record.op,
        key=record.key,
        version=record.version,
        at=moment(record.at),
        last_writer=record.last_writer,
        request_id=record.request_id,
        purpose=record.purpose,
        lag_ms=record.lag_ms,
        expired_version=record.expired_version,
        error_code=None if escalation is None else escalation.error_code,
        attempts=None if escalation is None else escalation.attempts,
        value_hash=None if escalation is None else escalation.value_hash,
    )


def _escalation_of(record: Record) -> Escalation | None:
    if record.op != "escalated" or record.detail is None:
        return None
    return msgspec.json.decode(record.detail, type=Escalation)
