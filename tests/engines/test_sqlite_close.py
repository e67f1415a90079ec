"""When a SQLite store is closed, so are its files."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.engines.sqlite.files import WriterLock
from holdfast.engines.sqlite.setup import connect, prepare

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


def test_a_child_of_a_fork_leaves_the_lock_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that closes the store of its parent closes its own copy of the lock's file, and no more."""
    lock, other = WriterLock(tmp_path / "lock"), WriterLock(tmp_path / "lock")
    assert lock.acquire()
    assert lock._file is not None
    parents = os.dup(lock._file)  # a fork copies descriptors in the same way
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        lock.release()
    assert not other.acquire()
    os.close(parents)
    assert other.acquire()
    other.release()
