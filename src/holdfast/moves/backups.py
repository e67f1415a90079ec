"""Backups of whole stores, and restores.

Law: a backup is what a store held at one instant, whatever is written meanwhile. A restore verifies the whole
file first and then loads it in one transaction, so that a store holds all of a backup or nothing of it. Where
the engine loads in pieces, as a cluster does, the store can't be used until it holds all of the backup.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import IO, TYPE_CHECKING

import msgspec

from holdfast.engine.raw import UNFINISHED, Section
from holdfast.errors import ValidationError
from holdfast.moves.backup_file import BackupHeader, BackupReader, BackupWriter, verified
from holdfast.moves.walking import walk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from holdfast.engine.raw import Movable
    from holdfast.moves.backup_file import BackupTotals


def _quiet(count: int) -> None:
    """Report no progress."""


async def back_up(
    store: Movable,
    file: IO[bytes],
    *,
    made_at: int,
    software: str,
    key: Sequence[bytes] | None = None,
    advance: Callable[[int], None] = _quiet,
) -> BackupTotals:
    """Write a backup of a store that may be in use.

    Args:
        store: The store's engine.
        file: The file to write.
        made_at: The time, in milliseconds since 1970.
        software: The version of Holdfast.
        key: The audit's secrets, if the backup is to hold them.
        advance: Called with the number of things that were written, to show progress.
    """
    async with store.snapshot() as snapshot:
        facts = msgspec.structs.replace(await snapshot.facts(), closed=None)
        header = BackupHeader(made_at=made_at, facts=facts, software=software, with_key=key is not None)
        writer = BackupWriter(file, header)
        if key is not None:
            writer.key(key)
        writer.namespaces(await snapshot.namespaces())
        for name in await snapshot.names():
            for section in Section:
                async for page in walk(snapshot, name, section):
                    writer.section(name, section, page)
                    advance(len(page))
    writer.end()
    return writer.totals


async def held_by(store: Movable) -> list[str]:
    """Return the names of the namespaces that a store holds, which a restore would remove."""
    async with store.snapshot() as snapshot:
        return await snapshot.names()


async def restore(
    store: Movable,
    file: IO[bytes],
    *,
    adopt: Callable[[Sequence[bytes]], object] = lambda secrets: None,
    advance: Callable[[int], None] = _quiet,
) -> BackupTotals:
    """Replace everything that a store holds by a backup. The store gets an epoch of its own.

    Args:
        store: The store's engine. No other process may have it open for writing.
        file: The backup, which is read twice.
        adopt: Takes the audit's secrets, if the backup holds them.
        advance: Called with the number of things that were loaded, to show progress.

    Raises:
        ValidationError: The file is no backup, or is damaged or truncated. Nothing was changed.
    """
    _, totals = verified(file)
    file.seek(0)
    reader = BackupReader(file)
    present = await held_by(store)
    async with _refusing(), store.loading() as loader:
        closed = f"{UNFINISHED}: run holdfast restore again [{secrets.token_hex(4)}]"
        await loader.remember(msgspec.structs.replace(await loader.facts(), closed=closed))
        await loader.drop_namespaces(present)
        for chunk in reader.chunks():
            if chunk.namespaces:
                await loader.put_namespaces(chunk.namespaces)
            elif chunk.section is not None:
                await loader.put(chunk.namespace, chunk.section, chunk.held)
                advance(len(chunk.held))
            elif chunk.key:
                adopt(chunk.key)
        epoch = secrets.token_hex(8)
        await loader.remember(msgspec.structs.replace(reader.header.facts, epoch=epoch, closed=None))
    return totals


@contextlib.asynccontextmanager
async def _refusing() -> AsyncIterator[None]:
    """Raise what a driver says about contents that its database can't hold as an error of ours."""
    try:
        yield
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise ValidationError(
            f"the backup holds something that this store can't: {error}. Nothing was restored", field="file"
        ) from error
