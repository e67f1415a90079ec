"""The values that reading and verifying an audit return."""

from __future__ import annotations

from datetime import datetime

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the audit: who changed what, and when.

    `writer` is the writer that the request names, and `principal` the authenticated caller. Records of
    earlier versions have no `principal` and no `form`. `trace_id` names the trace that the request belongs
    to, if it belongs to one.

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
    trace_id: str | None = None


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

    It was `changed`, `deleted` or `inserted` outside Holdfast. `number` is that of its last record.
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


class AuditPart(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a part of an audit: the last valid record, and what is wrong after it.

    `floor` is the number of the newest record that was pruned. `complete` means that nothing is left to
    verify.
    """

    number: int
    signature: str
    floor: int
    complete: bool
    broken_at: int | None = None
    reason: str | None = None
