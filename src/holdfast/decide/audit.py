"""What the audit records of a change.

Law: a record is made in the same draft as the change, so that one exists if and only if the other does. What
of the rows must be loaded for that is said here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.audit import (
    ANEW,
    AUDIT,
    EDITED,
    OUTSIDE,
    REMOVED,
    AuditRecord,
    Head,
    address_of,
    hash_of,
    head_behind,
    head_of,
    head_to_follow,
    signed_head,
    signed_record,
)
from holdfast.decide.policies import audit_seconds, audited, audited_unasked, changed_outside
from holdfast.rows import KV, Row

if TYPE_CHECKING:
    from holdfast.audit import Keys
    from holdfast.decide.draft import Draft, Loaded, Needs
    from holdfast.rows import Namespace, Record


def audit(
    draft: Draft, record: Record, before: Row | None, after: Row | None, *, spec_ref: str | None
) -> None:
    """Record a change that the journal has, if its namespace is audited: who made which value into which."""
    if audited(draft.namespace):
        add_record(draft, record, before, after, spec_ref=spec_ref)


def add_record(
    draft: Draft, record: Record, before: Row | None, after: Row | None, *, spec_ref: str | None
) -> None:
    """Record a change whatever the policy says."""
    keys = draft.keys
    head = head_now(draft)
    made = signed_record(
        draft.name,
        keys,
        AuditRecord(
            number=head.number + 1,
            at=record.at,
            writer=record.last_writer or "",
            op=record.op,
            key=record.key,
            version_before=None if before is None else before.version,
            version=record.version,
            purpose=record.purpose,
            request_id=record.request_id,
            spec_ref=spec_ref,
            before=_hash(keys, before),
            after=_hash(keys, after),
            signed_by="",
            previous=_previous(head, record.version),
        ),
    )
    _put(draft, made.number, msgspec.json.encode(made), record.version)
    if record.op == "policy" or head.audited is msgspec.UNSET:
        head = _as_asked(head, draft.namespace)
    put_head(
        draft, msgspec.structs.replace(head, number=made.number, last=made.signature, version=record.version)
    )


def put_head(draft: Draft, head: Head) -> None:
    """Say anew where the chain ends."""
    sealed = signed_head(draft.name, draft.keys, head)
    row = _put(draft, 0, msgspec.json.encode(sealed), draft.namespace.revision)
    draft.heads[draft.name] = row, sealed


def note_changed_outside(draft: Draft) -> bool:
    """Have the next record say so if the policy was changed with SQL; whether it was.

    The head that tells is verified when that record is made. Most namespaces have none.
    """
    row = draft.row(address_of(draft.name, 0))
    if changed_outside(draft.namespace, head_of(row)) is None:
        return False
    head = head_now(draft)
    if not head.broken:
        put_head(draft, msgspec.structs.replace(head, last=OUTSIDE))
    return True


def head_now(draft: Draft) -> Head:
    """The head that the next record hangs on. One that this very draft has signed need not be verified.

    Where there is none, or an edited one, the records themselves are asked for where they end.
    """
    row = draft.row(address_of(draft.name, 0))
    known, head = draft.heads.get(draft.name, (None, None))
    if head is None or row is not known:
        head = head_to_follow(draft.name, draft.keys, row)
    if head is not None:
        return head
    ends = draft.ends(AUDIT)
    if ends is None:
        draft.keys.confirm()
        return Head() if row is None else Head(last=EDITED)
    return head_behind(draft.name, ends, REMOVED if row is None else EDITED)


def _previous(head: Head, version: int) -> str:
    """What a record says of the one before it. Versions only grow, unless the namespace has lost its row."""
    anew = head.version is not msgspec.UNSET and version <= head.version
    return ANEW if anew and not head.broken else head.last


def _as_asked(head: Head, namespace: Namespace) -> Head:
    """The head with what the policy asks of the audit."""
    return msgspec.structs.replace(head, audited=audited(namespace), retention=audit_seconds(namespace))


def need_audit(wanted: Needs) -> None:
    """Ask for what the records of namespaces look at that are audited whatever their policy may be.

    Where the head is asked for already, a command may switch the audit on for those that come after it.
    """
    names = set(filter(audited_unasked, wanted.namespaces))
    for address in wanted.rows:
        if address.space == AUDIT and not address.key:
            names.add(address.namespace)
    if names:
        _need(wanted, wanted, names)


def need_audit_by_policy(more: Needs, wanted: Needs, loaded: Loaded) -> None:
    """Ask for it where a policy, which is known by now, wants records."""
    names = set()
    for name in wanted.namespaces:
        found = loaded.namespaces.get(name)
        if found is not None and found.policy is not None and not audited_unasked(name) and audited(found):
            names.add(name)
    if names:
        _need(more, wanted, names)


def _need(more: Needs, wanted: Needs, names: set[str]) -> None:
    """Ask for the heads of namespaces, and for the values of those entries that are wanted."""
    for address in list(wanted.rows):
        if address.namespace in names and address.space == KV:
            more.row(address, value=True)
    for name in names:
        more.row(address_of(name, 0), value=True)


def _hash(keys: Keys, row: Row | None) -> str | None:
    if row is None:
        return None
    assert row.value is not None, "a row that the audit looks at was loaded without its value"
    return hash_of(keys, row.value)


def _put(draft: Draft, number: int, value: bytes, version: int) -> Row:
    row = Row(
        value=value.decode(), size=len(value), version=version, created_at=draft.now, updated_at=draft.now
    )
    draft.put(address_of(draft.name, number), row)
    return row
