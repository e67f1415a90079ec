"""The audits of a store as a whole: which namespaces have one, which key signs, and signs of tampering.

A store keeps the names of the keys that signed it, the one in force last. A process that lacks that key signs
nothing. Otherwise a copy of the store, or a second service, could start a second key unnoticed. Only names
are read and written here, never secrets; `holdfast.decide` decides what a key signs.

Signs of tampering are those that show without reading audit records, at a cost that depends on the number of
namespaces and not on their contents. `holdfast.operators.audit` verifies records and signatures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import Final

import msgspec

from holdfast.audit.chain import AUDIT, Head, address_of, head_of
from holdfast.audit.keyring import FileKeyring
from holdfast.commands import Command, Removed, Result
from holdfast.decide.policies import audited, changed_outside, policy_of
from holdfast.engine import DurableStorage, Engine
from holdfast.errors import Busy, DatabaseError, HoldfastError
from holdfast.rows import Namespace
from holdfast.upkeep_commands import BindKey

ATTEMPTS: Final = 10
"""Number of attempts to store the names while other processes keep changing them first."""


async def audits(engine: Engine, now: Callable[[], int]) -> list[str]:
    """List the names of the namespaces that have an audit or should have one.

    The audit records themselves are searched, so a namespace whose row was removed is found too.
    """
    audited_names = {
        totals.namespace.name
        for totals in await engine.totals(now())
        if _policy_trouble(totals.namespace) or totals.namespace.audit_bytes > 0 or audited(totals.namespace)
    }
    return sorted(audited_names.union(await engine.owners(AUDIT)))


async def heads(engine: Engine, now: Callable[[], int]) -> dict[str, str]:
    """Return the heads of all audits that can be read, as `number:signature`, by namespace, unverified."""
    return {
        name: f"{head.number}:{head.last}"
        for name, head in (await _heads(engine, now)).items()
        if head.number
    }


async def _heads(engine: Engine, now: Callable[[], int]) -> dict[str, Head]:
    """Return the readable heads of all audits, by namespace. Verification reports the unreadable ones."""
    names = await engine.owners(AUDIT)
    rows = await engine.read([address_of(name, 0) for name in names], now())
    heads: dict[str, Head] = {}
    for name, row in zip(names, rows, strict=True):
        with suppress(DatabaseError):
            heads[name] = head_of(row)
    return heads


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
    reasons = {}
    for name, row in zip(names, heads, strict=True):
        try:
            gone = row is None and name in having
            reason = "the head was removed" if gone else unlike(head_of(row), rows.get(name))
        except DatabaseError:
            reason = "the head can't be read"
        if reason is not None:
            reasons[name] = reason
    if not names and isinstance(engine, DurableStorage) and (signers := await engine.kept_keys()):
        reasons[""] = (
            f"this store was audited, with the key {signers[-1]}, and no record of any audit is left"
        )
    return reasons


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


async def settle(engine: Engine, now: Callable[[], int]) -> AbstractContextManager[None]:
    """Store the name of the key that signs from now on.

    Returns:
        A context in which that key signs, or in which every audited write is refused with the reason.
    """
    assert isinstance(engine, DurableStorage), "only a store that keeps names is asked for them"
    return engine.keys.settling(await _refusal(engine, now))


async def _refusal(engine: DurableStorage, now: Callable[[], int]) -> HoldfastError | None:
    try:
        for _ in range(ATTEMPTS):
            kept = await engine.kept_keys()
            names = kept or await _signers(engine, now)
            newest = engine.keys.choose(names)
            signers = names if newest in names else [*names, newest]
            if signers == kept or await engine.keep_keys(signers, before=kept) == signers:
                return None
    except HoldfastError as refusal:
        return refusal
    return Busy("other processes keep changing the audit key")


async def key_trouble(engine: Engine, now: Callable[[], int]) -> HoldfastError | None:
    """Return the error that would refuse audited writes for lack of a key, or None. Creates no key."""
    if not isinstance(engine, DurableStorage):
        return None
    keys = engine.keys
    names = await engine.kept_keys() or await _signers(engine, now)
    if not names and isinstance(keys, FileKeyring) and keys.makes and not keys.path.exists():
        return None
    try:
        keys.choose(names)
    except HoldfastError as refusal:
        return refusal
    return None


async def bind_keys(
    engine: Engine, call: Callable[[Command], Awaitable[Result]], now: Callable[[], int]
) -> int:
    """Bind every audit to the newest key, then retire the other keys. Returns the number bound.

    The other keys are retired only once every audit is bound. A broken audit stays as it is: binding it would
    suggest that the newest key has verified it in full.
    """
    if not isinstance(engine, DurableStorage):
        return 0
    heads = await _signed_heads(engine, now)
    if not heads:
        return 0
    engine.keys.refresh()
    newest, _ = engine.keys.newest()
    bound = 0
    for name, head in heads.items():
        if head.signed_by != newest:
            result = await call(BindKey(namespace=name))
            bound += isinstance(result, Removed) and result.count
    left = (await _signed_heads(engine, now) if bound else heads).values()
    if all(head.signed_by == newest for head in left):
        engine.keys.retire(name for name in await engine.kept_keys() if name != newest)
    return bound


async def key_in_force(engine: Engine, now: Callable[[], int]) -> str | None:
    """Return the name of the key that last signed the store, as the store keeps it, or None."""
    if not isinstance(engine, DurableStorage):
        return None
    names = await engine.kept_keys() or await _signers(engine, now)
    return names[-1] if names else None


async def _signers(engine: DurableStorage, now: Callable[[], int]) -> list[str]:
    """Return the names of the keys that signed a store which does not keep them yet, from its audits' heads.

    The last name is that of a key known here, if any is known; otherwise that of the key that signed most
    heads.
    """
    signed = Counter(head.signed_by for head in (await _signed_heads(engine, now)).values())
    return sorted(signed, key=lambda name: (engine.keys.secret(name) is not None, signed[name]))


async def _signed_heads(engine: Engine, now: Callable[[], int]) -> dict[str, Head]:
    """Return the heads of all audits that name their key, by namespace."""
    return {name: head for name, head in (await _heads(engine, now)).items() if head.signed_by}
