"""Audit records of changes.

A record is made in the same draft as its change, so that one exists if and only if the other does. This
module also requests the rows that records need.
"""

from __future__ import annotations

import msgspec

from holdfast.audit.chain import (
    ANEW,
    AUDIT,
    FORM,
    GONE,
    OUTSIDE,
    ROTATED,
    AuditRecord,
    Head,
    address_of,
    hash_with,
    head_behind,
    head_of,
    head_to_follow,
    sealed,
)
from holdfast.commands import EMBEDDED, HOLDFAST, WriteCommand
from holdfast.decide.draft import Draft, Loaded, Needs
from holdfast.decide.policies import audit_seconds, audited, audited_unasked, changed_outside
from holdfast.rows import KV, Namespace, Record, Row


def audit(
    draft: Draft, record: Record, before: Row | None, after: Row | None, *, spec_ref: str | None
) -> None:
    """Record a change of the journal in the audit, if the namespace is audited."""
    if audited(draft.namespace):
        add_record(draft, record, before, after, spec_ref=spec_ref)


def add_record(
    draft: Draft, record: Record, before: Row | None, after: Row | None, *, spec_ref: str | None
) -> None:
    """Record a change, whatever the policy says."""
    head, secret = in_force(draft, head_now(draft))
    made = _append(
        draft,
        secret,
        AuditRecord(
            form=FORM,
            number=head.number + 1,
            at=record.at,
            writer=record.last_writer or "",
            principal=_principal(draft, record),
            op=record.op,
            key=record.key,
            version_before=None if before is None else before.version,
            version=record.version,
            purpose=record.purpose,
            request_id=record.request_id,
            trace_id=_trace_id(draft, record),
            spec_ref=spec_ref,
            before=_hash(secret, before),
            after=_hash(secret, after),
            signed_by=head.signed_by,
            previous=_previous(head, record.version),
        ),
    )
    if record.op == "policy" or head.audited is msgspec.UNSET:
        head = _as_asked(head, draft.namespace)
    put_head(
        draft, msgspec.structs.replace(head, number=made.number, last=made.signature, version=record.version)
    )


def in_force(draft: Draft, head: Head) -> tuple[Head, bytes]:
    """Return the head as the current key will sign it, and the secret of that key.

    If there is a new key, a record binds everything that the old one signed to the new one, and retires the
    old one. A key that this chain has retired never comes back: its successor then keeps signing.
    """
    name, secret = draft.keys.signing()
    names = [known for known, _ in head.keys]
    if head.signed_by not in ("", name):
        if name not in names:
            return _rotated(draft, head, name, secret), secret
        name, secret = head.signed_by, draft.keys.secret(head.signed_by) or secret
    keys = head.keys or ((name, head.number + 1),)
    return msgspec.structs.replace(head, form=FORM, keys=keys, signed_by=name), secret


def put_head(draft: Draft, head: Head) -> None:
    """Store the head of the chain. `in_force` has set its key."""
    secret = draft.keys.secret(head.signed_by)
    assert secret is not None, "a head is signed with a key that is known"
    made, text = sealed(draft.name, secret, msgspec.structs.replace(head, signature=""))
    draft.heads[draft.name] = _put(draft, 0, text, draft.namespace.revision), made


def _principal(draft: Draft, record: Record) -> str:
    """Return the principal of the current command. Expiries are made by the store itself."""
    command = draft.command
    if record.op == "expired" or not isinstance(command, WriteCommand):
        return HOLDFAST
    return EMBEDDED if command.origin.principal is msgspec.UNSET else command.origin.principal


def _trace_id(draft: Draft, record: Record) -> str | msgspec.UnsetType:
    """Return the id of the trace that the current command belongs to. An expiry belongs to none."""
    command = draft.command
    if record.op == "expired" or not isinstance(command, WriteCommand):
        return msgspec.UNSET
    trace = command.origin.trace
    return msgspec.UNSET if isinstance(trace, msgspec.UnsetType) else trace.trace_id


def _rotated(draft: Draft, head: Head, name: str, secret: bytes) -> Head:
    """Append a record from which on another key signs. Returns the new head."""
    number, old = head.number + 1, head.signed_by
    version = draft.namespace.revision if head.version is msgspec.UNSET else head.version
    made = _append(
        draft,
        secret,
        AuditRecord(
            form=FORM,
            number=number,
            at=draft.now,
            writer=HOLDFAST,
            principal=HOLDFAST,
            op=ROTATED,
            key=old,
            version_before=None,
            version=version,
            purpose=None,
            request_id=None,
            spec_ref=None,
            before=None,
            after=None,
            signed_by=name,
            previous=head.last,
        ),
    )
    if head.audited is msgspec.UNSET:
        head = _as_asked(head, draft.namespace)
    turned = msgspec.structs.replace(
        head,
        form=FORM,
        number=number,
        last=made.signature,
        version=version,
        keys=(*(head.keys or ((old, number),)), (name, number)),
        signed_by=name,
    )
    put_head(draft, turned)
    return turned


def _append(draft: Draft, secret: bytes, record: AuditRecord) -> AuditRecord:
    made, text = sealed(draft.name, secret, record)
    _put(draft, made.number, text, record.version)
    return made


def note_changed_outside(draft: Draft) -> bool:
    """If the policy was changed with SQL, make the next record say so. Returns whether it was.

    The head that shows this is verified when that record is made. Most namespaces have none.
    """
    row = draft.row(address_of(draft.name, 0))
    if changed_outside(draft.namespace, head_of(row)) is None:
        return False
    head = head_now(draft)
    if not head.broken:
        head, _ = in_force(draft, head)
        put_head(draft, msgspec.structs.replace(head, last=OUTSIDE))
    return True


def head_now(draft: Draft) -> Head:
    """Return the head that the next record follows. A head that this draft has signed needs no verification.

    If it is missing or was edited, the records themselves show where the chain ends.
    """
    row = draft.row(address_of(draft.name, 0))
    known, signed = draft.heads.get(draft.name, (None, None))
    if signed is not None and row is known:
        return signed
    head_or_reason = head_to_follow(draft.name, draft.keys, row)
    if isinstance(head_or_reason, Head):
        return head_or_reason
    ends = draft.ends(AUDIT)
    if ends is not None:
        return head_behind(draft.name, ends, head_or_reason)
    draft.keys.confirm()
    # The namespace's own row still counts the bytes of an audit that was removed with SQL.
    return Head(last=GONE) if draft.namespace.audit_bytes > 0 else Head()


def _previous(head: Head, version: int) -> str:
    """Return the `previous` of a record. Versions only grow, unless the namespace has lost its row."""
    # Version 0 is that of policies before the first write: there may be several.
    anew = head.version is not msgspec.UNSET and head.version > 0 and version <= head.version
    return ANEW if anew and not head.broken else head.last


def _as_asked(head: Head, namespace: Namespace) -> Head:
    """Return the head with the audit settings of the policy."""
    return msgspec.structs.replace(head, audited=audited(namespace), retention=audit_seconds(namespace))


def need_audit(needs: Needs) -> None:
    """Request the rows for records of namespaces that are audited without a policy.

    If a head is requested already, a command may turn the audit on for those that follow it.
    """
    names = set(filter(audited_unasked, needs.namespaces))
    for address in needs.rows:
        if address.space == AUDIT and not address.key:
            names.add(address.namespace)
    if names:
        _need(needs, needs, names)


def need_audit_by_policy(more: Needs, needs: Needs, loaded: Loaded) -> None:
    """Request the rows for records of namespaces whose policy, now loaded, turns the audit on."""
    names = set()
    for name in needs.namespaces:
        namespace = loaded.namespaces.get(name)
        if (
            namespace is not None
            and namespace.policy is not None
            and not audited_unasked(name)
            and audited(namespace)
        ):
            names.add(name)
    if names:
        _need(more, needs, names)


def _need(more: Needs, needs: Needs, names: set[str]) -> None:
    """Request the heads of namespaces, and the values of the entries that are wanted."""
    for address in list(needs.rows):
        if address.namespace in names and address.space == KV:
            more.row(address, value=True)
    for name in names:
        more.row(address_of(name, 0), value=True)


def _hash(secret: bytes, row: Row | None) -> str | None:
    if row is None:
        return None
    assert row.value is not None, "a row that the audit looks at was loaded without its value"
    return hash_with(secret, row.value)


def _put(draft: Draft, number: int, text: str, version: int) -> Row:
    size = len(text) if text.isascii() else len(text.encode())
    row = Row(value=text, size=size, version=version, created_at=draft.now, updated_at=draft.now)
    draft.put(address_of(draft.name, number), row)
    return row
