"""Verification of an audit: finding the first record of a chain, or its head, that is not as written.

Pure functions over rows and keys. Problems are described in words for people. `holdfast.audit.chain` knows
how records and heads are signed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.audit.chain import (
    ROTATED,
    SAID,
    WIDTH,
    AuditRecord,
    Head,
    SigningKeys,
    genuine,
    head_is_genuine,
    head_of,
    record_of,
    same,
)
from holdfast.errors import DatabaseError
from holdfast.rows import Row


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first problem of a chain, and its number."""

    number: int
    reason: str


def head_break(namespace: str, keys: SigningKeys, row: Row | None) -> Break | None:
    """Return the problem with a head; None if there is none."""
    try:
        head = head_of(row)
    except DatabaseError:
        return Break(number=0, reason="the head can't be read")
    if row is None:
        return None
    secret = keys.secret(head.signed_by)
    if secret is None:
        return Break(number=head.number, reason=f"the head is signed with the unknown key {head.signed_by!r}")
    if not head_is_genuine(namespace, secret, row):
        return Break(number=head.number, reason="the head was edited")
    reason = _out_of_force(keys, head)
    return None if reason is None else Break(number=head.number, reason=reason)


def _out_of_force(keys: SigningKeys, head: Head) -> str | None:
    """Return why a head is not trusted despite a valid signature: an old key could have made it."""
    if keys.retired(head.signed_by):
        return f"the head is signed with the retired key {head.signed_by}"
    newest, _ = keys.newest()
    if head.form is msgspec.UNSET or head.signed_by == newest:
        return None
    return (
        f"the head is signed with the key {head.signed_by}, and {newest} signs now: restart what writes to "
        "the store, which then goes over to the new key; if it has, the audit was put back to an older state"
    )


class Chain:
    """A walk over the records of a chain, possibly in several parts.

    Args:
        namespace: The namespace of the audit.
        keys: The keys that signed it.
        head: The end of the chain, with the keys that signed it; an empty one if unknown.
        after: The number that the first record must follow.
        anchor: The signature of the record with that number.
    """

    def __init__(self, namespace: str, keys: SigningKeys, head: Head, *, after: int, anchor: str) -> None:
        self._namespace = namespace
        self._keys = keys
        self._terms = head.keys
        self._in_force: str | None = None
        self._retired: set[str] = set()
        self.number: int = after
        self.signature: str = anchor

    def first_break(self, rows: Iterable[tuple[bytes, Row]]) -> Break | None:
        """Return the first break in the following records. Up to `number` they are valid."""
        for key, row in rows:
            expected = self.number + 1
            if len(key) != WIDTH:
                return Break(number=expected, reason="a row was put in that is no record")
            number = int.from_bytes(key, "big")
            wrong = self._wrong(row, number, expected)
            if isinstance(wrong, str):
                return Break(number=min(number, expected), reason=wrong)
            self.number, self.signature = wrong.number, wrong.signature
        return None

    def _wrong(self, row: Row, number: int, expected: int) -> AuditRecord | str:
        """Return the problem with a record, or the record."""
        if number > expected:
            return f"record {expected} was removed"
        try:
            record = record_of(row)
        except DatabaseError:
            return f"record {number} can't be read"
        secret = self._keys.secret(record.signed_by)
        if secret is None:
            return f"record {number} is signed with the unknown key {record.signed_by!r}"
        if not genuine(self._namespace, secret, record, row.value or ""):
            return f"record {number} was edited or put in"
        if number != expected or record.number != number:
            return f"record {number} was moved"
        if record.previous in SAID:
            return f"{SAID[record.previous]} when record {number} was written"
        if not same(record.previous, self.signature):
            return f"record {number} does not follow the one before it"
        return self._wrongly_signed(record) or record

    def _wrongly_signed(self, record: AuditRecord) -> str | None:
        """Return the problem with a record's key.

        A key signs the records from its rotation to the next one.
        """
        term = next((name for name, first in reversed(self._terms) if first <= record.number), None)
        if record.form is msgspec.UNSET:
            if term is None and self._in_force is None:
                return None
            return f"record {record.number} has the form of earlier versions, behind records of this one"
        before, self._in_force = self._in_force, record.signed_by
        if record.op == ROTATED:
            self._retired.add(record.key)
            wrong = before not in (None, record.key) or record.signed_by in self._retired
            begins = not self._terms or (record.signed_by, record.number) in self._terms
        else:
            wrong, begins = before not in (None, record.signed_by), True
        if wrong or not begins or term not in (None, record.signed_by):
            return f"record {record.number} is signed with the key {record.signed_by}, which was not in force"
        return None
