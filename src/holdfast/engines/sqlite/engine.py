"""The SQLite engine: one file, one writer, many readers.

A group is loaded and decided on the event loop and committed on the writer's thread (`writer`). The store has
one writer, and no namespace is in two groups at a time, so that nothing of a group changes between load and
commit. The writer verifies that.

A quick read is answered on the event loop. A read that may take long, or that finds the file locked, runs on
the reader's thread (`reads`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from holdfast import decide, private
from holdfast.audit.keyring import FileKeyring
from holdfast.bounded import Bounded
from holdfast.clock import KeptLine, Reading
from holdfast.commands import WriteCommand
from holdfast.decide import Loaded
from holdfast.engine import LATER, Capabilities, Due, Later, ends_of
from holdfast.engine.raw import UNFINISHED
from holdfast.engines.sql import sections
from holdfast.engines.sql.layout import SCHEMA_REVISION, namespace_of, plugin_column
from holdfast.engines.sqlite import raw, reads, setup
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.errors import primary_code, translated
from holdfast.engines.sqlite.examiner import Examiner
from holdfast.engines.sqlite.files import Ballast, Presence, WriterLock
from holdfast.engines.sqlite.reads import ByteBudget, ReaderThread, ThreadConnections, TooLargeToLoad
from holdfast.engines.sqlite.setup import connect, prepare, require_current, require_own, revision
from holdfast.engines.sqlite.writer import Stale, Writer, YieldBudget
from holdfast.errors import Busy, StorageFull, Unavailable, ValidationError
from holdfast.pace import LOOKS_PER_TURN, MANY_ROWS, PART_ROWS, TURNS_AFTER_SLICE, TURNS_BEFORE_PART, turns
from holdfast.rows import KV, PARTS, Address, Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from holdfast.audit.keyring import Keyring
    from holdfast.clock import SystemClock
    from holdfast.commands import Command
    from holdfast.decide import Needs, Outcome
    from holdfast.engine import Checkup, JournalPage, JournalQuery, Scan, Scanned, Totals
    from holdfast.engines.sqlite.raw import SqliteLoader, SqliteSnapshot
    from holdfast.engines.sqlite.sql import Statement
    from holdfast.model import Policy, Rescued
    from holdfast.rows import Namespace

T = TypeVar("T")

STALE_ATTEMPTS: Final = 10
INLINE_ROWS: Final = 128
INLINE_BYTES: Final = 131_072
"""The maximum number of rows, and of bytes of values, to load on the loop. The reader's thread loads more."""
RECENT_ROWS: Final = 2_048
"""The number of rows in a generation of `RecentRows`. There are two: when one is full, the one before it is
dropped. Dropping rows one at a time would cost microseconds each, since a dictionary skips the gaps to find
its oldest key."""
RECENT_NAMESPACES: Final = 4_096
LARGEST_RECENT: Final = 2_048
"""The size of the largest value that is kept in memory, in bytes."""


class SqliteEngine:
    """See `holdfast.engine.Engine`.

    `_inline` is the connection of reads on the event loop, which does not wait for a lock. `_patient` belongs
    to the reader's thread.

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
        self._path = _private_folder() / "store.db" if path is None else path
        self._where = str(self._path)
        self.keys: FileKeyring | Keyring = (
            FileKeyring(self._beside(".audit-key"), make=True) if keys is None else keys
        )
        self.defaults: Policy | None = None
        self._kept_keys: list[str] = []
        self._lock = WriterLock(self._beside(".lock"))
        self._ballast = Ballast(self._beside(".ballast"))
        self._presence = Presence(self._path)
        self._writer = Writer(self._where, self._covered)
        self._reader = ReaderThread()
        self._examiner = Examiner(self._path)
        self._inline: sqlite3.Connection | None = None
        self._patient: sqlite3.Connection | None = None
        self._thread_connections = ThreadConnections(self._path, self._presence.there)
        self._recent = RecentRows()
        self._looks = 0
        self.epoch = ""
        """The name of this life of the storage."""
        self._read_only = False
        self._unfinished_too = False
        self._clock: SystemClock | None = None

    # Opening and closing.

    def open_read_only(self) -> None:
        """See `Movable.open_read_only`: don't take the writer's lock until the first write."""
        self._read_only = True

    def announce(self, url: str) -> None:
        """See `LocalFile.announce`."""
        self._lock.announce(url)

    def open_unfinished(self) -> None:
        """See `Movable.open_unfinished`."""
        self._unfinished_too = True

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

    async def ready(self) -> None:
        """See `Engine.ready`: another process may write to the file, or it may be gone or closed."""
        if not self._lock.held:
            await self._writer.run(self._become_writer)
            await self._take_over_time()
        self._presence.look()
        await self._run_inline(self._require_open)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        await asyncio.to_thread(self._close)

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
            if not self._read_only and self._take_lock():
                self._open_writer()
            self._inline = connect(self._path, patience=0)
            self._patient = connect(self._path, patience=5)
            require_current(self._patient, self._where)
            self._require_finished(self._patient)
            [self.epoch] = self._patient.execute(statements.EPOCH).fetchone()
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
        self._reader.shutdown()
        self._thread_connections.close()
        for connection in (self._inline, self._patient):
            if connection is not None:
                connection.close()
        self._inline = self._patient = None
        self._lock.release()
        if self._temporary:
            # late: it takes 3 ms, and only a temporary store needs it
            import shutil

            shutil.rmtree(self._path.parent, ignore_errors=True)

    def _require_usable(self) -> None:
        """Refuse a file into which a copy is under way, before its lock is taken: the copy needs the lock.

        Raises:
            Unavailable: The copy is not complete.
        """
        if self._unfinished_too or not self._path.exists():
            return
        with contextlib.closing(connect(self._path, patience=5)) as connection:
            if revision(connection) == SCHEMA_REVISION:
                self._require_finished(connection)

    def _require_finished(self, connection: sqlite3.Connection) -> None:
        """Refuse to open a store into which a copy is under way.

        Raises:
            Unavailable: The copy is not complete.
        """
        closed = self._closed(connection)
        if closed is not None and closed.startswith(UNFINISHED):
            raise Unavailable(f"{self._path} can't be used yet: {closed}")

    def _require_open(self, connection: sqlite3.Connection) -> None:
        """Refuse a store that accepts no writes.

        Raises:
            Unavailable: The store is closed.
        """
        closed = self._closed(connection)
        if closed is not None:
            raise Unavailable(f"{self._path} accepts no writes: {closed}")

    def _closed(self, connection: sqlite3.Connection) -> str | None:
        """Return the reason why the store is closed; None if it is open, or was opened to be loaded."""
        if self._unfinished_too:
            return None
        return sections.facts_of(connection.execute(raw.FACTS).fetchall()).closed

    # Writes.

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

    async def decide(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        known: Loaded | None = None,
    ) -> Outcome:
        """Load and decide part by part without saving anything; other tasks run between two parts.

        The time is taken when the first part is loaded. If the later parts take too long, the writer notices.
        `known` holds what an unfinished outcome wanted.
        """
        loaded = Loaded(namespaces={}, rows={}) if known is None else known
        decision: decide.Decision | None = None
        budget = ByteBudget(commands)
        for number, part in enumerate(_parts(commands)):
            if number:
                await turns(TURNS_BEFORE_PART[isinstance(part[0], WriteCommand)])
            wanted = decide.needs(part)
            await self._load(wanted, loaded, budget)
            if decision is None:
                at = now()
                decision = decide.Decision(loaded, at, self.keys, self.defaults)
            if wanted.sums:
                await self._sum_up(wanted, loaded, at)
            more = decision.further(part, wanted)
            if more is not None:
                await self._load(more, loaded, budget)
                loaded.looked.update(more.rows)
            taken = decision.take(part)
            while taken < len(part):  # the time slice is used up
                await turns(TURNS_AFTER_SLICE)
                taken += decision.take(part[taken:])
        assert decision is not None
        outcome = decision.outcome()
        if outcome.unfinished:
            return await self.decide(commands, now, await self._wanted(outcome, loaded))
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
        loaded.runs.update(await self._run_aside(reads.overdue, wanted.runs, now))
        loaded.trims.update(await self._run_aside(reads.journal_bytes, wanted.trims))
        loaded.counts.update(await self._run_aside(reads.counts, wanted.counts))

    async def _load(self, wanted: Needs, loaded: Loaded, budget: ByteBudget) -> None:
        loaded.rows.update(self._recent.rows(wanted.rows))
        known = loaded.rows
        rows = {
            address: shown
            for address, shown in wanted.rows.items()
            if (row := known.get(address)) is None or row.value is None
        }
        if rows:
            loaded.rows.update(await self._load_rows(rows, budget.for_rows(rows)))
        loaded.namespaces.update(self._recent.namespaces(wanted.namespaces - loaded.namespaces.keys()))
        if names := sorted(wanted.namespaces - loaded.namespaces.keys()):
            loaded.namespaces.update(
                await self._run_inline(lambda connection: reads.load_namespaces(connection, names))
            )

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
            plan = await _planned(outcome) if long else statements.save(outcome)
            plan += also
            job = partial(writer.commit, plan, statements.pages(outcome), now, outcome.deadline, seen)
            if long:
                job = partial(job, yields=YieldBudget())
        try:
            await writer.run(job)
            if not self._presence.still():
                raise self._presence.loss(wrote=bool(also) or not outcome.empty)
        except BaseException as error:
            self._recent = RecentRows()  # it is unknown what was kept
            if isinstance(error, Stale):
                writer.data_version = error.found
            raise
        self._recent.learn(outcome)

    def forget(self) -> None:
        """Forget every row that is kept in memory: the contents of the file change by another way."""
        self._recent = RecentRows()

    # Reads.

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """See `Engine.glance`: SQLite answers at once, unless the file is locked."""
        if self._inline is None:
            return LATER
        try:
            if len(addresses) == 1:
                row = reads.get(self._inline, addresses[0])
                return [row if row is not None and row.alive(now) else None]
            return reads.get_alive(self._inline, addresses, now)
        except sqlite3.Error:
            return LATER

    def peek(self, address: Address, now: int) -> Row | Later | None:
        """See `LocalFile.peek`."""
        if self._inline is None:
            return LATER
        row = self._thread_connections.get(address)
        return row if row is None or isinstance(row, Later) or row.alive(now) else None

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        if len(addresses) == 1 and addresses[0].space == KV:
            row = await self._run_inline(lambda connection: reads.get(connection, addresses[0]))
            return [row if row is not None and row.alive(now) else None]
        wanted = dict.fromkeys(addresses, True)
        if addresses and addresses[0].space.startswith(PARTS):  # large: the loop has other things to do
            found = await self._run_aside(reads.load_rows, wanted)
        else:
            found = await self._load_rows(wanted)
        rows = [found.get(address) for address in addresses]
        return [row if row is not None and row.alive(now) else None for row in rows]

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`."""
        # With two bounds on one side, SQLite seeks to the first and reads all rows between them.
        first, stop, after = query.start, query.stop, query.after
        beyond = after is not None and not query.reverse and _later(after, first)
        if after is not None and beyond:
            first = after
        elif after is not None and query.reverse and (stop is None or _later(stop, after)):
            stop = after
        sql = statements.scan(
            query.space, values=query.values, bounded=stop is not None, after=beyond, reverse=query.reverse
        )
        owner = [plugin_column(query.namespace)] if query.space == KV else [query.namespace, query.space]
        bounds = [first] if stop is None else [first, stop]
        walk = reads.scan_rows if query.values else reads.scan_keys
        return await self._run_aside(walk, sql, [*owner, *bounds, now, query.limit + 1], query)

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """See `Engine.due`."""
        sql = statements.due(space, owned=namespace is not None)
        if space == KV:
            owner = [] if namespace is None else [plugin_column(namespace)]
        else:
            owner = [space] if namespace is None else [namespace, space]
        found = await self._run_aside(reads.fetch, sql, [now, *owner, limit])
        return [
            Due(namespace=namespace_of(name) if space == KV else name, key=key, expires_at=expires_at)
            for name, key, expires_at in found
        ]

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """See `Engine.falling_due`."""
        found = await self._run_aside(reads.fetch, statements.FALLING_DUE, [since, until, limit])
        return [
            Due(namespace=namespace_of(name), key=key, expires_at=expires_at)
            for name, key, expires_at in found
        ]

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        return await self._run_aside(reads.journal, query, self.epoch)

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`."""
        return await self._run_aside(reads.totals, now, namespace)

    async def owners(self, space: str) -> list[str]:
        """See `Engine.owners`."""
        return sorted(name for (name,) in await self._run_aside(reads.fetch, statements.OWNERS, [space]))

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Run a query of another part of the engine, and return all rows that it finds."""
        return await self._run_aside(reads.fetch, sql, parameters)

    async def _load_rows(
        self, wanted: dict[Address, bool], budget: ByteBudget | None = None
    ) -> dict[Address, Row]:
        if len(wanted) > INLINE_ROWS:
            return await self._run_aside(reads.load_rows, wanted, budget)
        most = INLINE_BYTES if len(wanted) > 1 else 0
        try:
            return await self._run_inline(lambda file: reads.load_rows(file, wanted, budget, most=most))
        except TooLargeToLoad as rest:
            return rest.rows | await self._run_aside(reads.load_rows, rest.wanted, budget)

    async def _run_inline(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a quick query on the loop. If the file is locked, wait for it on the reader's thread."""
        if self._inline is None:
            raise Unavailable(f"{self._where} is not open")
        self._looks += 1
        if self._looks % LOOKS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            return query(self._inline)
        except sqlite3.Error as error:
            if primary_code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise translated(error, self._where) from error
        return await self._run_aside(query)

    async def _run_aside(self, query: Callable[..., T], *arguments: object) -> T:
        """Run a query that may take long, on the reader's thread."""
        if self._patient is None:
            raise Unavailable(f"{self._where} is not open")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._reader, query, self._patient, *arguments)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    # The time and the keys that the store keeps.

    async def remembered(self) -> int:
        """See `DurableStorage.remembered`."""
        return await self._run_aside(setup.remembered)

    async def remember(self, now: int) -> int:
        """See `DurableStorage.remember`: only the process that holds the writer's lock stores the time."""
        if self._lock.held and not self._temporary:
            await self._writer.run(partial(self._writer.note, statements.REMEMBER, [str(now)]))
            return now
        return await self._run_aside(setup.kept_time)

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
        """See `DurableStorage.kept_keys`."""
        if self._temporary:
            return self._kept_keys
        found = await self.fetch(statements.KEPT_KEYS)
        return found[0][0].split() if found else []

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """See `DurableStorage.keep_keys`."""
        if self._temporary:
            self._kept_keys = list(names)
            return self._kept_keys
        said = [" ".join(names), " ".join(before)]
        await self._writer.run(partial(self._writer.note, statements.KEEP_KEYS, said))
        return await self.kept_keys()

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

    # Copies, checks and moves of the whole file.

    async def rescue(self, path: str) -> Rescued:
        """See `LocalFile.rescue`. It reads the file that was opened, whatever is at its path now."""
        if self._temporary and not os.path.isabs(path):
            raise ValidationError(
                "path must be absolute: the folder of this store goes with it", field="path"
            )
        return await self._examiner.rescue(path)

    async def examine(self, *, seconds: float | None = None) -> Checkup:
        """See `Movable.examine`."""
        return await self._examiner.examine(seconds)

    def snapshot(self) -> contextlib.AbstractAsyncContextManager[SqliteSnapshot]:
        """See `Movable.snapshot`."""
        self._presence.look()
        return raw.snapshot(self._path)

    @contextlib.asynccontextmanager
    async def loading(self) -> AsyncIterator[SqliteLoader]:
        """See `Movable.loading`."""
        await self.ready()
        self.forget()
        async with raw.loading(self._writer) as loader:
            yield loader
        if not self._presence.still():
            raise self._presence.loss(wrote=True)

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """See `Movable.close_to_writes`."""
        self._presence.look()
        await raw.close_to_writes(self._path, reason, instead_of)


class RecentRows:
    """The rows and namespaces that this process wrote last, so that a write need not read them back.

    They serve decisions, never readers. They are valid only while no other process writes to the file, which
    every commit verifies. When a commit is refused as stale, all of them are dropped.
    """

    def __init__(self) -> None:
        self._rows: dict[Address, Row] = {}
        self._before: dict[Address, Row] = {}
        self._namespaces: Bounded[str, Namespace] = Bounded(RECENT_NAMESPACES)

    def rows(self, wanted: Iterable[Address]) -> dict[Address, Row]:
        """Return the wanted rows that are known."""
        newer, older = self._rows, self._before
        known = {}
        for address in wanted:
            row = newer.get(address) or older.get(address)
            if row is not None:
                known[address] = row
        return known

    def namespaces(self, wanted: Iterable[str]) -> dict[str, Namespace]:
        """Return the wanted namespaces that are known."""
        known = self._namespaces
        return {name: known[name] for name in wanted if name in known}

    def learn(self, outcome: Outcome) -> None:
        """Take note of a commit."""
        if outcome.runs:  # only the database knows which entries were removed
            self._rows.clear()
            self._before.clear()
        for address, row in outcome.rows.items():
            if row is not None and row.size <= LARGEST_RECENT:
                self._rows[address] = row
            else:
                self._rows.pop(address, None)
                self._before.pop(address, None)
        if len(self._rows) > RECENT_ROWS:
            self._rows, self._before = {}, self._rows
        for namespace in outcome.namespaces:
            self._namespaces.keep(namespace.name, namespace)


def _private_folder() -> Path:
    """Return the folder of a temporary store."""
    # late: it takes 4 ms, and only a temporary store needs it
    import tempfile

    return Path(tempfile.gettempdir(), f"holdfast-{os.urandom(8).hex()}")


async def _planned(outcome: Outcome) -> list[Statement]:
    """Return the statements that save an outcome of many rows, prepared in several turns of the loop."""
    plan: list[Statement] = []
    for part in statements.split(outcome, MANY_ROWS):
        plan += statements.save(part)
        await turns(TURNS_AFTER_SLICE)
    return plan


def _parts(commands: Sequence[Command]) -> Sequence[Sequence[Command]]:
    """Split the commands, in order, into parts of about `PART_ROWS` rows."""
    if len(commands) == 1:
        return [commands]
    parts: list[list[Command]] = [[]]
    rows = 0
    for command in commands:
        if rows >= PART_ROWS:
            parts.append([])
            rows = 0
        parts[-1].append(command)
        rows += command.rows
    return parts


def _later(one: Any, other: Any) -> bool:
    """Return whether a key is not before another. Within a space, keys are all text or all bytes."""
    return bool(one >= other)
