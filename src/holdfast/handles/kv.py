"""The handle on the keys of a namespace: the verbs, and the recipes that are built on them.

A handle is bound to one namespace, so that isolation holds by construction. It turns calls into commands and
results into entries, and decides nothing. A recipe is imported on first use, so that opening a store does not
pay for it.
"""

from __future__ import annotations

import builtins
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from holdfast import rules
from holdfast.commands import (
    CHECKS,
    ITEMS,
    WRITES,
    Delete,
    Deleted,
    DeletePrefix,
    GetMany,
    Got,
    Listed,
    ListKeys,
    Many,
    Missed,
    ReadChanges,
    ReadHistory,
    Records,
    Result,
    Results,
    Reveal,
    Rows,
    Set,
    Stored,
    Versions,
)
from holdfast.cursors import cursor_after
from holdfast.declare import DECLARED
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.handles import recipes
from holdfast.model import BatchResult, Change, Changes, Entry, Keep, Page, Semantics
from holdfast.pace import in_turns
from holdfast.pipeline.caller import Caller
from holdfast.pipeline.watch import changes_in, watch
from holdfast.rows import Row
from holdfast.stored import change_of, entry_of
from holdfast.verbs.fields import Provenance, Several, Viewing
from holdfast.verbs.keys import Verbs
from holdfast.verbs.unknown import refuse_unknown

if TYPE_CHECKING:
    from holdfast.handles.recipes.counter import Counter
    from holdfast.handles.recipes.flag import Flag
    from holdfast.handles.recipes.flags import Flags
    from holdfast.handles.recipes.lock import Lock
    from holdfast.handles.recipes.mirror import Mirror
    from holdfast.handles.recipes.progress import Progress
    from holdfast.handles.recipes.retry import Retry, Updating

T = TypeVar("T")

_log = logging.getLogger("holdfast")


class KeyWrites(ABC):
    """The verbs that write to the keys of one namespace."""

    verbs: Verbs

    async def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: int | Keep | None = None,
        expected_version: int | None = None,
        semantics: Semantics | Mapping[str, Any] | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Set a key to a JSON value, replacing its value, ttl and semantics.

        Args:
            key: Key of 1 to 255 characters.
            value: Any JSON value of at most 65,536 bytes in its compact form.
            ttl: Seconds until the entry expires; None for never; `holdfast.KEEP` keeps the deadline it has.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            semantics: Why the entry exists and for whom.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The new entry.

        Raises:
            ValueTooLarge: The value has more than 65,536 bytes.
            VersionConflict: The entry does not have the expected version; `current` is what is there.

        Example:
            `await kv.set("game:42", {"turn": "alice"}, ttl=1800)`
        """
        made = self._perform(
            "set",
            key=key,
            value=value,
            ttl=ttl,
            expected_version=expected_version,
            semantics=semantics,
            **provenance,
        )
        return entry_in(await made)

    async def delete(
        self, key: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> bool:
        """Remove a key.

        Args:
            key: The key.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            True if the key was there.

        Raises:
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        result = await self._perform("delete", key=key, expected_version=expected_version, **provenance)
        return removed_in(result)

    async def incr(
        self,
        key: str,
        by: int | float = 1,
        *,
        ttl: int | None = None,
        only_if_exists: bool = False,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Add to a number.

        Args:
            key: The number's key. A missing key starts from 0.
            by: What to add, which may be negative.
            ttl: Seconds until the entry expires if this call creates it. An existing entry keeps its
                deadline.
            only_if_exists: Whether to refuse a missing key instead of creating it.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new value.

        Raises:
            ValidationError: The stored value is not a number, or the sum is too large.
            KeyNotFound: There is no entry, and `only_if_exists` is given.
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        made = self._perform(
            "incr",
            key=key,
            by=by,
            ttl=ttl,
            only_if_exists=only_if_exists,
            expected_version=expected_version,
            **provenance,
        )
        return entry_in(await made)

    async def append(
        self,
        name: str,
        value: Any,
        *,
        ttl: int | None = None,
        keep: int | None = None,
        semantics: Semantics | Mapping[str, Any] | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Add an item to a log. The store gives it the next number, in the order of the commits.

        The item is an entry under the log's name, a slash and the number in 12 digits. A number is never
        given twice, whatever becomes of the items. A reader who sees an item can see those before it, unless
        they were removed or have expired.

        Args:
            name: Name of the log, of 1 to 242 characters.
            value: Any JSON value of at most 65,536 bytes in its compact form.
            ttl: Seconds until the item expires; None for never.
            keep: Number of newest items that stay. Older ones are removed, at most 100 with each call.
            semantics: Why the item exists and for whom.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The new entry, with its `number`.

        Raises:
            ValueTooLarge: The value has more than 65,536 bytes.

        Example:
            `entry = await kv.append("chat/42", {"role": "user", "text": "Hello"}, keep=1000)`
        """
        made = self._perform(
            "append", name=name, value=value, ttl=ttl, keep=keep, semantics=semantics, **provenance
        )
        return entry_in(await made)

    async def set_ttl(
        self,
        key: str,
        ttl_seconds: int,
        *,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Expire an entry a number of seconds from now.

        Args:
            key: The entry's key.
            ttl_seconds: Whole seconds, from 1.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new version.

        Raises:
            KeyNotFound: There is no entry.
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        made = self._perform(
            "set_ttl", key=key, ttl_seconds=ttl_seconds, expected_version=expected_version, **provenance
        )
        return entry_in(await made)

    async def remove_ttl(
        self, key: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> Entry:
        """Remove an entry's deadline, so that it never expires.

        Args:
            key: The entry's key.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new version.

        Raises:
            KeyNotFound: There is no entry.
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        made = self._perform("remove_ttl", key=key, expected_version=expected_version, **provenance)
        return entry_in(await made)

    async def touch(
        self,
        key: str,
        ttl_seconds: int,
        *,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry | None:
        """Expire an entry a number of seconds from now, if there is one.

        This is `set_ttl` for a caller to whom a missing entry is no error.

        Args:
            key: The entry's key.
            ttl_seconds: Whole seconds, from 1.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new version, or None if there is none.

        Raises:
            VersionConflict: The entry does not have the expected version; `current` is what is there.

        Example:
            `alive = await kv.touch("session:ada", 1800) is not None`
        """
        result = await self._perform(
            "touch", key=key, ttl_seconds=ttl_seconds, expected_version=expected_version, **provenance
        )
        return None if isinstance(result, Missed) else entry_in(result)

    async def restore(
        self,
        key: str,
        *,
        ttl: int | None = None,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Bring a key back from the trash, with a new version.

        Args:
            key: The key.
            ttl: Seconds until the entry expires; None for never.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The restored entry.

        Raises:
            VersionConflict: The key exists.
            KeyNotFound: The key is not in the trash.
        """
        made = self._perform("restore", key=key, ttl=ttl, expected_version=expected_version, **provenance)
        return entry_in(await made)

    async def batch(
        self,
        *,
        checks: Sequence[Mapping[str, Any]] = (),
        writes: Sequence[Mapping[str, Any]],
        **provenance: Unpack[Provenance],
    ) -> BatchResult:
        """Perform all of at most 1,000 writes, or none of them.

        Args:
            checks: Objects with a `key` and the `version` that its entry must have, 0 for no entry.
            writes: Objects with a `key` and a `value` and the fields of `set`; or a `key` and `"delete":
                True`; or a `key` and a number as `incr`; or the name of a log as `append`, a `value` and the
                fields of `append`; or the name of a lock as `guard`, which gives it a new token.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The version of each write, and the number of each item that was appended, by position.

        Raises:
            VersionConflict: A check failed; `conflicts` lists every one that did.
            ValueTooLarge: Keys, values and semantics have more than 524,288 bytes together.
            MissingField: A check or a write lacks a field.
            ValidationError: A check or a write has an unknown field.

        Example:
            `await kv.batch(checks=[{"key": "a", "version": 0}], writes=[{"key": "a", "value": 1}])`
        """
        refuse_unknown(checks, CHECKS.names, field="checks")
        refuse_unknown(writes, WRITES.names, field="writes")
        result = await self._perform("batch", checks=checks, writes=writes, **provenance)
        assert isinstance(result, Versions)
        numbers = result.numbers or (None,) * len(result.versions)
        return BatchResult(versions=list(result.versions), numbers=list(numbers))

    @abstractmethod
    def _perform(self, verb: str, **fields: Any) -> Awaitable[Result]:
        """Make the command of a verb and execute it."""


class KV(KeyWrites):
    """The keys of one namespace. Get one from `Store.kv` or `Store.semantic`.

    Every verb that writes takes the following keyword arguments, which signatures show as `**provenance`:

    - `request_id` names the request. A request that is sent again with the same id and content gets the first
      answer and has no second effect.
    - `once` names what the caller intends, instead of one request. If the id is known, the first answer is
      returned before anything else is looked at, and nothing is written.
    - `writer` becomes the `last_writer` of what is written.
    - `spec_ref` points to the document that governs the entry.
    - `fence` is the lock that the write relies on, as `Lock.fence` gives it. Locks of a plugin's keys serve
      its tables and blobs, too.
    - `timeout` is in seconds. If it passes before the write can be committed, nothing is written.

    Besides the errors of its own, every verb may raise `ValidationError` for an argument that breaks its rule
    and a `Transient` error such as `Unavailable` or `RateLimited`. A verb that writes may also raise
    `QuotaExceeded`, `Fenced`, `Timeout`, `OutcomeUnknown`, and `VersionConflict` with the reason
    `request_id_reused` if the request id was used for other content, or `once` for another verb.
    """

    def __init__(self, store: Caller, verbs: Verbs) -> None:
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
        command = self.verbs.command(Reveal, key=key, why=why, **viewing)
        result = await self.store.call(command)
        assert isinstance(result, Got)
        return None if result.row is None else _read(command.key, result.row)

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
        after: int | None = None,
        reverse: bool = False,
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
            after: The number of an item of a log, to list those after it. The prefix is the name of the log
                and a slash.
            reverse: Whether to go backwards, from the last key to the first. The newest items of a log come
                first then.
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
        page = await listed(
            self,
            prefix,
            limit=limit,
            cursor=cursor,
            after=after,
            reverse=bool(reverse),
            values=bool(values),
            purpose=purpose,
            producer=producer,
            last_writer=writer,
            spec_ref=spec_ref,
            expires_before=expires_before,
        )
        return Page(
            keys=page.keys,
            truncated=page.last is not None,
            cursor=None if page.last is None else cursor_after(page.last),
            entries=builtins.list(map(_read, page.keys, page.rows)) if values else None,
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
        made: tuple[GetMany, Several[str]] = DECLARED["get_many"].call(self.verbs, keys=keys)
        command, members = made
        result = await self.store.call(command)
        assert isinstance(result, Rows)
        return members.merge(map(_found, command.keys, result.rows))

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
        command = self.verbs.command(ReadChanges, since=since, prefix=prefix, limit=limit)
        page = await self.store.call(command)
        assert isinstance(page, Records)
        return await changes_in(page)

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
        page = await self.store.call(self.verbs.command(ReadHistory, key=key, limit=limit))
        assert isinstance(page, Records)
        return await in_turns(change_of, page.records)

    async def delete_prefix(
        self,
        prefix: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        **provenance: Unpack[Provenance],
    ) -> Page:
        """Remove the keys that begin with a prefix, a page at a time.

        Args:
            prefix: The beginning of the keys, which must not be empty.
            limit: Largest number of keys in the page, from 1 to 10,000; 1,000 if not given.
            cursor: The cursor of the page before. As long as a page has one, call again with it.
            dry_run: Whether to list the keys and remove nothing.
            **provenance: `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            A page with the keys that were removed.

        Raises:
            ValidationError: The prefix is empty, or a `request_id` is given.
        """
        command = self.verbs.command(
            DeletePrefix, prefix=prefix, limit=limit, cursor=cursor, dry_run=bool(dry_run), **provenance
        )
        page = await self.store.call(command)
        assert isinstance(page, Listed)
        return Page(
            keys=page.keys,
            truncated=page.last is not None,
            cursor=None if page.last is None else cursor_after(page.last),
        )

    def mirror(
        self, prefix: str = "", *, on_change: Callable[[str, Entry | None], None] | None = None
    ) -> Mirror:
        """Get a copy of the keys below a prefix that follows the store and is read without waiting.

        Use it as a context manager. It is loaded when the block begins and kept in step until it ends.

        Args:
            prefix: The beginning of the keys; empty for all keys.
            on_change: Called after each change, with the key and its new entry, or None if it is gone. It
                runs on the thread of the event loop, so it must not block. An error in it is logged.

        Returns:
            A mapping of keys to values.

        Raises:
            ValidationError: The prefix breaks its rule.

        Example:
            `mirror = kv.mirror("config:", on_change=lambda key, entry: print(key))`
        """
        return recipes.mirror.Mirror(self, prefix, on_change=on_change)

    def lock(
        self, name: str, *, ttl: float = 30, timeout: float | None = None, owner: str | None = None
    ) -> Lock:
        """Get a lock, which is renewed while it is held and expires `ttl` seconds after its holder stopped.

        Use it as a context manager, or call `acquire` and `release`.

        Args:
            name: Components of a-z, 0-9, `.`, `_` and `-` with `/` between them, none of them `waiting`.
            ttl: Seconds without a renewal after which the lock is free again, from 0.1.
            timeout: Seconds that the context manager waits before it raises `Busy`; None waits forever.
            owner: Name of the holder, which becomes `last_writer` and `producer`.

        Returns:
            A lock that has not been acquired.

        Raises:
            ValidationError: An argument breaks its rule.

        Example:
            `lock = kv.lock("import/users", ttl=60)`
        """
        return recipes.lock.Lock(self, name, ttl=ttl, timeout=timeout, owner=owner)

    def checkpoint(
        self, name: str, *, order: Callable[[Any], Any] | None = None, owner: str | None = None
    ) -> Progress:
        """Get a checkpoint, which records the progress of some work.

        Args:
            name: Components of a-z, 0-9, `.`, `_` and `-` with `/` between them.
            order: Key function. A value that sorts before the loaded one is refused.
            owner: Name of the worker, which becomes `last_writer` and `producer`.

        Returns:
            A checkpoint: `load` it, then `advance` it, which fails if another worker has.

        Raises:
            ValidationError: The name breaks its rule.

        Example:
            `progress = kv.checkpoint("import/users", order=lambda done: done["row"])`
        """
        return recipes.progress.Progress(self, name, purpose="checkpoint", order=order, owner=owner)

    def cursor(
        self, name: str, *, order: Callable[[Any], Any] | None = None, owner: str | None = None
    ) -> Progress:
        """Get a cursor, which records the position of a reader: a `checkpoint` with the purpose `cursor`.

        Args:
            name: Components of a-z, 0-9, `.`, `_` and `-` with `/` between them.
            order: Key function. A value that sorts before the loaded one is refused.
            owner: Name of the reader, which becomes `last_writer` and `producer`.

        Returns:
            A cursor to `load` and `advance`.

        Raises:
            ValidationError: The name breaks its rule.
        """
        return recipes.progress.Progress(self, name, purpose="cursor", order=order, owner=owner)

    def counter(self, name: str, *, ttl: int | None = None) -> Counter:
        """Get a counter, to which many callers may add at once.

        Args:
            name: Components of a-z, 0-9, `.`, `_` and `-` with `/` between them.
            ttl: Seconds after its first addition at which the counter starts again from 0; None for never.

        Returns:
            A counter.

        Raises:
            ValidationError: The name breaks its rule.
        """
        return recipes.counter.Counter(self, name, ttl=ttl)

    def flag(self, name: str, default: T, *, owner: str | None = None) -> Flag[T]:
        """Get a flag, a typed value that controls a program.

        Args:
            name: Components of letters, digits, `.`, `_` and `-` with `/` between them.
            default: Value of a flag that is not set. If it is a bool, int, float or str, the flag has that
                type.
            owner: Name of the writer, which becomes `last_writer` and `producer`.

        Returns:
            A flag to `get`, `set` and `clear`; `state` also has its variant and metadata, and `cached` reads
            it without waiting.

        Raises:
            ValidationError: The name breaks its rule.

        Example:
            `dark = kv.flag("dark-mode", default=False)`
        """
        return recipes.flag.Flag(self, name, default, owner=owner)

    def flags(self) -> Flags:
        """Get all flags of this namespace.

        Returns:
            The flags, to `list` once, or to follow with `all`.
        """
        return recipes.flags.Flags(self)

    @property
    def retry(self) -> Retry:
        """The writing verbs, repeated on conflicts and transient errors, and at last kept as dead letters.

        `await kv.retry.update(key, change)` reads, computes and sets until no other writer has interfered.
        """
        return recipes.retry.Retry(self)

    async def update(self, key: str, change: Callable[[Any], Any], **options: Unpack[Updating]) -> Entry:
        """Set a key to a value computed from its current one, repeating this if another writer is faster.

        This suits keys that many callers change at once: the first repetitions come without a pause. An
        existing entry keeps its deadline.

        Args:
            key: The entry's key.
            change: Takes the value and returns the new one, or an awaitable of it. It may be called often.
            **options: `default`, the value that `change` gets if there is no entry; `ttl`, for an entry that
                this call creates; `timeout`, the seconds after which it gives up, 30 if not given;
                `semantics`, `writer`, `spec_ref` and `fence` as for `set`; `once`, which names what the
                update is for: if it is known, the first entry is returned, and what `change` returns is not
                written.

        Returns:
            The new entry.

        Raises:
            VersionConflict: Other writers were faster until `timeout` had passed, or the conflict does not
                change between two attempts.

        Example:
            `await kv.update("hits", lambda hits: hits + 1, default=0)`
        """
        return await recipes.retry.update(self, key, change, **options)

    async def hashed_key(self, prefix: str, identifier: str) -> str:
        """Make a key for an identifier that is too long for one or has characters that no key may have.

        The key is the prefix and a digest of the identifier, and always the same. The entry `hashed/<digest>`
        records the identifier; it is written the first time.

        Args:
            prefix: The beginning of the key, such as `users/`.
            identifier: Any text that is not empty.

        Returns:
            The key in full.

        Raises:
            VersionConflict: The entry of the digest records another identifier.

        Example:
            `key = await kv.hashed_key("users/", "Alice Example <alice@mail.example>")`
        """
        return await recipes.names.hashed_key(self, prefix, identifier)

    async def original_of(self, key: str) -> str | None:
        """Get the identifier that `hashed_key` made a key of.

        Args:
            key: The key.

        Returns:
            The identifier, or None if `hashed_key` did not make this key.
        """
        return await recipes.names.original_of(self, key)

    def _perform(self, verb: str, **fields: Any) -> Awaitable[Result]:
        return self.store.call(DECLARED[verb].call(self.verbs, **fields))

    async def _results(self, command: Any) -> Sequence[Any]:
        if not command.items:
            return ()
        result = await self.store.call(command)
        assert isinstance(result, Results)
        return result.items


async def listed(
    kv: KV, prefix: str, *, limit: int | None, cursor: str | None, values: bool, **criteria: Any
) -> Listed:
    """Read the page of rows that `KV.list` shows, for those who pass values on as they are stored."""
    command = kv.verbs.command(ListKeys, prefix=prefix, limit=limit, cursor=cursor, values=values, **criteria)
    page = await kv.store.call(command)
    assert isinstance(page, Listed)
    return page


def entry_in(result: object) -> Entry:
    """Return the entry that a write has left."""
    assert isinstance(result, Stored)
    return entry_of(result.key, result.row)


def removed_in(result: object) -> bool:
    """Return whether a deletion has found its key."""
    assert isinstance(result, Deleted)
    return result.version is not None


def _found(key: str, row: Row | HoldfastError | None) -> Entry | HoldfastError | None:
    try:
        return row if row is None or isinstance(row, HoldfastError) else _read(key, row)
    except HoldfastError as error:
        return error


def _read(key: str, row: Row) -> Entry:
    """Return the entry in a row. A value that cannot be read is logged and raised as an error."""
    try:
        return entry_of(key, row)
    except DatabaseError as error:
        _log.error("%s", error.message)
        raise
