"""What several integrations do with entries: read and remove many, and compare and set.

Calls with more keys than one call of a handle takes have the order and the results of one large call. They
are not atomic, as no call with many keys is.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from holdfast import rules, seams
from holdfast.errors import HoldfastError, OutcomeUnknown, ValidationError, ValueTooLarge, VersionConflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from holdfast.handles.kv import KV
    from holdfast.integrations.key_names import KeyNames
    from holdfast.model import Entry, Page

AT_ONCE: Final = 1_000
"""Keys that one call of a handle takes."""
_BYTES_AT_ONCE: Final = rules.MAX_TRANSFER_BYTES // 2
"""Bytes of values that are sent in one call; the rest is room for keys and for the form on the wire."""


_RACES_AT_ONCE: Final = 8
"""Number of lost races that are repeated without a pause."""
_LONGEST_PAUSE: Final = 0.05
"""Longest pause after further lost races, in seconds. The pause is a random part of it."""
MOST_RACES: Final = 1_000
"""Lost races after which the conflict is raised."""


SENDS: Final = 3
"""Number of times that a write whose outcome is unknown is sent."""

T = TypeVar("T")


async def get_all(kv: KV, keys: Sequence[str]) -> list[Entry | None]:
    """Return the entries of any number of keys, however large they are together."""
    entries: list[Entry | None] = []
    start, count = 0, AT_ONCE
    while start < len(keys):
        try:
            results = await kv.get_many(keys[start : start + count])
        except ValueTooLarge:
            count //= 2
            continue
        entries += map(unless_error, results)
        start, count = start + count, min(2 * count, AT_ONCE)
    return entries


async def pages(
    kv: KV, prefix: str, *, values: bool = False, limit: int | None = None
) -> AsyncIterator[Page]:
    """Yield the pages of all that is below a prefix."""
    cursor: str | None = None
    while True:
        page = await kv.list(prefix, values=values, limit=limit, cursor=cursor)
        yield page
        if (cursor := page.cursor) is None:
            return


async def entries_below(kv: KV, prefix: str, *, limit: int | None = None) -> AsyncIterator[Entry]:
    """Yield all entries below a prefix, in the order of their keys."""
    async for page in pages(kv, prefix, values=True, limit=limit):
        for entry in page.entries or ():
            yield entry


async def names_of(kv: KV, names: KeyNames, keys: Sequence[str]) -> list[Any]:
    """Return the names that keys stand for. Long ones are in their entries; a key without one has none."""
    parts: dict[str, Any] = {key: names.parts(key) for key in keys}
    unread = [key for key, name in parts.items() if name is None]
    for entry in await get_all(kv, unread):
        if entry is not None:
            parts[entry.key] = names.parts_of(entry.key, entry.value)
    return [name for name in parts.values() if name is not None]


def checked(value: Any, form: Any, what: str) -> Any:
    """Return a value that was stored, if it has the form that an integration gives to what it stores.

    Whoever may write to the namespace chooses what is there, so nothing may rely on the form before this.

    Args:
        value: The value.
        form: A type, as `msgspec.convert` takes it. Members that it does not name are allowed.
        what: What the value should be, for the message.

    Raises:
        ValidationError: It has another form.
    """
    try:
        msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise ValidationError(f"what is stored is not {what}: {error}", field="value") from None
    return value


async def delete_all(kv: KV, prefix: str, **provenance: Any) -> int:
    """Remove everything below a prefix and return how many keys there were."""
    cursor, count = None, 0
    while True:
        page = await kv.delete_prefix(prefix, cursor=cursor, **provenance)
        count, cursor = count + len(page.keys), page.cursor
        if cursor is None:
            return count


def cut_by_size(sizes: Sequence[int], most: int = AT_ONCE) -> Iterator[tuple[int, int]]:
    """Cut values of these sizes in bytes into runs that fit into one call each, of at most `most` values."""
    start = total = 0
    for position, size in enumerate(sizes):
        if position > start and (total + size > _BYTES_AT_ONCE or position - start == most):
            yield start, position
            start, total = position, 0
        total += size
    if sizes:
        yield start, len(sizes)


def unless_error(result: Any) -> Any:
    """Return a result of many, or raise it if it is an error."""
    if isinstance(result, HoldfastError):
        raise result
    return result


async def compare_and_set(
    kv: KV,
    key: str,
    change: Callable[[Any], Any],
    *,
    default: Any,
    ttl: int | None,
    **provenance: Any,
) -> Entry:
    """Set a key to a value computed from its current one, repeating this if another writer is faster.

    `KV.update` does the same, but keeps the deadline of an existing entry. Here the lifetime begins anew.

    Args:
        kv: The namespace.
        key: The key.
        change: Takes the value and returns the new one. It may be called often, and raise to change nothing.
        default: The value that `change` gets if there is no entry.
        ttl: Seconds until the new entry expires; None for never.
        **provenance: `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

    Raises:
        VersionConflict: Other writers were faster a thousand times in a row.
    """
    entry, races = await kv.get(key), Races()
    while True:
        value = change(default if entry is None else entry.value)
        try:
            version = 0 if entry is None else entry.version
            return await kv.set(key, value, ttl=ttl, expected_version=version, **provenance)
        except VersionConflict as conflict:
            await races.lose(conflict)
            entry = conflict.current
            if entry is not None and entry.value is UNSET:
                entry = await kv.get(key)


async def sent(send: Callable[[], Awaitable[T]]) -> T:
    """Send a write that takes effect once, however often it is sent, and again if its outcome is unknown.

    Raises:
        OutcomeUnknown: It is unknown still.
    """
    for _ in range(SENDS - 1):
        with suppress(OutcomeUnknown):
            return await send()
    return await send()


class Races:
    """The races that a write has lost against other writers. It is repeated after each."""

    lost: int = 0

    async def lose(self, conflict: VersionConflict) -> None:
        """Count a lost race, and pause for a moment unless few were lost.

        Raises:
            VersionConflict: A thousand were lost.
        """
        self.lost += 1
        if self.lost == MOST_RACES:
            raise conflict
        await pause_after(self.lost)


async def pause_after(lost: int) -> None:
    """Pause for a moment after a lost race, unless few were lost."""
    if lost > _RACES_AT_ONCE:
        await asyncio.sleep(seams.uniform() * _LONGEST_PAUSE)


def whole_seconds(lifetime: float) -> int:
    """Return a lifetime in seconds, rounded up, from 1 to the longest that an entry can have (68 years)."""
    return max(1, math.ceil(min(lifetime, rules.MAX_TTL)))
