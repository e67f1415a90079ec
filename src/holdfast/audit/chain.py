"""The records of the audit: how they are written, signed and followed.

A namespace's records are numbered without a gap. Each carries the signature of the one before it and is
signed with a key that the database does not hold, so a record that is edited, removed, put in or moved with
plain SQL breaks the chain there. The head, signed too, says where the chain ends, so it can't be cut short,
which key signs which numbers, so that a retired key signs nothing new, and what the policy asks of the audit,
so that nobody can switch it off unnoticed.

Where the head can't be followed, or the namespace was changed with SQL, the next record says so in place of
the signature before it. So writing goes on, no record is replaced, and the chain stays broken there for ever.

A signature covers the text as it is stored. Records and heads of earlier versions have no `form`; theirs
covers what the text means.

Law: pure functions over records and keys. Values are never here, only their hashes. What is recorded and when
is known to `holdfast.decide`, where keys come from to `holdfast.audit.keyring`, what a break is to
`holdfast.audit.verify`.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from holdfast import rows
from holdfast.errors import DatabaseError
from holdfast.rows import Address, Ends, Row

if TYPE_CHECKING:
    from holdfast.errors import Unsupported

AUDIT: Final = rows.AUDIT
"""The space of records. The head has the empty key, a record its number in 8 bytes."""
FORM: Final = 2
"""The form of records and heads that are written now."""
ROTATED: Final = "rotated"
"""The op of the record from which on another key signs. Its `key` is the name of the one that is retired."""

# A value is JSON and never begins like this, so that the hash of no value is the signature of a record.
_RECORD: Final = b"holdfast audit record 2\n"
_HEAD: Final = b"holdfast audit head 2\n"
_OLD_RECORD: Final = b"holdfast audit record\n"
_OLD_HEAD: Final = b"holdfast audit head\n"
WIDTH: Final = 8
_ENCODE: Final = msgspec.json.Encoder().encode
_LAST: Final = 2 ** (8 * WIDTH) - 1
_UNSIGNED: Final = len(b',"signature":""}')

EDITED: Final = "the head before this was edited"
REMOVED: Final = "the head before this was removed"
STALE: Final = "the head before this was signed with a retired key"
ANEW: Final = "the row of the namespace before this was removed"
OUTSIDE: Final = "the policy before this was changed outside Holdfast"
"""What a record says of the state that it found, in place of the signature before it."""
SAID: Final = {
    EDITED: "the head had been edited",
    REMOVED: "the head had been removed",
    STALE: "the head had been signed with a retired key",
    ANEW: "the row of the namespace had been removed, and its versions began anew",
    OUTSIDE: "what the policy asks of the audit had been changed outside Holdfast",
}


class Keys(Protocol):
    """The secrets that sign: one that signs now, and all that ever did."""

    def signing(self) -> tuple[str, bytes]:
        """The name of the newest secret, and the secret."""
        ...

    def newest(self) -> tuple[str, bytes]:
        """The same, whether or not the store has agreed to it."""
        ...

    def secret(self, name: str) -> bytes | None:
        """A secret by its name, or None if it is not known."""
        ...

    def retired(self, name: str) -> bool:
        """Whether a secret is marked as one that signs nothing any more."""
        ...

    def confirm(self) -> None:
        """Make sure with the store that the newest secret is the one in force, before a chain begins."""
        ...

    def unknown(self, name: str) -> Unsupported:
        """The refusal of a write that would hang on what a secret signed that is not known."""
        ...


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Who changed what. `before` and `after` are keyed hashes of the value; None where there was none.

    `writer` is who says to have made the change, `principal` who is known to have asked for it. Records of
    earlier versions lack the form and the principal; they are then no part of what is signed.
    """

    form: int | msgspec.UnsetType = msgspec.UNSET
    number: int
    at: int
    writer: str
    principal: str | msgspec.UnsetType = msgspec.UNSET
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


class OldHead(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The head as earlier versions wrote it; still earlier ones lack the last three fields."""

    number: int = 0
    last: str = ""
    floor: int = 0
    anchor: str = ""
    signed_by: str = ""
    signature: str = ""
    version: int | msgspec.UnsetType = msgspec.UNSET
    audited: bool | msgspec.UnsetType = msgspec.UNSET
    retention: int | msgspec.UnsetType | None = msgspec.UNSET


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The ends of a chain: its last record, and below it the last record that was pruned.

    Beside them stand the version of the last record, and what the policy asks: whether changes are recorded
    and for how many seconds records are kept. `keys` are the names of those that signed, each with the number
    of its first record, from the first record of today's form on; the last one is in force.
    """

    form: int | msgspec.UnsetType = msgspec.UNSET
    number: int = 0
    last: str = ""
    floor: int = 0
    anchor: str = ""
    version: int | msgspec.UnsetType = msgspec.UNSET
    audited: bool | msgspec.UnsetType = msgspec.UNSET
    retention: int | msgspec.UnsetType | None = msgspec.UNSET
    keys: tuple[tuple[str, int], ...] = ()
    signed_by: str = ""
    signature: str = ""

    @property
    def broken(self) -> bool:
        """Whether the next record will have to say what was wrong."""
        return self.last in SAID


Signed = TypeVar("Signed", AuditRecord, Head)
_KINDS: Final[dict[type, bytes]] = {AuditRecord: _RECORD, Head: _HEAD}


def address_of(namespace: str, number: int) -> Address:
    """Where a record is; 0 is the head."""
    return Address(namespace, AUDIT, number.to_bytes(WIDTH, "big") if number else b"")


def hash_of(keys: Keys, value: str | None) -> str | None:
    """The keyed hash of a value: HMAC-SHA-256 of its compact form, with the secret that signs now."""
    return None if value is None else hash_with(keys.signing()[1], value)


def hash_with(secret: bytes, value: str) -> str:
    """The keyed hash of a value with a certain secret."""
    return hmac.digest(secret, value.encode(), "sha256").hex()


def same(one: str, other: str) -> bool:
    """Whether two signatures are the same; how long this takes tells nothing of where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def sealed(namespace: str, secret: bytes, unsigned: Signed) -> tuple[Signed, str]:
    """A record or a head with its signature, and the text of it to be stored as it is."""
    body = _ENCODE(unsigned)[:-_UNSIGNED]
    signature = _mac(secret, _KINDS[type(unsigned)], namespace, body)
    text = f'{body.decode()},"signature":"{signature}"}}'
    return msgspec.structs.replace(unsigned, signature=signature), text


def genuine(namespace: str, secret: bytes, signed: AuditRecord | Head | OldHead, text: str) -> bool:
    """Whether a record or a head was signed with a secret as it is stored: every byte of it, and no other."""
    stored = text.encode("utf-8", "replace")
    if _ENCODE(signed) != stored:
        return False
    if isinstance(signed, OldHead):
        return same(_old_signature(secret, _OLD_HEAD, namespace, signed), signed.signature)
    if isinstance(signed, AuditRecord) and signed.form is msgspec.UNSET:
        return same(_old_signature(secret, _OLD_RECORD, namespace, signed), signed.signature)
    body = stored[: -_UNSIGNED - len(signed.signature.encode())]
    return signed.form == FORM and same(_mac(secret, _KINDS[type(signed)], namespace, body), signed.signature)


def head_of(row: Row | None) -> Head:
    """The head in a row; without one the chain is empty.

    Raises:
        DatabaseError: It can't be read.
    """
    return Head() if row is None else _as_head(_stored_head(row))


def number_of(key: bytes) -> int:
    """The number of the record at a key.

    Raises:
        DatabaseError: It is the key of no record.
    """
    if len(key) != WIDTH:
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


def head_is_genuine(namespace: str, secret: bytes, row: Row) -> bool:
    """Whether the head in a row was signed with a secret as it is stored."""
    return genuine(namespace, secret, _stored_head(row), row.value or "")


def head_to_follow(namespace: str, keys: Keys, row: Row | None) -> Head | str:
    """The head that the next record hangs on; what that record has to say instead if there is none.

    An edited head is not taken at its word, since signing what comes next would make it good: see
    `head_behind`. Neither is one that a retired key signed: it was put back, or forged with a leaked key.

    Raises:
        Unsupported: It is signed with a key that is not known, so that nobody can tell.
        DatabaseError: It can't be read.
    """
    if row is None:
        return REMOVED
    head = head_of(row)
    secret = keys.secret(head.signed_by)
    if secret is None:
        raise keys.unknown(head.signed_by)
    if not head_is_genuine(namespace, secret, row):
        return EDITED
    return STALE if keys.retired(head.signed_by) else head


def head_behind(namespace: str, ends: Ends, says: str) -> Head:
    """A head in place of one that can't be followed: behind the newest record, so that none is replaced.

    Args:
        namespace: Whose audit it is.
        ends: The oldest and the newest record that are there.
        says: What the next record says of the head that was there: `EDITED`, `REMOVED` or `STALE`.

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


def _stored_head(row: Row) -> Head | OldHead:
    text = row.value or ""
    try:
        if text.startswith('{"form":'):
            return msgspec.json.decode(text, type=Head)
        return msgspec.json.decode(text, type=OldHead)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("the head of the audit can't be read: verify it") from None


def _as_head(stored: Head | OldHead) -> Head:
    return stored if isinstance(stored, Head) else Head(**msgspec.structs.asdict(stored))


def _position(key: bytes) -> int:
    """The number that a key stands at, also that of a row which is no record."""
    return int.from_bytes(key[:WIDTH].ljust(WIDTH, b"\0"), "big")


def _mac(secret: bytes, kind: bytes, namespace: str, body: bytes) -> str:
    return hmac.digest(secret, b"".join((kind, namespace.encode(), b"\n", body)), "sha256").hex()


def _old_signature(secret: bytes, kind: bytes, namespace: str, signed: AuditRecord | OldHead) -> str:
    unsigned = msgspec.structs.replace(signed, signature="")
    return hmac.digest(secret, kind + _ENCODE((namespace, unsigned)), "sha256").hex()
