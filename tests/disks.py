"""A small disk of a test's own, which can be filled.

Only how it is made and filled; nothing about stores. It needs root, and a test without is skipped.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK_MIB: Final = 24


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Mount a file system of a few megabytes within a `with` block."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"a small tmpfs can't be mounted here (needs root): {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path, block: int = 65_536) -> None:
    """Take all the room that is left, in blocks of this many bytes."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * block)
        except OSError:
            os.truncate(path, path.stat().st_size // block * block)
