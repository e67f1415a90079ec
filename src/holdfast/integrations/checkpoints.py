"""Checkpoints and pending writes as entries of a namespace, with large ones as blobs.

Law: this module keeps bytes under names and knows nothing of what they mean. The writes of a task are one
entry, so that they appear together. A blob is there before the entry that names it, and is removed after it.
"""

from __future__ import annotations

import binascii
import uuid
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.errors import ValidationError
from holdfast.integrations.many import emptied, found
from holdfast.integrations.names import Names
from holdfast.integrations.swapping import swapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store import Store

Typed: TypeAlias = tuple[str, bytes]
"""The name of a form and the bytes in it."""
Place: TypeAlias = tuple[str, str, str]
"""A thread, a namespace in it, and a checkpoint in that."""

_CHECKPOINTS: Final = Names("checkpoint", parts=3)
_WRITES: Final = Names("write", parts=4)
_BLOBS: Final = Names("checkpoint", parts=3)
_INLINE: Final = 32_768
"""Bytes up to which a checkpoint, or the writes of a task together, are kept in their entry, as text. The
text takes a third more, and names and metadata have the rest of the 65,536 bytes of an entry."""
_METADATA_INLINE: Final = 8_192


class Checkpoints:
    """The checkpoints of all threads in a plugin's namespaces."""

    def __init__(self, store: Store, plugin: str) -> None:
        self._kv = store.kv(plugin)
        self._blobs = store.blobs(plugin)

    async def places(self, *parts: str) -> list[Place]:
        """Return where there are checkpoints below a thread, or below a namespace of it, sorted."""
        places: list[Any] = []
        cursor: str | None = None
        while True:
            page = await self._kv.list(_CHECKPOINTS.prefix(*parts), limit=10_000, cursor=cursor)
            names = {key: _CHECKPOINTS.parts(key) for key in page.keys}
            unread = [key for key, name in names.items() if name is None]
            for key, entry in zip(unread, await found(self._kv, unread), strict=True):
                names[key] = None if entry is None else _CHECKPOINTS.parts(key, entry.value)
            places += [name for name in names.values() if name is not None]
            if (cursor := page.cursor) is None:
                return sorted(places)

    async def read(self, place: Place) -> dict[str, Any] | None:
        """Return what `write` has stored, with `checkpoint` and `metadata` in their forms."""
        key = _CHECKPOINTS.key(*place)
        entry = await self._kv.get(key)
        if entry is None:
            return None
        stored: Any = _CHECKPOINTS.unwrapped(key, entry.value)
        if not isinstance(stored, dict) or not stored.keys() >= {"checkpoint", "metadata", "parent", "run"}:
            raise ValidationError(f"the entry {key!r} is not a checkpoint", field="value")
        return stored | {part: await self._unpacked(stored[part]) for part in ("checkpoint", "metadata")}

    async def write(
        self, place: Place, *, checkpoint: Typed, metadata: Typed, parent: str | None, run: str | None
    ) -> None:
        """Store a checkpoint, replacing an earlier one of that id."""
        key = _CHECKPOINTS.key(*place)
        value = {
            "checkpoint": await self._packed(place[0], checkpoint, _INLINE),
            "metadata": await self._packed(place[0], metadata, _METADATA_INLINE),
            "parent": parent,
            "run": run,
        }
        before = await self._kv.get(key)
        await self._kv.set(key, _CHECKPOINTS.wrapped(value, *place))
        if before is not None:
            await self._drop_blobs(_CHECKPOINTS.unwrapped(key, before.value))

    async def writes(self, place: Place) -> list[dict[str, Any]]:
        """Return the pending writes of a checkpoint, each with its `value` in its form."""
        every: list[dict[str, Any]] = []
        for _, stored in await self._tasks(place):
            every += stored["writes"]
        return [write | {"value": await self._unpacked(write["value"])} for write in every]

    async def add_writes(self, place: Place, task: str, writes: Sequence[dict[str, Any]]) -> None:
        """Store the writes of a task, all or none. One with an index of 0 or more is kept if it exists."""
        most = _INLINE // max(1, len(writes))
        packed = [write | {"value": await self._packed(place[0], write["value"], most)} for write in writes]
        key = _WRITES.key(*place, task)

        def merged(stored: Any) -> Any:
            known = {write["index"]: write for write in _WRITES.unwrapped(key, stored)["writes"]}
            for write in packed:
                if write["index"] < 0 or write["index"] not in known:
                    known[write["index"]] = write
            return _WRITES.wrapped({"writes": [*known.values()]}, *place, task)

        empty = _WRITES.wrapped({"writes": []}, *place, task)
        entry = await swapped(self._kv, key, merged, default=empty, ttl=None)
        kept = _WRITES.unwrapped(key, entry.value)["writes"]
        for write in packed:
            if write not in kept:
                await self._drop_blobs(write)

    async def forget(self, place: Place) -> None:
        """Remove a checkpoint and its writes."""
        key = _CHECKPOINTS.key(*place)
        entry, tasks = await self._kv.get(key), await self._tasks(place)
        await self._kv.delete_many([key, *(task for task, _ in tasks)])
        if entry is not None:
            await self._drop_blobs(_CHECKPOINTS.unwrapped(key, entry.value))
        for _, stored in tasks:
            for write in stored["writes"]:
                await self._drop_blobs(write)

    async def forget_thread(self, thread: str) -> None:
        """Remove everything of a thread."""
        await emptied(self._kv, _CHECKPOINTS.prefix(thread))
        await emptied(self._kv, _WRITES.prefix(thread))
        await self._empty_blobs(_BLOBS.prefix(thread))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy everything of a thread to another one."""
        for thread, namespace, checkpoint in await self.places(source):
            stored = await self.read((thread, namespace, checkpoint))
            if stored is None:
                continue
            place = target, namespace, checkpoint
            for key, kept in await self._tasks((thread, namespace, checkpoint)):
                writes = [write | {"value": await self._unpacked(write["value"])} for write in kept["writes"]]
                await self.add_writes(place, (_WRITES.parts(key, kept["stored"]) or ("",))[-1], writes)
            await self.write(
                place,
                checkpoint=stored["checkpoint"],
                metadata=stored["metadata"],
                parent=stored["parent"],
                run=stored["run"],
            )

    async def select(self, wanted: Callable[[dict[str, Any]], bool]) -> list[Place]:
        """Return the places of all checkpoints whose entries, unread blobs aside, are wanted."""
        places = await self.places()
        entries = await found(self._kv, [_CHECKPOINTS.key(*place) for place in places])
        return [
            place
            for place, entry in zip(places, entries, strict=True)
            if entry is not None and wanted(_CHECKPOINTS.unwrapped(entry.key, entry.value))
        ]

    async def _tasks(self, place: Place) -> list[tuple[str, dict[str, Any]]]:
        """Return the writes of a checkpoint's tasks, by key; `stored` is all that the entry holds."""
        tasks: list[tuple[str, dict[str, Any]]] = []
        cursor: str | None = None
        while True:
            page = await self._kv.list(_WRITES.prefix(*place), values=True, cursor=cursor)
            for entry in page.entries or ():
                value = _WRITES.unwrapped(entry.key, entry.value)
                if not _has_writes(value):
                    raise ValidationError(
                        f"the entry {entry.key!r} does not hold the writes of a task", field="value"
                    )
                tasks.append((entry.key, value | {"stored": entry.value}))
            if (cursor := page.cursor) is None:
                return tasks

    async def _packed(self, thread: str, typed: Typed, most: int) -> dict[str, str]:
        form, data = typed
        if len(data) <= most:
            return {"form": form, "data": b64encode(data).decode()}
        name = _BLOBS.key(thread, "", uuid.uuid4().hex)
        await self._blobs.put(name, data)
        return {"form": form, "blob": name}

    async def _unpacked(self, packed: Any) -> Typed:
        match packed:
            case {"form": str(form), "data": str(data)}:
                try:
                    return form, b64decode(data, validate=True)
                except (binascii.Error, ValueError):  # the latter for text beyond ASCII
                    raise ValidationError("a checkpoint's bytes are not base64", field="value") from None
            case {"form": str(form), "blob": str(name)}:
                reader = await self._blobs.get(name)
                if reader is None:
                    raise KeyError(name)
                return form, await reader.read()
        raise ValidationError("a checkpoint has neither bytes nor a blob", field="value")

    async def _drop_blobs(self, stored: dict[str, Any]) -> None:
        for part in stored.values():
            if isinstance(part, dict) and "blob" in part:
                await self._blobs.delete(part["blob"])

    async def _empty_blobs(self, prefix: str) -> None:
        while True:
            page = await self._blobs.list(prefix)
            names = [blob.name for blob in page.blobs]
            for name in names:
                await self._blobs.delete(name)
            if page.cursor is None:
                return


def _has_writes(value: Any) -> bool:
    fields = {"index", "task", "path", "channel", "value"}
    return (
        isinstance(value, dict)
        and isinstance(writes := value.get("writes"), list)
        and all(isinstance(write, dict) and write.keys() >= fields for write in writes)
    )
