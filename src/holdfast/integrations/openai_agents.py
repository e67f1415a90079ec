"""A session of the OpenAI Agents SDK whose items are entries of a namespace.

Several processes may use one session at once. Items are appended to a log of the session, so writers do not
wait for each other, and their order is the order of the commits. Whatever removes items names the version of
the session's head that it was computed from, so that no item is lost, doubled or out of place. Items that do
not fit into an entry are blobs of the same plugin (`holdfast.integrations.overflow_values`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NotRequired, TypeAlias, TypedDict

from msgspec import Meta

from holdfast import rules, seams
from holdfast.errors import Refused, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import AT_ONCE, Races, checked, cut_by_size, get_all, sent
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import OverflowValues, Packed
from holdfast.integrations.turns import Turn, fence_of, lock_name
from holdfast.model import number_in

with imported("openai-agents", "holdfast.integrations.openai_agents"):
    from agents.memory import SessionSettings
    from agents.memory.session import OpenAIResponsesCompactionArgs, SessionABC
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from agents import RunContextWrapper
    from agents.items import TResponseInputItem

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_HEADS: Final = KeyNames("session", parts=1)
_ITEMS: Final = KeyNames("item", parts=2)
_LOGS: Final = KeyNames("log", parts=2)
_DIGITS: Final = 12
_PAGE: Final = 10_000
_CLEARED: Final = 100
"""Items that are removed together with the head of a session that is cleared; the rest follows."""
_log = logging.getLogger("holdfast.integrations")
__all__ = ["HoldfastCompactionSession", "HoldfastSession", "SessionHead", "SessionSnapshot"]


_Number: TypeAlias = Annotated[int, Meta(ge=0, le=rules.MAX_LOG_NUMBER)]


class _StoredHead(TypedDict):
    """What the entry of a session holds; see `SessionHead`."""

    run: NotRequired[str]
    after: NotRequired[_Number]
    given: NotRequired[_Number]


class SessionHead(NamedTuple):
    """A state of a session. Compare heads only for equality.

    The session's items are those of the run, if it has one, and then those of the log after a number. Nothing
    is stored of a head until items are removed or replaced for the first time.
    """

    version: int = 0
    """The version of the entry that has the rest; 0 if there is none."""
    run: str | None = None
    """The prefix of the items that have replaced older ones."""
    after: int = 0
    """The items of the log up to this number belong to the session no more."""
    given: int = 0
    """The largest number of an item that was popped or replaced. The log gives greater ones."""
    newest: tuple[str, int] | None = None
    """The key and the version of the newest item, in the head of a snapshot."""

    @property
    def value(self) -> dict[str, Any]:
        """What is stored of it."""
        numbers = {"after": self.after, "given": self.given}
        return ({} if self.run is None else {"run": self.run}) | {k: v for k, v in numbers.items() if v}


class SessionSnapshot(NamedTuple):
    """The items of a session, and the head to give to `HoldfastSession.replace_items`."""

    items: list[TResponseInputItem]
    head: SessionHead


class HoldfastSession(SessionABC):
    """The history of a conversation with an agent.

    Args:
        session_id: Name of the session, any text.
        kv: The handle of the namespace to keep it in, from `Store.kv`.
        session_settings: How many items a run gets to see; a dictionary of settings also serves.
        owner: Name of the worker. It is the `last_writer` of what this session writes, so that the history
            of an entry tells who wrote it.

    Example:
        `await Runner.run(agent, "Hello", session=HoldfastSession("ada", store.kv("desk")))`
    """

    def __init__(
        self,
        session_id: str,
        kv: KV,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        owner: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(
            session_settings or SessionSettings()
        )
        self._kv = kv
        self._values = OverflowValues(kv, _stored)
        self._key = _HEADS.key(session_id)
        self._items = _LOGS.prefix(session_id)
        self._lock = lock_name("session", session_id)
        self._owner = owner
        self._known: SessionHead | None = None
        """The head as it was last seen."""

    def turn(self, *, ttl: float = 30, wait: float | None = None) -> Turn:
        """Get the turn of this session, to run an agent in: another worker that asks for it waits.

        Everything that is written to the session in the block is refused by the store once another worker
        has taken the turn, which happens if this one was stopped for longer than `ttl`.

        Args:
            ttl: Seconds after which the turn of a worker that has stopped is over. It is renewed meanwhile.
            wait: Seconds to wait before `Busy` is raised; None waits for ever.

        Returns:
            A context manager for `async with`.

        Example:
            `async with session.turn(): await Runner.run(agent, "Hello", session=session)`
        """
        return Turn(self._kv, self._lock, ttl=ttl, wait=wait, owner=self._owner)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Get the items, or the latest of them, the oldest first.

        Args:
            limit: Largest number of items; that of the settings if not given.
        """
        return (await self.snapshot(limit)).items

    async def snapshot(self, limit: int | None = None) -> SessionSnapshot:
        """Get the items as `get_items` does, and the head that they belong to."""
        most = resolve_session_limit(limit, self.session_settings)
        head = await self._head() if self._known is None else self._known
        while True:
            # The newest item belongs to the head, also if no item was requested.
            entries = await self._entries(head, None if most is None else max(1, most))
            read = await self._values.read_all(entries)
            first = entries[:1]
            state, *still = await get_all(self._kv, [self._key, *(entry.key for entry in first)])
            seen, head = head, self._learn(state)
            # A session that was cleared has no head either, but then its first item is gone.
            if head.version == seen.version and (head.version or _versions(still) == _versions(first)):
                items = [one[1] for one in read if one is not None]
                newest = (entries[-1].key, entries[-1].version) if entries else None
                return SessionSnapshot([] if most == 0 else items, head._replace(newest=newest))
            # Items were removed after the head was read.

    async def add_items(self, items: Sequence[TResponseInputItem], *, request_id: str | None = None) -> None:
        """Add items at the end. Up to 1,000 of them, of 256 KB together, are added all or none.

        An item of more than 49,152 bytes becomes a blob. It counts as three items, of a few bytes.

        Args:
            items: The items.
            request_id: Names this call. If a call of this id was made in the last 24 hours, nothing is added,
                so that a call whose answer was lost can be made again.

        Raises:
            ValidationError: An item is no JSON value.
            ValueTooLarge: An item has more than 67,108,864 bytes as JSON.
            Fenced: Another worker has taken the turn that this call was made in.
        """
        packed = await self._values.pack_all(items)
        for count, (start, stop) in enumerate(_parts(packed)):
            once = None if request_id is None else _intention(self.session_id, request_id, count)
            try:
                await self._append(packed[start:stop], once)
            except (Refused, VersionConflict):
                await self._values.drop([one.stored for one in packed[start:]])
                raise

    async def replace_items(self, items: Sequence[TResponseInputItem], *, since: SessionHead) -> None:
        """Replace what was there by other items, all or none. Items that were added since then stay.

        Args:
            items: The items that come first from now on, such as a summary.
            since: The head of the snapshot that they were made from.

        Raises:
            VersionConflict: Items were popped, cleared or replaced since then. Nothing was changed.
            ValidationError: An item is no JSON value.
            ValueTooLarge: An item has more than 67,108,864 bytes as JSON.
            Fenced: Another worker has taken the turn that this call was made in.

        Example:
            `await session.replace_items([summary], since=snapshot.head)`
        """
        last = self._last(since)
        new = SessionHead(0, seams.token(16) if items else None, last, max(since.given, last))
        packed = await self._values.pack_all(items)
        try:
            # Nobody sees these items before the head names their run.
            for start, stop in _parts(packed):
                checks = [check for item in packed[start:stop] for check in item.checks]
                writes = _run_writes(new.run, start, packed[start:stop])
                await self._kv.batch(checks=checks, writes=writes, **self._provenance)
            there = [] if since.newest is None else [_check(*since.newest)]
            await self._change(since, new, there, [])
        except (Refused, VersionConflict):
            await self._remove(new.run, 0)
            raise
        await self._remove(since.run, last)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none. No two callers get the same item."""
        races, head = Races(), await self._head() if self._known is None else self._known
        while True:
            entries = await self._entries(head, 1)
            read = await self._values.read(entries[0]) if entries else None
            if read is None:
                seen, head = head, await self._head()
                if head.version == seen.version:
                    return None
                continue
            entry = read[0]
            item: TResponseInputItem = read[1]
            stored = _stored(entry)
            given = max(head.given, self._last(head._replace(newest=(entry.key, entry.version))))
            checks = [_check(entry.key, entry.version), _check(f"{self._items}{given + 1:0{_DIGITS}d}", 0)]
            writes = [{"key": entry.key, "delete": True}, *self._values.dead(stored)]
            try:
                await self._change(head, head._replace(given=given), checks, writes)
            except VersionConflict as conflict:
                await races.lose(conflict)
                head = await self._head()
            else:
                await self._values.drop([stored])
                return item

    async def clear_session(self) -> None:
        """Remove all items. Items that another process adds at the same time begin a new history."""
        while True:
            head = await self._head()
            newest = await self._listed(self._items, _CLEARED, reverse=True)
            if not head.version and not newest:
                return
            last = max([head.after, *(_number(entry.key) for entry in newest)])
            try:
                # A full namespace takes the head only if something is deleted with it.
                gone = [{"key": entry.key, "delete": True} for entry in newest]
                gone += self._values.dead_in(newest)
                version = await self._change(
                    head, SessionHead(0, None, last, max(head.given, last)), [], gone
                )
            except VersionConflict:
                continue
            await self._values.drop(self._values.parts(newest))
            await self._remove(head.run, last)
            with contextlib.suppress(VersionConflict):  # another worker has changed the head since
                await self._kv.delete(self._key, expected_version=version, **self._provenance)
            return

    async def _append(self, items: Sequence[Packed], once: str | None) -> None:
        checks = [check for item in items for check in item.checks]
        writes: list[dict[str, Any]] = [{"append": self._items[:-1], "value": item.stored} for item in items]
        # The key of a blob's item is not known yet.
        writes += [write for item in items for write in item.named(self._items)]
        provenance = self._provenance if once is None else {**self._provenance, "once": once}
        send = partial(self._kv.batch, checks=checks, writes=writes, **provenance)
        result = await (send() if once is None else sent(send))
        for item, number in zip(items, result.numbers, strict=False):
            await self._values.settle(item, f"{self._items}{number:0{_DIGITS}d}")

    async def _entries(self, head: SessionHead, most: int | None) -> list[Entry]:
        """Read the newest items, the oldest first, of a head that may have changed since it was read."""
        run = None if head.run is None else _ITEMS.prefix(head.run)
        if most is None:
            older = [] if run is None else await self._listed(run, None)
            return older + await self._listed(self._items, None, after=head.after or None)
        newest = await self._listed(self._items, most, reverse=True)
        newest = [entry for entry in newest if _number(entry.key) > head.after]
        if run is not None and len(newest) < most:
            newest += await self._listed(run, most - len(newest), reverse=True)
        return newest[::-1]

    async def _listed(
        self, prefix: str, most: int | None, *, reverse: bool = False, after: int | None = None
    ) -> list[Entry]:
        """List the entries below a prefix, or as many of them as are wanted."""
        entries: list[Entry] = []
        cursor = None
        while most is None or len(entries) < most:
            limit = _PAGE if most is None else min(_PAGE, most - len(entries))
            page = await self._kv.list(
                prefix, limit=limit, cursor=cursor, after=after, reverse=reverse, values=True
            )
            # Another program may have set a key below the log that is no item of it.
            entries += [entry for entry in page.entries or () if _is_item(entry.key, prefix)]
            cursor, after = page.cursor, None
            if cursor is None:
                break
        return entries

    def _last(self, head: SessionHead) -> int:
        """Return the number of the newest item of the log, as the head of a snapshot knows it."""
        if head.newest is None or not head.newest[0].startswith(self._items):
            return head.after
        return _number(head.newest[0])

    async def _remove(self, run: str | None, last: int) -> None:
        """Remove items that belong to the session no more: those of a run, and of the log up to a number."""
        if run is not None:
            await self._values.delete_all(_ITEMS.prefix(run))
        if last:
            await self._values.delete_all(self._items, until=f"{self._items}{last:0{_DIGITS}d}")

    @property
    def _provenance(self) -> dict[str, Any]:
        writer = {} if self._owner is None else {"writer": self._owner}
        return writer | fence_of(self._kv, self._lock)

    async def _change(
        self, head: SessionHead, new: SessionHead, checks: list[dict[str, Any]], writes: list[dict[str, Any]]
    ) -> int:
        """Write the head and more, if the head is still the same. Returns the head's new version."""
        result = await self._kv.batch(
            checks=[_check(self._key, head.version), *checks],
            writes=[{"key": self._key, "value": _HEADS.wrapped(new.value, self.session_id)}, *writes],
            **self._provenance,
        )
        version = result.versions[0]
        assert version is not None
        self._known = new._replace(version=version, newest=None)
        return version

    async def _head(self) -> SessionHead:
        return self._learn(await self._kv.get(self._key))

    def _learn(self, entry: Entry | None) -> SessionHead:
        """Return the head in its entry, and remember it."""
        if entry is None:
            self._known = SessionHead()
        else:
            value = _HEADS.unwrapped(self._key, entry.value)
            checked(value, _StoredHead, f"the head of a session, in the entry {self._key!r}")
            numbers = value.get("after", 0), value.get("given", 0)
            self._known = SessionHead(entry.version, value.get("run"), *numbers)
        return self._known


def _versions(entries: Sequence[Entry | None]) -> list[int | None]:
    """Return the versions of entries."""
    return [None if entry is None else entry.version for entry in entries]


def _stored(entry: Entry) -> Any:
    return entry.value


def _check(key: str, version: int) -> dict[str, Any]:
    return {"key": key, "version": version}


def _is_item(key: str, prefix: str) -> bool:
    return len(key) == len(prefix) + _DIGITS and number_in(key) is not None


def _number(key: str) -> int:
    return number_in(key) or 0


def _intention(*names: object) -> str:
    """Return an id for `once`, of a length that it may have."""
    return f"add_items/{blake2b(json.dumps(names).encode(), digest_size=32).hexdigest()}"


def _parts(packed: Sequence[Packed]) -> list[tuple[int, int]]:
    """Cut items into runs that fit into one batch each."""
    most = max(1, AT_ONCE - sum(2 * len(one.checks) for one in packed))
    return list(cut_by_size([one.size for one in packed], most))


def _run_writes(run: str | None, start: int, items: Sequence[Packed]) -> list[dict[str, Any]]:
    assert run is not None
    writes: list[dict[str, Any]] = []
    for number, item in enumerate(items, start=start):
        key = _ITEMS.key(run, f"{number:0{_DIGITS}d}")
        writes += [{"key": key, "value": item.stored}, *item.named(key)]
    return writes


class HoldfastCompactionSession(HoldfastSession):
    """A session whose history is replaced by a shorter one when it has grown long.

    The SDK's runner compacts a session of this kind after a run. Items that other workers add while the
    shorter history is being made stay behind it, and if they remove items meanwhile, nothing is replaced.

    Args:
        session_id: Name of the session, any text.
        kv: The handle of the namespace to keep it in, from `Store.kv`.
        compact: Takes the items, the oldest first, and returns those to keep instead.
        threshold: Number of items from which they are compacted.
        **options: `session_settings` and `owner`, see `HoldfastSession`.

    Example:
        `session = HoldfastCompactionSession("ada", store.kv("desk"), compact=summarized, threshold=40)`
    """

    def __init__(
        self,
        session_id: str,
        kv: KV,
        *,
        compact: Callable[[list[TResponseInputItem]], Awaitable[Sequence[TResponseInputItem]]],
        threshold: int = 40,
        **options: Any,
    ) -> None:
        super().__init__(session_id, kv, **options)
        self._compact = compact
        self._threshold = threshold

    async def run_compaction(
        self,
        args: OpenAIResponsesCompactionArgs | None = None,
        *,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Compact the history if it has enough items, or in any case with `{"force": True}`.

        Args:
            args: What the runner says about the last response; `force` alone is used.
            wrapper: The run, which is not used.
        """
        snapshot = await self.snapshot(sys.maxsize)
        if not snapshot.items or (len(snapshot.items) < self._threshold and not (args or {}).get("force")):
            return
        items = await self._compact(snapshot.items)
        try:
            await self.replace_items(items, since=snapshot.head)
        except VersionConflict:
            _log.info("session %r was not compacted: its items have changed meanwhile", self.session_id)
