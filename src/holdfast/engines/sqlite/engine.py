"""The SQLite engine: one file, one writer, many readers.

A group is loaded and decided on the event loop and committed on the writer's thread. Since the store has one
writer and one group in flight, nothing changes between load and commit, and the writer verifies that.

Law: rows in, rows out. `reader` reads, `files` decides which process may write, `writer` commits, and `sql`
and `save_sql` hold the statements.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast import decide, private
from holdfast.audit.keyring import FileKeyring
from holdfast.commands import WriteCommand
from holdfast.decide import Loaded
from holdfast.engine import (
    Capabilities,
    ends_of,
    loadable,
    no_hint,
)
from holdfast.engines.sqlite import reads, save_sql
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.errors import translated
from holdfast.engines.sqlite.examiner import Examiner
from holdfast.engines.sqlite.files import Ballast, WriterLock
from holdfast.engines.sqlite.last_written import Recent
from holdfast.engines.sqlite.presence import Presence
from holdfast.engines.sqlite.reader import SqliteReader
from holdfast.engines.sqlite.setup import connect, prepare, require_current
from holdfast.engines.sqlite.writer import Stale, Writer
from holdfast.errors import Busy, StorageFull, Unavailable, ValidationError
from holdfast.pace import PART_ROWS, TURNS_BEFORE_PART

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.audit.keyring import Keyring
    from holdfast.commands import Command
    from holdfast.decide import Needs, Outcome
    from holdfast.engine import Checkup
    from holdfast.model import Policy, Rescued
    from holdfast.rows import Address

T = TypeVar("T")

FEW_ROWS: Final = {True: 16, False: 64}
"""The most rows that a single command (True) or a part of a group (False) loads without counting bytes."""
STALE_ATTEMPTS: Final = 10


class SqliteEngine(SqliteReader):
    """See `holdfast.engine.Engine`.

    Args:
        path: The file, or None for a private temporary file that is removed on close.
        keys: The keys that sign the audit. By default a key in a file beside the data, created on first use.
    """

    def __init__(self, path: Path | None, keys: Keyring | None = None) -> None:
        self._temporary = path is None
        super().__init__(_private_folder() / "store.db" if path is None else path)
        self.keys = FileKeyring(self._beside(".audit-key"), make=True) if keys is None else keys
        self._kept_keys: list[str] = []
        self._lock = WriterLock(self._beside(".lock"))
        self._ballast = Ballast(self._beside(".ballast"))
        self._writer = Writer(self._where, self._covered)
        self._presence = Presence(self._path)
        self._examiner = Examiner(self._path)
        self._recent = Recent()
        self._group: Sequence[Command] = ()
        self._room: reads.Room | None = None
        self.defaults: Policy | None = None
        self._looks_on = False

    def look_on(self) -> None:
        """See `Onlooker.look_on`: don't take the writer's lock until the first write."""
        self._looks_on = True

    def announce(self, url: str) -> None:
        """See `Announcer.announce`."""
        self._lock.announce(url)

    @property
    def path(self) -> Path:
        """The database file, including a private temporary one, for programs that open it directly."""
        return self._path

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine.capabilities`: if another process holds the writer's lock, that process sweeps."""
        return Capabilities(durable=not self._temporary, owns_reaper=not self._lock.held, glances=True)

    async def start(self) -> None:
        """Open the file: for writing if the writer's lock is free, otherwise for reading."""
        self._writer.start()
        try:
            await self._writer.run(self._open)
        except BaseException:
            await self.aclose()
            raise

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`."""
        if not self._lock.held:
            await self.ready()
        try:
            return await self._transact(commands, now)
        except StorageFull as full:
            removing = [command for command in commands if command.removes]
            if not removing or not await self._writer.run(self._make_room):
                raise
            done = await self._transact(removing, now)
            results = iter(done.results)
            return msgspec.structs.replace(
                done, results=[next(results) if command.removes else full for command in commands]
            )

    async def ready(self) -> None:
        """See `Engine.ready`: another process may hold the writer's lock, or the file may be gone."""
        if not self._lock.held:
            await self._writer.run(self._become_writer)
        self._presence.look()

    async def rescue(self, path: str) -> Rescued:
        """See `Rescuer.rescue`. It reads the file that was opened, whatever is at its path now."""
        if self._temporary and not os.path.isabs(path):
            raise ValidationError(
                "path must be absolute: the folder of this store goes with it", field="path"
            )
        return await self._examiner.rescue(path)

    async def examine(self, *, seconds: float | None = None) -> Checkup:
        """See `Examined.examine`."""
        return await self._examiner.examine(seconds)

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `Engine.hint`: a file sends no notifications."""
        return no_hint

    async def clock(self, ticks: Callable[[], float]) -> None:
        """Return None: there is no clock but this machine's."""

    async def remember(self, now: int) -> int:
        """See `Engine.remember`: only the process that holds the writer's lock stores the time."""
        if self._lock.held and not self._temporary:
            await self._writer.run(partial(self._writer.note, statements.REMEMBER, [str(now)]))
            return now
        return await self._aside(reads.kept_time)

    async def kept_keys(self) -> list[str]:
        """See `KeyKeeper.kept_keys`."""
        if self._temporary:
            return self._kept_keys
        found = await self._aside(reads.fetch, statements.KEPT_KEYS, [])
        return found[0][0].split() if found else []

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """See `KeyKeeper.keep_keys`."""
        if self._temporary:
            self._kept_keys = list(names)
            return self._kept_keys
        said = [" ".join(names), " ".join(before)]
        await self._writer.run(partial(self._writer.note, statements.KEEP_KEYS, said))
        return await self.kept_keys()

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        await asyncio.to_thread(self._close)

    async def _transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        self._presence.require()
        for _ in range(STALE_ATTEMPTS):
            outcome = await self._decide(commands, now)
            try:
                await self._writer.run(self._job(outcome, now))
                if not self._presence.lately():
                    raise self._presence.loss(wrote=not outcome.empty)
            except BaseException as error:
                self._recent = Recent()  # it is unknown what was kept
                if isinstance(error, Stale):
                    continue
                raise
            self._recent.learn(outcome)
            return outcome
        raise Busy(f"{self._where} is being written by another program without a pause")

    def _job(self, outcome: Outcome, now: Callable[[], int]) -> Callable[[], None]:
        """Return the writer's job. A refusal also needs one: it must hold for the current file."""
        if outcome.empty:
            return self._writer.make_sure
        plan, pages = save_sql.save(outcome), save_sql.pages(outcome)
        return partial(self._writer.commit, plan, pages, now, outcome.deadline)

    async def _decide(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        known: Loaded | None = None,
    ) -> Outcome:
        """Load and decide part by part; other tasks run between two parts.

        The time is taken when the first part is loaded. If the later parts take too long, the writer notices.
        `known` holds what an unfinished outcome wanted.
        """
        loaded = Loaded(namespaces={}, rows={}) if known is None else known
        decision: decide.Decision | None = None
        self._group, self._room = commands, None
        for number, part in enumerate(_parts(commands)):
            for _ in range(TURNS_BEFORE_PART[isinstance(part[0], WriteCommand)] if number else 0):
                await asyncio.sleep(0)
            wanted = decide.needs(part)
            await self._load(wanted, loaded)
            if decision is None:
                at = now()
                decision = decide.Decision(loaded, at, self.keys, self.defaults)
            if wanted.sums:
                await self._sum_up(wanted, loaded, at)
            more = decision.further(part, wanted)
            if more is not None:
                await self._load(more, loaded)
                loaded.looked.update(more.rows)
            taken = decision.take(part)
            while taken < len(part):  # the time slice is used up
                await asyncio.sleep(0)
                taken += decision.take(part[taken:])
        assert decision is not None
        outcome = decision.outcome()
        if outcome.unfinished:
            return await self._decide(commands, now, await self._wanted(outcome, loaded))
        return outcome

    async def _wanted(self, outcome: Outcome, loaded: Loaded) -> Loaded:
        """Load what this outcome wants and what earlier ones wanted."""
        looked = loaded.looked | outcome.looks
        return Loaded(
            namespaces={},
            rows=await self._load_rows(decide.looked_for(looked)) if looked else {},
            ends=loaded.ends | {at: await ends_of(self.scan, *at) for at in outcome.wants},
            looked=looked,
        )

    async def _sum_up(self, wanted: Needs, loaded: Loaded, now: int) -> None:
        """Load the wanted sums."""
        loaded.runs.update(await self._aside(reads.overdue, wanted.runs, now))
        loaded.trims.update(await self._aside(reads.journal_bytes, wanted.trims))
        loaded.counts.update(await self._aside(reads.counts, wanted.counts))

    async def _load(self, wanted: Needs, loaded: Loaded) -> None:
        loaded.rows.update(self._recent.rows(wanted.rows))
        known = loaded.rows
        rows = {
            address: shown
            for address, shown in wanted.rows.items()
            if (row := known.get(address)) is None or row.value is None
        }
        if rows:
            loaded.rows.update(await self._load_rows(rows, self._room_for(rows)))
        loaded.namespaces.update(self._recent.namespaces(wanted.namespaces - loaded.namespaces.keys()))
        if names := sorted(wanted.namespaces - loaded.namespaces.keys()):
            loaded.namespaces.update(
                await self._look(lambda connection: reads.load_namespaces(connection, names))
            )

    def _room_for(self, rows: dict[Address, bool]) -> reads.Room | None:
        """Return the room that all parts of the group share; None if a few rows need no counting."""
        if len(rows) <= FEW_ROWS[len(self._group) == 1]:
            return None
        if self._room is None and (most := loadable(self._group)) is not None:
            self._room = reads.Room(most)
        return self._room

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _open(self) -> None:
        if self._temporary:
            private.make_folder(self._path.parent)
        elif not self._path.parent.is_dir():
            raise Unavailable(f"the folder of {self._where} does not exist")
        try:
            if not self._looks_on and self._take_lock():
                self._open_writer()
            self._inline = connect(self._path, patience=0)
            self._patient = connect(self._path, patience=5)
            require_current(self._patient, self._where)
            [self._epoch] = self._patient.execute(statements.EPOCH).fetchone()
            self._examiner.open()
            self._presence.remember()
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def _take_lock(self) -> bool:
        try:
            return self._lock.acquire()
        except OSError as error:
            if self._path.exists():
                return False
            raise Unavailable(f"{self._where} can't be created: its folder can't be written to") from error

    def _open_writer(self) -> None:
        self._ballast.require_plain()
        connection = prepare(self._path, keeps=not self._temporary)
        self._writer.use(connection)
        self._covered(0)

    def _become_writer(self) -> None:
        """Take the writer's lock, which another process held when this one opened the file.

        Raises:
            Unavailable: Another process still holds the lock.
        """
        if not self._take_lock():
            raise Unavailable(
                f"{self._where} is being written to by {self._lock.holder()}: send the write through it, "
                "or stop it and try again"
            )
        try:
            self._presence.look()  # otherwise it might write to one file and read another
            self._open_writer()
        except BaseException as error:
            self._lock.release()
            raise translated(error, self._where) if isinstance(error, sqlite3.Error) else error from error

    def _covered(self, log_bytes: int) -> bool:
        return self._temporary or self._ballast.cover(log_bytes)

    def _make_room(self) -> bool:
        """Free the ballast and restart the log. Return whether there was any ballast."""
        if not self._ballast.drop():
            return False
        self._writer.checkpoint("RESTART")
        return True

    def _close(self) -> None:
        self._examiner.close()
        self._writer.stop()
        self._threads.shutdown()
        self._peeks.close()
        for connection in (self._inline, self._patient):
            if connection is not None:
                connection.close()
        self._inline = self._patient = None
        self._lock.release()
        if self._temporary:
            # late: it takes 3 ms, and only a temporary store needs it
            import shutil

            shutil.rmtree(self._path.parent, ignore_errors=True)


def _private_folder() -> Path:
    """Return the folder of a temporary store. The import is local because only temporary stores need it."""
    # late: it takes 4 ms, and only a temporary store needs it
    import tempfile

    return Path(tempfile.gettempdir(), f"holdfast-{os.urandom(8).hex()}")


def _parts(commands: Sequence[Command]) -> list[list[Command]]:
    """Split the commands, in order, into parts of about `PART_ROWS` rows."""
    parts: list[list[Command]] = [[]]
    rows = 0
    for command in commands:
        if rows >= PART_ROWS:
            parts.append([])
            rows = 0
        parts[-1].append(command)
        rows += command.rows
    return parts
