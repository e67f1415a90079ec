"""Entries and what hangs on them: counters, quotas, the trash, the record of a change.

Law: every change of an entry goes through here, so that the counters are right by construction. Which change
it is, and whether it may be made, is known to the verbs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import rules
from holdfast.errors import QuotaExceeded
from holdfast.model import Policy, semantics_of
from holdfast.rows import KV, TRASH, Address, Namespace, Record, Row

if TYPE_CHECKING:
    from holdfast.commands import Origin
    from holdfast.decide.draft import Draft

_UNTRASHED: Final = frozenset({"lock", "cache", "session"})


class Trashed(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a row in the trash: what was removed, how, when, by whom, and the deadline it had."""

    op: str
    at: int
    by: str
    value: msgspec.Raw
    expires_at: int | None = None


def live(draft: Draft, key: str) -> Row | None:
    """The entry that is there now; one that has expired unnoticed is noticed."""
    row = draft.row(Address(draft.name, KV, key))
    if row is None or row.alive(draft.now):
        return row
    expire(draft, key, row)
    return None


def expire(draft: Draft, key: str, row: Row) -> None:
    """Record that an entry has passed its deadline, and remove it."""
    deadline = draft.now if row.expires_at is None else row.expires_at
    remove(draft, key, row)
    draft.record(
        Record(
            namespace=draft.name,
            version=draft.version(),
            op="expired",
            key=key,
            at=draft.now,
            last_writer=row.last_writer,
            purpose=purpose_of(row.semantics),
            lag_ms=draft.now - deadline,
            expired_version=row.version,
        )
    )
    to_trash(draft, key, row, op="expired", by=row.last_writer)


def put(draft: Draft, key: str, before: Row | None, row: Row) -> None:
    """Have an entry at a key in place of the one before, if that is within the quota."""
    if before is not None:
        _uncount(draft, key, before)
    namespace = draft.namespace
    namespace.keys += 1
    namespace.bytes += _width(key) + row.size
    if namespace.policy is not None:
        _check_quota(namespace, grows=before is None or before.size < row.size, adds=before is None)
    draft.put(Address(draft.name, KV, key), row)


def remove(draft: Draft, key: str, row: Row) -> None:
    """Have no entry at a key any more."""
    _uncount(draft, key, row)
    draft.put(Address(draft.name, KV, key), None)


def record_of(
    draft: Draft, op: str, key: str, *, version: int, origin: Origin, semantics: str | None
) -> Record:
    """The record of a change that a caller asked for."""
    return Record(
        namespace=draft.name,
        version=version,
        op=op,
        key=key,
        at=draft.now,
        last_writer=origin.writer,
        request_id=origin.request_id,
        purpose=purpose_of(semantics),
    )


def to_trash(draft: Draft, key: str, row: Row, *, op: str, by: str) -> None:
    """Keep what is removed for a while, if it is of a kind that is kept."""
    if row.semantics is None and not draft.name.startswith("semantic/"):
        return
    if purpose_of(row.semantics) in _UNTRASHED:
        return
    trashed = Trashed(
        op=op, at=draft.now, by=by, value=msgspec.Raw((row.value or "").encode()), expires_at=row.expires_at
    )
    value = msgspec.json.encode(trashed)
    kept = msgspec.structs.replace(
        row, value=value.decode(), size=len(value), expires_at=draft.now + rules.TRASH_RETENTION * 1000
    )
    draft.put(Address(draft.name, TRASH, key.encode()), kept)


@lru_cache(maxsize=1024)
def purpose_of(semantics: str | None) -> str | None:
    """The purpose that an entry's semantics name."""
    meaning = semantics_of(semantics)
    return None if meaning is None else meaning.purpose


@lru_cache(maxsize=1024)
def policy_of(text: str | None) -> Policy:
    """The policy of a namespace."""
    return Policy() if text is None else msgspec.json.decode(text, type=Policy)


def _check_quota(namespace: Namespace, *, grows: bool, adds: bool) -> None:
    """Refuse what takes a namespace past its quota; one that is past it already may shrink."""
    policy = policy_of(namespace.policy)
    if adds and policy.quota_keys is not None and namespace.keys > policy.quota_keys:
        raise QuotaExceeded(
            f"{namespace.name} would have more keys than its quota_keys of {policy.quota_keys}"
        )
    if grows and policy.quota_bytes is not None and namespace.bytes > policy.quota_bytes:
        raise QuotaExceeded(
            f"{namespace.name} would have {namespace.bytes} bytes, more than its quota_bytes of "
            f"{policy.quota_bytes}"
        )


def _uncount(draft: Draft, key: str, row: Row) -> None:
    if row.version > 0:  # a row that was written past Holdfast has never been counted
        namespace = draft.namespace
        namespace.keys -= 1
        namespace.bytes -= _width(key) + row.size


def _width(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode())
