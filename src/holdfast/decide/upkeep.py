"""Changes made by time and by operators: entries expire, records are dropped, policies are set.

Upkeep uses commands, like any other change. It never removes anything early because its caller says so: each
row is checked again when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.audit.chain import Head, address_of, record_of
from holdfast.audit.verify import Chain
from holdfast.commands import Done, Removed, SetPolicy
from holdfast.decide.audit import add_record, head_now, in_force, note_changed_outside, put_head
from holdfast.decide.draft import Draft, Loaded, Needs
from holdfast.decide.entries import abandon_upload, expire, expire_run, need_trash, release_trashed
from holdfast.decide.policies import audit_seconds, audited, changed_outside
from holdfast.errors import DatabaseError
from holdfast.families import has_blobs
from holdfast.rows import REQUEST, TRASH, UPLOAD, Address, Record, Row
from holdfast.upkeep_commands import BindKey, Expire, ExpireRun, PruneAudit, Recount, Trim


def _expire(draft: Draft, command: Expire) -> Removed:
    count = 0
    for key in command.keys:
        address = Address(draft.name, command.space, key)
        row = draft.row(address)
        if row is None or row.expires_at is None:
            continue
        if isinstance(key, str):
            if not row.alive(draft.now):
                expire(draft, key, row)
                count += 1
        elif row.expires_at <= max(draft.now, command.before or 0):
            _drop(draft, address, key, row)
            count += 1
    return Removed(count)


def _drop(draft: Draft, address: Address, key: bytes, row: Row) -> None:
    """Remove a row that is no entry, and what only it refers to."""
    if address.space == UPLOAD:
        abandon_upload(draft, int.from_bytes(key, "big"))
        return
    draft.put(address, None)
    if address.space == REQUEST:
        draft.namespace.requests -= 1
    elif address.space == TRASH and has_blobs(draft.name):
        release_trashed(draft, key.decode(), row)


def _expire_run(draft: Draft, command: ExpireRun) -> Removed:
    return Removed(expire_run(draft))


def _trim(draft: Draft, command: Trim) -> Removed:
    upto = min(command.upto, draft.namespace.revision)
    dropped = upto - draft.namespace.journal_floor
    if dropped <= 0:
        return Removed(0)
    draft.trim(upto, asked=command.upto)
    return Removed(dropped)


def _recount(draft: Draft, command: Recount) -> Removed:
    """Correct the counters of what the namespace keeps. Returns the number that were wrong."""
    wrong = draft.miscounts
    for counter, by in wrong.items():
        setattr(draft.namespace, counter, getattr(draft.namespace, counter) + by)
    return Removed(len(wrong))


def _set_policy(draft: Draft, command: SetPolicy) -> Done:
    """Set a policy. The audit records it if the audit is on before or after, so turning it off is recorded.

    The audit also counts as on if it was turned off with SQL. In a namespace that was never written to, the
    record has version 0, so that entries which are imported into it keep all their versions.
    """
    namespace = draft.namespace
    recorded = note_changed_outside(draft) or audited(namespace)
    old = None if namespace.policy is None else _policy_row(draft, namespace.policy)
    namespace.policy = command.policy
    if recorded or audited(namespace):
        namespace.changed_at = draft.now
        record = Record(
            namespace=draft.name,
            version=draft.version() if namespace.revision else 0,
            op="policy",
            key="",
            at=draft.now,
            last_writer=command.origin.writer,
            request_id=command.origin.request_id,
        )
        add_record(draft, record, old, _policy_row(draft, command.policy), spec_ref=command.origin.spec_ref)
    return Done()


def _policy_row(draft: Draft, policy: str) -> Row:
    """Return a policy as a row for the audit to hash, at the namespace's current version."""
    revision = draft.namespace.revision
    return Row(value=policy, size=len(policy), version=revision, created_at=draft.now, updated_at=draft.now)


def _prune_audit(draft: Draft, command: PruneAudit) -> Removed:
    """Drop records from the start of a chain. The head keeps the signature of the last one as the anchor.

    Nothing is dropped if the head or the policy was tampered with: the records are evidence. For the same
    reason a record that is not as written stays, with all behind it. The time that it tells proves nothing.

    Raises:
        DatabaseError: One of the records is not as written.
    """
    kept = audit_seconds(draft.namespace)
    if kept is None:
        return Removed(0)
    head = head_now(draft)
    row = draft.row(address_of(draft.name, command.upto))
    if row is None or command.first != head.floor + 1:
        return Removed(0)
    if head.broken or changed_outside(draft.namespace, head):
        return Removed(0)
    last = record_of(row)
    if last.at > draft.now - kept * 1000:
        return Removed(0)
    addresses = [address_of(draft.name, number) for number in range(command.first, command.upto + 1)]
    rows = [(address.key, draft.row(address)) for address in addresses]
    chain = Chain(draft.name, draft.keys, head, after=head.floor, anchor=head.anchor)
    broken = chain.first_break((key, row) for key, row in rows if row is not None and isinstance(key, bytes))
    if broken is not None:
        raise DatabaseError(f"{broken.reason}, so nothing more is pruned: run holdfast audit verify")
    for address in addresses:
        draft.put(address, None)
    head, _ = in_force(draft, head)
    put_head(draft, msgspec.structs.replace(head, floor=command.upto, anchor=last.signature))
    return Removed(len(addresses))


def _bind_key(draft: Draft, command: BindKey) -> Removed:
    """Bind the records of an older key to the newest one. A broken chain is left for verification."""
    row = draft.row(address_of(draft.name, 0))
    head = Head() if row is None else head_now(draft)
    if head.broken or not head.number:
        return Removed(0)
    bound, _ = in_force(draft, head)
    return Removed(bound.number - head.number)


def _needs_rows(needs: Needs, command: Expire) -> None:
    for key in command.keys:
        needs.row(Address(command.namespace, command.space, key))


def _need_trash(more: Needs, command: Expire, loaded: Loaded) -> None:
    for key in command.keys:
        if isinstance(key, str):
            need_trash(more, command.namespace, key, loaded)


def _needs_run(needs: Needs, command: ExpireRun) -> None:
    needs.runs[command.namespace] = max(command.limit, needs.runs.get(command.namespace, 0))


def _needs_sum(needs: Needs, command: Trim) -> None:
    needs.trims.add((command.namespace, command.upto))


def _needs_counts(needs: Needs, command: Recount) -> None:
    needs.counts.add(command.namespace)


def _needs_head(needs: Needs, command: SetPolicy | BindKey) -> None:
    needs.row(address_of(command.namespace, 0), value=True)


def _needs_records(needs: Needs, command: PruneAudit) -> None:
    needs.row(address_of(command.namespace, 0), value=True)
    for number in range(command.first, command.upto + 1):
        needs.row(address_of(command.namespace, number), value=True)


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Expire: _needs_rows,
    ExpireRun: _needs_run,
    Trim: _needs_sum,
    Recount: _needs_counts,
    SetPolicy: _needs_head,
    PruneAudit: _needs_records,
    BindKey: _needs_head,
}
FURTHER: Final[dict[type, Callable[[Needs, Any, Loaded], None]]] = {Expire: _need_trash}
"""Functions that request more rows, once the first ones are loaded."""
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {
    Expire: _expire,
    ExpireRun: _expire_run,
    Trim: _trim,
    Recount: _recount,
    SetPolicy: _set_policy,
    PruneAudit: _prune_audit,
    BindKey: _bind_key,
}
