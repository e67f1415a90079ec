"""What was written to a private file is on disk, as far as the system can tell."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from holdfast import private

if TYPE_CHECKING:
    from pathlib import Path

_fsync = os.fsync
_open = os.open


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS])
def test_a_file_system_that_syncs_no_folders_is_used(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more can be done there. A file that can't be synced is an error all the same."""

    def refuse(file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    (tmp_path / "file").touch()
    private.sync(tmp_path)
    with pytest.raises(OSError, match=r"Errno"):
        private.sync(tmp_path / "file")


def test_a_folder_that_can_only_be_written_to_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that this user may not read can't be opened, and so not synced."""

    def refuse(path: Path, flags: int) -> int:
        if path.is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return _open(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    (tmp_path / "file").write_text("")
    private.sync(tmp_path)
    private.sync(tmp_path / "file")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_is_an_error(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names in a folder whose sync failed may be lost."""

    def fail(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        _fsync(file)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"Errno"):
        private.sync(tmp_path)


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """Nothing is there that could survive."""
    with pytest.raises(FileNotFoundError):
        private.sync(tmp_path / "gone")
