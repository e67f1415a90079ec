"""A session of the OpenAI Agents SDK whose items are entries of a namespace.

Several processes may use one session at once. Every change names the version of the session's head that
it was computed from and is one atomic batch, so that no item is lost, doubled or out of place. Items that do
not fit into an entry are blobs of the same plugin (`holdfast.integrations.overflow_values`).
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast import seams
from holdfast.errors import OutcomeUnknown, Refused, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import AT_ONCE, MOST_RACES, cut_by_size, get_all, pause_after
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import OverflowValues, Packed
from holdfast.integrations.turns import Turn, fence_of, lock_name

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
_REQUESTS: Final = KeyNames("request", parts=2)
_REMEMBERED: Final = 86_400
"""Seconds for which a session knows the ids of the requests that have added items."""
_UNANSWERED: Final = 3
"""Attempts at a call with a request id whose outcome is unknown."""
_DIGITS: Final = 12
_log = logging.getLogger("holdfast.integrations")
__all__ = ["HoldfastCompactionSession", "HoldfastSession", "SessionHead", "SessionSnapshot"]


class SessionHead(NamedTuple):
    """A state of a session: how many items it has, and which. Compare heads only for equality."""

    version: int
    items: int
    run: str
    """The prefix of the items' keys. It changes when a session is cleared or its items are replaced."""
    pops: int = 0
    """How many items were popped in this run."""

    def key(self, number: int) -> str:
        """Return the key of an item."""
        return _ITEMS.key(self.run, f"{number:0{_DIGITS}d}")


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
        self._lock = lock_name("session", session_id)
        self._owner = owner

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
        while True:
            head = await self._head()
            first = 0 if most is None else max(0, head.items - max(0, most))
            entries = await get_all(self._kv, [head.key(number) for number in range(first, head.items)])
            read = await self._values.read_all(entries)
            if None not in read or await self._head() == head:
                return SessionSnapshot([one[1] for one in read if one is not None], head)
            # Items were removed after the head was read.

    async def add_items(self, items: Sequence[TResponseInputItem], *, request_id: str | None = None) -> None:
        """Add items at the end. Up to 999 of them, of 256 KB together, are added all or none.

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
        for count, (start, stop) in enumerate(_parts(packed, beside=1 if request_id is None else 2)):
            sent = None if request_id is None else _REQUESTS.key(self.session_id, f"{request_id} {count}")
            try:
                await self._append(packed[start:stop], sent)
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
        new = SessionHead(0, 0, seams.token(16))
        packed = await self._values.pack_all(items)
        try:
            # Nobody sees these items before the head names their run.
            for start, stop in _parts(packed, beside=0):
                checks = [check for item in packed[start:stop] for check in item.checks]
                writes = _item_writes(new, start, packed[start:stop])
                await self._kv.batch(checks=checks, writes=writes, **self._provenance)
            await self._switch(new, len(packed), since)
        except (Refused, VersionConflict):
            await self._values.delete_all(_ITEMS.prefix(new.run))
            raise
        if since.version:
            await self._values.delete_all(_ITEMS.prefix(since.run))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none. No two callers get the same item."""
        lost, head = 0, await self._head()
        while head.items:
            last = head.key(head.items - 1)
            read = await self._values.read(await self._kv.get(last))
            stored = None if read is None else _stored(read[0])
            writes = [{"key": last, "delete": True}, *self._values.dead(stored)]
            try:
                await self._change(head, head._replace(items=head.items - 1, pops=head.pops + 1), [], writes)
            except VersionConflict:
                lost += 1
                await pause_after(lost)
                head = await self._head()
            else:
                await self._values.drop([stored])
                return None if read is None else read[1]
        return None

    async def clear_session(self) -> None:
        """Remove all items. Items that another process adds at the same time begin a new history."""
        while (head := await self._head()).version:
            try:
                await self._kv.delete(self._key, expected_version=head.version, **self._provenance)
            except VersionConflict:
                continue
            await self._values.delete_all(_ITEMS.prefix(head.run))
            return

    async def _append(self, items: Sequence[Packed], sent: str | None) -> None:
        checks = [check for item in items for check in item.checks]
        remembered: list[dict[str, Any]] = []
        if sent is not None:
            checks.append({"key": sent, "version": 0})
            remembered.append({"key": sent, "value": None, "ttl": _REMEMBERED})
        lost = unanswered = 0
        while True:
            head = await self._head()
            writes = [*_item_writes(head, head.items, items), *remembered]
            try:
                return await self._change(head, head._replace(items=head.items + len(items)), checks, writes)
            except VersionConflict as conflict:
                if sent is not None and any(failed.key == sent for failed in conflict.conflicts):
                    return await self._values.drop([item.stored for item in items])
                lost += 1
                if lost == MOST_RACES:
                    raise
                await pause_after(lost)
            except OutcomeUnknown:
                unanswered += 1
                if sent is None or unanswered == _UNANSWERED:
                    raise

    async def _switch(self, new: SessionHead, count: int, since: SessionHead) -> None:
        """Let the head name another run, to which the items that were added since then are copied."""
        lost, copied = 0, since.items
        while True:
            head = await self._head()
            same = head.version == 0 if since.version == 0 else head.run == since.run
            if not same or head.pops != since.pops or head.items < copied:
                raise VersionConflict(f"items of session {self.session_id!r} were removed or replaced")
            entries = await get_all(self._kv, [head.key(number) for number in range(copied, head.items)])
            for entry in entries:
                if entry is not None:
                    packed = await self._values.pack((await self._values.read(entry) or (None, None))[1])
                    writes = _item_writes(new, count, [packed])
                    await self._kv.batch(checks=packed.checks, writes=writes, **self._provenance)
                    count += 1
            copied = head.items
            try:
                return await self._change(head, new._replace(items=count), [], [])
            except VersionConflict:
                lost += 1
                if lost == MOST_RACES:
                    raise
                await pause_after(lost)

    @property
    def _provenance(self) -> dict[str, Any]:
        writer = {} if self._owner is None else {"writer": self._owner}
        return writer | fence_of(self._kv, self._lock)

    async def _change(
        self, head: SessionHead, new: SessionHead, checks: list[dict[str, Any]], writes: list[dict[str, Any]]
    ) -> None:
        """Write items together with the head, if the head is still the same."""
        value = {"items": new.items, "run": new.run} | ({"pops": new.pops} if new.pops else {})
        await self._kv.batch(
            checks=[{"key": self._key, "version": head.version}, *checks],
            writes=[*writes, {"key": self._key, "value": _HEADS.wrapped(value, self.session_id)}],
            **self._provenance,
        )

    async def _head(self) -> SessionHead:
        entry = await self._kv.get(self._key)
        if entry is None:
            # A run of its own keeps what is left of a session that was cleared out of the new one.
            return SessionHead(0, 0, seams.token(16))
        value = _HEADS.unwrapped(self._key, entry.value)
        return SessionHead(entry.version, value["items"], value["run"], value.get("pops", 0))


def _stored(entry: Entry) -> Any:
    return entry.value


def _parts(packed: Sequence[Packed], *, beside: int) -> list[tuple[int, int]]:
    """Cut items into runs that fit into one batch each, with `beside` further writes."""
    most = max(1, AT_ONCE - beside - sum(2 * len(one.checks) for one in packed))
    return list(cut_by_size([one.size for one in packed], most))


def _item_writes(head: SessionHead, start: int, items: Sequence[Packed]) -> list[dict[str, Any]]:
    writes: list[dict[str, Any]] = []
    for number, item in enumerate(items, start=start):
        key = head.key(number)
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
