"""A look at one namespace for as long as a call lasts that only reads.

Law: a view is made after the writes that were handed over before it have settled, and those that come
meanwhile wait for its end. So whoever reads through one waits for no write, or both would wait for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine import Engine, JournalPage, JournalQuery, Scan, Scanned
    from holdfast.rows import Address, Row


class View:
    """What a call sees.

    Args:
        engine: Where rows are.
        now: Tells the time.
    """

    def __init__(self, engine: Engine, now: Callable[[], int]) -> None:
        self._engine = engine
        self._now = now

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """The rows at these addresses that are alive."""
        return await self._engine.read(addresses, self._now())

    async def scan(self, query: Scan) -> Scanned:
        """Rows of a range of keys of any space."""
        return await self._engine.scan(query, self._now())

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Records of the journal."""
        return await self._engine.journal(query)
