"""The choice of the key that signs a store's audit, from the names the store keeps and the keys at hand.

A store keeps the names of the keys that signed it, the one in force last. A process that lacks that key signs
nothing. Otherwise a copy of the store, or a second service, could start a second key unnoticed.

Law: this module reads and writes the names of keys, never secrets. `holdfast.decide` decides what a key
signs.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.audit.chain import AUDIT, address_of, head_of
from holdfast.audit.keyring import FileKeyring
from holdfast.commands import Removed
from holdfast.engine import KeyKeeper
from holdfast.errors import Busy, DatabaseError, HoldfastError
from holdfast.upkeep_commands import BindKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from holdfast.audit.chain import Head
    from holdfast.commands import Command, Result
    from holdfast.engine import Engine

ATTEMPTS = 10
"""Number of attempts to store the names while other processes keep changing them first."""


async def settle(engine: Engine, now: Callable[[], int]) -> AbstractContextManager[None]:
    """Store the name of the key that signs from now on.

    Returns:
        A context in which that key signs, or in which every audited write is refused with the reason.
    """
    assert isinstance(engine, KeyKeeper), "only a store that keeps names is asked for them"
    return engine.keys.settling(await _refusal(engine, now))


async def _refusal(engine: KeyKeeper, now: Callable[[], int]) -> HoldfastError | None:
    try:
        for _ in range(ATTEMPTS):
            kept = await engine.kept_keys()
            names = kept or await _signers(engine, now)
            newest = engine.keys.choose(names)
            wanted = names if newest in names else [*names, newest]
            if wanted == kept or await engine.keep_keys(wanted, before=kept) == wanted:
                return None
    except HoldfastError as refusal:
        return refusal
    return Busy("other processes keep changing the audit key")


async def key_trouble(engine: Engine, now: Callable[[], int]) -> HoldfastError | None:
    """Return the error that would refuse audited writes for lack of a key, or None. Creates no key."""
    if not isinstance(engine, KeyKeeper):
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
    engine: Engine, execute: Callable[[Command], Awaitable[Result]], now: Callable[[], int]
) -> int:
    """Bind every audit to the newest key, then retire the other keys. Returns the number bound.

    The other keys are retired only once every audit is bound. A broken audit stays as it is: binding it would
    suggest that the newest key has verified it in full.
    """
    if not isinstance(engine, KeyKeeper):
        return 0
    heads = await _heads(engine, now)
    if not heads:
        return 0
    engine.keys.refresh()
    newest, _ = engine.keys.newest()
    bound = 0
    for name, head in heads.items():
        if head.signed_by != newest:
            result = await execute(BindKey(namespace=name))
            bound += isinstance(result, Removed) and result.count
    left = (await _heads(engine, now) if bound else heads).values()
    if all(head.signed_by == newest for head in left):
        engine.keys.retire(name for name in await engine.kept_keys() if name != newest)
    return bound


async def key_in_force(engine: Engine, now: Callable[[], int]) -> str | None:
    """Return the name of the key that last signed the store, as the store keeps it, or None."""
    if not isinstance(engine, KeyKeeper):
        return None
    names = await engine.kept_keys() or await _signers(engine, now)
    return names[-1] if names else None


async def _signers(engine: KeyKeeper, now: Callable[[], int]) -> list[str]:
    """Return the names of the keys that signed a store which does not keep them yet, from its audits' heads.

    The last name is that of a key known here, if any is known; otherwise that of the key that signed most
    heads.
    """
    found = Counter(head.signed_by for head in (await _heads(engine, now)).values())
    return sorted(found, key=lambda name: (engine.keys.secret(name) is not None, found[name]))


async def _heads(engine: KeyKeeper, now: Callable[[], int]) -> dict[str, Head]:
    """Return the readable heads of all audits, by namespace. Verification reports the unreadable ones."""
    names = await engine.owners(AUDIT)
    found = {}
    for name, row in zip(
        names, await engine.read([address_of(name, 0) for name in names], now()), strict=True
    ):
        with suppress(DatabaseError):
            head = head_of(row)
            if head.signed_by:
                found[name] = head
    return found
