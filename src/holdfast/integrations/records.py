"""Records: JSON values of any size, one in each entry, that several processes change by compare and set.

Beside its value an entry has a few fields of it, so that a listing can choose records without reading the
values of those that are blobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import ValidationError, VersionConflict
from holdfast.integrations.entries import Races, checked, entries_below, get_all
from holdfast.integrations.overflow_values import CHANGES, EntryChange, OverflowValues

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from holdfast.handles.kv import KV
    from holdfast.integrations.key_names import KeyNames
    from holdfast.model import Entry


class Record(NamedTuple):
    """A record as it was read."""

    value: Any
    version: int
    entry: Entry


class Listed(NamedTuple):
    """A record whose value was not read."""

    parts: tuple[str, ...]
    fields: dict[str, Any]
    entry: Entry


class Records:
    """The records of one kind in a namespace.

    Args:
        kv: The namespace.
        names: The names of their keys.
        noun: What one of them is called, for messages.
        fields: Returns what an entry shows beside the value.
        form: The type of a value, as `msgspec.convert` takes it.
        shown: That of the fields.
    """

    def __init__(
        self,
        kv: KV,
        names: KeyNames,
        noun: str,
        fields: Callable[[Any], dict[str, Any]] = lambda _: {},
        *,
        form: Any = Any,
        shown: Any = dict[str, Any],
    ) -> None:
        self._kv = kv
        self._names = names
        self._noun = noun
        self._fields = fields
        self._form = form
        self._shown = shown
        self._values = OverflowValues(kv, self._stored)

    async def get(self, *parts: str) -> Record | None:
        """Return a record, or None.

        Raises:
            ValidationError: The entry is no record, so something else has written it.
        """
        return await self.read(await self._kv.get(self._names.key(*parts)))

    async def find(self, *parts: str) -> Listed | None:
        """Return a record without its value, or None."""
        entry = await self._kv.get(self._names.key(*parts))
        return None if entry is None else Listed(parts, self._shown_by(entry), entry)

    async def read(self, entry: Entry | None) -> Record | None:
        """Return the record of an entry; a later one if it was replaced meanwhile."""
        read = await self._values.read(entry)
        if read is None:
            return None
        value = checked(read[1], self._form, f"{self._noun}, in the entry {read[0].key!r}")
        return Record(value, read[0].version, read[0])

    async def set(
        self, *parts: str, value: Any, before: Entry | None, ttl: int | None = None, **provenance: Any
    ) -> int:
        """Set a record if its entry is still this one, and return the new version.

        Raises:
            VersionConflict: It is another one, or there is one and there should be none.
        """
        return await self._values.swap(await self.change(*parts, value=value, ttl=ttl), before, **provenance)

    async def change(self, *parts: str, value: Any, ttl: int | None = None) -> EntryChange:
        """Return a change that sets a record, for a batch of several; see `batch_parts`."""
        packed = await self._values.pack(value, ttl=ttl)
        content = {"fields": self._fields(value), "value": packed.stored}
        return EntryChange(self._names.key(*parts), packed, self._names.wrapped(content, *parts), ttl)

    async def update(
        self, *parts: str, change: Callable[[Record | None], Any], ttl: int | None = None, **provenance: Any
    ) -> tuple[Any, int]:
        """Set a record to what a function makes of it, again if another writer was faster.

        Args:
            *parts: The name.
            change: Takes the record and returns the new value. It may be called often, and raise to change
                nothing. If it returns the very value that the record has, nothing is written.
            ttl: Seconds until the record expires; None for never.
            **provenance: `writer`, `once`, `fence` and `timeout`; see `KV`. With a known `once` nothing is
                written, and the record that is there is returned.

        Returns:
            The value and its version.
        """
        races = Races()
        while True:
            record = await self.get(*parts)
            value = change(record)
            if record is not None and value is record.value:
                return record.value, record.version
            before = None if record is None else record.entry
            try:
                version = await self.set(*parts, value=value, before=before, ttl=ttl, **provenance)
            except VersionConflict as conflict:
                await races.lose(conflict)
                continue
            if record is not None and version <= record.version:
                return record.value, record.version  # a known `once`
            return value, version

    def batch_parts(
        self, changes: Sequence[EntryChange], before: Sequence[Entry | None]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the checks and the writes of a batch that makes changes, whatever is there now.

        Args:
            changes: What `change` has returned.
            before: The entries that were there a moment ago.
        """
        checks: list[dict[str, Any]] = []
        writes: list[dict[str, Any]] = []
        for change, entry in zip(changes, before, strict=True):
            assert change.packed is not None
            checks += change.packed.checks
            writes.append({"key": change.key, "value": change.value, "ttl": change.ttl})
            writes += change.packed.named(change.key)
            writes += self._values.dead_in([entry])
        return checks, writes

    async def drop(self, changes: Sequence[EntryChange]) -> None:
        """Remove the blobs of changes that were not made."""
        await self._values.forget(changes)

    async def drop_replaced(self, before: Sequence[Entry | None]) -> None:
        """Remove the blobs of entries that a batch has replaced.

        A batch that was sent again may have replaced nothing, so that the entries are looked at.
        """
        large = [entry for entry in before if entry is not None and self._values.dead_in([entry])]
        for entry, now in zip(large, await get_all(self._kv, [one.key for one in large]), strict=True):
            if self._values.parts([now]) != (parts := self._values.parts([entry])):
                await self._values.drop(parts)

    async def delete(self, *parts: str, **provenance: Any) -> bool:
        """Remove a record and return whether it was there. `provenance` is that of `update`."""
        [was_there] = await self.delete_each([parts], **provenance)
        return was_there

    async def delete_each(
        self, names: Sequence[tuple[str, ...]], beside: Sequence[str] = (), **provenance: Any
    ) -> list[bool]:
        """Remove records and what is at other keys, all at once, and return which records were there.

        They are at most 200 in all.
        """
        keys = [self._names.key(*parts) for parts in names]
        changes = [EntryChange(key) for key in (*keys, *beside)]
        before = await self._values.replace(changes, **provenance)
        return [entry is not None for entry in before[: len(keys)]]

    async def delete_all(self, *parts: str) -> int:
        """Remove all records whose names begin with these parts and return how many there were."""
        return await self._values.delete_all(self._names.prefix(*parts))

    async def listed(self, *parts: str) -> AsyncIterator[Listed]:
        """List the records whose names begin with these parts, in the order of their keys.

        Entries are large: a caller that keeps many of them holds the whole namespace in memory.
        """
        async for entry in entries_below(self._kv, self._names.prefix(*parts), limit=CHANGES):
            yield Listed(self._names.parts_of(entry.key, entry.value), self._shown_by(entry), entry)

    def _stored(self, entry: Entry) -> Any:
        return self._content(entry)["value"]

    def _shown_by(self, entry: Entry) -> dict[str, Any]:
        fields: dict[str, Any] = checked(
            self._content(entry)["fields"], self._shown, f"{self._noun}, in the entry {entry.key!r}"
        )
        return fields

    def _content(self, entry: Entry) -> dict[str, Any]:
        content = self._names.unwrapped(entry.key, entry.value)
        if not (isinstance(content, dict) and "value" in content and isinstance(content.get("fields"), dict)):
            raise ValidationError(f"the entry {entry.key!r} is not {self._noun}", field="value")
        return content
