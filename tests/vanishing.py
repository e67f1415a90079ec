"""The ways in which the file of a store can vanish under it, and what a store holds.

Every way leaves the files that are open alone; only names change.
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


def index_unlinked(path: Path) -> str:
    """The index of the write-ahead log, through which processes see each other's locks, is removed."""
    index = path.with_name(f"{path.name}-shm")
    index.unlink()
    return f"{index} was removed or moved away"


def index_replaced(path: Path) -> str:
    """Another file takes the place of the index of the write-ahead log."""
    index = path.with_name(f"{path.name}-shm")
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(b"no index")
    other.replace(index)
    return f"{index} was replaced by another file"


def folder_moved(path: Path) -> str:
    """The folder of the database is moved away."""
    path.parent.rename(path.parent.with_name(f"{path.parent.name}.moved"))
    return f"{path} was removed or moved away"


WAYS: tuple[Way, ...] = (
    unlinked,
    moved,
    replaced,
    log_unlinked,
    log_replaced,
    index_unlinked,
    index_replaced,
)
"""The ways that leave the folder where it is."""


async def entries(store: holdfast.Store, plugin: str = "p") -> dict[str, Any]:
    """All values of a plugin by key."""
    found: dict[str, Any] = {}
    cursor = None
    while True:
        page = await store.kv(plugin).list(values=True, cursor=cursor)
        found |= {entry.key: entry.value for entry in page.entries or ()}
        if (cursor := page.cursor) is None:
            return found
