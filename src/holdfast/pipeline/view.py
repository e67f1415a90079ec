"""A view of one namespace for the duration of a read-only call.

Law: a view opens after the writes submitted before it have settled, and later writes wait until it ends. So a
call that reads through a view must not wait for a write, or both would wait forever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine import Engine, JournalPage, JournalQuery, Scan, Scanned
    from holdfast.rows import Address, Row


class View:
    """A read-only view.

    Args:
        engine: Where rows are kept.
        now: Returns the time.
    """

    def __init__(self, engine: Engine, now: Callable[[], int]) -> None:
        self._engine = engine
        self._now = now

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read the rows at these addresses. Returns None for each that is absent or expired."""
        return await self._engine.read(addresses, self._now())

    async def scan(self, query: Scan) -> Scanned:
        """Read rows of a range of keys of any space."""
        return await self._engine.scan(query, self._now())

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Read records of the journal."""
        return await self._engine.journal(query)
