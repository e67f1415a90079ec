"""The effects of a namespace's policy: quotas, TTLs, the trash, the audit, reveals.

Within `decide`, only this module reads policies. A namespace without one has `Policy()`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import rules
from holdfast.commands import Command
from holdfast.errors import QuotaExceeded, ValidationError
from holdfast.families import has_blobs, has_tables, is_semantic
from holdfast.model import Parts, Policy
from holdfast.rows import Namespace

if TYPE_CHECKING:
    from holdfast.audit.chain import Head

SPARE_BYTES: Final = 65_536
"""Size of the journal in bytes up to which it does not keep a full namespace from being written to."""
_ADVICE: Final = {
    "entries": "entries: delete some, or give them a ttl",
    "blobs": "blobs and their parts: delete some, or give them a ttl",
    "items": "items: delete some, or give their table a ttl attribute",
    "indexes": "entries of indexes: drop an index, or delete items",
    "journal": "records of the journal: shorten journal_retention",
    "trash": "in the trash: shorten trash_retention",
    "letters": "dead letters: retry or drop some of them",
    "requests": "remembered requests: each is forgotten after 24 hours",
    "other": "locks and definitions of tables: drop tables that are not needed",
}
_UNTRASHED: Final = frozenset({"lock", "cache", "session"})


@lru_cache(maxsize=1024)
def policy_of(text: str | None) -> Policy:
    """Return the policy of a namespace."""
    return Policy() if text is None else msgspec.json.decode(text, type=Policy)


def audited(namespace: Namespace) -> bool:
    """Return whether a namespace is audited: by its policy, else if it is in the semantic family."""
    setting = None if namespace.policy is None else policy_of(namespace.policy).audit
    return is_semantic(namespace.name) if setting is None else setting


audited_unasked: Final = is_semantic
"""Returns whether a namespace is audited if no policy says otherwise."""


def audited_by(name: str, audit: bool | None) -> bool:
    """Return whether a namespace is audited whose policy has this `audit`."""
    return audited_unasked(name) if audit is None else audit


def reveals(namespace: Namespace) -> str:
    """Return how people may look at values: `open`, `audited` (they say why) or `never`."""
    policy = policy_of(namespace.policy)
    return reveals_by(namespace.name, reveal=policy.reveal, audit=policy.audit)


def reveals_by(name: str, *, reveal: str | None, audit: bool | None) -> str:
    """Return how people may look at values of a namespace whose policy has this `reveal` and this `audit`.

    A policy that says nothing asks for a reason only where an audit records it.
    """
    return reveal or ("audited" if audited_by(name, audit) else "open")


def check_value(namespace: Namespace, size: int) -> None:
    """Refuse a value that is larger than the policy of its namespace allows."""
    most = policy_of(namespace.policy).max_value_bytes or rules.MAX_VALUE_BYTES
    if size > most:
        raise rules.too_large(size, most)


def audit_seconds(namespace: Namespace) -> int | None:
    """Return for how many seconds audit records are kept; None for ever."""
    return None if namespace.policy is None else policy_of(namespace.policy).audit_retention


def changed_outside(namespace: Namespace, head: Head) -> str | None:
    """Return how the policy's audit settings differ from those in the audit's head; None if they don't.

    While the audit is on, the head contains every policy that is set through Holdfast, including one that
    turns the audit off. Any difference was made with SQL. Heads of earlier versions lack these settings.
    """
    if head.audited is msgspec.UNSET:
        return None
    on = audited(namespace)
    if on != head.audited:
        return f"the audit was switched {'on' if on else 'off'} outside Holdfast"
    if on and audit_seconds(namespace) != head.retention:
        return "the time for which records are kept was changed outside Holdfast"
    return None


def trash_seconds(namespace: Namespace, *, semantic: bool, purpose: str | None) -> int | None:
    """Return for how many seconds an entry stays in the trash; None if it is not kept.

    `semantic` says whether the entry has semantics.
    """
    policy = policy_of(namespace.policy)
    kept = semantic or is_semantic(namespace.name) if policy.trash is None else policy.trash
    if not kept or purpose in _UNTRASHED:
        return None
    return rules.TRASH_RETENTION if policy.trash_retention is None else policy.trash_retention


def check_endless(namespace: Namespace) -> None:
    """Refuse an entry without a deadline where one is required."""
    if namespace.policy is not None and policy_of(namespace.policy).ttl_required:
        raise ValidationError(f"{namespace.name} requires a ttl for every entry", field="ttl")


def check_quota(before: Namespace, after: Namespace, command: Command, *, defaults: Policy | None) -> None:
    """Refuse a command that takes a namespace past its quota. A namespace past it may still shrink.

    A command that only removes, and has removed something, may add its records. The parts of a command that
    is executed in parts have been judged one by one. A command that only makes the journal larger is accepted
    while the journal is short; a long one is shortened before this refuses finally.
    """
    policy = policy_of(after.policy)
    most = policy.quota_keys
    if most is not None and after.keys > most and after.keys > before.keys:
        raise QuotaExceeded(f"{after.name} would have more keys than its quota_keys of {most}")
    most = quota_of(after, defaults)
    if most is None or after.kept_bytes <= most or after.kept_bytes <= before.kept_bytes:
        return
    if after.revision > before.revision and (command.removes or command.parts is not None):
        return
    if after.journal_bytes <= SPARE_BYTES and _without_journal(after) <= _without_journal(before):
        return
    refusal = QuotaExceeded(_full(after, most, own=policy.quota_bytes is not None))
    refusal.excess = after.kept_bytes - most
    raise refusal


def _without_journal(namespace: Namespace) -> int:
    return namespace.kept_bytes - namespace.journal_bytes


def quota_of(namespace: Namespace, defaults: Policy | None) -> int | None:
    """Return how many bytes a namespace may keep; None if there is no quota."""
    quota = policy_of(namespace.policy).quota_bytes
    return defaults.quota_bytes if quota is None and defaults is not None else quota


def journal_yields(namespace: Namespace) -> bool:
    """Return whether old journal records are dropped before a quota refuses: not if a retention is set."""
    return namespace.journal_bytes > 0 and policy_of(namespace.policy).journal_retention is None


def settled_bytes(namespace: Namespace) -> int:
    """Return the bytes that a namespace keeps without those that are dropped before a quota refuses."""
    return _without_journal(namespace) if journal_yields(namespace) else namespace.kept_bytes


def _full(namespace: Namespace, most: int, *, own: bool) -> str:
    """Return the message of a refusal: the size, its largest part, and what to do."""
    parts = parts_of(namespace)
    largest = max(_ADVICE, key=lambda name: getattr(parts, name))
    return (
        f"{namespace.name} would keep {namespace.kept_bytes} bytes, more than its "
        f"{'quota_bytes' if own else 'default quota'} of {most}. {getattr(parts, largest)} of them are "
        f"{_ADVICE[largest]}; or raise the quota with holdfast namespace set {namespace.name} --quota-bytes"
    )


def parts_of(namespace: Namespace) -> Parts:
    """Return the bytes that a namespace keeps, by kind."""
    tables, blobs = has_tables(namespace.name), has_blobs(namespace.name)
    return Parts(
        entries=0 if tables or blobs else namespace.held_bytes,
        blobs=namespace.held_bytes if blobs else 0,
        items=namespace.held_bytes if tables else 0,
        indexes=namespace.index_bytes,
        journal=namespace.journal_bytes,
        trash=namespace.trash_bytes,
        letters=namespace.letter_bytes,
        requests=namespace.request_bytes,
        other=namespace.other_bytes,
        audit=namespace.audit_bytes,
    )


def lifetime(namespace: Namespace, ttl: int | float | None) -> int | float | None:
    """Return the ttl of an entry that is stored with this one, according to the policy."""
    policy = policy_of(namespace.policy)
    seconds = policy.ttl_default if ttl is None else ttl
    if seconds is None:
        check_endless(namespace)
        return None
    if policy.ttl_min is not None and seconds < policy.ttl_min:
        raise ValidationError(
            f"ttl is {seconds} s; {namespace.name} allows no less than {policy.ttl_min}", field="ttl"
        )
    if policy.ttl_max is not None and seconds > policy.ttl_max:
        raise ValidationError(
            f"ttl is {seconds} s; {namespace.name} allows no more than {policy.ttl_max}", field="ttl"
        )
    return seconds
