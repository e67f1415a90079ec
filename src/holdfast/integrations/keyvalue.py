"""A store of py-key-value on a namespace of Holdfast. FastMCP keeps sessions, OAuth state and caches in one.

Law: values, deadlines and errors are those that py-key-value documents; how they are kept is Holdfast's. A
collection is the first part of a key, so that a listing of one reads nothing of the others.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.errors import Transient, ValidationError, ValueTooLarge, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.lifetimes import whole_seconds
from holdfast.integrations.many import accepted, emptied, found, removed, runs
from holdfast.integrations.names import Names
from holdfast.integrations.opening import Opening

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
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import SupportsFloat

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_NAMES: Final = Names("entry", parts=2)
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
        self._opening = Opening(kv, url, plugin)
        super().__init__(
            client_provided_by_user=kv is not None,
            default_collection=default_collection,
            seed=seed,
            stable_api=True,
        )

    async def _setup(self) -> None:
        self._keys = await self._opening.kv()
        self._exit_stack.push_async_callback(self._end)

    async def _end(self) -> None:
        """Close the store; the next use opens it again, as with the stores of py-key-value."""
        self._setup_complete = False
        await self._opening.aclose()

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
        try:
            with _told():
                await self._keys.set(**_item(collection, key, entry), expected_version=0)
        except VersionConflict:
            return False
        return True

    async def _get_managed_entry(self, *, collection: str, key: str) -> ManagedEntry | None:
        with _told():
            return _managed(await self._keys.get(_NAMES.key(collection, key)))

    async def _get_managed_entries(
        self, *, collection: str, keys: Sequence[str]
    ) -> list[ManagedEntry | None]:
        with _told():
            return list(map(_managed, await found(self._keys, [_NAMES.key(collection, key) for key in keys])))

    async def _put_managed_entry(self, *, collection: str, key: str, managed_entry: ManagedEntry) -> None:
        with _told():
            await self._keys.set(**_item(collection, key, managed_entry))

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
        items = [_item(collection, key, entry) for key, entry in zip(keys, managed_entries, strict=True)]
        sizes = [len(entry.value_as_json) for entry in managed_entries]
        for start, stop in runs(sizes):
            with _told():
                for result in await self._keys.set_many(items[start:stop]):
                    accepted(result)

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        with _told():
            return await self._keys.delete(_NAMES.key(collection, key))

    async def _delete_managed_entries(self, *, keys: Sequence[str], collection: str) -> int:
        with _told():
            return await removed(self._keys, [_NAMES.key(collection, key) for key in keys])

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
            return await emptied(self._keys, prefix)

    async def _names(self, prefix: str, wanted: int | None) -> AsyncIterator[tuple[str, ...]]:
        """Yield the names below a prefix, a page at a time, until there are at least as many as wanted."""
        cursor, seen = None, 0
        while wanted is None or seen < wanted:
            with _told():
                page = await self._keys.list(prefix, limit=rules.MAX_LIMIT, cursor=cursor)
                names = {key: _NAMES.parts(key) for key in page.keys}
                unread = [key for key, name in names.items() if name is None]
                for key, entry in zip(unread, await found(self._keys, unread), strict=True):
                    names[key] = None if entry is None else _NAMES.parts(key, entry.value)
            for name in names.values():
                if name is not None:
                    seen += 1
                    yield name
            if (cursor := page.cursor) is None:
                return


def _item(collection: str, key: str, entry: ManagedEntry) -> dict[str, Any]:
    """Return the fields of the set that stores an entry."""
    value = load_from_json(entry.value_as_json)
    fields = {
        "key": _NAMES.key(collection, key),
        "value": _NAMES.wrapped(value, collection, key),
    }
    if entry.expires_at is None:
        return fields
    left = entry.ttl if entry.created_at is None else (entry.expires_at - entry.created_at).total_seconds()
    return fields | {"ttl": whole_seconds(left or 0)}


def _managed(entry: Entry | None) -> ManagedEntry | None:
    if entry is None:
        return None
    value = _NAMES.unwrapped(entry.key, entry.value)
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
