"""When a SQLite store is closed, so are its files."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.engines.sqlite.setup import connect, prepare
from holdfast.engines.sqlite.sharing import StoreLock

if TYPE_CHECKING:
    from pathlib import Path


def _open_files(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # the descriptor of the list itself
    return [path for path in found if path.startswith(str(folder))]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system has no /proc/self/fd")
def test_files_are_closed_though_an_error_is_kept(tmp_path: Path) -> None:
    """A program that keeps an error does not keep the files of the closed store open with it."""
    path = tmp_path / "store.db"
    for opened in (partial(prepare, path, sync="FULL"), partial(connect, path, patience=0)):
        connection = opened()
        with pytest.raises(sqlite3.OperationalError) as kept:
            connection.execute("SELECT nonsense")
        connection.execute("SELECT 1 UNION SELECT 2").fetchone()
        assert _open_files(tmp_path)
        connection.close()
        assert (_open_files(tmp_path), kept.value.__traceback__ is None) == ([], False)


def test_a_child_of_a_fork_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    """A child has no part in the locks of its parent: it ends none of them, and keeps none of them alive."""
    lock, other = StoreLock(tmp_path / "lock"), StoreLock(tmp_path / "lock")
    assert lock.acquire()
    child = os.fork()
    if child == 0:
        os._exit(0 if not lock.held and not other.acquire() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not other.acquire()
    lock.close()
    assert other.acquire()
    other.close()
