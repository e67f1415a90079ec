"""A conversation store of pydantic-ai: a record and messages, each message an entry that is stored once.

A save is one atomic batch that names the version of the record it replaces, as long as it fits into one.
A message is deleted only when no other conversation's history has it, and never before those that follow it:
a fork that is made meanwhile has its whole history or is refused. Records and messages that do not fit into
an entry are blobs of the same plugin (`holdfast.integrations.overflow_values`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from holdfast.errors import Refused, ValidationError, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import AT_ONCE, checked, cut_by_size, get_all, pages
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import OverflowValues, Packed

with imported("pydantic-ai", "holdfast.integrations.pydantic_ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

T = TypeVar("T")

_RECORDS: Final = KeyNames("conversation", parts=1)
_MESSAGES: Final = KeyNames("message", parts=1)
_FORKS: Final = "forks"
"""Changes with every fork, so that a deletion notices one that it has not looked at."""
_EARLIER: Final = 16
"""Messages before it that an entry names, so that a history is read that many at a time."""
_ROOM: Final = AT_ONCE - 6
"""Messages in a batch, beside the record, the records of its blobs, and the count of forks."""

_record: Final = TypeAdapter(ConversationRecord)
_entry: Final = TypeAdapter(ConversationEntry)


class _StoredMessage(TypedDict):
    """What the entry of a message holds."""

    entry: Any
    earlier: list[str]


class HoldfastConversationStore(ConversationStore):
    """Conversations of pydantic-ai in a namespace of Holdfast.

    Deleting a conversation deletes its messages, except those that a fork of it shares.

    Args:
        kv: The handle of the namespace, from `Store.kv`.

    Example:
        `await HoldfastConversationStore(store.kv("desk")).save(result)`
    """

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._records = OverflowValues(kv, _record_part)
        self._messages = OverflowValues(kv, _message_part)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Get the record of a conversation, or None."""
        return (await self._stored(_RECORDS.key(conversation_id)))[1]

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> list[ConversationRecord]:
        """Get the records, or those of a scope, the latest saved first."""
        records: list[ConversationRecord] = []
        async for page in pages(self._kv, _RECORDS.prefix(), values=True):
            read = await self._records.read_all(page.entries or ())
            records += [_parsed(_record, one[1]) for one in read if one is not None]
        wanted = [record for record in records if scope is None or record.scope == scope]
        return sorted(wanted, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Get one message with its entry.

        Raises:
            KeyError: There is none.
        """
        [entry] = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Get the messages up to one of them, or the last `limit` of these, the oldest first.

        Raises:
            KeyError: A message is not there, because a deletion has removed it meanwhile.
        """
        history: list[ConversationEntry] = []
        wanted: list[str] = [] if head_id is None or limit == 0 else [head_id]
        seen = set(wanted)
        while wanted:
            stored = await get_all(self._kv, [_MESSAGES.key(one) for one in wanted])
            for entry_id, one in zip(wanted, await self._messages.read_all(stored), strict=True):
                if one is None:
                    raise KeyError(entry_id)
                history.append(_parsed(_entry, one[1]))
            last = stored[-1]
            assert last is not None
            wanted = _checked(last)["earlier"]
            if limit is not None:
                wanted = wanted[: limit - len(history)]
            if not seen.isdisjoint(wanted):
                raise ValidationError(f"the entry {last.key!r} is among those that precede it", field="value")
            seen.update(wanted)
        history.reverse()
        return history

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and new messages, if the stored record has the expected revision.

        Raises:
            ConversationConflict: It has another one, or a message that the new ones follow is gone.
        """
        key = _RECORDS.key(record.conversation_id)
        stored, current = await self._stored(key)
        if (None if current is None else current.revision) != expected_revision:
            raise ConversationConflict(record.conversation_id)
        checks = [{"key": key, "version": 0 if stored is None else stored.version}]
        before = new_entries[0].parent_id if new_entries else record.head_id
        earlier: list[str] = []
        if before is not None:
            anchor = await self._kv.get(_MESSAGES.key(before))
            if anchor is None:
                raise ConversationConflict(record.conversation_id)
            checks.append({"key": anchor.key, "version": anchor.version})
            earlier = [before, *_checked(anchor)["earlier"]]
        *messages, new = await self._messages.pack_all(
            [*(_json(_entry, entry) for entry in new_entries), _json(_record, record)]
        )
        last = [{"key": key, "value": _RECORDS.wrapped(new.stored, record.conversation_id)}]
        if stored is None and record.forked_from is not None:
            last.append({"key": _FORKS, "incr": 1})
        before_it = [] if stored is None else [_record_part(stored)]
        last += [write for part in before_it for write in self._records.dead(part)]
        writes = _message_writes(new_entries, messages, earlier)
        try:
            await self._write(checks, list(zip(writes, messages, strict=True)), last, new)
        except VersionConflict:
            raise ConversationConflict(record.conversation_id) from None
        await self._records.drop(before_it)

    async def _write(
        self,
        checks: list[dict[str, Any]],
        messages: list[tuple[dict[str, Any], Packed]],
        last: list[dict[str, Any]],
        record: Packed,
    ) -> None:
        """Write messages and then the record, in one batch if they fit into one."""
        most = max(1, _ROOM - sum(2 * len(packed.checks) for _, packed in messages))
        sizes = [packed.size + len(json.dumps(write["value"]["earlier"])) for write, packed in messages]
        parts = list(cut_by_size(sizes, most)) or [(0, 0)]
        for start, stop in parts:
            final = stop == len(messages)
            parts_of_it = [*messages[start:stop], *([(last[0], record)] if final else ())]
            named = [write for entry, packed in parts_of_it for write in packed.named(entry["key"])]
            writes = [write for write, _ in messages[start:stop]] + (last if final else [])
            try:
                await self._kv.batch(
                    checks=[*checks, *(check for _, packed in parts_of_it for check in packed.checks)],
                    writes=[*writes, *named],
                )
            except (Refused, VersionConflict):
                await self._messages.drop([*(one.stored for _, one in messages[start:]), record.stored])
                raise

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its messages, except those that the history of another one has.

        Raises:
            ConversationConflict: The stored record does not have the expected revision.
        """
        key = _RECORDS.key(conversation_id)
        depths: dict[str, int] | None = None
        while depths is None or depths:
            stored, current = await self._stored(key)
            if depths is None and (current is None or current.revision != expected_revision):
                raise ConversationConflict(conversation_id)
            forks = await self._kv.get(_FORKS)
            checks = [{"key": _FORKS, "version": 0 if forks is None else forks.version}]
            gone = depths
            writes: list[dict[str, Any]] = []
            dead: list[Any] = []
            if gone is None:
                assert stored is not None
                assert current is not None
                gone = await self._reach([current])
                checks.append({"key": key, "version": stored.version})
                writes.append({"key": key, "delete": True})
                dead.append(_record_part(stored))
            for shared in await self._reach(await self._related(conversation_id)) if forks else ():
                gone.pop(shared, None)
            # From the newest to the oldest: what a fork could still begin from has all that precedes it.
            order = sorted(gone, key=lambda entry_id: gone[entry_id], reverse=True)[: _ROOM // 3]
            keys = [_MESSAGES.key(entry_id) for entry_id in order]
            dead += [_message_part(entry) for entry in await get_all(self._kv, keys) if entry is not None]
            writes += [{"key": message, "delete": True} for message in keys]
            writes += [write for part in dead for write in self._messages.dead(part)]
            try:
                if writes:
                    await self._kv.batch(checks=checks, writes=writes)
            except VersionConflict:
                continue
            await self._messages.drop(dead)
            depths = {entry_id: depth for entry_id, depth in gone.items() if entry_id not in set(order)}

    async def _stored(self, key: str) -> tuple[Entry | None, ConversationRecord | None]:
        """Return the entry of a record and the record in it."""
        read = await self._records.read(await self._kv.get(key))
        return (None, None) if read is None else (read[0], _parsed(_record, read[1]))

    async def _related(self, conversation_id: str) -> list[ConversationRecord]:
        """Return the other conversations that were forked, or that were forked from."""
        records = await self.read_records()
        sources = {record.forked_from for record in records}
        return [
            record
            for record in records
            if record.conversation_id != conversation_id
            and (record.forked_from is not None or record.conversation_id in sources)
        ]

    async def _reach(self, records: Sequence[ConversationRecord]) -> dict[str, int]:
        """Return the messages in the histories and left branches of conversations, with their depths."""
        depths: dict[str, int] = {}
        for record in records:
            for tip in (record.head_id, *record.branches):
                history = await self.read_history(tip)
                depths |= {entry.id: depth for depth, entry in enumerate(history)}
        return depths


def _message_writes(
    entries: Sequence[ConversationEntry], packed: Sequence[Packed], earlier: list[str]
) -> list[dict[str, Any]]:
    """Return the writes that store messages, each with those that precede it."""
    writes = []
    for entry, one in zip(entries, packed, strict=True):
        value = {"entry": one.stored, "earlier": earlier[:_EARLIER]}
        writes.append({"key": _MESSAGES.key(entry.id), "value": value})
        earlier = [entry.id, *earlier]
    return writes


def _record_part(stored: Entry) -> Any:
    return _RECORDS.unwrapped(stored.key, stored.value)


def _message_part(stored: Entry) -> Any:
    return _checked(stored)["entry"]


def _checked(stored: Entry) -> dict[str, Any]:
    value: dict[str, Any] = checked(
        stored.value, _StoredMessage, f"a message of a conversation, in the entry {stored.key!r}"
    )
    return value


def _parsed(adapter: TypeAdapter[T], value: Any) -> T:
    return adapter.validate_json(json.dumps(value))


def _json(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Return JSON that reads back as the same value, with bytes in base64."""
    return json.loads(adapter.dump_json(value))
