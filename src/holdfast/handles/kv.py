"""The handle on a namespace of keys: the verbs, and the recipes that are built on them.

Law: a recipe is imported on first use, so that opening a store does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from holdfast.handles import recipes
from holdfast.handles.keys import Keys
from holdfast.model import Entry, Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.handles.recipes.counter import Counter
    from holdfast.handles.recipes.flag import Flag
    from holdfast.handles.recipes.flags import Flags
    from holdfast.handles.recipes.lock import Lock
    from holdfast.handles.recipes.mirror import Mirror
    from holdfast.handles.recipes.progress import Progress
    from holdfast.handles.recipes.retry import Retry, Updating
    from holdfast.verbs.fields import Provenance

T = TypeVar("T")


class KV(Keys):
    """The keys of one namespace. Get one from `Store.kv` or `Store.semantic`.

    Every verb that writes takes the following keyword arguments, which signatures show as `**provenance`:

    - `request_id` names the request. A request that is sent again with the same id and content gets the first
      answer and has no second effect.
    - `writer` becomes the `last_writer` of what is written.
    - `spec_ref` points to the document that governs the entry.
    - `fence` is the lock that the write relies on, as `Lock.fence` gives it.
    - `timeout` is in seconds. If it passes before the write can be committed, nothing is written.

    Besides the errors of its own, every verb may raise `ValidationError` for an argument that breaks its rule
    and a `Transient` error such as `Unavailable` or `RateLimited`. A verb that writes may also raise
    `QuotaExceeded`, `Fenced`, `Timeout`, `OutcomeUnknown`, and `VersionConflict` with the reason
    `request_id_reused` if the request id was used for other content.
    """

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
        return await recipes.delete_prefix(self, prefix, limit, cursor, dry_run=dry_run, **provenance)

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
        return recipes.Mirror(self, prefix, on_change=on_change)

    def lock(
        self, name: str, *, ttl: int = 30, timeout: float | None = None, owner: str | None = None
    ) -> Lock:
        """Get a lock, which is renewed while it is held and expires `ttl` seconds after its holder stopped.

        Use it as a context manager, or call `acquire` and `release`.

        Args:
            name: Components of a-z, 0-9, `.`, `_` and `-` with `/` between them, none of them `waiting`.
            ttl: Seconds without a renewal after which the lock is free again.
            timeout: Seconds that the context manager waits before it raises `Busy`; None waits forever.
            owner: Name of the holder, which becomes `last_writer` and `producer`.

        Returns:
            A lock that has not been acquired.

        Raises:
            ValidationError: An argument breaks its rule.

        Example:
            `lock = kv.lock("import/users", ttl=60)`
        """
        return recipes.Lock(self, name, ttl=ttl, timeout=timeout, owner=owner)

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
        return recipes.Progress(self, name, purpose="checkpoint", order=order, owner=owner)

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
        return recipes.Progress(self, name, purpose="cursor", order=order, owner=owner)

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
        return recipes.Counter(self, name, ttl=ttl)

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
        return recipes.Flag(self, name, default, owner=owner)

    def flags(self) -> Flags:
        """Get all flags of this namespace.

        Returns:
            The flags, to `list` once, or to follow with `all`.
        """
        return recipes.Flags(self)

    @property
    def retry(self) -> Retry:
        """The writing verbs, repeated on conflicts and transient errors, and at last kept as dead letters.

        `await kv.retry.update(key, change)` reads, computes and sets until no other writer has interfered.
        """
        return recipes.Retry(self)

    async def update(self, key: str, change: Callable[[Any], Any], **options: Unpack[Updating]) -> Entry:
        """Set a key to a value computed from its current one, repeating this if another writer is faster.

        This suits keys that many callers change at once: the first repetitions come without a pause. An
        existing entry keeps its deadline.

        Args:
            key: The entry's key.
            change: Takes the value and returns the new one, or an awaitable of it. It may be called often.
            **options: `default`, the value that `change` gets if there is no entry; `ttl`, for an entry that
                this call creates; `timeout`, the seconds after which it gives up, 30 if not given;
                `semantics`, `writer`, `spec_ref` and `fence` as for `set`.

        Returns:
            The new entry.

        Raises:
            VersionConflict: Other writers were faster until `timeout` had passed, or the conflict does not
                change between two attempts.

        Example:
            `await kv.update("hits", lambda hits: hits + 1, default=0)`
        """
        return await recipes.update(self, key, change, **options)

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
        return await recipes.hashed_key(self, prefix, identifier)

    async def original_of(self, key: str) -> str | None:
        """Get the identifier that `hashed_key` made a key of.

        Args:
            key: The key.

        Returns:
            The identifier, or None if `hashed_key` did not make this key.
        """
        return await recipes.original_of(self, key)
