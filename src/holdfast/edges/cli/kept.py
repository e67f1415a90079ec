"""The store that a prompt keeps open between commands.

Law: one store is open at a time. It is opened as the first command needs it: for reading until a command
writes, and for writing from then on. Until a store exists, each command checks for it again.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from holdfast.edges.cli.schema import schema_of
from holdfast.errors import Unsupported
from holdfast.registry import is_service

if TYPE_CHECKING:
    from collections.abc import Callable

    import holdfast
    from holdfast.edges.cli.target import Place

_HELD = (
    "this prompt now has the right to write to {}, and keeps it until it ends: "
    "no other process can write there meanwhile"
)


class KeptStore:
    """Keeps the store of an address open.

    Args:
        address: The store.
        tell: Called with messages for the user.
    """

    def __init__(self, address: str, tell: Callable[[str], None]) -> None:
        self._address = address
        self._tell = tell
        self._open = AsyncExitStack()
        self._store: holdfast.Store | None = None
        self._writes = False

    def keeps(self, place: Place) -> bool:
        """See `Keeper.keeps`."""
        return place.address == self._address

    async def to_write(self, place: Place, *, creates: bool) -> holdfast.Store:
        """See `Keeper.to_write`."""
        if self._store is None or not self._writes:
            await self.release()
            self._store = await self._open.enter_async_context(place.open_alone(creates=creates))
            self._writes = True
            self._tell_if_held()
        return self._store

    async def to_look(self, place: Place, *, keys: bool) -> holdfast.Store | None:
        """See `Keeper.to_look`."""
        if keys and not self._writes:
            return None
        if self._store is None:
            if is_service(self._address) or self._address.startswith("memory://"):
                return await self.to_write(place, creates=True)
            if not await self._is_there():
                return None
            self._store = await self._open.enter_async_context(place.look_alone())
        return self._store

    async def release(self) -> None:
        """Close the store if it is open; the next command opens it again."""
        self._store, self._writes = None, False
        await self._open.aclose()

    async def _is_there(self) -> bool:
        try:
            return await schema_of(self._address).holds_store()
        except Unsupported:
            return True

    def _tell_if_held(self) -> None:
        """Inform the user that writing to a file locks out others, unless a service serves the file."""
        try:
            schema = schema_of(self._address)
        except Unsupported:
            return
        if schema.file is not None and schema.served_at() is None:
            self._tell(_HELD.format(schema.place))
