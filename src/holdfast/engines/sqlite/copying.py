"""Copies a SQLite database into a new file, page by page, while the database is in use.

Law: nothing is ever overwritten. The new file gets its name only when it is complete, checked and on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import private
from holdfast.engines.sqlite.errors import translated
from holdfast.errors import HoldfastError, StorageFull, ValidationError
from holdfast.model import Rescued

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEP: Final = 256
"""The number of pages to copy between two checks of whether to continue."""
MAX_PATH: Final = 4_096

_OWN: Final = ("", "-wal", "-shm", "-journal", ".lock", ".ballast", ".audit-key")
"""The suffixes of a store's own files."""


def new_file(name: str, store: Path) -> Path:
    """Return the path for a copy of a store. A relative path is relative to the store's folder.

    Raises:
        ValidationError: The path can't be used.
    """
    if not 0 < len(name) <= MAX_PATH or not _is_name(name):
        raise ValidationError(
            f"path must be the name of a file, of 1 to {MAX_PATH:,} characters", field="path"
        )
    target = Path(os.path.normpath(store.absolute().parent / name))
    if target in {store.absolute().with_name(f"{store.name}{suffix}") for suffix in _OWN}:
        raise ValidationError(
            f"{target} is the name of a file of the running store: copy to another name, stop the service, "
            "and then move the copy there",
            field="path",
        )
    _require_free(target)
    if not os.path.isdir(target.parent):
        raise ValidationError(f"the folder {target.parent} does not exist on this machine", field="path")
    return target


def copied(source: sqlite3.Connection, target: Path, go_on: Callable[[], None]) -> Rescued:
    """Copy everything into a new file. `go_on` is called between steps and may raise to stop.

    Raises:
        ValidationError: The file can't be created, or exists by now.
        StorageFull: The disk has no room for it.
    """
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    with _our_errors(target):
        os.close(private.create(unfinished))
        try:
            found = _filled(source, unfinished, target, go_on)
            _sync(unfinished)
            _name(unfinished, target)
            _sync(target.parent)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(OSError):
                    unfinished.with_name(unfinished.name + suffix).unlink()
    return found


def _filled(source: sqlite3.Connection, unfinished: Path, target: Path, go_on: Callable[[], None]) -> Rescued:
    pages = 0

    def step(status: int, remaining: int, total: int) -> None:
        nonlocal pages
        pages = total
        go_on()

    with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # the complete file is synced once
        copy.execute("PRAGMA journal_mode = OFF")
        source.backup(copy, pages=STEP, progress=step)
        namespaces, entries, trouble = _looked_at(copy)
        go_on()
    return Rescued(
        path=str(target),
        bytes=unfinished.stat().st_size,
        pages=pages,
        namespaces=namespaces,
        entries=entries,
        trouble=trouble,
    )


def _looked_at(copy: sqlite3.Connection) -> tuple[int, int, str | None]:
    """Return a copy's numbers of namespaces and entries, and any damage, which the original has too."""
    try:
        [found] = copy.execute("PRAGMA quick_check(1)").fetchone()
        [namespaces] = copy.execute("SELECT count(*) FROM holdfast_namespaces").fetchone()
        [entries] = copy.execute("SELECT count(*) FROM plugin_kv_storage").fetchone()
    except sqlite3.DatabaseError:
        return 0, 0, "SQLite can't read a page that it needs"
    return namespaces, entries, None if found == "ok" else str(found)


def _name(unfinished: Path, target: Path) -> None:
    """Give the file its final name, without replacing an existing file."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        _require_free(target)
        unfinished.rename(target)


def _is_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _require_free(target: Path) -> None:
    if os.path.lexists(target):
        raise ValidationError(f"{target} already exists: name a file that does not", field="path")


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def _our_errors(target: Path) -> Iterator[None]:
    """Translate errors of copying into ours, naming the copy."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, str(target)) from error
    except OSError as error:
        raise _trouble(error, target) from None


def _trouble(error: OSError, target: Path) -> HoldfastError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"there is no room for a copy at {target}")
    if isinstance(error, FileExistsError):
        return ValidationError(f"{target} already exists, or is being written: name another", field="path")
    return ValidationError(
        f"{target} can't be written: {(error.strerror or 'it failed').lower()}", field="path"
    )
