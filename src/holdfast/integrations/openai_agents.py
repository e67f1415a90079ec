"""A session of the OpenAI Agents SDK whose items are entries of a namespace.

Law: several processes may use one session at once. Every change names the version of the session's head that
it was computed from and is one atomic batch, so that no item is lost, doubled or out of place.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import VersionConflict
from holdfast.extras import imported
from holdfast.integrations.many import AT_ONCE, emptied, found, runs
from holdfast.integrations.names import Names
from holdfast.integrations.swapping import pause_after

with imported("openai-agents", "holdfast.integrations.openai_agents"):
    from agents.memory import SessionSettings
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import resolve_session_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.items import TResponseInputItem

    from holdfast.handles.kv import KV

_HEADS: Final = Names("session", parts=1)
_ITEMS: Final = Names("item", parts=2)
_DIGITS: Final = 12


class HoldfastSession(SessionABC):
    """The history of a conversation with an agent.

    Args:
        session_id: Name of the session, any text.
        kv: The handle of the namespace to keep it in, from `Store.kv`.
        session_settings: How many items a run gets to see.

    Example:
        `await Runner.run(agent, "Hello", session=HoldfastSession("ada", store.kv("desk")))`
    """

    def __init__(self, session_id: str, kv: KV, *, session_settings: SessionSettings | None = None) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._kv = kv
        self._key = _HEADS.key(session_id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Get the items, or the latest of them, the oldest first.

        Args:
            limit: Largest number of items; that of the settings if not given.
        """
        most = resolve_session_limit(limit, self.session_settings)
        head = await self._head()
        first = 0 if most is None else max(0, head.items - max(0, most))
        entries = await found(self._kv, [head.key(number) for number in range(first, head.items)])
        return [entry.value for entry in entries if entry is not None]

    async def add_items(self, items: Sequence[TResponseInputItem]) -> None:
        """Add items at the end. Up to 999 of them, of 256 KB together, are added all or none.

        Raises:
            ValueTooLarge: An item is larger than a value may be.
        """
        sizes = [len(json.dumps(item)) for item in items]
        for start, stop in runs(sizes, AT_ONCE - 1):
            await self._append(items[start:stop])

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it; None if there is none. No two callers get the same item."""
        lost, head = 0, await self._head()
        while head.items:
            last = head.key(head.items - 1)
            entry = await self._kv.get(last)
            try:
                await self._change(head, head.items - 1, [{"key": last, "delete": True}])
            except VersionConflict:
                lost += 1
                await pause_after(lost)
                head = await self._head()
            else:
                return None if entry is None else entry.value
        return None

    async def clear_session(self) -> None:
        """Remove all items. Items that another process adds at the same time begin a new history."""
        while (head := await self._head()).version:
            try:
                await self._kv.delete(self._key, expected_version=head.version)
            except VersionConflict:
                continue
            await emptied(self._kv, _ITEMS.prefix(head.run))
            return

    async def _append(self, items: Sequence[TResponseInputItem]) -> None:
        lost = 0
        while True:
            head = await self._head()
            writes = [
                {"key": head.key(number), "value": item}
                for number, item in enumerate(items, start=head.items)
            ]
            try:
                return await self._change(head, head.items + len(items), writes)
            except VersionConflict:
                lost += 1
                await pause_after(lost)

    async def _change(self, head: _Head, count: int, writes: list[dict[str, Any]]) -> None:
        """Write items together with the head, if the head is still the same."""
        await self._kv.batch(
            checks=[{"key": self._key, "version": head.version}],
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
            return _Head(0, 0, uuid.uuid4().hex)
        value = _HEADS.unwrapped(self._key, entry.value)
        return _Head(entry.version, value["items"], value["run"])


class _Head(NamedTuple):
    """The number of items of a session, and the prefix of their keys."""

    version: int
    items: int
    run: str

    def key(self, number: int) -> str:
        return _ITEMS.key(self.run, f"{number:0{_DIGITS}d}")
