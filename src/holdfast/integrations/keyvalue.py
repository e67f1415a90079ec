"""A store of py-key-value on a namespace of Holdfast. FastMCP keeps sessions, OAuth state and caches in one.

Values, deadlines and errors are those that py-key-value documents; how they are kept is Holdfast's. A
collection is the first part of a key, so that a listing of one reads nothing of the others. Values that do
not fit into an entry are blobs of the same plugin (`holdfast.integrations.overflow_values`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.errors import Refused, Transient, ValidationError, ValueTooLarge, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import Races, checked, cut_by_size, get_all, names_of, whole_seconds
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import CHANGES, EntryChange, OverflowValues
from holdfast.integrations.stores import LazyKV
from holdfast.model import KEEP

with imported("keyvalue", "holdfast.integrations.keyvalue"):
    from key_value.aio._utils.managed_entry import ManagedEntry, load_from_json
    from key_value.aio._utils.time_to_live import prepare_entry_timestamps
    from key_value.aio.errors import SerializationError, StoreConnectionError
    from key_value.aio.stores.base import (
        BaseContextManagerStore,
        BaseDestroyCollectionStore,
        BaseDestroyStore,
        BaseEnumerateCollectionsStore,
        BaseEnumerateKeysStore,
    )

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import SupportsFloat

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_NAMES: Final = KeyNames("entry", parts=2)
_EVERYTHING: Final = _NAMES.prefix()


class HoldfastStore(
    BaseEnumerateKeysStore,
    BaseEnumerateCollectionsStore,
    BaseDestroyStore,
    BaseDestroyCollectionStore,
    BaseContextManagerStore,
):
    """A py-key-value store that keeps its collections in a namespace of Holdfast.

    Give it a handle of a store that your program has opened, or the URL of one that it opens at its first use
    and closes with `close`. Fractions of seconds in a ttl are rounded up.

    Args:
        kv: The handle, from `Store.kv`.
        url: The URL of a store, instead of a handle.
        plugin: The namespace to use in that store.
        default_collection: The collection of calls that name none.
        seed: What to put in before the first use: values by key, by collection.

    Raises:
        ValidationError: Both a handle and a URL are given, or neither.

    Example:
        `FastMCP("desk", session_state_store=HoldfastStore(url="nats://127.0.0.1:4222", plugin="desk"))`
    """

    def __init__(
        self,
        kv: KV | None = None,
        *,
        url: str | None = None,
        plugin: str = "keyvalue",
        default_collection: str | None = None,
        seed: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    ) -> None:
        self._lazy = LazyKV(kv, url, plugin)
        super().__init__(
            client_provided_by_user=kv is not None,
            default_collection=default_collection,
            seed=seed,
            stable_api=True,
        )

    async def _setup(self) -> None:
        self._keys = await self._lazy.kv()
        self._values = OverflowValues(self._keys, _stored)
        self._exit_stack.push_async_callback(self._end)

    async def _end(self) -> None:
        """Close the store; the next use opens it again, as with the stores of py-key-value."""
        self._setup_complete = False
        await self._lazy.aclose()

    async def put_if_absent(
        self,
        key: str,
        value: Mapping[str, Any],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> bool:
        """Put a value under a key that has none, in one step: of several callers exactly one succeeds.

        Args:
            key: The key.
            value: A JSON object.
            collection: The collection; the default one if not given.
            ttl: Seconds until the entry expires; None for never.

        Returns:
            True if this call has put the value; False if there was one.
        """
        collection = collection or self.default_collection
        await self.setup_collection(collection=collection)
        created_at, _, expires_at = prepare_entry_timestamps(ttl=ttl)
        entry = ManagedEntry(value=value, created_at=created_at, expires_at=expires_at)
        with _told():
            change = await self._change(collection, key, entry)
            return await self._values.create(change)

    async def update(
        self,
        key: str,
        change: Callable[[dict[str, Any] | None], Mapping[str, Any]],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
        once: str | None = None,
    ) -> dict[str, Any]:
        """Put a value computed from the one that is there, again if another caller was faster: none is lost.

        Args:
            key: The key.
            change: Takes the value, or None if there is none, and returns the new one. It may be called
                often.
            collection: The collection; the default one if not given.
            ttl: Seconds until the entry expires; if not given, it keeps the deadline that it has.
            once: Names what the update is for. If a call of this id was made in the last 24 hours, nothing is
                put, so that a call whose answer was lost can be made again.

        Returns:
            The new value; the one that is there if the id is known.

        Raises:
            VersionConflict: Other callers were faster a thousand times in a row.

        Example:
            `await store.update("visits", lambda value: {"count": (value or {"count": 0})["count"] + 1})`
        """
        collection = collection or self.default_collection
        await self.setup_collection(collection=collection)
        races = Races()
        provenance = {} if once is None else {"once": once}
        with _told():
            while True:
                read = await self._values.read(await self._keys.get(_NAMES.key(collection, key)))
                before, value = (None, None) if read is None else (read[0], _object(*read))
                created_at, _, expires_at = prepare_entry_timestamps(ttl=ttl)
                entry = ManagedEntry(value=dict(change(value)), created_at=created_at, expires_at=expires_at)
                changed = await self._change(collection, key, entry)
                if ttl is None and before is not None:
                    changed = changed._replace(ttl=KEEP)
                try:
                    version = await self._values.swap(changed, before, **provenance)
                except VersionConflict as conflict:
                    await races.lose(conflict)
                else:
                    if before is not None and version <= before.version:
                        return dict(value or {})  # a known `once`
                    return dict(entry.value)

    async def _get_managed_entry(self, *, collection: str, key: str) -> ManagedEntry | None:
        with _told():
            return _managed(await self._values.read(await self._keys.get(_NAMES.key(collection, key))))

    async def _get_managed_entries(
        self, *, collection: str, keys: Sequence[str]
    ) -> list[ManagedEntry | None]:
        with _told():
            entries = await get_all(self._keys, [_NAMES.key(collection, key) for key in keys])
            return list(map(_managed, await self._values.read_all(entries)))

    async def _put_managed_entry(self, *, collection: str, key: str, managed_entry: ManagedEntry) -> None:
        with _told():
            await self._values.replace([await self._change(collection, key, managed_entry)])

    async def _put_managed_entries(
        self,
        *,
        collection: str,
        keys: Sequence[str],
        managed_entries: Sequence[ManagedEntry],
        ttl: float | None,
        created_at: datetime,
        expires_at: datetime | None,
    ) -> None:
        last = dict(zip(keys, managed_entries, strict=True))
        changes: list[EntryChange] = []
        with _told():
            try:
                for key, entry in last.items():
                    changes.append(await self._change(collection, key, entry))
            except (Refused, SerializationError):
                await self._values.forget(changes)
                raise
            sizes = [change.packed.size for change in changes if change.packed is not None]
            for start, stop in cut_by_size(sizes, CHANGES):
                await self._values.replace(changes[start:stop])

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        return await self._delete_managed_entries(keys=[key], collection=collection) > 0

    async def _delete_managed_entries(self, *, keys: Sequence[str], collection: str) -> int:
        changes = [EntryChange(_NAMES.key(collection, key)) for key in dict.fromkeys(keys)]
        count = 0
        with _told():
            for start in range(0, len(changes), CHANGES):
                gone = await self._values.replace(changes[start : start + CHANGES])
                count += sum(entry is not None for entry in gone)
        return count

    async def _get_collection_keys(self, *, collection: str, limit: int | None = None) -> list[str]:
        return [key async for _, key in self._names(_NAMES.prefix(collection), limit)][:limit]

    async def _get_collection_names(self, *, limit: int | None = None) -> list[str]:
        names = [collection async for collection, _ in self._names(_EVERYTHING, None)]
        return list(dict.fromkeys(names))[:limit]

    async def _delete_collection(self, *, collection: str) -> bool:
        return await self._emptied(_NAMES.prefix(collection)) > 0

    async def _delete_store(self) -> bool:
        await self._emptied(_EVERYTHING)
        return True

    async def _emptied(self, prefix: str) -> int:
        with _told():
            return await self._values.delete_all(prefix)

    async def _names(self, prefix: str, wanted: int | None) -> AsyncIterator[tuple[str, ...]]:
        """Yield the names below a prefix, a page at a time, until there are at least as many as wanted."""
        cursor, seen = None, 0
        while wanted is None or seen < wanted:
            with _told():
                page = await self._keys.list(prefix, limit=rules.MAX_LIMIT, cursor=cursor)
                names = await names_of(self._keys, _NAMES, page.keys)
            for name in names:
                yield name
            seen += len(names)
            if (cursor := page.cursor) is None:
                return

    async def _change(self, collection: str, key: str, entry: ManagedEntry) -> EntryChange:
        """Return the change that stores an entry."""
        value, ttl = load_from_json(entry.value_as_json), _lifetime(entry)
        packed = await self._values.pack(value, ttl=ttl)
        stored = _NAMES.wrapped(packed.stored, collection, key)
        return EntryChange(_NAMES.key(collection, key), packed, stored, ttl)


def _lifetime(entry: ManagedEntry) -> int | None:
    if entry.expires_at is None:
        return None
    left = entry.ttl if entry.created_at is None else (entry.expires_at - entry.created_at).total_seconds()
    return whole_seconds(left or 0)


def _stored(entry: Entry) -> Any:
    return _NAMES.unwrapped(entry.key, entry.value)


def _object(entry: Entry, value: Any) -> dict[str, Any]:
    stored: dict[str, Any] = checked(value, dict[str, Any], f"a JSON object, in the entry {entry.key!r}")
    return stored


def _managed(read: tuple[Entry, Any] | None) -> ManagedEntry | None:
    if read is None:
        return None
    entry, value = read[0], _object(*read)
    return ManagedEntry(value=value, created_at=entry.updated_at, expires_at=entry.expires_at)


@contextmanager
def _told() -> Iterator[None]:
    """Raise the errors of Holdfast as those of py-key-value, where it has one."""
    try:
        yield
    except (ValidationError, ValueTooLarge) as error:
        raise SerializationError(message=error.message) from error
    except Transient as error:
        raise StoreConnectionError(message=error.message) from error
