"""The handle on a namespace of keys: the verbs as Python calls.

Law: a handle is bound to one namespace, so that isolation holds by construction. It turns calls into commands
and results into entries, and decides nothing.
"""

from __future__ import annotations

import builtins
import logging
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from holdfast import rules
from holdfast.commands import Deleted, Results, Stored, Versions
from holdfast.cursors import cursor_after, last_seen
from holdfast.engine import JournalQuery, Scan, successor
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.model import BatchResult, Changes, Entry, Keep, Page, change_of, entry_of
from holdfast.rows import KV as KV_SPACE
from holdfast.selection import filter_of
from holdfast.watch import changes_after, watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast.commands import Command
    from holdfast.model import Change, Semantics
    from holdfast.recipes.counter import Counter
    from holdfast.recipes.flag import Flag
    from holdfast.recipes.lock import Lock
    from holdfast.recipes.progress import Progress
    from holdfast.recipes.retry import Retry
    from holdfast.recipes.update import Updating
    from holdfast.rows import Row
    from holdfast.store import Store
    from holdfast.verbs import Provenance, Verbs

T = TypeVar("T")

_log = logging.getLogger("holdfast")


class KV:
    """The keys of one namespace. Get one from `Store.kv` or `Store.semantic`.

    Every writing verb takes `request_id` (sent again with the same content it replays the first success),
    `writer`, `spec_ref` and `fence`; those on one key also take `expected_version`: None for whatever is
    there, 0 for nothing, n for exactly that version, and `VersionConflict` carries what is there instead.
    """

    def __init__(self, store: Store, verbs: Verbs) -> None:
        self.store = store
        self.verbs = verbs
        self.namespace = verbs.namespace
        """The namespace's full name."""

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
        """Put a JSON value, in place of value, ttl and semantics that are there.

        Args:
            key: 1 to 255 characters.
            value: Any JSON value of at most 65,536 bytes in its compact form.
            ttl: Seconds until the entry is gone; None for never; `holdfast.KEEP` keeps the deadline it has.
            expected_version: What the entry's version must be.
            semantics: Why the entry exists and for whom.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence`.
        """
        return await self._stored(
            self.verbs.set(
                key, value, ttl=ttl, expected_version=expected_version, semantics=semantics, **provenance
            )
        )

    async def get(self, key: str) -> Entry | None:
        """The entry, or None if it is not there or has expired."""
        key = self.verbs.key(key)
        row, _ = await self.store.get_at(self.namespace, key)
        return None if row is None else _read(key, row)

    async def delete(
        self, key: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> bool:
        """Remove a key; whether it was there."""
        result = await self.store.execute(
            self.verbs.delete(key, expected_version=expected_version, **provenance)
        )
        return _deleted(result)

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
        """The keys that begin with `prefix`, in the order of their UTF-8 bytes.

        A page ends at `limit` (1 to 10,000; 1,000 if not given) or at 512 KB; its cursor continues it. Each
        key that is there throughout is seen exactly once.

        With any of the other arguments only keys whose envelope has all that is given: the semantics'
        `purpose` and `producer`, the last `writer`, the `spec_ref`, a deadline before a time. A page then
        also ends after some 5,000 entries were looked at, so that it may hold fewer keys than there is room
        for, or none, and still have a cursor.
        """
        wanted = filter_of(
            purpose=purpose,
            producer=producer,
            writer=writer,
            spec_ref=spec_ref,
            expires_before=expires_before,
        )
        prefix = self.verbs.prefix(prefix)
        query = Scan(
            namespace=self.namespace,
            space=KV_SPACE,
            start=prefix,
            stop=successor(prefix),
            after=None if cursor is None else last_seen(cursor, prefix),
            limit=rules.limit(limit),
            max_bytes=rules.MAX_TRANSFER_BYTES,
            values=values,
        )
        found = await self.store.select(query, wanted)
        return Page(
            keys=found.keys,
            truncated=found.last is not None,
            cursor=None if found.last is None else cursor_after(found.last),
            entries=list(map(_read, found.keys, found.rows)) if values else None,
        )

    async def incr(
        self,
        key: str,
        by: int | float = 1,
        *,
        ttl: int | None = None,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Add to a number. A missing key starts from 0, and `ttl` applies only to it."""
        return await self._stored(
            self.verbs.incr(key, by, ttl=ttl, expected_version=expected_version, **provenance)
        )

    async def get_ttl(self, key: str) -> int | None:
        """Seconds left, rounded up; None for an entry that lives for ever; 0 for one that is not there."""
        row, now = await self.store.get_at(self.namespace, self.verbs.key(key))
        if row is None:
            return 0
        return None if row.expires_at is None else -((now - row.expires_at) // 1000)

    async def set_ttl(
        self,
        key: str,
        ttl_seconds: int,
        *,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Let the entry be gone in `ttl_seconds`. Raises `KeyNotFound` if it is gone already."""
        return await self._stored(
            self.verbs.set_ttl(key, ttl_seconds, expected_version=expected_version, **provenance)
        )

    async def remove_ttl(
        self, key: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> Entry:
        """Let the entry live for ever. Raises `KeyNotFound` if it is gone already."""
        return await self._stored(self.verbs.remove_ttl(key, expected_version=expected_version, **provenance))

    async def get_many(self, keys: Sequence[str]) -> builtins.list[Entry | HoldfastError | None]:
        """The entries of at most 1,000 keys, by position: each what `get` gives, or the error it raises."""
        wanted = self.verbs.get_many(keys)
        rows = await self.store.get_all(self.namespace, wanted.legal)
        return wanted.merge(map(_found, wanted.legal, rows))

    async def set_many(
        self, items: Sequence[Mapping[str, Any]], **provenance: Unpack[Provenance]
    ) -> builtins.list[Entry | HoldfastError]:
        """Put several values, each for itself: items have the fields of `set`, results are by position."""
        command, members = self.verbs.set_many(items, **provenance)
        results = await self._results(command)
        return members.merge(_entry(result) if isinstance(result, Stored) else result for result in results)

    async def delete_many(
        self, keys: Sequence[str], **provenance: Unpack[Provenance]
    ) -> builtins.list[bool | HoldfastError]:
        """Remove several keys, each for itself; results are by position."""
        command, members = self.verbs.delete_many(keys, **provenance)
        results = await self._results(command)
        return members.merge(
            _deleted(result) if isinstance(result, Deleted) else result for result in results
        )

    async def delete_prefix(
        self,
        prefix: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        **provenance: Unpack[Provenance],
    ) -> Page:
        """Remove the keys that begin with `prefix`, a page at a time; with `dry_run` only say which they are.

        The page has the keys that were removed. As long as it has a cursor, call again with that.
        """
        from holdfast.recipes.prefix import delete_prefix

        return await delete_prefix(self, prefix, limit, cursor, dry_run=dry_run, **provenance)

    async def batch(
        self,
        *,
        checks: Sequence[Mapping[str, Any]] = (),
        writes: Sequence[Mapping[str, Any]],
        **provenance: Unpack[Provenance],
    ) -> BatchResult:
        """All of at most 1,000 writes or none.

        Args:
            checks: `{"key", "version"}` each; 0 for no entry. `VersionConflict.conflicts` lists what failed.
            writes: `{"key", "value", …}` with the fields of `set`, `{"key", "delete": True}`,
                `{"key", "incr": n}`, or `{"guard": lock}`, whose version is the newest token of that lock.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence`.
        """
        result = await self.store.execute(self.verbs.batch(checks=checks, writes=writes, **provenance))
        assert isinstance(result, Versions)
        return BatchResult(versions=list(result.versions))

    async def changes(self, since: int = 0, *, prefix: str = "", limit: int | None = None) -> Changes:
        """What changed after version `since`, oldest first. No changes means that there are none yet."""
        start, since = self.verbs.prefix(prefix), rules.version(since, field="since")
        limit = rules.limit(limit)
        self.store.admit(self.namespace)
        _, page = await changes_after(self.store, self.namespace, start, since, limit)
        return page

    def watch(self, prefix: str = "", since: int | None = None) -> AsyncIterator[Change]:
        """Follow the changes of keys that begin with `prefix`: nothing missed, nothing twice.

        `since` None starts at the first iteration, 0 replays what the journal has. Where the journal no
        longer has what would be next, a change with op `gap` comes instead.
        """
        since = None if since is None else rules.version(since, field="since")
        return watch(self.store, self.namespace, self.verbs.prefix(prefix), since)

    async def history(self, key: str, *, limit: int | None = None) -> builtins.list[Change]:
        """What is known of the changes of a key, newest first."""
        key = self.verbs.key(key)
        query = JournalQuery(namespace=self.namespace, key=key, limit=rules.limit(limit), newest_first=True)
        self.store.admit(self.namespace)
        page = await self.store.journal(query)
        return [change_of(record) for record in page.records]

    async def restore(
        self,
        key: str,
        *,
        ttl: int | None = None,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Bring a key back from the trash, with a new version and no deadline unless `ttl` is given.

        Raises:
            VersionConflict: The key is there.
            KeyNotFound: The key is not in the trash.
        """
        return await self._stored(
            self.verbs.restore(key, ttl=ttl, expected_version=expected_version, **provenance)
        )

    # The recipes are imported where they are asked for: opening a store does not pay for them.

    def lock(
        self, name: str, *, ttl: int = 30, timeout: float | None = None, owner: str | None = None
    ) -> Lock:
        """A lock that is renewed while it is held, and lost at the latest `ttl` seconds after its holder was.

        Use it as a context manager, or call `acquire` and `release`.

        Args:
            name: Components of a-z, 0-9, `.`, `_` and `-` with `/` between them, none of them `waiting`.
            ttl: After how many seconds without a sign of its holder it is free again.
            timeout: How many seconds the context manager waits before it raises `Busy`; None for ever.
            owner: Who holds it, as `last_writer` and `producer` show it.
        """
        from holdfast.recipes.lock import Lock

        return Lock(self, name, ttl=ttl, timeout=timeout, owner=owner)

    def checkpoint(
        self, name: str, *, order: Callable[[Any], Any] | None = None, owner: str | None = None
    ) -> Progress:
        """How far some work has come: `load`, then `advance`, which is refused if somebody else has.

        Args:
            name: As that of a lock.
            order: The key function by which a value that lies before the loaded one is refused.
            owner: Who advances it, as `last_writer` and `producer` show it.
        """
        from holdfast.recipes.progress import Progress

        return Progress(self, name, purpose="checkpoint", order=order, owner=owner)

    def cursor(
        self, name: str, *, order: Callable[[Any], Any] | None = None, owner: str | None = None
    ) -> Progress:
        """Where a reader is in what it reads: as `checkpoint`, with the purpose `cursor`."""
        from holdfast.recipes.progress import Progress

        return Progress(self, name, purpose="cursor", order=order, owner=owner)

    def counter(self, name: str, *, ttl: int | None = None) -> Counter:
        """A number that many `add` to at once. It begins at 0, and again `ttl` seconds after it has begun."""
        from holdfast.recipes.counter import Counter

        return Counter(self, name, ttl=ttl)

    def flag(self, name: str, default: T, *, owner: str | None = None) -> Flag[T]:
        """A value that steers a program: `get`, `set`, `clear`, and `cached` for reading without waiting.

        Args:
            name: As that of a lock.
            default: What it is where nothing is set. A bool, int, float or str is also its type.
            owner: Who sets it, as `last_writer` and `producer` show it.
        """
        from holdfast.recipes.flag import Flag

        return Flag(self, name, default, owner=owner)

    @property
    def retry(self) -> Retry:
        """The writing verbs, each repeated on conflicts and transient errors, and then kept as a dead letter.

        `await kv.retry.update(key, change)` reads, computes and sets until nobody has come between.
        """
        from holdfast.recipes.retry import Retry

        return Retry(self)

    async def update(self, key: str, change: Callable[[Any], Any], **options: Unpack[Updating]) -> Entry:
        """Set a key to what `change` makes of its value, and anew from the winner's if another was faster.

        For keys that many change at once: the first repeats come without a pause. A deadline stays as it is.

        Args:
            key: The entry's key.
            change: Takes the value and gives the new one, or an awaitable of it; it may be called often.
            **options: `default` is what it takes where there is no entry; `ttl` is that of an entry which
                this makes; `semantics`, `writer`, `spec_ref` and `fence` are as those of `set`.

        Raises:
            VersionConflict: Others were faster for `timeout` seconds, 30 if not given.
        """
        from holdfast.recipes.update import update

        return await update(self, key, change, **options)

    async def hashed_key(self, prefix: str, identifier: str) -> str:
        """The key in full for an identifier that is too long or of the wrong form to be part of one.

        It is `prefix` and a digest of the identifier, and always the same. The entry `hashed/<digest>` tells
        what the digest stands for; it is written the first time.
        """
        from holdfast.recipes.identifiers import hashed_key

        return await hashed_key(self, prefix, identifier)

    async def original_of(self, key: str) -> str | None:
        """The identifier that `hashed_key` made this key of; None if it is no such key."""
        from holdfast.recipes.identifiers import original_of

        return await original_of(self, key)

    async def _stored(self, command: Command) -> Entry:
        return _entry(await self.store.execute(command))

    async def _results(self, command: Any) -> Sequence[Any]:
        if not command.items:
            return ()
        result = await self.store.execute(command)
        assert isinstance(result, Results)
        return result.items


def _entry(result: object) -> Entry:
    assert isinstance(result, Stored)
    return entry_of(result.key, result.row)


def _deleted(result: object) -> bool:
    assert isinstance(result, Deleted)
    return result.version is not None


def _found(key: str, row: Row | None) -> Entry | HoldfastError | None:
    try:
        return None if row is None else _read(key, row)
    except HoldfastError as error:
        return error


def _read(key: str, row: Row) -> Entry:
    """The entry in a row; a value that can't be read is an error for the caller and for the log."""
    try:
        return entry_of(key, row)
    except DatabaseError as error:
        _log.error("%s", error.message)
        raise
