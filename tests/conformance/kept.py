"""Connections to PostgreSQL that stores leave to the next one, since a new one takes longer than most tests.

A connection is reset as asyncpg's own pool does it before the next store has it. One that a store did not
close in order is not kept. All stores that share connections run on one event loop.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import pytest
import pytest_asyncio

from holdfast.engines.postgres import connections
from holdfast.testing.conformance.fixtures import Fixtures, MakeStore, Opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.clock import ManualClock

    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection

_connect: Final = asyncpg.connect


class Kept:
    """The connections that no store has, by their addresses."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, list[Lent]] = defaultdict(list)

    async def connect(self, place: str, **settings: Any) -> Lent:
        """Give a connection that was handed back, or a new one; all have the same settings."""
        while idle := self._idle[place]:
            if not (known := idle.pop()).is_closed():
                return known
        new: Lent = await _connect(place, connection_class=Lent, **settings)
        new.home = idle
        return new

    async def aclose(self) -> None:
        """Close those that were handed back."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().end()


class Lent(_Connection):
    """A connection that goes back when its store closes it."""

    home: list[Lent]

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncpg has it
        """Reset the connection and hand it back."""
        await self.reset(timeout=timeout)
        self.home.append(self)

    async def end(self) -> None:
        """Close it in fact."""
        await super().close()


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def kept() -> AsyncIterator[None]:
    """Let the stores of a class of tests share connections."""
    kept = Kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "asyncpg", SimpleNamespace(connect=kept.connect))
        yield
    await kept.aclose()


class OnOneLoop(Fixtures):
    """Tests that run on one event loop, one after the other. It goes before the rules in a class."""

    @pytest_asyncio.fixture(loop_scope="class")
    async def opened(  # type: ignore[override]  # mypy takes pytest's decorator for another kind of thing
        self, kept: None, make_store: MakeStore, clock: ManualClock
    ) -> AsyncIterator[Opened]:
        """The storage of a test, opened on the loop of all tests."""
        opened = Opened(make_store, clock, await make_store(clock))
        yield opened
        await opened.store.aclose()
