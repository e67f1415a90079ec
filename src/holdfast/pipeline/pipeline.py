"""The pipeline: the single entry for every command, and reads that are ordered with them.

Law: a read sees every write that was accepted before it. Handles hold the pipeline. `entrance` takes
commands, and `holdfast.store` opens and closes it and owns the background tasks.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from holdfast import rules
from holdfast.commands import Get, Got
from holdfast.engine import LATER, Later
from holdfast.errors import ValueTooLarge
from holdfast.pace import GETS_PER_TURN
from holdfast.pipeline.listing import select
from holdfast.pipeline.view import View
from holdfast.rows import KV as KV_SPACE
from holdfast.rows import Address, Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from holdfast.commands import Result
    from holdfast.engine import (
        Due,
        Filter,
        JournalPage,
        JournalQuery,
        Scan,
        Scanned,
        Selected,
    )


from holdfast.pipeline.entrance import Entrance

GET_AT_ONCE = 128
"""Number of a call's keys that are read at a time, since each value may be large."""


class Pipeline(Entrance):
    """The kernel of a store. See `Entrance` for its arguments."""

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """Get the row of an entry, and the time at which it was read.

        A key with a pending write is read after that write, so that a caller sees a write that it did not
        wait for.

        Args:
            namespace: The namespace's full name.
            key: The entry's key, in full.

        Returns:
            The row, or None if there is none or it has expired; and the store's time.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
            Unavailable: The store is not open, or its time is not known.
        """
        self._rates.admit(namespace)
        if self._batcher.writing(namespace, key):
            row = await self._row_of(self.execute(Get(namespace=namespace, key=key)))
            return row, self.now()
        now = self._clock.now()
        address = Address(namespace, KV_SPACE, key)
        seen = self._reading().glance([address], now)
        if isinstance(seen, Later):
            with self._batcher.reading(namespace, [key]) if self._batching else nullcontext():
                seen = await self._engine.read([address], now)
            if self.capabilities.owns_clock:
                await self.timekeeper.listen()
                now = self.now()
        else:
            self._gets += 1
            if self._gets % GETS_PER_TURN == 0:
                await asyncio.sleep(0)
        return seen[0], now

    def get_first(self, namespace: str, key: str) -> Awaitable[Row | None]:
        """Get the row of an entry as it is before the pending writes of its key, which came after this.

        Args:
            namespace: The namespace's full name.
            key: The entry's key, in full.

        Returns:
            The row to come, or None if there is none or it has expired.

        Raises:
            Unavailable: The store is closed.
        """
        return self._row_of(self._batcher.submit_first(Get(namespace=namespace, key=key)))

    async def _row_of(self, found: Awaitable[Result]) -> Row | None:
        result = await found
        assert isinstance(result, Got)
        return result.row if result.row is not None and result.row.alive(self.now()) else None

    def peek(self, namespace: str, key: str) -> tuple[Row | None, int] | Later:
        """Get the row of an entry as `get_at` does, from a thread other than the event loop's.

        A write that is pending in another thread may or may not be seen.

        Args:
            namespace: The namespace's full name.
            key: The entry's key, in full.

        Returns:
            The row and the store's time; or `LATER` if the loop has to be asked, which also refuses.
        """
        if self._peeker is None or self._refusal is not None or not self._rates.unlimited(namespace):
            return LATER
        now = self._clock.now()
        row = self._peeker.peek(Address(namespace, KV_SPACE, key), now)
        if isinstance(row, Later):
            return LATER
        self.timekeeper.answered = True
        return row, now

    def glance(self, wanted: Sequence[tuple[str, str]]) -> list[Row | None] | Later:
        """Read entries as they are now, if that is possible without waiting.

        Args:
            wanted: Pairs of a namespace and a key.

        Returns:
            A row or None for each pair, by position; or `LATER` if the storage would have to be waited for.

        Raises:
            Unavailable: The store is not open, or its time is not known.
        """
        addresses = [Address(namespace, KV_SPACE, key) for namespace, key in wanted]
        return self._reading().glance(addresses, self.now())

    async def get_all(self, namespace: str, keys: Sequence[str]) -> list[Row | None]:
        """Read several entries of a namespace.

        Args:
            namespace: The namespace's full name.
            keys: The keys, in full.

        Returns:
            A row or None for each key, by position.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
            ValueTooLarge: The values are larger than an answer may be.
        """
        self._rates.admit(namespace)
        rows: list[Row | None] = []
        with self._batcher.reading(namespace, keys):
            await self._batcher.settled(namespace)
            addresses = [Address(namespace, KV_SPACE, key) for key in keys]
            for start in range(0, len(addresses), GET_AT_ONCE):
                rows += await self._reading().read(addresses[start : start + GET_AT_ONCE], self.now())
                size = sum(row.size for row in rows if row is not None)
                if size > rules.MAX_TRANSFER_BYTES:
                    raise ValueTooLarge(
                        f"the values of the first {len(rows)} keys hold {size} bytes; at most "
                        f"{rules.MAX_TRANSFER_BYTES} fit a reply"
                    )
        return rows

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """Read the entries of a range of keys that match a filter.

        Args:
            query: The range.
            wanted: The filter; None for every entry.

        Returns:
            The keys and rows that were found, and where to continue.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self._rates.admit(query.namespace)
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            if (service := self.service) is not None:
                return await service.select(query, wanted)
            return await select(self._reading(), query, wanted, self.now)

    @asynccontextmanager
    async def view(self, namespace: str) -> AsyncIterator[View]:
        """Open a view of a namespace. It sees every write accepted before it, and none of this store's after.

        Nothing may be written while the view is open: the write would wait for its end.

        Args:
            namespace: The namespace's full name.

        Yields:
            The view.
        """
        with self._batcher.reading(namespace):
            await self._batcher.settled(namespace)
            yield View(self._reading(), self.now)

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read rows of any kind.

        Args:
            addresses: Where the rows are.

        Returns:
            A row for each address, by position; None if there is none or it has expired.
        """
        for namespace in {address.namespace for address in addresses}:
            await self._batcher.settled(namespace)
        return await self._reading().read(addresses, self.now())

    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read parts of blobs with their bytes. They never change, so this waits for no write.

        Args:
            addresses: Where the parts are.

        Returns:
            A row for each address, by position; None if there is none.
        """
        return await self._reading().read(addresses, self.now())

    async def scan(self, query: Scan) -> Scanned:
        """Read rows of a range of keys of any space.

        Args:
            query: The range.

        Returns:
            The keys and rows that were found.
        """
        await self._batcher.settled(query.namespace)
        return await self._reading().scan(query, self.now())

    async def due(self, namespace: str, space: str, limit: int) -> list[Due]:
        """Find rows of a space that are past their deadline.

        Args:
            namespace: The namespace's full name.
            space: The space.
            limit: Largest number of rows.

        Returns:
            The rows, the longest overdue first.
        """
        return await self._reading().due(space, self.now(), limit=limit, namespace=namespace)

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Read records of a namespace's journal.

        Args:
            query: Which records.

        Returns:
            A page of records.
        """
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await self._reading().journal(query)
