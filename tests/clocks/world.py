"""Machines and a database whose clocks are set by hand, and stores that run on them.

Time is moved here and nowhere else. Stores look at their clocks when they are told to: nothing waits.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import Reading, SystemClock
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import Unavailable
from holdfast.pipeline import timekeeper
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from holdfast.engine import Engine

HOUR: Final = 3600.0
BEGIN: Final = 1_700_000_000.0


class World:
    """Steady time, and how far each clock is off: the wall clock of each machine, and the database's."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.database = 0.0
        self.reachable = True

    def machine(self, *, off: float = 0.0) -> Machine:
        """A machine whose wall clock is off by so many seconds."""
        return Machine(self, off)

    def shown_by_database(self, ticks: Callable[[], float]) -> Reading:
        """What the database's clock shows."""
        if not self.reachable:
            raise Unavailable("the database is away")
        return Reading((BEGIN + self.elapsed + self.database) * 1000, ticks())


class Machine:
    """A machine with a wall clock that can be set, and a name that it has until it is started again."""

    def __init__(self, world: World, off: float) -> None:
        self._world = world
        self._started = -50.0
        self.off = off
        self.name: str | None = "started once"

    def clock(self) -> SystemClock:
        """A clock of a store that is opened on it now."""
        started = self._started
        return SystemClock(
            wall=lambda: BEGIN + self._world.elapsed + self.off,
            ticks=lambda: self._world.elapsed - started,
            machine=self.name,
        )

    def start_again(self, *, ago: float = 5.0) -> None:
        """Have the machine started again, so many seconds ago, so that its ticks count from then."""
        self._started, self.name = self._world.elapsed - ago, "started again"


class Storage:
    """A storage that stores can be opened on, one after the other or several at a time.

    Args:
        make: Makes an engine on it.
        world: Whose database it is in, if it is in one.
    """

    def __init__(self, make: Callable[[], Engine], world: World) -> None:
        self.make = make
        self.world = world
        self.stores: list[Store] = []

    @contextlib.asynccontextmanager
    async def opened(self, machine: Machine, **options: Any) -> AsyncIterator[Store]:
        """A store on it for the length of a block, which sweeps only if it is told to."""
        async with Store(self.make(), clock=machine.clock(), **{"reap": False, **options}) as store:
            self.stores.append(store)
            try:
                yield store
            finally:
                self.stores.remove(store)

    async def passes(self, seconds: float) -> None:
        """Let time pass, with all open stores looking at their clocks every second."""
        while seconds > 0:
            step = min(seconds, 1.0)
            self.world.elapsed += step
            seconds -= step
            for store in self.stores:
                await store.pipeline.timekeeper.beat()


class TellingEngine(PostgresEngine):
    """PostgreSQL with a clock that is set by hand."""

    def __init__(self, dsn: str, world: World) -> None:
        super().__init__(dsn)
        self._world = world

    async def clock(self, ticks: Callable[[], float]) -> Reading:
        """What the world says."""
        return self._world.shown_by_database(ticks)


def make_storage(kind: str, world: World, folder: Path, request: pytest.FixtureRequest) -> Storage:
    """An empty storage of a kind."""
    if kind == "memory":
        engine = MemoryEngine()
        return Storage(lambda: engine, world)
    if kind == "sqlite":
        return Storage(lambda: SqliteEngine(folder / "store.db"), world)
    url = request.getfixturevalue("pg_store_url")
    return Storage(lambda: TellingEngine(url, world), world)


def quiet(patch: pytest.MonkeyPatch) -> None:
    """Have stores look at their clocks only when they are told to."""
    patch.setattr(timekeeper, "BEAT", HOUR)
