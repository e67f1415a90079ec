"""The SQLite engine: one file, written by any number of processes of one machine.

As long as this process writes alone, a group is loaded and decided on the event loop and committed on the
writer's thread (`writer`), which verifies that nobody else has written meanwhile. If somebody has, the group
is decided again on the writer's thread, within the transaction, and so are the following groups until two in
a row have found that nobody else writes any more. `sharing` has the locks between the processes.

A quick read is answered on the event loop. A read that may take long, or that finds the file locked, runs on
the reader's thread (`reads`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast import private, seams
from holdfast.audit.keyring import FileKeyring, Keyring
from holdfast.clock import KeptLine, SystemClock
from holdfast.commands import Command
from holdfast.decide import Outcome
from holdfast.engine import (
    LATER,
    Capabilities,
    Checkup,
    Due,
    JournalPage,
    JournalQuery,
    Later,
    Scan,
    Scanned,
    Totals,
    no_hint,
)
from holdfast.engine.raw import UNFINISHED
from holdfast.engines.sql import sections
from holdfast.engines.sql.layout import SCHEMA_REVISION, namespace_of, plugin_column
from holdfast.engines.sqlite import raw, reads, setup
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.bells import NamespaceBells
from holdfast.engines.sqlite.cache import CACHE_BYTES, RowCache
from holdfast.engines.sqlite.decider import Decider, Transaction, load_rows, without_loop
from holdfast.engines.sqlite.errors import LOCKED, is_full, primary_code, translated
from holdfast.engines.sqlite.examiner import Examiner
from holdfast.engines.sqlite.files import Ballast, Presence, beside, require_local
from holdfast.engines.sqlite.log import LogHeader, LogRoom, Span
from holdfast.engines.sqlite.raw import SqliteLoader, SqliteSnapshot
from holdfast.engines.sqlite.reads import ReaderThread, ThreadConnections
from holdfast.engines.sqlite.setup import (
    connect,
    connect_writer,
    prepare,
    require_current,
    require_own,
    revision,
)
from holdfast.engines.sqlite.sharing import PublisherLease, StoreLock, Turn, UpkeepLease
from holdfast.engines.sqlite.sql import Statement
from holdfast.engines.sqlite.writer import Stale, Writer, YieldBudget
from holdfast.errors import Busy, HoldfastError, StorageFull, Unavailable, Unsupported, ValidationError
from holdfast.model import Policy, Rescued
from holdfast.pace import LOOKS_PER_TURN, MANY_ROWS, TURNS_AFTER_SLICE, turns
from holdfast.rows import KV, PARTS, Address, Row

T = TypeVar("T")

STALE_ATTEMPTS: Final = 10
QUIET_GROUPS: Final = 2
"""After how many groups that found no writes by others the event loop decides again."""
REMEMBERED_MS: Final = 900
"""If the remembered time is older by less, it is not written again: each write costs all processes what they
know about the file."""


class SqliteEngine:
    """See `holdfast.engine.Engine`.

    `_inline` is the connection of reads on the event loop, which does not wait for a lock. `_patient` belongs
    to the reader's thread.

    Args:
        path: The file, or None for a private temporary file that is removed on close.
        keys: The keys that sign the audit. By default a key in a file beside the data, created on first use.
        sync: When SQLite waits for the disk. `NORMAL` suits a file that is made again from a log.
        epoch: The epoch of a new file; by default a random one.
        exclusive: Let no other process open the file. A temporary file never has another process.
        allow_network: Write to the file even if it is on a network file system.
        cache_bytes: See `LocalFile.cache_bytes`.
    """

    def __init__(
        self,
        path: Path | None,
        keys: Keyring | None = None,
        *,
        sync: str = "FULL",
        epoch: str | None = None,
        exclusive: bool = False,
        allow_network: bool = False,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._allow_network = allow_network
        self._temporary = path is None
        self._exclusive = exclusive or self._temporary
        self._first_epoch = epoch
        self._sync = "OFF" if self._temporary else sync
        self._path = _private_folder() / "store.db" if path is None else path
        self._where = str(self._path)
        self.keys: FileKeyring | Keyring = (
            FileKeyring(self._path.with_name(f"{self._path.name}.audit-key"), make=True)
            if keys is None
            else keys
        )
        self.defaults: Policy | None = None
        self._kept_keys: list[str] = []
        self._lock = StoreLock(self._beside(".lock"))
        self._turn = None if self._exclusive else Turn(self._beside(".turn"), self._lock)
        self._upkeep = None if self._exclusive else UpkeepLease(self._beside(".upkeep"))
        self._publisher = None if self._exclusive else PublisherLease(self._beside(".upkeep"))
        self._bells = (
            None
            if self._turn is None
            else NamespaceBells(
                lambda: self._inline,
                self._turn.opened,
                written_by_others=self._written_by_others,
                heads=lambda: self.fetch(statements.HEADS),
            )
        )
        self._ballast = Ballast(self._beside(".ballast"))
        self._presence = Presence(self._path)
        self._writer = Writer(self._where, self._covered, self._turn, self._may_grow)
        self._reader = ReaderThread()
        self._examiner = Examiner(self._path)
        self._inline: sqlite3.Connection | None = None
        self._patient: sqlite3.Connection | None = None
        self._thread_connections = ThreadConnections(self._path, self._presence.there)
        self.cache_bytes = cache_bytes
        self._cache = RowCache(0)
        self._header: LogHeader | None = None
        self._contended = False
        self._quiet = 0
        self._looks = 0
        self.epoch = ""
        """The name of this life of the storage."""
        self._read_only = False
        self._unfinished_too = False
        self._process = seams.pid()
        self._closed_line: KeptLine | None = None

    # Opening and closing.

    def open_read_only(self) -> None:
        """See `Movable.open_read_only`: don't create or lock any file until the first write."""
        self._read_only = True

    def announce(self, url: str) -> None:
        """See `LocalFile.announce`."""
        self._lock.announce(url)

    def open_unfinished(self) -> None:
        """See `Movable.open_unfinished`. Who loads a file has it alone, since others know its contents."""
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
        """See `Engine.capabilities`."""
        return Capabilities(
            durable=not self._temporary,
            multi_process=not (self._exclusive or self._unfinished_too),
            owns_reaper=not self._lock.held,
            glances=True,
        )

    def leads_upkeep(self) -> bool:
        """See `LocalFile.leads_upkeep`."""
        return self._upkeep is None or self._upkeep.leads()

    async def start(self) -> None:
        """Open the file for writing, or for reading if this process may not write to its folder."""
        self._cache = RowCache(self.cache_bytes, self._writer.pending)
        self._writer.start()
        try:
            await self._writer.run(self._open)
        except BaseException:
            await self.aclose()
            raise

    async def ready(self) -> None:
        """See `Engine.ready`: the file may be gone or closed, or another process may need it for itself."""
        if not self._lock.held:
            if seams.pid() != self._process:
                raise Unavailable(
                    f"{self._where} was opened before this process was forked: open it again in this process"
                )
            await self._writer.run(self._become_writer)
        self._presence.look()
        await self.quick(self._require_open)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        self._cache.follow(None)
        if self._bells is not None:
            await self._bells.aclose()  # on the loop, since it uses a connection that is closed next
        connections = self._inline, self._patient
        self._inline = self._patient = None  # on the loop, so that whoever reads from now on is refused
        await seams.aside(self._close, *connections)

    def _beside(self, suffix: str) -> Path:
        return beside(self._path, suffix)

    def _open(self) -> None:
        if self._temporary:
            private.make_folder(self._path.parent)
        elif not self._path.parent.is_dir():
            raise Unavailable(f"the folder of {self._where} does not exist")
        try:
            self._with_room(self._enter)
            self._inline = connect(self._path, patience=0)
            self._patient = connect(self._path, patience=5)
            require_current(self._patient, self._where, self._lock.holder)
            self._require_finished(self._patient)
            [self.epoch] = self._patient.execute(statements.EPOCH).fetchone()
            self._examiner.open()
            self._presence.remember()
            self._header = self._writer.header = LogHeader.of(self._beside("-shm"))
            if self._sync == "FULL":
                self._writer.room = LogRoom(self._beside("-wal"))
            self._cache.follow(self._header)
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def _enter(self) -> None:
        require_own(self._path)
        self._require_usable()
        if not self._read_only:
            self._join()

    def _with_room(self, step: Callable[[], T]) -> T:
        """Take a step of opening the file. As long as the disk is full, free some ballast and try again."""
        self._ballast.yield_to_opening()
        while True:
            try:
                return step()
            except sqlite3.Error as error:
                if not is_full(error) or not self._ballast.shrink():
                    raise

    def _join(self) -> bool:
        """Take the store's lock and open the connection that writes; create or migrate the file if alone.

        Returns:
            False if this process may not write in the file's folder.

        Raises:
            Unavailable: Another process needs the file for itself, or its folder can't be written to.
        """
        if not self._exclusive and not self._allow_network:
            require_local(self._path)
        try:
            while not self._entered():
                pass
        except OSError as error:
            if self._path.exists():
                return False
            raise Unavailable(f"{self._where} can't be created: its folder can't be written to") from error
        except BaseException:
            self._lock.close()
            raise
        self._writer.restrict()
        return True

    def _entered(self) -> bool:
        """Try to enter. Return False if another process had the file for itself in between."""
        alone = self._lock.acquire()
        if not alone and self._unfinished_too:
            raise Unavailable(f"{self._where} is open in {self._lock.holder()}: stop it and try again")
        if not alone and (self._exclusive or not self._lock.join()):
            raise Unavailable(
                f"{self._where} is held by {self._lock.holder()}, which does not share it: stop it, or wait "
                "until it is done, and try again"
            )
        self._ballast.require_plain()
        if alone:
            connection = prepare(self._path, sync=self._sync, epoch=self._first_epoch)
            if self._turn is not None:
                try:
                    connection.execute(statements.OPENED, [seams.token(8)])
                except BaseException:
                    connection.close()
                    raise
        else:
            connection = connect_writer(self._path, sync=self._sync)
        if self._turn is not None:
            before = self._path.stat()
            if not self._unfinished_too:
                self._lock.share()
            if not os.path.samestat(before, self._path.stat()):  # it was replaced while nobody held the lock
                connection.close()
                return False
            self._turn.join(alone=alone)
            # Rows that were kept while the file was open for reading may be old: nothing is decided on them.
            self._contended = not alone or self._inline is not None
        self._writer.use(connection)
        return True

    def _become_writer(self) -> None:
        """Begin to write to a file that was opened only for reading.

        Raises:
            Unavailable: This process may not write to the file, or another one needs it for itself.
        """
        if self._lock.held:
            return
        self._presence.look()  # otherwise it might write to one file and read another
        try:
            if not self._with_room(self._join):
                raise Unavailable(f"{self._where} can't be written to: its folder can't be written to")
            self._presence.look()
        except sqlite3.Error as error:
            raise translated(error, self._where) from error

    def _covered(self, log_bytes: int) -> bool:
        if self._turn is not None and self._turn.shared:
            self._ballast.look()
        return self._temporary or self._ballast.cover(log_bytes)

    def _may_grow(self) -> bool:
        """Return whether the file may take more of the disk. What was freed for deletes is not for others."""
        return self._covered(0) or not self._ballast.released

    def _make_room(self) -> bool:
        """Free the ballast, let the file grow into it, and restart the log. Return whether that helps."""
        dropped = self._ballast.drop()
        if not self._writer.let_grow() and not dropped:
            return False
        self._writer.checkpoint("RESTART")
        return True

    def _close(self, *connections: sqlite3.Connection | None) -> None:
        self._examiner.close()
        self._writer.stop(self._leave)
        self._reader.shutdown()
        self._thread_connections.close()
        for connection in (*connections, self._inline, self._patient):  # opening may have been cancelled
            if connection is not None:
                connection.close()
        self._inline = self._patient = None
        if self._header is not None:
            self._header.leave()
            self._header = None
        for lease in (self._upkeep, self._publisher):
            if lease is not None:
                lease.close()
        self._lock.close()
        if self._temporary:
            # late: it takes 3 ms, and only a temporary store needs it
            import shutil

            shutil.rmtree(self._path.parent, ignore_errors=True)

    def _leave(self) -> None:
        """Checkpoint the log; if no other process has the file open, shorten it and keep the time."""
        alone = self._lock.alone or (self._lock.held and self._lock.attempt())
        if alone and self._closed_line is not None:
            with contextlib.suppress(HoldfastError):
                self._writer.note(statements.KEEP_LINE, [msgspec.json.encode(self._closed_line).decode()])
        self._writer.checkpoint("TRUNCATE" if alone else "PASSIVE")

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
            contended = self._contended or (seams.BUGGIFY and seams.maybe("sqlite.contended"))
            try:
                if contended:
                    return await self._decide_in_turn(commands, now)
                outcome = await self.decide(commands, now)
                changed = seams.BUGGIFY and seams.maybe("sqlite.seems_changed")
                await self.save(outcome, now, -1 if changed else seen)
            except Stale as stale:
                # A group that was decided in its turn comes here because its deadline has passed.
                if not contended and stale.found != seen and self._turn is not None:
                    self._contended, self._quiet = True, 0
                    self._turn.shared = True
            else:
                return outcome
        raise Busy(f"{self._where} is being written by another program without a pause")

    async def _decide_in_turn(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Load, decide and save a group within one transaction, on the writer's thread.

        Raises:
            Stale: The outcome's deadline has passed.
        """
        writer = self._writer

        def work(connection: sqlite3.Connection) -> Outcome:
            decider = Decider(Transaction(connection), RowCache(0), self.keys, self.defaults)
            return without_loop(decider.decide(commands, now))

        def plan(outcome: Outcome) -> tuple[list[Statement], int]:
            return ([], 0) if outcome.empty else (statements.save(outcome), statements.pages(outcome))

        def late(outcome: Outcome) -> bool:
            return outcome.deadline is not None and now() > outcome.deadline

        try:
            outcome, found, span = await self._writer.run(partial(writer.decide, work, plan, late))
            if not self._presence.still():
                raise self._presence.loss(wrote=not outcome.empty)
        except BaseException:
            self._cache.forget()  # it is unknown what was kept
            raise
        if found != writer.data_version:
            self._cache.forget()
            writer.data_version = found
            self._quiet = 0
        else:
            self._quiet += 1
            self._contended = self._quiet < QUIET_GROUPS
            if not self._contended:
                self._cache.forget()  # a cancelled write may have been kept since these rows were read
        self._cache.learn(outcome, span)
        return outcome

    def decide(self, commands: Sequence[Command], now: Callable[[], int]) -> Awaitable[Outcome]:
        """Load and decide on the loop without saving anything; see `Decider.decide`."""
        return Decider(self, self._cache, self.keys, self.defaults).decide(commands, now)

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
            job: Callable[[], Span | None] = partial(writer.make_sure, seen)
        else:
            long = len(outcome.rows) > MANY_ROWS
            plan = await _planned(outcome) if long else statements.save(outcome)
            plan += also
            job = partial(writer.commit, plan, statements.pages(outcome), now, outcome.deadline, seen)
            if long:
                job = partial(job, yields=YieldBudget())
        try:
            span = await self._writer.run(job)
            if not self._presence.still():
                raise self._presence.loss(wrote=bool(also) or not outcome.empty)
        except BaseException as error:
            self._cache.forget()  # it is unknown what was kept
            if isinstance(error, Stale):
                writer.data_version = error.found
            elif isinstance(error, asyncio.CancelledError):
                # The writer's thread goes on with it, so what comes next is decided after it, on that thread.
                self._contended, self._quiet = True, 0
            raise
        if seen == writer.data_version:  # otherwise others have written since
            self._cache.learn(outcome, span)

    def forget(self) -> None:
        """Forget every row that is kept in memory: the contents of the file change by another way."""
        self._cache.forget()

    # Reads.

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """See `Engine.glance`: SQLite answers at once, unless the file is locked."""
        if self._inline is None:
            return LATER
        try:
            if len(addresses) == 1:
                row = self._get(self._inline, addresses[0])
                return [row if row is not None and row.alive(now) else None]
            return self._get_many(self._inline, addresses, now)
        except sqlite3.Error:
            return LATER

    def _get(self, connection: sqlite3.Connection, address: Address) -> Row | None:
        cache = self._cache
        at = cache.fresh()
        row = None if at is None else cache.get(address)
        if row is None:
            row = reads.get(connection, address)
            if at is not None and row is not None:
                cache.keep(at, [(address, row)])
        return row

    def _get_many(
        self, connection: sqlite3.Connection, addresses: Sequence[Address], now: int
    ) -> list[Row | None]:
        """Return rows that are alive, all of them as they were at one moment."""
        cache = self._cache
        at = cache.fresh()
        if at is None:
            return reads.get_alive(connection, addresses, now)
        rows = {address: row for address in addresses if (row := cache.get(address)) is not None}
        missing = [address for address in addresses if address not in rows]
        if missing:
            loaded = zip(missing, reads.get_alive(connection, missing, now), strict=True)
            rows_loaded = {address: row for address, row in loaded if row is not None}
            if not cache.keep(at, rows_loaded.items()):
                return reads.get_alive(connection, addresses, now)
            rows |= rows_loaded
        return _alive(rows, addresses, now)

    def peek(self, address: Address, now: int) -> Row | Later | None:
        """See `LocalFile.peek`."""
        if self._inline is None:
            return LATER
        row = self._cache.peek(address) or self._thread_connections.get(address)
        return row if row is None or isinstance(row, Later) or row.alive(now) else None

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        if len(addresses) == 1 and addresses[0].space == KV:
            row = await self.quick(lambda connection: reads.get(connection, addresses[0]))
            return [row if row is not None and row.alive(now) else None]
        wanted = dict.fromkeys(addresses, True)
        if addresses and addresses[0].space.startswith(PARTS):  # large: the loop has other things to do
            return _alive(await self.aside(reads.load_rows, wanted), addresses, now)
        cache = self._cache
        at = cache.fresh()
        rows = {}
        if at is not None:
            rows = {address: row for address in wanted if (row := cache.get(address)) is not None}
        missing = {address: True for address in wanted if address not in rows}
        if missing:
            loaded = await load_rows(self, missing)
            if at is not None and not cache.keep(at, loaded.items()) and rows:
                loaded = await load_rows(self, wanted)  # all of them at one moment
            rows |= loaded
        return _alive(rows, addresses, now)

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`. Few rows are read on the loop, also where many more were allowed."""
        brief = query
        if query.limit > reads.BRIEF_ROWS and query.after is None:  # what follows a page is seldom short
            brief = msgspec.structs.replace(query, limit=reads.FIRST_ROWS)
        if brief.limit <= reads.BRIEF_ROWS:
            found = await self.quick(lambda connection: reads.scan_briefly(connection, brief, now))
            if found is not None and (brief is query or not found.more):
                return found
        return await self.aside(reads.scan, query, now)

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """See `Engine.due`."""
        sql = statements.due(space, owned=namespace is not None)
        if space == KV:
            owner = [] if namespace is None else [plugin_column(namespace)]
        else:
            owner = [space] if namespace is None else [namespace, space]
        found = await self.aside(reads.fetch, sql, [now, *owner, limit])
        return [
            Due(namespace=namespace_of(name) if space == KV else name, key=key, expires_at=expires_at)
            for name, key, expires_at in found
        ]

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """See `Engine.falling_due`."""
        found = await self.aside(reads.fetch, statements.FALLING_DUE, [since, until, limit])
        return [
            Due(namespace=namespace_of(name), key=key, expires_at=expires_at)
            for name, key, expires_at in found
        ]

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        return await self.aside(reads.journal, query, self.epoch if self._exclusive else None)

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`."""
        return await self.aside(reads.totals, now, namespace)

    async def owners(self, space: str) -> list[str]:
        """See `Engine.owners`."""
        return sorted(name for (name,) in await self.aside(reads.fetch, statements.OWNERS, [space]))

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Run a query of another part of the engine, and return all rows that it finds."""
        return await self.aside(reads.fetch, sql, parameters)

    async def quick(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a quick query on the loop. If the file is locked, wait for it on the reader's thread."""
        if self._inline is None:
            raise Unavailable(f"{self._where} is not open")
        self._looks += 1
        if self._looks % LOOKS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            return query(self._inline)
        except sqlite3.Error as error:
            if primary_code(error) not in LOCKED:
                raise translated(error, self._where) from error
        return await self.aside(query)

    async def aside(self, query: Callable[..., T], *arguments: object) -> T:
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
        return await self.aside(setup.remembered)

    async def remember(self, now: int) -> int:
        """See `DurableStorage.remember`."""
        kept = await self.aside(setup.kept_time)
        if not self._lock.held or self._temporary:
            return kept
        if self._exclusive or kept < now - REMEMBERED_MS:
            span = await self._writer.run(partial(self._writer.note, statements.REMEMBER, [str(now)]))
            self._cache.pass_over(span)
        return max(kept, now)

    async def kept_line(self) -> KeptLine | None:
        """See `LineKeeper.kept_line`."""
        return await self.aside(setup.kept_line)

    async def agree_on_line(self, clock: SystemClock) -> KeptLine | None:
        """See `LineKeeper.agree_on_line`: the first process to ask decides for all of them."""
        if self._temporary:
            return msgspec.structs.replace(clock.kept(), opened="")
        if not self._lock.held:
            kept = await self.kept_line()
            return msgspec.structs.replace(kept, opened=None) if kept and kept.counts_for(clock) else None
        agreed = await self.aside(setup.agreed_line)
        if agreed is None or self._exclusive:
            proposed = clock.kept()
            agreed = await self._writer.run(partial(self._settle_line, proposed))
        if agreed.machine != clock.machine:
            raise Unsupported(
                f"{self._where} is open in {self._lock.holder()}, whose clock can't be compared with the one "
                "of this process: they run in different time namespaces"
            )
        return agreed

    def _settle_line(self, proposed: KeptLine) -> KeptLine:
        """Keep a line, unless another process has kept one meanwhile. Writer's thread only."""

        def choose(connection: sqlite3.Connection) -> tuple[KeptLine, bool]:
            agreed = None if self._exclusive else setup.agreed_line(connection)
            if agreed is not None:
                return agreed, False
            opened = "" if self._exclusive else setup.opened(connection)
            return msgspec.structs.replace(proposed, opened=opened), True

        def plan(chosen: tuple[KeptLine, bool]) -> tuple[list[Statement], int]:
            line, new = chosen
            return ([(statements.KEEP_LINE, [msgspec.json.encode(line).decode()])], 1) if new else ([], 0)

        (agreed, _), _, _ = self._writer.decide(choose, plan, lambda _: False)
        return agreed

    async def close_line(self, clock: SystemClock) -> None:
        """See `LineKeeper.close_line`: it is kept when the file is closed, by the last process."""
        self._closed_line = msgspec.structs.replace(clock.kept(), open=False)

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
        self._cache.pass_over(await self._writer.run(partial(self._writer.note, statements.KEEP_KEYS, said)))
        return await self.kept_keys()

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

    # What other processes change.

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `SharedStorage.hint`."""
        return no_hint if self._bells is None else self._bells.hang(namespace, ring)

    def follow(self, changed: Callable[[Sequence[tuple[str, int]]], None]) -> Callable[[], None]:
        """See `LocalFile.follow`."""
        return no_hint if self._bells is None else self._bells.follow(changed)

    def publishes(self, bus: str) -> bool:
        """See `LocalFile.publishes`."""
        return self._publisher is None or self._publisher.leads(bus)

    async def _written_by_others(self) -> int:
        """Return the `data_version` of the connection that writes, whose own commits don't change it."""
        return await self._writer.run(self._writer.current_version)

    async def clock(self, ticks: Callable[[], float]) -> None:
        """Return None: there is no clock but this machine's."""

    def figures(self) -> None:
        """Return None: there is no cluster."""

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """See `Movable.close_to_writes`."""
        self._presence.look()
        await raw.close_to_writes(self._path, reason, instead_of)


def _alive(rows: dict[Address, Row], addresses: Sequence[Address], now: int) -> list[Row | None]:
    """Return the rows at these addresses that are alive, by position."""
    found = map(rows.get, addresses)
    return [row if row is not None and row.alive(now) else None for row in found]


def _private_folder() -> Path:
    """Return the folder of a temporary store."""
    # late: it takes 4 ms, and only a temporary store needs it
    import tempfile

    return Path(tempfile.gettempdir(), f"holdfast-{seams.token(8)}")


async def _planned(outcome: Outcome) -> list[Statement]:
    """Return the statements that save an outcome of many rows, prepared in several turns of the loop."""
    plan: list[Statement] = []
    for part in statements.split(outcome, MANY_ROWS):
        plan += statements.save(part)
        await turns(TURNS_AFTER_SLICE)
    return plan
