"""The records of the audit: how they are signed, chained, and found to be whole or broken.

A namespace's records are numbered without a gap. Each carries the signature of the one before it and is
signed with a key that the database does not hold, so a record that is edited, removed, put in or moved with
plain SQL breaks the chain there. The head, signed too, says where the chain ends, so it can't be cut short,
and what the policy asks of the audit, so that nobody can switch it off unnoticed.

Where the head can't be followed, or the namespace was changed with SQL, the next record says so in place of
the signature before it. So writing goes on, no record is replaced, and the chain stays broken there for ever.

Law: pure functions over records and keys. Values are never here, only their hashes. What is recorded and when
is known to `holdfast.decide`, where keys come from to `holdfast.keyring`.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast import rows
from holdfast.errors import DatabaseError
from holdfast.rows import Address, Ends, Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.errors import Unsupported

AUDIT: Final = rows.AUDIT
"""The space of records. The head has the empty key, a record its number in 8 bytes."""

# A value is JSON and never begins like this, so that the hash of no value is the signature of a record.
_RECORD: Final = b"holdfast audit record\n"
_HEAD: Final = b"holdfast audit head\n"
_WIDTH: Final = 8
_ENCODE: Final = msgspec.json.Encoder().encode
_LAST: Final = 2 ** (8 * _WIDTH) - 1

EDITED: Final = "the head before this was edited"
REMOVED: Final = "the head before this was removed"
ANEW: Final = "the row of the namespace before this was removed"
OUTSIDE: Final = "the policy before this was changed outside Holdfast"
"""What a record says of the state that it found, in place of the signature before it."""
_SAID: Final = {
    EDITED: "the head had been edited",
    REMOVED: "the head had been removed",
    ANEW: "the row of the namespace had been removed, and its versions began anew",
    OUTSIDE: "what the policy asks of the audit had been changed outside Holdfast",
}


class Keys(Protocol):
    """The secrets that sign: one that signs now, and all that ever did."""

    def signing(self) -> tuple[str, bytes]:
        """The name of the newest secret, and the secret."""
        ...

    def secret(self, name: str) -> bytes | None:
        """A secret by its name, or None if it is not known."""
        ...

    def confirm(self) -> None:
        """Make sure with the store that the newest secret is the one in force, before a chain begins."""
        ...

    def unknown(self, name: str) -> Unsupported:
        """The refusal of a write that would hang on what a secret signed that is not known."""
        ...


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who changed what. `before` and `after` are keyed hashes of the value; None where there was none."""

    number: int
    at: int
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
    signature: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The ends of a chain: its last record, and below it the last record that was pruned.

    Beside them stand the version of the last record, and what the policy asks: whether changes are recorded
    and for how many seconds records are kept. The heads of earlier versions of Holdfast lack these three;
    they are then no part of what is signed.
    """

    number: int = 0
    last: str = ""
    floor: int = 0
    anchor: str = ""
    signed_by: str = ""
    signature: str = ""
    version: int | msgspec.UnsetType = msgspec.UNSET
    audited: bool | msgspec.UnsetType = msgspec.UNSET
    retention: int | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def broken(self) -> bool:
        """Whether the next record will have to say what was wrong."""
        return self.last in _SAID


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that is wrong with a chain, and at which number."""

    number: int
    reason: str


def address_of(namespace: str, number: int) -> Address:
    """Where a record is; 0 is the head."""
    return Address(namespace, AUDIT, number.to_bytes(_WIDTH, "big") if number else b"")


def hash_of(keys: Keys, value: str | None) -> str | None:
    """The keyed hash of a value: HMAC-SHA-256 of its compact form, with the secret that signs now."""
    return None if value is None else hmac.digest(keys.signing()[1], value.encode(), "sha256").hex()


def signed_record(namespace: str, keys: Keys, record: AuditRecord) -> AuditRecord:
    """The record with its signature."""
    name, secret = keys.signing()
    unsigned = msgspec.structs.replace(record, signed_by=name, signature="")
    return msgspec.structs.replace(unsigned, signature=_mac(secret, _RECORD, namespace, unsigned))


def signed_head(namespace: str, keys: Keys, head: Head) -> Head:
    """The head with its signature."""
    name, secret = keys.signing()
    unsigned = msgspec.structs.replace(head, signed_by=name, signature="")
    return msgspec.structs.replace(unsigned, signature=_mac(secret, _HEAD, namespace, unsigned))


def head_of(row: Row | None) -> Head:
    """The head in a row; without one the chain is empty.

    Raises:
        DatabaseError: It can't be read.
    """
    if row is None:
        return Head()
    try:
        return msgspec.json.decode(row.value or "", type=Head)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("the head of the audit can't be read: verify it") from None


def number_of(key: bytes) -> int:
    """The number of the record at a key.

    Raises:
        DatabaseError: It is the key of no record.
    """
    if len(key) != _WIDTH:
        raise DatabaseError("there is a row in the audit that is no record: verify it")
    return int.from_bytes(key, "big")


def record_of(row: Row) -> AuditRecord:
    """The record in a row.

    Raises:
        DatabaseError: It can't be read.
    """
    try:
        return msgspec.json.decode(row.value or "", type=AuditRecord)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("a record of the audit can't be read: verify it") from None


def head_to_follow(namespace: str, keys: Keys, row: Row | None) -> Head | None:
    """The head that the next record hangs on; None if there is none, or one that somebody has edited.

    An edited head is not taken at its word, since signing what comes next would make it good: see
    `head_behind`.

    Raises:
        Unsupported: It is signed with a key that is not known, so that nobody can tell.
        DatabaseError: It can't be read.
    """
    if row is None:
        return None
    head = head_of(row)
    secret = keys.secret(head.signed_by)
    if secret is None:
        raise keys.unknown(head.signed_by)
    return head if _signature(secret, _HEAD, namespace, head) == head.signature else None


def head_behind(namespace: str, ends: Ends, says: str) -> Head:
    """A head in place of one that can't be followed: behind the newest record, so that none is replaced.

    Args:
        namespace: Whose audit it is.
        ends: The oldest and the newest record that are there.
        says: What the next record says of the head that was there: `EDITED` or `REMOVED`.

    Raises:
        DatabaseError: There is no number left behind the newest record.
    """
    (oldest, row), (newest, _) = ends.first, ends.last
    number, floor = _position(newest), max(0, _position(oldest) - 1)
    if number == _LAST:
        raise DatabaseError(
            f"the audit of {namespace} has lost its head, and a row was put in at the greatest number, so "
            "that no record fits behind it: run holdfast audit verify, export the audit, and remove that row"
        )
    try:
        anchor = record_of(row).previous
    except DatabaseError:
        anchor = ""
    return Head(number=number, last=says, floor=floor, anchor=anchor)


def _position(key: bytes) -> int:
    """The number that a key stands at, also that of a row which is no record."""
    return int.from_bytes(key[:_WIDTH].ljust(_WIDTH, b"\0"), "big")


def head_break(namespace: str, keys: Keys, row: Row | None) -> Break | None:
    """What is wrong with a head."""
    try:
        head = head_of(row)
    except DatabaseError:
        return Break(number=0, reason="the head can't be read")
    if row is None:
        return None
    secret = keys.secret(head.signed_by)
    if secret is None:
        return Break(number=head.number, reason=f"the head is signed with the unknown key {head.signed_by!r}")
    if _signature(secret, _HEAD, namespace, head) != head.signature:
        return Break(number=head.number, reason="the head was edited")
    return None


def first_break(
    namespace: str, keys: Keys, rows: Iterable[tuple[bytes, Row]], *, after: int, anchor: str
) -> tuple[Break | None, int, str]:
    """The first break in a run of records that must follow number `after`, whose signature is `anchor`.

    Returns:
        The break or None, then the number and signature of the last record that is whole.
    """
    number, previous = after, anchor
    for key, row in rows:
        if len(key) != _WIDTH:
            return Break(number=number + 1, reason="a row was put in that is no record"), number, previous
        found = int.from_bytes(key, "big")
        wrong = _wrong(namespace, keys, row, found=found, expected=number + 1, previous=previous)
        if isinstance(wrong, str):
            return Break(number=min(found, number + 1), reason=wrong), number, previous
        number, previous = wrong.number, wrong.signature
    return None, number, previous


def _wrong(
    namespace: str, keys: Keys, row: Row, *, found: int, expected: int, previous: str
) -> AuditRecord | str:
    """What is wrong with a record, or the record."""
    if found > expected:
        return f"record {expected} was removed"
    try:
        record = record_of(row)
    except DatabaseError:
        return f"record {found} can't be read"
    secret = keys.secret(record.signed_by)
    if secret is None:
        return f"record {found} is signed with the unknown key {record.signed_by!r}"
    if _signature(secret, _RECORD, namespace, record) != record.signature:
        return f"record {found} was edited or put in"
    if found != expected or record.number != found:
        return f"record {found} was moved"
    if record.previous in _SAID:
        return f"{_SAID[record.previous]} when record {found} was written"
    if record.previous != previous:
        return f"record {found} does not follow the one before it"
    return record


def _signature(secret: bytes, kind: bytes, namespace: str, signed: AuditRecord | Head) -> str:
    return _mac(secret, kind, namespace, msgspec.structs.replace(signed, signature=""))


def _mac(secret: bytes, kind: bytes, namespace: str, unsigned: AuditRecord | Head) -> str:
    return hmac.digest(secret, kind + _ENCODE((namespace, unsigned)), "sha256").hex()
