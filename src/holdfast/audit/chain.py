"""The records of the audit: how they are written, signed and chained.

A namespace's records are numbered without gaps. Each contains the signature of the previous one and is signed
with a key that the database does not hold. Editing, removing, inserting or moving a record with plain SQL
therefore breaks the chain there. The head is signed too. It says where the chain ends, so that the chain
can't be cut short; which key signs which numbers, so that a retired key can't sign anything new; and the
policy's audit settings, so that turning the audit off is noticed.

If the head can't be followed, or the namespace was changed with SQL, the next record says so in place of the
previous signature. So writes continue, no record is replaced, and the chain stays broken there for ever.

A signature covers the text as stored. Records and heads of earlier versions have no `form`; their signature
covers the decoded content.

Pure functions over records and keys. Values never appear here, only their hashes. `holdfast.decide` knows
what is recorded and when, `holdfast.audit.keyring` where keys come from, and `holdfast.audit.verify` what a
break is.
"""

from __future__ import annotations

import hmac
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast import rows
from holdfast.errors import DatabaseError, Unsupported
from holdfast.rows import Address, FirstAndLast, Row

AUDIT: Final = rows.AUDIT
"""The space of records. The head has the empty key, a record its number in 8 bytes."""
FORM: Final = 2
"""The current form of records and heads."""
ROTATED: Final = "rotated"
"""The op of the record from which on another key signs. Its `key` is the name of the retired one."""
REVEALED: Final = "revealed"
"""The op of the record of a person who looked at a value. Its `spec_ref` is the reason."""

# A value is JSON and never begins like this, so no value's hash can be the signature of a record.
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
GONE: Final = "the whole audit before this was removed"
STALE: Final = "the head before this was signed with a retired key"
ANEW: Final = "the row of the namespace before this was removed"
OUTSIDE: Final = "the policy before this was changed outside Holdfast"
"""Statements about the state that a record found, in place of the previous signature."""
SAID: Final = {
    EDITED: "the head had been edited",
    REMOVED: "the head had been removed",
    GONE: "the whole audit had been removed",
    STALE: "the head had been signed with a retired key",
    ANEW: "the row of the namespace had been removed, and its versions began anew",
    OUTSIDE: "what the policy asks of the audit had been changed outside Holdfast",
}


class SigningKeys(Protocol):
    """The signing secrets: the current one and all earlier ones."""

    def signing(self) -> tuple[str, bytes]:
        """Return the name of the newest secret, and the secret."""
        ...

    def newest(self) -> tuple[str, bytes]:
        """Return the same as `signing`, whether or not the store has accepted it."""
        ...

    def secret(self, name: str) -> bytes | None:
        """Return a secret by its name, or None if it is not known."""
        ...

    def retired(self, name: str) -> bool:
        """Return whether a secret is marked as retired and no longer signs."""
        ...

    def confirm(self) -> None:
        """Check with the store that the newest secret is the current one, before a chain begins."""
        ...

    def unknown(self, name: str) -> Unsupported:
        """Return the error for a write that would follow a signature of an unknown secret."""
        ...


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A change and its author. `before` and `after` are keyed hashes of the value; None where there was none.

    `writer` is the author that the request names, `principal` the authenticated caller. Records of earlier
    versions lack the form and the principal; their signatures don't cover these fields. `trace_id` is that of
    the trace that the request belongs to, if it belongs to one.
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
    trace_id: str | msgspec.UnsetType = msgspec.UNSET
    spec_ref: str | None
    before: str | None
    after: str | None
    signed_by: str
    previous: str
    signature: str = ""


class OldHead(msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The head as earlier versions wrote it. Still earlier ones lack the last three fields."""

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
    """The ends of a chain: its last record, and the last record that was pruned.

    The head also holds the version of the last record and the audit settings of the policy: whether changes
    are recorded, and for how many seconds records are kept. `keys` are the names of the keys that signed,
    each with the number of its first record, starting with the first record of the current form. The last key
    is current.
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
        """True if the next record must state what was wrong."""
        return self.last in SAID


Signed = TypeVar("Signed", AuditRecord, Head)
_KINDS: Final[dict[type, bytes]] = {AuditRecord: _RECORD, Head: _HEAD}


def address_of(namespace: str, number: int) -> Address:
    """Return the address of a record; 0 is the head."""
    return Address(namespace, AUDIT, number.to_bytes(WIDTH, "big") if number else b"")


def hash_of(keys: SigningKeys, value: str | None) -> str | None:
    """Return the keyed hash of a value: HMAC-SHA-256 of its compact form, with the current secret."""
    return None if value is None else hash_with(keys.signing()[1], value)


def hash_with(secret: bytes, value: str) -> str:
    """Return the keyed hash of a value with a given secret."""
    return hmac.digest(secret, value.encode(), "sha256").hex()


def same(one: str, other: str) -> bool:
    """Return whether two signatures are the same, in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def sealed(namespace: str, secret: bytes, unsigned: Signed) -> tuple[Signed, str]:
    """Return a record or a head with its signature, and its text to store unchanged."""
    body = _ENCODE(unsigned)[:-_UNSIGNED]
    signature = _mac(secret, _KINDS[type(unsigned)], namespace, body)
    text = f'{body.decode()},"signature":"{signature}"}}'
    return msgspec.structs.replace(unsigned, signature=signature), text


def genuine(namespace: str, secret: bytes, signed: AuditRecord | Head | OldHead, text: str) -> bool:
    """Return whether a record or a head, exactly as stored, was signed with a secret."""
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
    """Return the head in a row; an empty chain's if there is none.

    Raises:
        DatabaseError: It can't be read.
    """
    return Head() if row is None else _as_head(_stored_head(row))


def number_of(key: bytes) -> int:
    """Return the number of the record at a key.

    Raises:
        DatabaseError: It is not the key of a record.
    """
    if len(key) != WIDTH:
        raise DatabaseError("the audit has a row that is not a record: verify it")
    return int.from_bytes(key, "big")


def record_of(row: Row) -> AuditRecord:
    """Return the record in a row.

    Raises:
        DatabaseError: It can't be read.
    """
    try:
        return msgspec.json.decode(row.value or "", type=AuditRecord)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("a record of the audit can't be read: verify it") from None


def head_is_genuine(namespace: str, secret: bytes, row: Row) -> bool:
    """Return whether the head in a row, exactly as stored, was signed with a secret."""
    return genuine(namespace, secret, _stored_head(row), row.value or "")


def head_to_follow(namespace: str, keys: SigningKeys, row: Row | None) -> Head | str:
    """Return the head that the next record follows, or what that record must state if there is none.

    An edited head is not trusted, since signing what comes next would validate it: see `head_behind`. Neither
    is one signed by a retired key: it was put back, or forged with a leaked key.

    Raises:
        Unsupported: It is signed with an unknown key, so that it can't be verified.
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


def head_behind(namespace: str, ends: FirstAndLast, says: str) -> Head:
    """Return a head in place of one that can't be followed. It is at the newest record, so none is replaced.

    Args:
        namespace: The namespace of the audit.
        ends: The oldest and the newest existing record.
        says: What the next record states about the old head: `EDITED`, `REMOVED` or `STALE`.

    Raises:
        DatabaseError: No number is left after the newest record.
    """
    (oldest, row), (newest, _) = ends.first, ends.last
    number, floor = _position(newest), max(0, _position(oldest) - 1)
    if number == _LAST:
        raise DatabaseError(
            f"the audit of {namespace} has lost its head, and a row at the greatest number leaves no "
            "room for records behind it: run holdfast audit verify, export the audit, and remove that row"
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
    """Return the number at a key, even if its row is not a record."""
    return int.from_bytes(key[:WIDTH].ljust(WIDTH, b"\0"), "big")


def _mac(secret: bytes, kind: bytes, namespace: str, body: bytes) -> str:
    return hmac.digest(secret, b"".join((kind, namespace.encode(), b"\n", body)), "sha256").hex()


def _old_signature(secret: bytes, kind: bytes, namespace: str, signed: AuditRecord | OldHead) -> str:
    unsigned = msgspec.structs.replace(signed, signature="")
    return hmac.digest(secret, kind + _ENCODE((namespace, unsigned)), "sha256").hex()
