"""The tests of storages and strategies in limits, on both sides, with ours in place of those in memory."""

from __future__ import annotations

import sys
from typing import Any, Final
from unittest.mock import MagicMock

import limits.aio.storage
import limits.storage
import pytest

from holdfast.integrations.limits import HoldfastStorage, HoldfastSyncStorage

LEFT_OUT: Final[dict[str, str]] = {}

# Clients of servers that are not there, which the tests import for their other storages.
for name in ("pymemcache", "pymemcache.client", "pymongo", "redis", "redis.sentinel", "valkey"):
    sys.modules[name] = MagicMock()


class Storage(HoldfastStorage):
    """Our storage, made as theirs is: from its scheme alone."""

    STORAGE_SCHEME = ["async+memory"]  # noqa: RUF012

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **given: Any) -> None:
        super().__init__(uri, wrap_exceptions, url="sqlite://", **given)


class SyncStorage(HoldfastSyncStorage):
    """Our storage without await, made likewise."""

    STORAGE_SCHEME = ["memory"]  # noqa: RUF012

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **given: Any) -> None:
        super().__init__(uri, wrap_exceptions, url="sqlite://", **given)


limits.aio.storage.MemoryStorage = Storage  # type: ignore[misc, assignment]
limits.storage.MemoryStorage = SyncStorage  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
