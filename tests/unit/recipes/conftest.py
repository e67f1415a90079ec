"""A store at a standstill in time, on storage that fails when it is told to, for tests of recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.clock import ManualClock
from holdfast.handles.recipes import lease, lock
from holdfast.store import Store
from tests.unit.recipes.faults import Faulty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.handles.kv import KV


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have waits look at the clock all the time, so that a test sees every step and none takes long."""
    for module in (lease, lock):
        monkeypatch.setattr(module, "GLANCE", 0)
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)


@pytest.fixture
def clock() -> ManualClock:
    """The store's time."""
    return ManualClock()


@pytest.fixture
def engine() -> Faulty:
    """The storage."""
    return Faulty()


@pytest.fixture
async def store(engine: Faulty, clock: ManualClock) -> AsyncIterator[Store]:
    """An empty store."""
    async with Store(engine, clock=clock, reap=False) as store:
        yield store


@pytest.fixture
def kv(store: Store) -> KV:
    """The keys of a plugin."""
    return store.kv("trivia")
