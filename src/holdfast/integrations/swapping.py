"""Compare and set with a lifetime that begins anew at every change.

Law: a new value is stored only over the value that it was computed from. `KV.update` has the same loop, but
keeps the deadline of an existing entry.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from holdfast.errors import VersionConflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_AT_ONCE: Final = 8
"""Number of lost races that are repeated without a pause."""
_LONGEST_PAUSE: Final = 0.05
"""Longest pause after further lost races, in seconds. The pause is a random part of it."""
MOST: Final = 1_000
"""Lost races after which the conflict is raised."""


async def swapped(kv: KV, key: str, change: Callable[[Any], Any], *, default: Any, ttl: int | None) -> Entry:
    """Set a key to a value computed from its current one, repeating this if another writer is faster.

    Args:
        kv: The namespace.
        key: The key.
        change: Takes the value and returns the new one. It may be called often, and raise to change nothing.
        default: The value that `change` gets if there is no entry.
        ttl: Seconds until the new entry expires; None for never.

    Raises:
        VersionConflict: Other writers were faster a thousand times in a row.
    """
    entry, lost = await kv.get(key), 0
    while True:
        value = change(default if entry is None else entry.value)
        try:
            return await kv.set(key, value, ttl=ttl, expected_version=0 if entry is None else entry.version)
        except VersionConflict as conflict:
            lost += 1
            if lost == MOST:
                raise
            entry = conflict.current
            if entry is not None and entry.value is UNSET:
                entry = await kv.get(key)
        await pause_after(lost)


async def pause_after(lost: int) -> None:
    """Pause for a moment after a lost race, unless few were lost."""
    if lost > _AT_ONCE:
        await asyncio.sleep(random.random() * _LONGEST_PAUSE)
