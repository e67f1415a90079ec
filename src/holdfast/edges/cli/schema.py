"""Where the schema of a store is and which revision it has: what `migrate` and `doctor` need to know.

Law: this is the one module of the command line that tells SQLite from PostgreSQL. All else asks a store.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import Unavailable, Unsupported
from holdfast.registry import engine_for

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE: Final = "base"
"""The revision of a database that holds no store."""

# Not by name alone: another schema of the same database may have a table of that name.
_FIND: Final = "SELECT to_regclass('alembic_version') IS NOT NULL"
_READ: Final = "SELECT version_num FROM alembic_version"


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a schema: a SQLite file or a PostgreSQL database."""

    file: Path | None = None
    dsn: str | None = None

    async def revision(self) -> str:
        """The revision that is there, `base` for none. Looking creates nothing."""
        if self.file is not None:
            return await asyncio.to_thread(_in_file, self.file) or BASE
        return await self._in_database() or BASE

    def left_by(self) -> str | None:
        """The process that still has a file open which is gone; None if there is no such file or process."""
        from holdfast.engines.sqlite.files import WriterLock

        if self.file is None or self.file.exists():
            return None
        lock = WriterLock(self.file.with_name(f"{self.file.name}.lock"))
        return lock.holder() if lock.taken else None

    async def downgrade(self, revision: str) -> None:
        """Go back to an older revision.

        Raises:
            Unavailable: Another process has the right to write to the file.
        """
        if self.file is not None:
            await asyncio.to_thread(_downgrade_file, self.file, revision)
        elif self.dsn is not None:
            await _downgrade_database(self.dsn, revision)

    async def _in_database(self) -> str | None:
        from holdfast.engines.postgres.connections import Connections

        connections = Connections(self.dsn or "")
        try:
            return await connections.use(_read)
        finally:
            await connections.aclose()


def schema_of(url: str) -> Schema:
    """The place of the schema that a URL's store has.

    Raises:
        ValidationError: It is no URL of a store.
        Unsupported: The store keeps nothing, or keeps it behind a service.
    """
    engine_for(url)
    scheme, separator, rest = url.partition("://")
    family = scheme.partition("+")[0] if separator else "sqlite"
    path = rest[1:] if separator else url
    if family == "sqlite" and path not in ("", ":memory:"):
        return Schema(file=Path(path))
    if family == "postgresql":
        return Schema(dsn=f"postgresql://{rest}")
    raise Unsupported(f"a store at {scheme}:// has no schema that could be reached from here")


def _in_file(path: Path) -> str | None:
    from holdfast.engines.sqlite.setup import connect, revision

    if not path.exists():
        return None
    with _our_errors(path), contextlib.closing(connect(path, patience=5)) as connection:
        return revision(connection)


async def _read(connection: Any) -> str | None:
    found: str | None = await connection.fetchval(_READ) if await connection.fetchval(_FIND) else None
    return found


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the right to write to a file, with the driver's errors turned into ours.

    Raises:
        Unavailable: Another process has it.
    """
    from holdfast.engines.sqlite.files import WriterLock

    lock = WriterLock(path.with_name(f"{path.name}.lock"))
    if not lock.acquire():
        raise Unavailable(f"{path} is being written to by {lock.holder()}: stop it and try again")
    try:
        with _our_errors(path):
            yield
    finally:
        lock.release()


def _downgrade_file(path: Path, revision: str) -> None:
    from holdfast.engines.migrate import downgrade_sqlite

    with writing(path):
        downgrade_sqlite(path, revision)


async def _downgrade_database(dsn: str, revision: str) -> None:
    from holdfast.engines.migrate import downgrade_postgres
    from holdfast.engines.postgres.translate import DRIVER_ERRORS, translate

    try:
        await downgrade_postgres(dsn, revision)
    except DRIVER_ERRORS as error:
        raise translate(error) from error


@contextlib.contextmanager
def _our_errors(path: Path) -> Iterator[None]:
    from holdfast.engines.sqlite.translate import translated

    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, str(path)) from error
