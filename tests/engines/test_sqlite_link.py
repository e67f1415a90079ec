"""A store that is opened through a symbolic link is the store that the link leads to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.cli.commands.doctor import _files
from holdfast.edges.cli.schema import schema_of, writing
from holdfast.engines.sqlite import SqliteEngine, sharing
from holdfast.engines.sqlite.log import YOUNG
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 60


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A store's file in a folder of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "real.db"


@pytest.fixture
def link(tmp_path: Path, real: Path) -> Path:
    """A link to that file in another folder, over another link."""
    (tmp_path / "data" / "current").symlink_to("real.db")
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "link.db").symlink_to(tmp_path / "data" / "current")
    return tmp_path / "names" / "link.db"


async def test_all_files_of_a_store_are_beside_the_file_that_a_link_leads_to(link: Path, real: Path) -> None:
    """SQLite keeps its log there, and nothing else is kept beside the link."""
    async with holdfast.open(link, reap=False) as store:
        await store.kv("p").set("k", 1)
        assert os.listdir(link.parent) == [link.name]
        assert {f"real.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock", ".turn", ".ballast")} <= set(
            os.listdir(real.parent)
        )


async def test_the_log_of_a_linked_store_has_room(link: Path, real: Path) -> None:
    """The rows in memory and the room in the log hold for a store behind a link as for any other."""
    async with holdfast.open(link, reap=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        assert engine._header is not None
        for number in range(COMMITS):
            await store.kv("p").set(f"k{number}", number)
        assert engine._cache.fresh() is not None
        log = real.with_name("real.db-wal")
        assert log.stat().st_size > YOUNG
        assert log.read_bytes().endswith(bytes(4096))


async def test_who_opens_a_file_by_two_names_finds_one_lock(
    link: Path, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that needs the file for itself is refused while another has it open by another name."""
    async with holdfast.open(link, reap=False) as store:
        await store.kv("p").set("k", 1)
        for name in (link, real, link.parent / ".." / "data" / "current"):
            with pytest.raises(Unavailable, match="is open in"), writing(name):
                pass
            served = schema_of(f"sqlite:///{name}").served_at()
            assert served is None
        store._engine.announce("nats://127.0.0.1:4222")  # type: ignore[attr-defined]
        assert schema_of(f"sqlite:///{real}").served_at() == "nats://127.0.0.1:4222"
    monkeypatch.setattr(sharing, "OPENING_SECONDS", 0)
    with writing(real), pytest.raises(Unavailable, match="does not share it"):
        async with holdfast.open(link, reap=False):
            pass


async def test_writers_by_two_names_take_turns(link: Path, real: Path) -> None:
    """Before SQLite 3.51.3, a commit during a checkpoint by another connection may corrupt the file."""
    async with holdfast.open(link, reap=False) as one, holdfast.open(real, reap=False) as other:
        for number in range(10):
            await one.kv("p").set("k", number)
            await other.kv("p").incr("k")
        first, second = one._engine, other._engine
        assert isinstance(first, SqliteEngine)
        assert isinstance(second, SqliteEngine)
        assert first._turn is not None
        assert second._turn is not None
        with first._turn.within(1):
            assert not second._turn.attempt()


async def test_a_copy_takes_no_name_of_a_linked_store(link: Path, real: Path) -> None:
    """A copy goes under no name that SQLite or this store may need, beside the link or the file."""
    async with holdfast.open(link, reap=False) as store:
        await store.kv("p").set("k", 1)
        for own in (real.with_name("real.db-journal"), real.with_name("real.db.upkeep"), "link.db.audit-key"):
            with pytest.raises(holdfast.ValidationError, match="of the running store"):
                await store.rescue(own)


async def test_doctor_looks_at_the_log_of_a_linked_store(link: Path, real: Path) -> None:
    """A log that others can read is named, though it is not beside the link."""
    async with holdfast.open(link, reap=False) as store:
        await store.kv("p").set("k", 1)
        for folder in (link.parent, real.parent):
            folder.chmod(0o700)
        real.with_name("real.db-wal").chmod(0o644)
        assert "real.db-wal" in _files(link).message


async def test_a_link_to_a_network_file_system_is_refused(
    link: Path, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is where the file is, and not where the link is."""
    asked = []

    def kind(folder: Path) -> str:
        asked.append(folder)
        return "nfs4"

    monkeypatch.setattr("holdfast.engines.sqlite.files._file_system", kind)
    with pytest.raises(holdfast.Unsupported, match="network file system"):
        async with holdfast.open(link):
            pass
    assert asked == [real.parent]
