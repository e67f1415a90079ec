"""A copy of the keys below a prefix that stays in step with the store and is read without waiting.

A mirror holds what the store held at some instant, and `stale_for` says how long ago that was. It passes over
no change: where the journal does not reach back, it loads everything again. It never shows an expired entry,
and raises an error once it no longer follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self

from holdfast import rules, seams
from holdfast.clock import milliseconds
from holdfast.cursors import cursor_after
from holdfast.errors import Defect, OutcomeUnknown, Transient, Unavailable
from holdfast.handles.kv import KV, listed
from holdfast.handles.recipes.lease import LONGEST_PAUSE
from holdfast.model import Change, Changes, Entry
from holdfast.pipeline.watch import follow, head_of
from holdfast.rows import Row
from holdfast.stored import entry_of

AT_ONCE: Final = 16
"""Number of changed keys that are read at a time."""
_GONE: Final = frozenset({"deleted", "expired"})

_log = logging.getLogger("holdfast.mirror")


class Mirror(Mapping[str, Any]):
    """The values of the keys below a prefix, by key. Get one from `KV.mirror`.

    It is loaded when its `async with` block begins, and follows the journal until the block ends. It has only
    keys that exist now. Reading it never waits; it raises `Unavailable` outside the block, and
    when the mirror can no longer follow because the store was closed or a read was refused for good.
    """

    def __init__(
        self,
        kv: KV,
        prefix: str = "",
        *,
        on_change: Callable[[str, Entry | None], None] | None = None,
        key: str | None = None,
    ) -> None:
        self.prefix: str = kv.verbs.prefix(prefix) if key is None else key
        """The beginning of the keys, in full."""
        self._kv = kv
        self._on_change = on_change
        self._key = key
        self._root = rules.semantic_root(kv.namespace) or ""
        self._entries: dict[str, Entry] = {}
        self._follower: asyncio.Task[None] | None = None
        self._version = 0
        self._moved = asyncio.Event()
        self._read_at = 0.0

    def __getitem__(self, key: str) -> Any:
        entry = self.entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __iter__(self) -> Iterator[str]:
        now, entries = self._now(), list(self._entries.items())
        return iter([key for key, entry in entries if _alive(entry, now)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[str, Any]:
        """Get the keys with their values at this instant. Later changes do not show in them.

        Returns:
            Pairs of a key and its value.

        Raises:
            Unavailable: The mirror does not follow the store now.
        """
        return self._values().items()

    def values(self) -> ValuesView[Any]:
        """Get the values at this instant. Later changes do not show in them.

        Returns:
            The values.

        Raises:
            Unavailable: The mirror does not follow the store now.
        """
        return self._values().values()

    def entry(self, key: str) -> Entry | None:
        """Get the whole entry of a key.

        Args:
            key: The key. In a tenant's project it may be relative, as for `get`.

        Returns:
            The entry, or None if there is none or it has expired.

        Raises:
            Unavailable: The mirror does not follow the store now.
        """
        now = self._now()
        entry = self._entries.get(key)
        if entry is None and self._root:
            entry = self._entries.get(self._root + key)
        return entry if entry is not None and _alive(entry, now) else None

    @property
    def stale_for(self) -> float:
        """The seconds since the mirror last knew that it held everything.

        While the store answers, this stays below about a second, because the mirror reads the journal every
        second even if nothing happens. It grows while the storage or the connection is away.

        Raises:
            Unavailable: The mirror does not follow the store now.
        """
        self._now()
        return seams.monotonic() - self._read_at

    async def reached(self, version: int) -> None:
        """Wait until the mirror shows a version of the namespace, such as that of an entry just written.

        Args:
            version: The version.

        Raises:
            Unavailable: The mirror has stopped following before it got there.
        """
        while self._version < version:
            self._now()
            moved = self._moved
            await moved.wait()

    async def __aenter__(self) -> Self:
        started = seams.monotonic()
        # The journal is followed from before the load, so that changes during the load are not missed.
        page = await head_of(self._kv.store, self._kv.namespace)
        self._entries = await self._load()
        self._read_at, self._version = started, page.head
        self._follower = asyncio.create_task(self._follow(page.head), name=f"holdfast mirrors {self.prefix}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        follower, self._follower = self._follower, None
        assert follower is not None
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        self._wake()

    def _values(self) -> dict[str, Any]:
        now, entries = self._now(), list(self._entries.items())
        return {key: entry.value for key, entry in entries if _alive(entry, now)}

    def _now(self) -> int:
        """Return the store's time, if this mirror follows the store."""
        if self._follower is None or self._follower.done():
            raise Unavailable(f"the mirror of {self.prefix!r} is not following the store")
        return self._kv.store.now()

    async def _follow(self, since: int) -> None:
        try:
            async with aclosing(follow(self._kv.store, self._kv.namespace, self.prefix, since)) as steps:
                async for page, complete_at in steps:
                    await self._insist(page)
                    self._version = page.next
                    self._read_at = complete_at or self._read_at
                    self._wake()
        except Exception as error:
            _log.error("stopped mirroring %r: %s", self.prefix, error, exc_info=error)
        finally:
            self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _insist(self, page: Changes) -> None:
        """Take over a page of changes, retrying until the storage answers."""
        while True:
            try:
                await self._take(page)
            except (Transient, OutcomeUnknown) as error:
                _log.warning("the mirror of %r is waiting for the storage: %s", self.prefix, error.message)
                await asyncio.sleep(LONGEST_PAUSE)
            else:
                return

    async def _take(self, page: Changes) -> None:
        if page.gap:
            await self._reload()
        changed = [change for change in page.changes if self._is_news(change)]
        last = {change.key: change for change in changed}
        for key in [key for key, change in last.items() if change.op in _GONE]:
            self._put(key, None)
        live = [key for key, change in last.items() if change.op not in _GONE]
        for start in range(0, len(live), AT_ONCE):
            keys = live[start : start + AT_ONCE]
            for key, entry in zip(keys, await asyncio.gather(*map(self._get, keys)), strict=True):
                self._put(key, entry)

    def _is_news(self, change: Change) -> bool:
        if self._key is not None and change.key != self._key:
            return False
        held = self._entries.get(change.key)
        return held is None or held.version < change.version

    def _put(self, key: str, entry: Entry | None) -> None:
        """Hold an entry, or None if the key is gone, and report it if it is another than before."""
        before = self._entries.pop(key, None) if entry is None else self._entries.get(key)
        if entry is not None:
            self._entries[key] = entry
        if before != entry:
            self._report(key, entry)

    def _report(self, key: str, entry: Entry | None) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(key, entry)
        except Exception as error:
            _log.error("on_change of the mirror of %r failed for %r", self.prefix, key, exc_info=error)

    async def _reload(self) -> None:
        """Load everything again, because the journal no longer has what happened in between."""
        before, self._entries = self._entries, await self._load()
        after = self._entries
        for key in [*(key for key in before if key not in after), *after]:
            if before.get(key) != after.get(key):
                self._report(key, after.get(key))

    async def _load(self) -> dict[str, Entry]:
        if self._key is not None:
            entry = await self._get(self._key)
            return {} if entry is None else {self._key: entry}
        entries: dict[str, Entry] = {}
        cursor: str | None = None
        while True:
            page = await listed(self._kv, self.prefix, limit=rules.MAX_LIMIT, cursor=cursor, values=True)
            entries.update(_readable(zip(page.keys, page.rows, strict=True)))
            if page.last is None:
                return entries
            cursor = cursor_after(page.last)

    async def _get(self, key: str) -> Entry | None:
        row, _ = await self._kv.store.get_at(self._kv.namespace, key)
        return None if row is None else dict(_readable([(key, row)])).get(key)


def _readable(rows: Iterable[tuple[str, Row]]) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of rows. One whose value can't be read is logged and left out."""
    for key, row in rows:
        try:
            yield key, entry_of(key, row)
        except Defect as error:
            _log.error("%s", error.message)


def _alive(entry: Entry, now: int) -> bool:
    return entry.expires_at is None or milliseconds(entry.expires_at) > now
