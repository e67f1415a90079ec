"""A store with a fake clock, for servers in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store import Store


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    """An empty store."""
    async with holdfast.open("memory://", clock=clock, reap=False) as found:
        yield found
