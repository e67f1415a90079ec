"""A session of the OpenAI Agents SDK whose items are entries of a namespace.

Several processes may use one session at once. Every change names the version of the session's head that
it was computed from and is one atomic batch, so that no item is lost, doubled or out of place. Items that do
not fit into an entry are blobs of the same plugin (`holdfast.integrations.overflow_values`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast import seams
from holdfast.errors import Refused, VersionConflict
from holdfast.extras import imported
from holdfast.integrations.entries import AT_ONCE, MOST_RACES, cut_by_size, get_all, pause_after
from holdfast.integrations.key_names import KeyNames
from holdfast.integrations.overflow_values import OverflowValues, Packed

with imported("openai-agents", "holdfast.integrations.openai_agents"):
    from agents.memory import SessionSettings
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.items import TResponseInputItem

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_HEADS: Final = KeyNames("session", parts=1)
_ITEMS: Final = KeyNames("item", parts=2)
_DIGITS: Final = 12


class HoldfastSession(SessionABC):
    """The history of a conversation with an agent.

    Args:
        session_id: Name of the session, any text.
        kv: The handle of the namespace to keep it in, from `Store.kv`.
        session_settings: How many items a run gets to see; a dictionary of settings also serves.

    Example:
        `await Runner.run(agent, "Hello", session=HoldfastSession("ada", store.kv("desk")))`
    """

    def __init__(
        self, session_id: str, kv: KV, *, session_settings: SessionSettings | dict[str, Any] | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(
            session_settings or SessionSettings()
        )
        self._kv = kv
        self._values = OverflowValues(kv, _stored)
        self._key = _HEADS.key(session_id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Get the items, or the latest of them, the oldest first.

        Args:
            limit: Largest number of items; that of the settings if not given.
        """
        most = resolve_session_limit(limit, self.session_settings)
        head = await self._head()
        first = 0 if most is None else max(0, head.items - max(0, most))
        entries = await get_all(self._kv, [head.key(number) for number in range(first, head.items)])
        return [read[1] for read in await self._values.read_all(entries) if read is not None]

    async def add_items(self, items: Sequence[TResponseInputItem]) -> None:
        """Add items at the end. Up to 999 of them, of 256 KB together, are added all or none.

        An item of more than 49,152 bytes becomes a blob. It counts as three items, of a few bytes.

        Raises:
            ValidationError: An item is no JSON value.
            ValueTooLarge: An item has more than 67,108,864 bytes as JSON.
        """
        packed = await self._values.pack_all(items)
        most = max(1, AT_ONCE - 1 - sum(2 * len(one.checks) for one in packed))
        for start, stop in cut_by_size([one.size for one in packed], most):
            try:
                await self._append(packed[start:stop])
            except (Refused, VersionConflict):
                await self._values.drop([one.stored for one in packed[start:]])
                raise

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none. No two callers get the same item."""
        lost, head = 0, await self._head()
        while head.items:
            last = head.key(head.items - 1)
            read = await self._values.read(await self._kv.get(last))
            stored = None if read is None else _stored(read[0])
            writes = [{"key": last, "delete": True}, *self._values.dead(stored)]
            try:
                await self._change(head, head.items - 1, [], writes)
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
                await self._kv.delete(self._key, expected_version=head.version)
            except VersionConflict:
                continue
            await self._values.delete_all(_ITEMS.prefix(head.run))
            return

    async def _append(self, items: Sequence[Packed]) -> None:
        checks = [check for item in items for check in item.checks]
        lost = 0
        while True:
            head = await self._head()
            writes = []
            for number, item in enumerate(items, start=head.items):
                key = head.key(number)
                writes += [{"key": key, "value": item.stored}, *item.named(key)]
            try:
                return await self._change(head, head.items + len(items), checks, writes)
            except VersionConflict:
                lost += 1
                if lost == MOST_RACES:
                    raise
                await pause_after(lost)

    async def _change(
        self, head: _Head, count: int, checks: list[dict[str, Any]], writes: list[dict[str, Any]]
    ) -> None:
        """Write items together with the head, if the head is still the same."""
        await self._kv.batch(
            checks=[{"key": self._key, "version": head.version}, *checks],
            writes=[
                *writes,
                {
                    "key": self._key,
                    "value": _HEADS.wrapped({"items": count, "run": head.run}, self.session_id),
                },
            ],
        )

    async def _head(self) -> _Head:
        entry = await self._kv.get(self._key)
        if entry is None:
            # A run of its own keeps what is left of a session that was cleared out of the new one.
            return _Head(0, 0, seams.token(16))
        value = _HEADS.unwrapped(self._key, entry.value)
        return _Head(entry.version, value["items"], value["run"])


def _stored(entry: Entry) -> Any:
    return entry.value


class _Head(NamedTuple):
    """The number of items of a session, and the prefix of their keys."""

    version: int
    items: int
    run: str

    def key(self, number: int) -> str:
        return _ITEMS.key(self.run, f"{number:0{_DIGITS}d}")
