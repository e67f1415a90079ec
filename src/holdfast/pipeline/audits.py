"""Finding audited namespaces, and the signs of tampering that show without reading audit records.

Law: nothing is written here, and the cost depends on the number of namespaces, not on their contents.
`holdfast.operators.audit` verifies records and signatures.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.audit.chain import AUDIT, address_of, head_of
from holdfast.decide.policies import audited, changed_outside, policy_of
from holdfast.engine import KeyKeeper, service_of
from holdfast.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.audit.chain import Head
    from holdfast.engine import Engine
    from holdfast.rows import Namespace


async def audits(engine: Engine, now: Callable[[], int]) -> list[str]:
    """List the names of the namespaces that have an audit or should have one.

    The audit records themselves are searched, so a namespace whose row was removed is found too.
    """
    if (service := service_of(engine)) is not None:
        return await service.audits()
    asked = {
        totals.namespace.name
        for totals in await engine.totals(now())
        if _policy_trouble(totals.namespace) or totals.namespace.audit_bytes > 0 or audited(totals.namespace)
    }
    return sorted(asked.union(await engine.owners(AUDIT)))


async def heads(engine: Engine, now: Callable[[], int]) -> dict[str, str]:
    """Return the heads of all audits that can be read, as `number:signature`, by namespace, unverified."""
    names = await engine.owners(AUDIT)
    found = {}
    for name, row in zip(
        names, await engine.read([address_of(name, 0) for name in names], now()), strict=True
    ):
        with suppress(DatabaseError):
            head = head_of(row)
            if head.number:
                found[name] = f"{head.number}:{head.last}"
    return found


async def suspects(engine: Engine, now: Callable[[], int]) -> dict[str, str]:
    """Return the namespaces that show signs of tampering, each with the reason, at a bounded cost.

    The name "" stands for the store as a whole, which remembers that it was audited. Only heads and namespace
    rows are compared. They are compared twice, because a policy may be set in between.
    """
    seen = await _look_for_suspects(engine, now)
    again = await _look_for_suspects(engine, now) if seen else {}
    return {name: reason for name, reason in again.items() if seen.get(name) == reason}


async def _look_for_suspects(engine: Engine, now: Callable[[], int]) -> dict[str, str]:
    rows = {totals.namespace.name: totals.namespace for totals in await engine.totals(now())}
    counted = {name for name, row in rows.items() if row.audit_bytes > 0}
    having = set(await engine.owners(AUDIT))
    names = sorted(having | counted)
    heads = await engine.read([address_of(name, 0) for name in names], now())
    found = {}
    for name, row in zip(names, heads, strict=True):
        try:
            gone = row is None and name in having
            reason = "the head was removed" if gone else unlike(head_of(row), rows.get(name))
        except DatabaseError:
            reason = "the head can't be read"
        if reason is not None:
            found[name] = reason
    if not names and isinstance(engine, KeyKeeper) and (signers := await engine.kept_keys()):
        found[""] = f"this store was audited, with the key {signers[-1]}, and no record of any audit is left"
    return found


def unlike(head: Head, namespace: Namespace | None) -> str | None:
    """Describe how a namespace's row differs from the head of its audit; None if it does not."""
    if namespace is None:
        return "the row of the namespace was removed, although it has an audit" if head.number else None
    if not head.number and namespace.audit_bytes > 0:
        return "the whole audit was removed with SQL: its head and all records"
    trouble = _policy_trouble(namespace)
    if trouble is None and not head.number and policy_of(namespace.policy).audit:
        return "the policy asks for an audit and there is no record of it: it was removed with SQL, or set so"
    return trouble or changed_outside(namespace, head)


def _policy_trouble(namespace: Namespace) -> str | None:
    try:
        policy_of(namespace.policy)
    except msgspec.MsgspecError:
        return "the policy can't be read: it was changed outside Holdfast"
    return None
