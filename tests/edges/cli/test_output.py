"""What is printed, and what is said about files that can't be used."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from holdfast.edges.cli.output import file_trouble, shown_key, whole_file
from holdfast.errors import StorageFull, ValidationError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_was_written_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a file is reported as written, the disk has its name as well, also after a killed attempt."""
    path, synced, sync = tmp_path / "backup", set[int](), os.fsync

    def noted(file: int) -> None:
        if os.path.exists(path):
            synced.add(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    (tmp_path / f".backup.{os.getpid()}").write_text("half of it")
    with whole_file(path) as file:
        file.write(b"all of it")
    assert path.read_bytes() == b"all of it"
    assert synced == {tmp_path.stat().st_ino}


def test_a_full_disk_is_told_from_a_wrong_name() -> None:
    """A full disk may have room later; a name that can't be used is the caller's to mend."""
    full = file_trouble(OSError(errno.ENOSPC, "No space left on device"), "out.jsonl", field="out")
    assert (type(full), full.field) == (StorageFull, "out")
    wrong = file_trouble(OSError(errno.EISDIR, "Is a directory"), "out.jsonl", field="out")
    assert (type(wrong), wrong.message) == (ValidationError, "out.jsonl: is a directory")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("plain:1/ü", "plain:1/ü"),
        ("tab\t", '"tab\\t"'),
        ('"quoted"', '"\\"quoted\\""'),
        ("\x9b31m", '"\\u009b31m"'),
        ("line\u2028", '"line\\u2028"'),
        ("del\x7f", '"del\\u007f"'),
        ("\u202egpj.exe", '"\\u202egpj.exe"'),
        ("\u2066a\u2069", '"\\u2066a\\u2069"'),
    ],
)
def test_keys_are_shown_safely(key: str, shown: str) -> None:
    """A key never breaks a line or commands a terminal; what begins with a quote is always JSON."""
    assert shown_key(key) == shown
