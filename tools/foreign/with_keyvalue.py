"""py-key-value's tests of a store and of its wrappers, with our store in place of the one in memory."""

from __future__ import annotations

from typing import Any, Final

import key_value.aio.stores.memory.store
import pytest

from holdfast.integrations.keyvalue import HoldfastStore

LEFT_OUT: Final = {
    "test_not_unbounded": "a store in memory forgets old entries; Holdfast keeps what it was given",
}


class Store(HoldfastStore):
    """Our store, made as theirs is: with a limit, which means nothing here, and nothing else."""

    def __init__(self, *, max_entries_per_collection: int | None = None, **given: Any) -> None:
        super().__init__(url="sqlite://", **given)


key_value.aio.stores.memory.store.MemoryStore = Store  # type: ignore[assignment, misc]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
