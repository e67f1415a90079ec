"""A plain compare-and-set loop, for keys that many callers change at once.

Law: a new value is stored only over the value it was computed from. A lost race is repeated at once from the
winner's entry, which the refusal contains. Only a caller that keeps losing pauses. A refusal that is no lost
race is not repeated.
"""

from __future__ import annotations

import asyncio
import random
import time
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypedDict

from msgspec import UNSET

from holdfast import rules
from holdfast.errors import VersionConflict
from holdfast.handles.recipes.retry import kept_semantics, require_progress
from holdfast.model import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.handles.keys import Keys
    from holdfast.model import Entry, Semantics

AT_ONCE: Final = 8
"""Number of lost races that are repeated without a pause."""
LONGEST_PAUSE: Final = 0.05
"""Longest pause after further lost races, in seconds. The pause is a random part of it."""


class Updating(TypedDict, total=False):
    """The keyword arguments of `KV.update`, which documents them."""

    default: Any
    ttl: int | None
    semantics: Semantics | Mapping[str, Any] | None
    timeout: float
    writer: str | None
    spec_ref: str | None
    fence: Mapping[str, Any] | None


async def update(
    kv: Keys,
    key: str,
    change: Callable[[Any], Any],
    *,
    default: Any = None,
    ttl: int | None = None,
    semantics: Semantics | Mapping[str, Any] | None = None,
    timeout: float = 30.0,  # noqa: ASYNC109 - writes that have started must finish
    **known: Any,
) -> Entry:
    """See `KV.update`."""
    until = time.monotonic() + rules.timeout(timeout)
    entry, lost = await kv.get(key), 0
    refusals: list[tuple[int, int | None]] = []
    while True:
        value = change(default if entry is None else entry.value)
        try:
            return await kv.set(
                key,
                await value if isawaitable(value) else value,
                ttl=ttl if entry is None else KEEP,
                expected_version=0 if entry is None else entry.version,
                semantics=kept_semantics(entry) if semantics is None else semantics,
                **known,
            )
        except VersionConflict as conflict:
            require_progress(key, entry, conflict, refusals)
            if time.monotonic() >= until:
                raise
            kv.store.count_retry(kv.namespace, "retried", conflict.code)
            entry, lost = await _winner(kv, key, conflict), lost + 1
        if lost > AT_ONCE:
            await asyncio.sleep(random.random() * LONGEST_PAUSE)


async def _winner(kv: Keys, key: str, conflict: VersionConflict) -> Entry | None:
    """Return the entry that was there instead, read again if the refusal leaves out its value."""
    current = conflict.current
    return await kv.get(key) if current is not None and current.value is UNSET else current
