"""Which key signs the audit of a store: what the store remembers of it, held against the keys at hand.

A store keeps the names of the keys that signed it, the one in force last. A process that does not have that
key signs nothing: a copy of the store, or a second service, would otherwise begin a second key unnoticed.

Law: names of keys are read and written here, never secrets. What a key signs is decided in `holdfast.decide`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.audit.chain import AUDIT, address_of, head_of
from holdfast.audit.keyring import FileKeyring
from holdfast.commands import BindKey, Removed
from holdfast.engine import KeyKeeper
from holdfast.errors import Busy, DatabaseError, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from holdfast.audit.chain import Head
    from holdfast.commands import Command, Result
    from holdfast.engine import Engine

ATTEMPTS = 10
"""How often another process may be first in changing what is kept."""


async def settle(engine: Engine, now: Callable[[], int]) -> AbstractContextManager[None]:
    """Have the store keep the name of the key that signs from now on.

    Returns:
        A block in which that key signs, or in which everything audited is refused with the reason.
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
    return Busy("other processes change the key of the audit all the time")


async def key_trouble(engine: Engine, now: Callable[[], int]) -> HoldfastError | None:
    """Why audited writes would be refused for want of a key; None if they would not. Nothing is made."""
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
    """Have every audit go over to the newest key, and retire the others once all have; how many went over.

    An audit that is broken stays as it is: it must not pass for one that the newest key has seen whole.
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
    """The name of the key that the store was signed with last, as the store remembers it."""
    if not isinstance(engine, KeyKeeper):
        return None
    names = await engine.kept_keys() or await _signers(engine, now)
    return names[-1] if names else None


async def _signers(engine: KeyKeeper, now: Callable[[], int]) -> list[str]:
    """Who signed a store that does not keep it yet: the names in the heads of its audits.

    The last is one that is known here, if any is; else that of most heads.
    """
    found = Counter(head.signed_by for head in (await _heads(engine, now)).values())
    return sorted(found, key=lambda name: (engine.keys.secret(name) is not None, found[name]))


async def _heads(engine: KeyKeeper, now: Callable[[], int]) -> dict[str, Head]:
    """The heads of all audits that can be read, by namespace; of the others verifying tells."""
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
