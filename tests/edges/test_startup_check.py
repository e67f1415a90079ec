"""`holdfast up` looks for corruption before it serves a store, and for no longer than it is told to."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.served_store import opened
from holdfast.edges.settings.read import read_config
from holdfast.engines.sqlite import examiner
from tests.edges.running import Up

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a store that holds 2,000 entries."""
    path = tmp_path / "state.db"

    async def fill() -> None:
        async with holdfast.open(path) as store:
            for start in range(0, 2_000, 500):
                items = [{"key": f"k{start + number:05}", "value": "v" * 300} for number in range(500)]
                await store.kv("p").set_many(items)

    asyncio.run(fill())
    return path


def _spoil(path: Path) -> None:
    """Overwrite a page in the middle."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xff" * 4096)


async def _open(path: Path, **settings: Any) -> None:
    config = read_config(environment={}, db=str(path), data_dir=str(path.parent), **settings)
    async with opened(config, print, asyncio.Event()) as store:
        await store.ready()


async def test_a_corrupt_store_is_not_served(path: Path) -> None:
    """The service does not start, and says in one line what is wrong and what to do."""
    _spoil(path)
    code, complaint = await Up(path.parent, ("--db", path), {}).ended()
    assert code == 1
    assert f"{path} is corrupt: " in complaint
    assert f"holdfast doctor --deep --url {path}" in complaint
    assert "backup" in complaint


class Unreadable(sqlite3.Connection):
    """A connection to a file of which the disk can't read a page during a check."""

    reports = ""
    """How the check goes on and reports the page, as it does with all but the first."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Fail in a check alone."""
        if "_check" not in sql:
            return super().execute(sql, *parameters)
        if self.reports:
            return super().execute("SELECT ?", [f"*** in database main ***\n{self.reports}"])
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode, error.sqlite_errorname = 266, "SQLITE_IOERR_READ"
        raise error


@pytest.mark.parametrize(
    "reports",
    [
        "",
        "Page 35: unable to get the page. error code=266",
        "Main freelist: failed to get page 403\nPage 87 is never used",
        "On tree page 61 cell 9: failed to get page 302",
    ],
)
async def test_a_disk_that_fails_is_no_corruption(
    path: Path, monkeypatch: pytest.MonkeyPatch, reports: str
) -> None:
    """If a page can't be read during the check, the service does not start, but calls nothing corrupt."""
    monkeypatch.setattr(Unreadable, "reports", reports)
    monkeypatch.setattr(
        examiner,
        "connect_for_later",
        lambda path: sqlite3.connect(path, factory=Unreadable, isolation_level=None, check_same_thread=False),
    )
    with pytest.raises(holdfast.DatabaseError, match="SQLITE_IOERR") as raised:
        await _open(path)
    assert "corrupt" not in raised.value.message


async def test_the_check_can_be_turned_off(path: Path) -> None:
    """Whoever wants what can still be read is not kept from it."""
    _spoil(path)
    with pytest.raises(holdfast.DatabaseError):
        await _open(path)
    await _open(path, startup_check_seconds=0)


async def test_an_unfinished_startup_check_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The check ends when its time is up; the store is then served, and the log tells of the rest."""
    caplog.set_level(logging.INFO)
    await _open(path)
    assert "skipped the rest" not in caplog.text
    await _open(path, startup_check_seconds=0.00001)
    assert "skipped the rest" in caplog.text


async def test_other_engines_look_after_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A store that is no file is served at once."""
    caplog.set_level(logging.INFO)
    config = read_config(environment={}, db="memory://", data_dir=str(tmp_path))
    async with opened(config, print, asyncio.Event()) as store:
        await store.ready()
    assert "was checked" not in caplog.text
