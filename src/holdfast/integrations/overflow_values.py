"""JSON values of any size: one that does not fit into its entry is a blob of the same plugin.

A blob is complete before an entry names it, and is removed only when none does. A record says of each blob
whether an entry names it and which; it changes in the same batch as that entry. So a process that is killed
at any point leaves a record of its blob behind. Writes of several processes to one key do not wait for each
other: the last one stays, and a blob that it has replaced unseen is found by its record. Later writes of
large values remove blobs that no entry has named for an hour.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast import families, rules, seams
from holdfast.errors import Busy, HoldfastError, KeyNotFound, Refused, ValidationError, VersionConflict
from holdfast.integrations.entries import AT_ONCE, MOST_RACES, get_all, pause_after
from holdfast.model import KEEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast.handles.blobs import BlobReader, Blobs
    from holdfast.handles.kv import KV
    from holdfast.model import Entry, Keep

CHANGES: Final = AT_ONCE // 5
"""Changes in one call of `replace`; each takes up to five of the writes of a batch."""
LARGEST: Final = 67_108_864
"""Bytes that a value may have as JSON. It is held in memory whole."""
_INLINE: Final = 49_152
"""Bytes up to which a value is in its entry; what an adapter keeps beside it has the rest."""
_UNNAMED: Final = "unnamed/"
_NAMED: Final = "named/"
_BLOB: Final = "#blob"
_VALUE: Final = "#value"
"""Marks a value that would otherwise look like the name of a blob."""
_BLOB_NAME: Final = re.compile("[0-9a-f]{32}")
_LONGER: Final = 60
"""Seconds that a blob outlives its entry, whose lifetime begins when the blob is complete."""
_GRACE: Final = timedelta(hours=1)
_SOME: Final = 16
"""Records that one write looks at."""


class Packed(NamedTuple):
    """A value as an entry holds it, and the checks that belong into the batch that writes the entry."""

    stored: Any
    size: int
    """Bytes of `stored`."""
    checks: list[dict[str, Any]]
    ttl: int | None = None

    def named(self, key: str) -> list[dict[str, Any]]:
        """Return the writes that belong into that batch beside the entry's, whose key this is.

        For an item that is appended it is the name of the log and a slash, until `OverflowValues.settle`.
        """
        return [
            write
            for name in _names([self.stored])
            for write in (
                {"key": _UNNAMED + name, "delete": True},
                {"key": _NAMED + name, "value": key, "ttl": self.ttl},
            )
        ]


class EntryChange(NamedTuple):
    """A new value of an entry, with the packed value that is part of it; `packed` is None for a deletion."""

    key: str
    packed: Packed | None = None
    value: Any = None
    ttl: int | Keep | None = None


class OverflowValues:
    """The values of a namespace.

    Args:
        kv: The namespace. In one that has no blobs, as that of a project, large values are refused.
        part: Returns what `pack` has made, from an entry that holds it.
    """

    def __init__(self, kv: KV, part: Callable[[Entry], Any]) -> None:
        self._kv = kv
        self._part = part
        self._blobs = _blobs_beside(kv)

    async def pack(self, value: Any, *, ttl: int | None = None) -> Packed:
        """Return a value as an entry may hold it, after storing a large one as a blob.

        Args:
            value: A JSON value.
            ttl: Seconds until the entry expires; None for never.

        Raises:
            ValidationError: It is no JSON value.
            ValueTooLarge: It has more than 67,108,864 bytes as JSON.
        """
        text, size = rules.encode_value(value, most=LARGEST)
        if size <= _INLINE or self._blobs is None:
            return Packed({_VALUE: value} if _looks_packed(value) else value, size, [])
        name = seams.token(16)
        record = await self._kv.set(_UNNAMED + name, None)
        lifetime = None if ttl is None else _longer(ttl)
        await self._blobs.put(name, text.encode(), content_type="application/json", ttl=lifetime)
        with suppress(HoldfastError):
            await self._sweep(record.updated_at)
        check = {"key": record.key, "version": record.version}
        return Packed({_BLOB: name}, len(name), [check], lifetime)

    async def pack_all(self, values: Sequence[Any]) -> list[Packed]:
        """Return values as entries may hold them. If one is refused, none leaves a blob behind."""
        packed: list[Packed] = []
        try:
            for value in values:
                packed += [await self.pack(value)]
        except Refused:
            await self.drop([one.stored for one in packed])
            raise
        return packed

    async def read(self, entry: Entry | None) -> tuple[Entry, Any] | None:
        """Return an entry with its value; the entry is a later one if it was replaced meanwhile.

        Raises:
            KeyNotFound: The blob of the value is missing, which is not by this module's doing.
            Busy: The store had too much to do to return the blob.
            ValidationError: The entry or its blob holds no value, so another program has written it.
        """
        while entry is not None:
            stored = self._part(entry)
            if not _looks_packed(stored):
                return entry, stored
            if _VALUE in stored:
                return entry, stored[_VALUE]
            if self._blobs is None or not _names([stored]):
                raise ValidationError(f"the entry {entry.key!r} names no blob of a value", field="value")
            reader = await self._blobs.get(stored[_BLOB])
            error: HoldfastError = KeyNotFound(
                f"the blob {stored[_BLOB]!r}, which has the value of {entry.key!r}, is missing"
            )
            if reader is not None:
                try:
                    return entry, await _parsed(reader)
                except Busy as busy:  # the blob was replaced while it was read, or the store is busy
                    error = busy
            again = await self._kv.get(entry.key)
            if again is not None and again.version == entry.version:
                raise error
            entry = again
        return None

    async def read_all(self, entries: Sequence[Entry | None]) -> list[tuple[Entry, Any] | None]:
        """Return entries with their values."""
        return [await self.read(entry) for entry in entries]

    async def replace(
        self,
        changes: Sequence[EntryChange],
        known: Sequence[Entry | None] | None = None,
        **provenance: Any,
    ) -> list[Entry | None]:
        """Make at most 200 changes, all or none. A deletion is of the entry that it returns.

        Args:
            changes: The changes, of different keys.
            known: The entries that are there, if they were read already.
            **provenance: `writer`, `fence` and `timeout`; see `KV`.

        Returns:
            The entries that were there.
        """
        lost, before = 0, known
        while True:
            if before is None:
                before = await get_all(self._kv, [change.key for change in changes])
            try:
                await self._write(changes, before, provenance)
            except VersionConflict:
                lost += 1
                if lost == MOST_RACES or all(change.packed is not None for change in changes):
                    await self.forget(changes)  # no deletion lost a race: a blob was swept, an hour after
                    raise
                await pause_after(lost)
                before = None
            except Refused:
                await self.forget(changes)
                raise
            else:
                await self.drop(self.parts(before))
                return list(before)

    async def create(self, change: EntryChange) -> bool:
        """Make a change if there is no entry of its key, and return whether there was none."""
        try:
            await self.swap(change, None)
        except VersionConflict:
            return False
        return True

    async def swap(self, change: EntryChange, before: Entry | None, **provenance: Any) -> int:
        """Make a change if the entry is still this one, and return the new version.

        With a known `once` it is not made, and the version is not greater than that of the entry.

        Args:
            change: The change.
            before: The entry that must be there; None if there must be none.
            **provenance: `writer`, `once`, `fence` and `timeout`; see `KV`.

        Raises:
            VersionConflict: It is another one, or there is one and there should be none.
        """
        assert change.packed is not None
        ttl = {"keep_ttl": True} if change.ttl is KEEP else {"ttl": change.ttl}
        dead = self.dead_in([before])
        try:
            result = await self._kv.batch(
                checks=[
                    {"key": change.key, "version": 0 if before is None else before.version},
                    *change.packed.checks,
                ],
                writes=[
                    {"key": change.key, "value": change.value, **ttl},
                    *change.packed.named(change.key),
                    *dead,
                ],
                **provenance,
            )
        except (Refused, VersionConflict):
            await self.forget([change])
            raise
        version = result.versions[0]
        assert version is not None
        if before is not None and version <= before.version:
            await self.forget([change])  # the answer to an earlier call of this id, which wrote what is there
        else:
            await self.drop(self.parts([before]))
        return version

    async def settle(self, packed: Packed, key: str) -> None:
        """Record which item of a log names the blob of a value that was appended.

        If the item has another value, because the value was appended before, its blob is removed.
        """
        for name in _names([packed.stored]):
            entry = await self._kv.get(key)
            if self.parts([entry]) != [packed.stored]:
                await self.drop([packed.stored])
            else:
                with suppress(HoldfastError):
                    await self._kv.set(_NAMED + name, key, ttl=packed.ttl)

    async def delete_all(self, prefix: str, *, until: str | None = None) -> int:
        """Remove everything below a prefix, or up to a key, and return how many keys there were."""
        count, cursor = 0, None
        while True:
            page = await self._kv.list(prefix, values=True, limit=CHANGES, cursor=cursor)
            entries = [entry for entry in page.entries or () if until is None or entry.key <= until]
            gone = (
                await self.replace([EntryChange(entry.key) for entry in entries], entries) if entries else []
            )
            count += sum(entry is not None for entry in gone)
            cursor = page.cursor
            if cursor is None or len(entries) < len(page.keys):
                return count

    def dead(self, stored: Any) -> list[dict[str, Any]]:
        """Return what belongs into the batch that removes or replaces a value."""
        return [
            write
            for name in _names([stored])
            for write in ({"key": _UNNAMED + name, "value": None}, {"key": _NAMED + name, "delete": True})
        ]

    def dead_in(self, entries: Sequence[Entry | None]) -> list[dict[str, Any]]:
        """Return what belongs into the batch that removes or replaces entries."""
        return [write for part in self.parts(entries) for write in self.dead(part)]

    async def drop(self, values: Sequence[Any]) -> None:
        """Remove the blobs of values that no entry has any more, and then their records.

        If that fails, their records stay, and a later write removes them.
        """
        if self._blobs is None:
            return
        with suppress(HoldfastError):
            for name in _names(values):
                await self._blobs.delete(name)
                await self._kv.delete_many([_UNNAMED + name, _NAMED + name])

    async def forget(self, changes: Sequence[EntryChange]) -> None:
        """Remove the blobs of changes that were refused."""
        await self.drop([change.packed.stored for change in changes if change.packed is not None])

    async def prolong(self, entry: Entry, ttl: int) -> None:
        """Let the blob of an entry live as long as one with this lifetime from now on, if it has one."""
        if self._blobs is None:
            return
        for name in _names(self.parts([entry])):
            with suppress(KeyNotFound):
                await self._blobs.set_ttl(name, _longer(ttl))

    def parts(self, entries: Sequence[Entry | None]) -> list[Any]:
        """Return what `pack` has made, from the entries that hold it; others can be replaced and removed."""
        parts = []
        for entry in entries:
            with suppress(ValidationError):
                parts += [] if entry is None else [self._part(entry)]
        return parts

    async def _write(
        self, changes: Sequence[EntryChange], before: Sequence[Entry | None], provenance: Mapping[str, Any]
    ) -> None:
        checks: list[dict[str, Any]] = []
        writes: list[dict[str, Any]] = []
        for change, entry in zip(changes, before, strict=True):
            if change.packed is not None:
                checks += change.packed.checks
                writes += change.packed.named(change.key)
                writes.append({"key": change.key, "value": change.value, "ttl": change.ttl})
            elif entry is not None:
                checks.append({"key": change.key, "version": entry.version})
                writes.append({"key": change.key, "delete": True})
            writes += self.dead_in([entry])
        if writes:
            await self._kv.batch(checks=checks, writes=writes, **provenance)

    async def _sweep(self, now: datetime) -> None:
        """Remove blobs that no entry has named for an hour, as far as a look at some records shows them."""
        page = await self._kv.list(_UNNAMED, values=True, limit=_SOME)
        records = [record for record in page.entries or () if now - record.updated_at >= _GRACE]
        records += await self._overwritten(now)
        for record in records:
            # A writer that is still there relies on the version of the record.
            await self._kv.set(record.key, None, expected_version=record.version)
            await self.drop([{_BLOB: record.key.partition("/")[2]}])

    async def _overwritten(self, now: datetime) -> list[Entry]:
        """Return records of blobs whose entries name others, from a random part of all records."""
        prefix = _NAMED
        while True:
            prefix += _digit()
            page = await self._kv.list(prefix, values=True, limit=_SOME)
            if page.cursor is None:
                break
        old = [record for record in page.entries or () if now - record.updated_at >= _GRACE]
        entries = await get_all(self._kv, [record.value for record in old])
        return [
            record
            for record, entry in zip(old, entries, strict=True)
            if not await self._is_named(record.key.removeprefix(_NAMED), record.value, entry)
        ]

    async def _is_named(self, name: str, key: str, entry: Entry | None) -> bool:
        """Return whether an entry names a blob, or an item of the log if that is all that its record says."""
        if not key.endswith("/"):
            return entry is not None and name in json.dumps(entry.value)
        cursor = None
        while True:
            page = await self._kv.list(key, values=True, cursor=cursor)
            if any(name in json.dumps(item.value) for item in page.entries or ()):
                return True
            if (cursor := page.cursor) is None:
                return False


def _blobs_beside(kv: KV) -> Blobs | None:
    """Return the blobs of the plugin that a namespace belongs to, if it is a plugin's."""
    family, _, plugin = kv.namespace.partition("/")
    if family != "kv":
        return None
    # late: blobs take a few ms to import, and few programs have any
    from holdfast.handles.blobs import Blobs

    return Blobs(kv.store, kv.store.verbs(families.blobs(plugin)))


def _longer(ttl: int) -> int:
    return min(ttl + _LONGER, rules.MAX_TTL)


def _looks_packed(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint((_BLOB, _VALUE))


def _names(values: Sequence[Any]) -> list[str]:
    """Return the names of the blobs among packed values, as far as `pack` may have made them."""
    packed = [value[_BLOB] for value in values if _looks_packed(value) and _BLOB in value]
    return [name for name in packed if isinstance(name, str) and _BLOB_NAME.fullmatch(name)]


async def _parsed(reader: BlobReader) -> Any:
    """Return the value in a blob."""
    if reader.blob.size > LARGEST:
        raise rules.too_large(reader.blob.size, LARGEST)
    try:
        value = json.loads(await reader.read())
    except (ValueError, RecursionError) as error:
        raise _no_value(reader.blob.name, error) from None
    if _is_deep(value):
        raise _no_value(reader.blob.name, f"it is nested deeper than {rules.MAX_NESTING} levels")
    return value


def _is_deep(value: Any) -> bool:
    """Return whether a value is nested deeper than that of an entry may be."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(rules.MAX_NESTING):
        members = (member for one in level for member in (one.values() if type(one) is dict else one))
        level = [member for member in members if type(member) in (dict, list)]
    return bool(level)


def _no_value(name: str, error: object) -> ValidationError:
    return ValidationError(f"the blob {name!r} holds no value: {error}", field="value")


def _digit() -> str:
    return seams.token(1)[0]
