"""The reference engine under conformance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.testing.conformance import Conformance, MakeStore

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.store import Store


class TestMemory(Conformance):
    """Everything in dictionaries, nothing kept."""

    scheme = "memory"

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Every store begins empty."""

        async def make(clock: Clock) -> Store:
            store = holdfast.open("memory://", clock=clock, reap=False)
            await store.start()
            return store

        return make
