"""What the policy of a namespace asks of a command: quotas, lifetimes, the trash, the audit.

Law: a policy is read here and nowhere else in `decide`; a namespace without one has `Policy()`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import rules
from holdfast.errors import QuotaExceeded, ValidationError
from holdfast.model import Policy

if TYPE_CHECKING:
    from holdfast.audit import Head
    from holdfast.decide.draft import Draft
    from holdfast.rows import Namespace

_SEMANTIC: Final = "semantic/"
_UNTRASHED: Final = frozenset({"lock", "cache", "session"})


@lru_cache(maxsize=1024)
def policy_of(text: str | None) -> Policy:
    """The policy of a namespace."""
    return Policy() if text is None else msgspec.json.decode(text, type=Policy)


def audited(namespace: Namespace) -> bool:
    """Whether changes of a namespace are recorded: in the semantic family, unless the policy differs."""
    asked = None if namespace.policy is None else policy_of(namespace.policy).audit
    return audited_unasked(namespace.name) if asked is None else asked


def audited_unasked(name: str) -> bool:
    """Whether a namespace is audited as long as no policy says otherwise."""
    return name.startswith(_SEMANTIC)


def audit_seconds(namespace: Namespace) -> int | None:
    """For how long records of the audit are kept, None if for ever."""
    return None if namespace.policy is None else policy_of(namespace.policy).audit_retention


def changed_outside(namespace: Namespace, head: Head) -> str | None:
    """How what a policy asks of the audit differs from what the audit's head has; None if it does not.

    While the audit is on, every policy that is set through Holdfast is in the head; so is the one that
    switches it off. What differs was changed with SQL. Heads of earlier versions don't tell.
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
    """For how long an entry stays in the trash, None if it does not go there; `semantic` if it says why."""
    policy = policy_of(namespace.policy)
    kept = semantic or namespace.name.startswith(_SEMANTIC) if policy.trash is None else policy.trash
    if not kept or purpose in _UNTRASHED:
        return None
    return rules.TRASH_RETENTION if policy.trash_retention is None else policy.trash_retention


def deadline(draft: Draft, ttl: int | None) -> int | None:
    """When an entry ends that is put now with this ttl, or with none."""
    if draft.namespace.policy is not None:
        ttl = _lifetime(draft.namespace, ttl)
    return None if ttl is None else draft.now + ttl * 1000


def check_endless(namespace: Namespace) -> None:
    """Refuse an entry without a deadline where one is required."""
    if namespace.policy is not None and policy_of(namespace.policy).ttl_required:
        raise ValidationError(f"{namespace.name} requires a ttl for every entry", field="ttl")


def check_quota(namespace: Namespace, *, grows: bool, adds: bool) -> None:
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


def _lifetime(namespace: Namespace, ttl: int | None) -> int | None:
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
