"""What a backup keeps and what it does not: the store's standing, its epoch, and fields of newer versions."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
import pytest

import holdfast
from holdfast.edges.cli.commands.stores import reading, writing
from holdfast.engine.raw import Positioned, Section, StoreInfo
from holdfast.errors import Unsupported, ValueTooLarge
from holdfast.moves.backups import (
    MOST,
    BackupHeader,
    BackupReader,
    BackupTotals,
    BackupWriter,
    back_up,
    restore,
    verified,
)
from holdfast.rows import REQUEST, Row

if TYPE_CHECKING:
    from pathlib import Path


async def backup_of(path: Path) -> io.BytesIO:
    """A backup of a store."""
    file = io.BytesIO()
    async with reading(str(path)) as store:
        await back_up(store, file, made_at=0, software="1")
    file.seek(0)
    return file


async def test_a_restored_backup_of_a_moved_store_accepts_writes(tmp_path: Path) -> None:
    """Why a store is closed concerns that store alone: what is restored from its backup accepts writes."""
    async with holdfast.open(tmp_path / "one.db", reap=False) as store:
        await store.kv("p").set("k", 1)
    async with reading(str(tmp_path / "one.db")) as engine:
        await engine.close_to_writes("this store has moved to two.db", instead_of=None)
    file = await backup_of(tmp_path / "one.db")
    async with writing(str(tmp_path / "new.db")) as engine:
        await restore(engine, file)
    async with holdfast.open(tmp_path / "new.db", reap=False) as store:
        assert (await store.kv("p").set("k", 2)).version == 2


async def test_a_restored_store_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    """A watcher of the store before must learn that it is another one, because versions are given again."""
    async with holdfast.open(tmp_path / "one.db", reap=False) as store:
        await store.kv("p").set("k", 1)
    file = await backup_of(tmp_path / "one.db")
    epochs = set()
    for _ in range(2):
        file.seek(0)
        async with writing(str(tmp_path / "one.db")) as engine:
            async with engine.snapshot() as snapshot:
                epochs.add((await snapshot.facts()).epoch)
            await restore(engine, file)
            async with engine.snapshot() as snapshot:
                epochs.add((await snapshot.facts()).epoch)
    assert len(epochs) == 3


@pytest.mark.parametrize("kind", ["row", "record", "namespace"])
def test_a_backup_with_fields_of_a_newer_version_is_refused(kind: str) -> None:
    """A field that this version does not know is not left out in silence."""
    file = io.BytesIO()
    header = BackupHeader(made_at=0, facts=StoreInfo(), software="9", with_key=False)
    BackupWriter(file, msgspec.structs.replace(header, **{kind: (*getattr(header, kind), "mood")})).end()
    file.seek(0)
    with pytest.raises(Unsupported, match="upgrade Holdfast"):
        BackupReader(file)


@pytest.mark.parametrize("size", [17 * 1024 * 1024, MOST])
def test_what_a_backup_holds_can_be_restored(size: int) -> None:
    """A reply with many items is remembered in one row. What a restore would refuse is not written."""
    file = io.BytesIO()
    writer = BackupWriter(file, BackupHeader(made_at=0, facts=StoreInfo(), software="test", with_key=False))
    row = Row(value="x" * size, size=size, version=1, created_at=0, updated_at=0)
    if size == MOST:
        with pytest.raises(ValueTooLarge):
            writer.section("table/p", Section.ROWS, [Positioned((REQUEST, b"r"), row)])
        return
    writer.section("table/p", Section.ROWS, [Positioned((REQUEST, b"r"), row)])
    writer.end()
    file.seek(0)
    assert verified(file)[1] == BackupTotals(rows=1)
