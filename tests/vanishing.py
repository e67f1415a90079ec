"""The ways in which the file of a store can vanish under it, and what a store holds.

Law: every way leaves the files that are open alone; only names change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import holdfast

Way = Callable[[Path], str]
"""Has a file vanish; the beginning of what is told of it."""


def unlinked(path: Path) -> str:
    """The database is removed."""
    path.unlink()
    return f"{path} was removed or moved away"


def moved(path: Path) -> str:
    """The database is moved away."""
    path.rename(path.with_name(f"{path.name}.moved"))
    return f"{path} was removed or moved away"


def replaced(path: Path) -> str:
    """Another file takes the place of the database."""
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(b"")
    other.replace(path)
    return f"{path} was replaced by another file"


def log_unlinked(path: Path) -> str:
    """The write-ahead log is removed."""
    log = path.with_name(f"{path.name}-wal")
    log.unlink()
    return f"{log} was removed or moved away"


def log_replaced(path: Path) -> str:
    """Another file takes the place of the write-ahead log."""
    log = path.with_name(f"{path.name}-wal")
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(b"no log")
    other.replace(log)
    return f"{log} was replaced by another file"


WAYS: tuple[Way, ...] = (unlinked, moved, replaced, log_unlinked, log_replaced)


async def entries(store: holdfast.Store, plugin: str = "p") -> dict[str, Any]:
    """All values of a plugin by key."""
    found: dict[str, Any] = {}
    cursor = None
    while True:
        page = await store.kv(plugin).list(values=True, cursor=cursor)
        found |= {entry.key: entry.value for entry in page.entries or ()}
        if (cursor := page.cursor) is None:
            return found
