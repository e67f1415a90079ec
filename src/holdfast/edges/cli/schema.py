"""The location and the revision of a store's schema, for `migrate` and `doctor`.

This is the only module of the command line that distinguishes SQLite from PostgreSQL. All others ask a store.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast import masking, seams
from holdfast.audit.keyring import Keyring
from holdfast.edges.cli.output import say
from holdfast.engine import Engine, Movable
from holdfast.engines.sql.adopting import Found, Report, refusal
from holdfast.engines.sql.layout import SCHEMA_REVISION
from holdfast.engines.sql.migrate import Need, downgrade_postgres, downgrade_sqlite, needed
from holdfast.errors import Unavailable, Unsupported
from holdfast.pipeline.caller import Service
from holdfast.registry import backend_for, engine_for, sqlite_path

if TYPE_CHECKING:
    from holdfast.engines.postgres.connections import Connection
    from holdfast.engines.sqlite.sharing import StoreLock

T = TypeVar("T")

BASE: Final = "base"
"""The revision of a database that holds no store."""


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The location of a schema: a SQLite file or a PostgreSQL database."""

    file: Path | None = None
    dsn: str | None = None

    async def revision(self) -> str:
        """Return the current revision, `base` for none. This creates nothing."""
        if self.file is not None:
            return await seams.aside(_revision_in, self.file) or BASE
        # late: optional driver
        from holdfast.engines.postgres.setup import revision

        return await self._with_database(revision) or BASE

    @property
    def place(self) -> str:
        """The location, without credentials."""
        return masking.shown(self.dsn) if self.dsn is not None else str(self.file)

    async def holds_store(self) -> bool:
        """Return whether there is a store that this version can use.

        Raises:
            Unavailable: The store is older, or its file was removed while a process has it open.
            Unsupported: A table of another program is in its place.
        """
        process = self.left_by()
        if process is not None:
            raise Unavailable(
                f"{self.file} is gone, and {process} still has it open: run holdfast rescue NEW_PATH with "
                "--url of that service before it stops"
            )
        revision = await self.revision()
        need = needed(None if revision == BASE else revision)
        foreign = await self.foreign() if need is Need.CREATE else None
        if foreign is not None:
            raise refusal(self.place, foreign.rows)
        if need is Need.MIGRATE:
            raise Unavailable(
                f"{self.place} has the schema {revision} and this version needs {SCHEMA_REVISION}: make a "
                "backup, then run holdfast migrate up"
            )
        return need is Need.NOTHING

    def left_by(self) -> str | None:
        """Return the process that still has a removed file open; None if there is no such file or process."""
        if self.file is None or self.file.exists():
            return None
        lock = _lock_of(self.file)
        return lock.holder() if lock.taken else None

    def served_at(self) -> str | None:
        """Return the address at which a process of this machine serves the file; None if there is none."""
        return None if self.file is None else _lock_of(self.file).served_at()

    async def moved_to(self) -> str | None:
        """Return the place to which the store has moved; None if it is here."""
        if self.file is not None:
            # late: it takes 6 ms, and a service has no file
            from holdfast.engines.sqlite.raw import closed_in

            with _our_errors(self.file):
                closed = await seams.aside(closed_in, self.file)
        else:
            # late: optional driver
            from holdfast.engines.postgres.raw import closed_at

            closed = await self._with_database(closed_at)
        if closed is None:
            return None
        # late: few stores are closed
        from holdfast.moves.transfers import place_in

        return place_in(closed)

    async def foreign(self) -> Found | None:
        """Return the table of another program in the place of a store's; None if there is none."""
        if self.file is not None:
            # late: it takes 6 ms, and a service has no file
            from holdfast.engines.sqlite.setup import found_in

            return await seams.aside(found_in, self.file)
        # late: optional driver
        from holdfast.engines.postgres.setup import foreign_table

        return await self._with_database(foreign_table)

    async def adopt(self, *, dry_run: bool) -> Report:
        """Bring the rows of such a table into a store, all of them or none.

        Raises:
            Unavailable: Another process holds the right to write to the file.
        """
        if self.file is not None:
            return await seams.aside(_adopt_file, self.file, dry_run)
        # late: optional driver
        from holdfast.engines.postgres.setup import adopt

        return await self._with_database(partial(adopt, place=self.place, dry_run=dry_run))

    async def downgrade(self, revision: str) -> None:
        """Downgrade to an older revision.

        Raises:
            Unavailable: Another process holds the right to write to the file.
        """
        if self.file is not None:
            await seams.aside(_downgrade_file, self.file, revision)
            return
        # late: optional driver
        from holdfast.engines.postgres.errors import DRIVER_ERRORS, translate

        try:
            await downgrade_postgres(self.dsn or "", revision)
        except DRIVER_ERRORS as error:
            raise translate(error) from error

    async def reset_clock(self) -> tuple[int, int, int]:
        """Turn the store's time back. Return it before and after, and how many namespaces were ahead of it.

        Raises:
            Unavailable: Another process holds the right to write to the file.
        """
        if self.file is not None:
            return await seams.aside(_reset_file, self.file)
        # late: optional driver
        from holdfast.engines.postgres.setup import reset_clock

        return await self._with_database(reset_clock)

    async def _with_database(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        # late: optional driver
        from holdfast.engines.postgres.connections import Connections

        connections = Connections(self.dsn or "")
        try:
            return await connections.use(work)
        finally:
            await connections.aclose()


async def onlooker(url: str, keys: Keyring | None, *, named: bool) -> Engine | Service:
    """Return what reads a store. It creates and changes nothing; a missing store appears empty.

    Args:
        url: The location of the store.
        keys: The keyring that signs its audit, if needed.
        named: Whether the user named the store, so that at least its folder must exist.

    Raises:
        Unavailable: The store has an older schema, its folder does not exist, or its file was removed while a
            process has it open.
    """
    try:
        schema = schema_of(url)
    except Unsupported:
        return backend_for(url, keys)
    if named and schema.file is not None and not schema.file.parent.is_dir():
        raise Unavailable(f"the folder of {schema.file} does not exist")
    there = await schema.holds_store()
    if there and sys.stderr.isatty():
        await tell_of_move(url)
    if not there:
        if sys.stderr.isatty():  # a script uses the result, and a failure prints a single line
            say(f"there is no store at {schema.place} yet")
        return engine_for("memory://")
    engine = backend_for(url, keys)
    if isinstance(engine, Movable):
        engine.open_read_only()
    return engine


async def tell_of_move(url: str) -> None:
    """Say on stderr if a store has moved: what is read there is what it held then."""
    with contextlib.suppress(Unsupported):
        schema = schema_of(url)
        place = await schema.moved_to()
        if place is not None:
            say(
                f"{schema.place} has moved to {place}: this shows what it held before. "
                f"Use --url {quote(place)}",
                colour="yellow",
            )


async def require_store(url: str) -> None:
    """Check that a store exists, without creating one.

    Raises:
        Unavailable: There is none, or it cannot be used as it is.
    """
    with contextlib.suppress(Unsupported):
        schema = schema_of(url)
        if not await schema.holds_store():
            raise Unavailable(f"there is no store at {schema.place} yet: the first write creates it")


def service_beside(url: str) -> str | None:
    """Return the URL of the service that has a store's file open; None if there is none, or no file."""
    try:
        return schema_of(url).served_at()
    except Unsupported:
        return None


def schema_of(url: str) -> Schema:
    """Return the location of the schema of a URL's store.

    Raises:
        ValidationError: The URL is not that of a store.
        Unsupported: The store keeps nothing, or is behind a service.
    """
    backend_for(url)
    path = sqlite_path(url)
    if path is not None:
        return Schema(file=Path(path))
    scheme, _, rest = url.partition("://")
    if scheme.partition("+")[0] == "postgresql":
        return Schema(dsn=f"postgresql://{rest}")
    raise Unsupported(
        f"the schema of a store at {scheme}:// can't be reached from here: run this where the storage is, "
        "with the address that the service has"
    )


def _lock_of(path: Path) -> StoreLock:
    # late: it takes 6 ms, and a service has no file
    from holdfast.engines.sqlite.files import beside
    from holdfast.engines.sqlite.sharing import StoreLock

    return StoreLock(beside(path, ".lock"))


def _revision_in(path: Path) -> str | None:
    # late: it takes 6 ms, and a service has no file
    from holdfast.engines.sqlite.setup import connect, revision

    if not path.exists():
        return None
    with _our_errors(path), contextlib.closing(connect(path, patience=5)) as connection:
        return revision(connection)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the right to write to a file, and translate the driver's errors.

    Raises:
        Unavailable: Another process holds it.
    """
    lock = _lock_of(path)
    if not lock.acquire():
        raise Unavailable(f"{path} is open in {lock.holder()}: stop it and try again")
    try:
        with _our_errors(path):
            yield
    finally:
        lock.close()


def _adopt_file(path: Path, dry_run: bool) -> Report:
    # late: it takes 6 ms, and a service has no file
    from holdfast.engines.sqlite.setup import adopt, found_in

    if dry_run or found_in(path) is None:  # without a lock, which would leave a file beside it
        with _our_errors(path):
            report = adopt(path, dry_run=True)
        report.dry_run = dry_run
        return report
    with writing(path):
        return adopt(path, dry_run=False)


def _downgrade_file(path: Path, revision: str) -> None:
    with writing(path):
        downgrade_sqlite(path, revision)


def _reset_file(path: Path) -> tuple[int, int, int]:
    # late: it takes 6 ms, and a service has no file
    from holdfast.engines.sqlite.setup import reset_clock

    with writing(path):
        return reset_clock(path, round(seams.wall() * 1000))


@contextlib.contextmanager
def _our_errors(path: Path) -> Iterator[None]:
    # late: it takes 6 ms, and a service has no file
    from holdfast.engines.sqlite.errors import translated

    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, str(path)) from error
