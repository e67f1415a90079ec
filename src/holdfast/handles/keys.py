"""The verbs on the keys of a namespace, as Python calls.

Law: a handle is bound to one namespace, so that isolation holds by construction. It turns calls into
commands and results into entries, and decides nothing.
"""

from __future__ import annotations

import builtins
import logging
from typing import TYPE_CHECKING, Any, Unpack

from holdfast import rules
from holdfast.commands import ITEMS, Deleted, Results, Stored
from holdfast.declare import DECLARED
from holdfast.engine import JournalQuery, Scan, successor
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.handles.key_writes import KeyWrites, entry_in, removed_in
from holdfast.handles.reveals import revealed
from holdfast.model import Changes, Entry, Page
from holdfast.pace import in_turns
from holdfast.pipeline.listing import filter_of
from holdfast.pipeline.watch import changes_after, watch
from holdfast.rows import KV as KV_SPACE
from holdfast.stored import change_of, entry_of
from holdfast.verbs.cursors import cursor_after, last_seen
from holdfast.verbs.unknown import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
    from datetime import datetime

    from holdfast.commands import Delete, Many, Result, Set
    from holdfast.engine import Filter, Selected
    from holdfast.model import Change
    from holdfast.pipeline.pipeline import Pipeline
    from holdfast.rows import Row
    from holdfast.verbs.fields import Provenance, Several, Viewing
    from holdfast.verbs.keys import Verbs

_log = logging.getLogger("holdfast")


class Keys(KeyWrites):
    """The verbs on the keys of one namespace; see `holdfast.KV`, which adds the recipes."""

    def __init__(self, store: Pipeline, verbs: Verbs) -> None:
        self.store = store
        self.verbs = verbs
        self.namespace: str = verbs.namespace
        """The namespace's full name."""

    async def get(self, key: str) -> Entry | None:
        """Get an entry.

        Args:
            key: The entry's key.

        Returns:
            The entry, or None if there is none or it has expired.

        Raises:
            DatabaseError: The stored value can't be read, because it was not written by Holdfast.
        """
        key = self.verbs.key(key)
        row, _ = await self.store.get_at(self.namespace, key)
        return None if row is None else _read(key, row)

    async def reveal(self, key: str, why: str | None = None, **viewing: Unpack[Viewing]) -> Entry | None:
        """Get an entry for a person. The policy `reveal` of the namespace decides if they have to say why.

        In a namespace with an audit they have to, and a record `revealed` says who looked, when and why,
        unless the policy is `open`.

        Args:
            key: The entry's key.
            why: The reason, with 3 letters or digits, to 500 characters. None is needed where nothing is
                audited, or where the policy is `open`.
            **viewing: `writer`, the name of the person, and `timeout` in seconds.

        Returns:
            The entry, or None if there is none or it has expired.

        Raises:
            MissingField: There is no reason, and the policy wants one.
            PermissionDenied: The policy never reveals values.

        Example:
            `entry = await kv.reveal("game:42", "OPS-12: a player complains")`
        """
        command = self.verbs.reveal(key, why=why, **viewing)
        row = await revealed(self.store.call, command, command.key)
        return None if row is None else _read(command.key, row)

    async def exists(self, key: str) -> bool:
        """Find out if there is an entry.

        Args:
            key: The entry's key.

        Returns:
            True if there is one that has not expired.
        """
        row, _ = await self.store.get_at(self.namespace, self.verbs.key(key))
        return row is not None

    async def list(
        self,
        prefix: str = "",
        *,
        limit: int | None = None,
        cursor: str | None = None,
        values: bool = False,
        purpose: str | None = None,
        producer: str | None = None,
        writer: str | None = None,
        spec_ref: str | None = None,
        expires_before: datetime | str | None = None,
    ) -> Page:
        """List the keys that begin with a prefix, in the order of their UTF-8 bytes.

        A page ends at `limit` or at 512 KB, and its cursor continues it. A key that is there throughout is
        seen exactly once. With any of the last five arguments, only keys whose entries match all that are
        given are listed. A page then also ends after about 5,000 entries were examined: it may hold few keys
        or none and still have a cursor.

        Args:
            prefix: The beginning of the keys; empty for all keys.
            limit: Largest number of keys in the page, from 1 to 10,000; 1,000 if not given.
            cursor: The cursor of the page before, which was asked for with the same prefix.
            values: Whether the page has the entries too.
            purpose: The purpose in the entry's semantics.
            producer: The producer in the entry's semantics.
            writer: The entry's last writer.
            spec_ref: The entry's `spec_ref`.
            expires_before: Time before which the entry expires, as a `datetime` or ISO 8601 text.

        Returns:
            A page of keys. It is the last one if its cursor is None.

        Example:
            `page = await kv.list("game:", limit=100, values=True)`
        """
        wanted = filter_of(
            purpose=purpose,
            producer=producer,
            writer=writer,
            spec_ref=spec_ref,
            expires_before=expires_before,
        )
        found = await selected(self, prefix, limit=limit, cursor=cursor, values=values, wanted=wanted)
        return Page(
            keys=found.keys,
            truncated=found.last is not None,
            cursor=None if found.last is None else cursor_after(found.last),
            entries=list(map(_read, found.keys, found.rows)) if values else None,
        )

    async def get_ttl(self, key: str) -> int | None:
        """Get the time that an entry has left.

        Args:
            key: The entry's key.

        Returns:
            Seconds, rounded up; None if the entry never expires; 0 if there is no entry.
        """
        row, now = await self.store.get_at(self.namespace, self.verbs.key(key))
        if row is None:
            return 0
        return None if row.expires_at is None else -((now - row.expires_at) // 1000)

    async def get_many(self, keys: Sequence[str]) -> builtins.list[Entry | HoldfastError | None]:
        """Get several entries.

        Args:
            keys: At most 1,000 keys.

        Returns:
            For each key, by position, what `get` returns or the error that it raises.

        Raises:
            ValueTooLarge: The values have more than 524,288 bytes together.
        """
        wanted = self.verbs.get_many(keys)
        rows = await self.store.get_all(self.namespace, wanted.legal)
        return wanted.merge(map(_found, wanted.legal, rows))

    async def set_many(
        self, items: Sequence[Mapping[str, Any]], **provenance: Unpack[Provenance]
    ) -> builtins.list[Entry | HoldfastError]:
        """Put several values in one call. Each succeeds or fails on its own.

        Args:
            items: At most 1,000 objects with `key` and `value`, and optionally `ttl`, `keep_ttl`,
                `expected_version` and `semantics`.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            For each item, by position, its new entry or the error that refused it.

        Raises:
            ValueTooLarge: Keys, values and semantics have more than 524,288 bytes together.
            ValidationError: An item has an unknown field, such as `ttl_second`; nothing is written.

        Example:
            `await kv.set_many([{"key": "a", "value": 1}, {"key": "b", "value": 2, "ttl": 60}])`
        """
        refuse_unknown(items, ITEMS.names, field="items")
        made: tuple[Many, Several[Set]] = DECLARED["set_many"].call(self.verbs, items=items, **provenance)
        command, members = made
        results = await self._results(command)
        return members.merge(entry_in(result) if isinstance(result, Stored) else result for result in results)

    async def delete_many(
        self, keys: Sequence[str], **provenance: Unpack[Provenance]
    ) -> builtins.list[bool | HoldfastError]:
        """Remove several keys in one call. Each succeeds or fails on its own.

        Args:
            keys: At most 1,000 keys.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            For each key, by position, whether it was there, or the error that refused it.
        """
        made: tuple[Many, Several[Delete]] = DECLARED["delete_many"].call(self.verbs, keys=keys, **provenance)
        command, members = made
        results = await self._results(command)
        return members.merge(
            removed_in(result) if isinstance(result, Deleted) else result for result in results
        )

    async def changes(self, since: int = 0, *, prefix: str = "", limit: int | None = None) -> Changes:
        """Read the journal.

        Args:
            since: The version after which to begin, such as the `next` of an earlier call.
            prefix: The beginning of the keys whose changes are wanted.
            limit: Largest number of changes, from 1 to 10,000; 1,000 if not given.

        Returns:
            Changes, the oldest first. If it has none, nothing has changed since.
        """
        start, since = self.verbs.prefix(prefix), rules.version(since, field="since")
        limit = rules.limit(limit)
        self.store.admit(self.namespace)
        _, page = await changes_after(self.store, self.namespace, start, since, limit)
        return page

    def watch(self, prefix: str = "", since: int | None = None) -> AsyncIterator[Change]:
        """Follow the changes of keys: each change once, in order, until the store is closed.

        Args:
            prefix: The beginning of the keys.
            since: The version after which to begin; 0 replays the whole journal, None begins at the first
                iteration.

        Returns:
            An asynchronous iterator of changes. Where the journal no longer has what would be next, it yields
            a change with the op `gap`.

        Example:
            `changes = kv.watch("game:", since=0)`
        """
        since = None if since is None else rules.version(since, field="since")
        return watch(self.store, self.namespace, self.verbs.prefix(prefix), since)

    async def history(self, key: str, *, limit: int | None = None) -> builtins.list[Change]:
        """Read the changes of a key from the journal.

        Args:
            key: The key.
            limit: Largest number of changes, from 1 to 10,000; 1,000 if not given.

        Returns:
            Changes, the newest first.
        """
        key = self.verbs.key(key)
        query = JournalQuery(namespace=self.namespace, key=key, limit=rules.limit(limit), newest_first=True)
        self.store.admit(self.namespace)
        page = await self.store.journal(query)
        return await in_turns(change_of, page.records)

    def _perform(self, verb: str, **fields: Any) -> Awaitable[Result]:
        return self.store.call(DECLARED[verb].call(self.verbs, **fields))

    async def _results(self, command: Any) -> Sequence[Any]:
        if not command.items:
            return ()
        result = await self.store.call(command)
        assert isinstance(result, Results)
        return result.items


async def selected(
    kv: Keys, prefix: str, *, limit: int | None, cursor: str | None, values: bool, wanted: Filter | None
) -> Selected:
    """Read the page of rows that `KV.list` shows, for an edge that passes values on as they are stored."""
    prefix = kv.verbs.prefix(prefix)
    query = Scan(
        namespace=kv.namespace,
        space=KV_SPACE,
        start=prefix,
        stop=successor(prefix),
        after=None if cursor is None else last_seen(cursor, prefix),
        limit=rules.limit(limit),
        max_bytes=rules.MAX_TRANSFER_BYTES,
        values=values,
    )
    return await kv.store.select(query, wanted)


def _found(key: str, row: Row | None) -> Entry | HoldfastError | None:
    try:
        return None if row is None else _read(key, row)
    except HoldfastError as error:
        return error


def _read(key: str, row: Row) -> Entry:
    """Return the entry in a row. A value that cannot be read is logged and raised as an error."""
    try:
        return entry_of(key, row)
    except DatabaseError as error:
        _log.error("%s", error.message)
        raise
