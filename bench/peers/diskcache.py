"""diskcache: the embedded cache that Python programs reach for, on SQLite too.

As it comes, called directly: it has no asynchronous calls, and a thread for each would slow it down.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import diskcache  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from types import TracebackType

DURABILITY: Final = "SQLite, WAL, synchronous=NORMAL: a set is not synced when it returns"


class DiskCache:
    """A cache in a folder, in the form of calls that can be awaited."""

    def __init__(self, folder: Path) -> None:
        self._cache: Any = diskcache.Cache(str(folder))

    async def set(self, key: str, value: object) -> None:
        """Put a value."""
        self._cache.set(key, value)

    async def get(self, key: str) -> None:
        """Look a value up."""
        self._cache.get(key)

    def __enter__(self) -> DiskCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cache.close()
