"""The SQLite engine: one file, one writer, many readers.

A group is loaded and decided on the event loop and committed on the writer's thread. The store has one
writer, and no namespace is in two groups at a time, so that nothing of a group changes between load and
commit. The writer verifies that.

Law: rows in, rows out. `reader` reads, `deciding` loads and decides, `files` chooses the process that writes,
`writer` commits, and `sql` and `save_sql` hold the statements.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast import private
from holdfast.audit.keyring import FileKeyring
from holdfast.clock import KeptLine, Reading
from holdfast.engine import Capabilities, no_hint
from holdfast.engines.sqlite import reads, save_sql
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.deciding import SqliteDecider
from holdfast.engines.sqlite.errors import translated
from holdfast.engines.sqlite.examiner import Examiner
from holdfast.engines.sqlite.files import Ballast, WriterLock
from holdfast.engines.sqlite.last_written import Recent
from holdfast.engines.sqlite.moving import SqliteMoves
from holdfast.engines.sqlite.setup import connect, prepare, require_current, require_own
from holdfast.engines.sqlite.writer import Manners, Stale, Writer
from holdfast.errors import Busy, StorageFull, Unavailable, ValidationError
from holdfast.pace import MANY_ROWS, TURNS_AFTER_SLICE, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.audit.keyring import Keyring
    from holdfast.clock import SystemClock
    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engine import Checkup
    from holdfast.engines.sqlite.sql import Statement
    from holdfast.model import Rescued

T = TypeVar("T")

STALE_ATTEMPTS: Final = 10


class SqliteEngine(SqliteDecider, SqliteMoves):
    """See `holdfast.engine.Engine`.

    Args:
        path: The file, or None for a private temporary file that is removed on close.
        keys: The keys that sign the audit. By default a key in a file beside the data, created on first use.
        sync: When SQLite waits for the disk. `NORMAL` suits a file that is made again from a log.
        epoch: The epoch of a new file; by default a random one.
    """

    def __init__(
        self, path: Path | None, keys: Keyring | None = None, *, sync: str = "FULL", epoch: str | None = None
    ) -> None:
        self._temporary = path is None
        self._first_epoch = epoch
        self._sync = "OFF" if self._temporary else sync
        super().__init__(_private_folder() / "store.db" if path is None else path)
        self.keys: FileKeyring | Keyring = (
            FileKeyring(self._beside(".audit-key"), make=True) if keys is None else keys
        )
        self._kept_keys: list[str] = []
        self._lock = WriterLock(self._beside(".lock"))
        self._ballast = Ballast(self._beside(".ballast"))
        self._writer = Writer(self._where, self._covered)
        self._examiner = Examiner(self._path)
        self._looks_on = False
        self._clock: SystemClock | None = None

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
    def version(self) -> int:
        """The version of the file up to which this engine knows its content, for `save`."""
        return self._writer.data_version

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
        """See `Engine.ready`: another process may write to the file, or it may be gone or closed."""
        if not self._lock.held:
            await self._writer.run(self._become_writer)
            await self._take_over_time()
        self._presence.look()
        await self._look(self._require_open)

    async def rescue(self, path: str) -> Rescued:
        """See `Rescuer.rescue`. It reads the file that was opened, whatever is at its path now."""
        if self._temporary and not os.path.isabs(path):
            raise ValidationError(
                "path must be absolute: the folder of this store goes with it", field="path"
            )
        return await self._examiner.rescue(path)

    def forget(self) -> None:
        """See `SqliteMoves.forget`."""
        self._recent = Recent()

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

    async def kept_line(self) -> KeptLine | None:
        """See `LineKeeper.kept_line`."""
        found = await self.fetch(statements.KEPT_LINE)
        try:
            return msgspec.json.decode(found[0][0], type=KeptLine) if found else None
        except msgspec.DecodeError:  # a later version of Holdfast has kept it
            return None

    async def keep_line(self, clock: SystemClock) -> None:
        """See `LineKeeper.keep_line`: only the process that holds the writer's lock stores it."""
        self._clock = clock
        await self._store_line(clock.kept())

    async def close_line(self, clock: SystemClock) -> None:
        """See `LineKeeper.close_line`."""
        self._clock = None
        await self._store_line(msgspec.structs.replace(clock.kept(), open=False))

    async def kept_keys(self) -> list[str]:
        """See `KeyKeeper.kept_keys`."""
        if self._temporary:
            return self._kept_keys
        found = await self.fetch(statements.KEPT_KEYS)
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
            seen = self._writer.data_version
            outcome = await self.decide(commands, now)
            try:
                await self.save(outcome, now, seen)
            except Stale:
                continue
            return outcome
        raise Busy(f"{self._where} is being written by another program without a pause")

    async def save(
        self, outcome: Outcome, now: Callable[[], int], seen: int, *, also: Sequence[Statement] = ()
    ) -> None:
        """Save what was decided, here or on another machine, and further statements in the same transaction.

        Args:
            outcome: What was decided.
            now: Returns the time, which is compared with the outcome's deadline.
            seen: The version of the file from before the data was loaded.
            also: The further statements.

        Raises:
            Stale: Another program has written to the file, or the outcome's deadline has passed.
        """
        writer = self._writer
        if outcome.empty and not also:  # a refusal must hold for the current file
            job = partial(writer.make_sure, seen)
        else:
            long = len(outcome.rows) > MANY_ROWS
            plan = await _planned(outcome) if long else save_sql.save(outcome)
            plan += also
            job = partial(writer.commit, plan, save_sql.pages(outcome), now, outcome.deadline, seen)
            if long:
                job = partial(job, manners=Manners())
        try:
            await writer.run(job)
            if not self._presence.still():
                raise self._presence.loss(wrote=bool(also) or not outcome.empty)
        except BaseException as error:
            self._recent = Recent()  # it is unknown what was kept
            if isinstance(error, Stale):
                writer.data_version = error.found
            raise
        self._recent.learn(outcome)

    async def _store_line(self, kept: KeptLine) -> None:
        if self._lock.held and not self._temporary:
            value = msgspec.json.encode(kept).decode()
            await self._writer.run(partial(self._writer.note, statements.KEEP_LINE, [value]))

    async def _take_over_time(self) -> None:
        """Go on from the time of the process that wrote before this one."""
        clock, kept = self._clock, await self.kept_line()
        if clock is None:
            return
        remembered, tick = await self.remembered(), clock.ticks()
        earliest = remembered if kept is None else kept.earliest(remembered, clock, tick)
        if earliest > clock.at(tick):
            clock.follow(Reading(earliest, tick))
        await self._store_line(clock.kept())

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _open(self) -> None:
        if self._temporary:
            private.make_folder(self._path.parent)
        elif not self._path.parent.is_dir():
            raise Unavailable(f"the folder of {self._where} does not exist")
        try:
            require_own(self._path)
            self._require_usable()
            if not self._looks_on and self._take_lock():
                self._open_writer()
            self._inline = connect(self._path, patience=0)
            self._patient = connect(self._path, patience=5)
            require_current(self._patient, self._where)
            self._require_finished(self._patient)
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
        connection = prepare(self._path, sync=self._sync, epoch=self._first_epoch)
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
            self._presence.look()
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


async def _planned(outcome: Outcome) -> list[Statement]:
    """Return the statements that save an outcome of many rows, prepared in several turns of the loop."""
    plan: list[Statement] = []
    for part in save_sql.split(outcome, MANY_ROWS):
        plan += save_sql.save(part)
        await turns(TURNS_AFTER_SLICE)
    return plan
