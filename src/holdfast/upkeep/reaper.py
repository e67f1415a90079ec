"""Removal of what is overdue: expired entries, old records, and what is left of dropped tables and blobs.

The reaper has no privileges. It asks the engine what is due and submits the same commands as any caller, a
few keys at a time, so that other commands get their turn between. The deadline watcher expires entries with
semantics in time, without waiting for a sweep to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import groupby
from typing import Final

from holdfast import decide, rules, seams
from holdfast.audit.chain import AUDIT, address_of, head_of, record_of
from holdfast.blobs.manifest import GRACE
from holdfast.bounded import Bounded
from holdfast.clock import Clock
from holdfast.commands import Command, Removed, Result
from holdfast.decide.draft import Outcome
from holdfast.decide.policies import audit_seconds, audited, journal_yields, policy_of, settled_bytes
from holdfast.engine import Due, Engine, JournalQuery, Scan, Swept, does_upkeep
from holdfast.errors import DatabaseError, Defect, HoldfastError, Refused, Transient, Unsupported
from holdfast.families import has_blobs, has_tables
from holdfast.handles.table_walks import expiry_of, pages, step, tables_at
from holdfast.pipeline.audits import bind_keys, suspects
from holdfast.rows import DROPPED, KV, PARTS, REQUEST, TRASH, UPLOAD, Namespace, Record
from holdfast.tables.commands import ExpireItems, Purge
from holdfast.upkeep.deadline_watcher import DeadlineWatcher
from holdfast.upkeep_commands import Expire, ExpireRun, PruneAudit, Trim

TICK: Final = 1.0
"""Interval in seconds at which the reaper searches for due entries."""
LOOK: Final = 250
CHUNK: Final = 25
"""Number of due rows read at a time, and number of rows per command.

The commands for one look are submitted together, so that they share a commit. Each is small, so that an
engine can serve others between two of them.
"""
CROWD: Final = 64
"""Number of due entries of a namespace in one look from which they are expired as a run."""
RUN: Final = 250
"""Number of entries per run. It takes the writer a few milliseconds, which a write may have to wait for."""
MORE_ROOM: Final = 1_048_576
"""Largest number of bytes by which a journal is shortened beyond what is needed."""
SLOW_SWEEP: Final = 1.0
LONGEST_PAUSE: Final = 60.0
FOR_EVER: Final = 253_402_300_799_000
"""A deadline later than any other: the last second of the year 9999, which every engine can store."""

DUE: Final = 25
"""Number of expired rows of tables removed at a time, since each may be large and is loaded in full."""
PARTS_AT_ONCE: Final = 16
"""Number of parts of blobs removed at a time: the database reads each of them to find its pages."""
MOST_HEADS: Final = 16_384
"""Number of audits whose last logged head is cached. Beyond that, some heads are logged again unchanged."""

_log = logging.getLogger("holdfast.reaper")


class Reaper:
    """Sweeps a store's engine.

    Args:
        engine: The engine to search.
        call: Executes a command.
        clock: The store's clock.
        interval: Interval in seconds at which old records are dropped and a line is logged.
    """

    def __init__(
        self,
        engine: Engine,
        call: Callable[[Command], Awaitable[Result]],
        clock: Clock,
        *,
        interval: float,
    ) -> None:
        self._engine = engine
        self._call = call
        self._clock = clock
        self._interval = interval
        self._removed = 0
        self._seconds = 0.0
        self._heads: Bounded[str, int] = Bounded(MOST_HEADS)
        self._watcher = DeadlineWatcher(engine, self._expire_in_time, clock, steady=self._may_sweep)
        self.swept: Callable[[int, float], None] | None = None
        self.failed: Callable[[], None] | None = None
        self.found: Callable[[list[Namespace]], None] | None = None
        self.steady: Callable[[], bool] = lambda: True
        """Returns True if the time is known well enough to remove entries by it."""

    async def run(self) -> None:
        """Sweep every second and do upkeep every interval, until cancelled."""
        _log.debug("cleanup of expired entries started")
        try:
            await asyncio.gather(self._go_on(), self._watcher.run())
        finally:
            _log.debug("cleanup of expired entries stopped")

    async def _go_on(self) -> None:
        due_at = seams.monotonic() + self._interval
        await self._learn()
        while True:
            await asyncio.sleep(min(TICK, self._interval))
            if not does_upkeep(self._engine) or not self._may_sweep():
                continue
            await self._try(self.sweep)
            if seams.monotonic() >= due_at:
                due_at = seams.monotonic() + self._interval
                await self._try(self.upkeep)
                self._log_interval()

    async def _try(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception as error:
            if self.failed is not None:
                self.failed()
            _log.error("sweeping failed; retrying after a pause: %s", error, exc_info=error)
            await asyncio.sleep(min(self._interval, LONGEST_PAUSE))

    def _may_sweep(self) -> bool:
        return self.steady()

    async def sweep(self) -> int:
        """Expire every due entry. Returns the number removed."""
        began = seams.monotonic()
        removed = await self._expire_entries(self._clock.now())
        seconds = seams.monotonic() - began
        if seconds > SLOW_SWEEP:
            _log.warning("a sweep took %.1f s for %d expired entries", seconds, removed)
        self._count(removed, seconds)
        return removed

    async def _expire_in_time(self, due: list[Due]) -> int:
        """Expire entries that the deadline watcher has found. Returns the number removed."""
        began = seams.monotonic()
        removed = await self._expire(KV, due)
        self._count(removed, seams.monotonic() - began)
        return removed

    def _count(self, removed: int, seconds: float) -> None:
        self._removed += removed
        self._seconds += seconds
        if self.swept is not None:
            self.swept(removed, seconds)

    async def sweep_inline(self, namespace: str, *, excess: int = 0) -> Swept:
        """Make room in a namespace, within the turn of its own group; with `excess`, for this many bytes.

        Due entries are removed. With `excess`, so are due rows of the trash and of remembered requests, and
        the oldest records of the journal unless a policy says how long they are kept.
        """
        journal: list[Record] = []
        while due := await self._engine.due(KV, self._clock.now(), limit=LOOK, namespace=namespace):
            command = Expire(namespace=namespace, space=KV, keys=tuple(row.key for row in due))
            outcome = await self._engine.transact([command], self._clock.now)
            journal += outcome.journal
            if not outcome.journal or len(due) < LOOK:
                break
        enough, more = await self._enough(namespace, excess), False
        async with aclosing(expired_items(self._engine, namespace, self._clock.now)) as expiring:
            async for expire in expiring:
                outcome = await self._engine.transact([expire], self._clock.now)
                journal += outcome.journal
                if more := enough(outcome):
                    break
        freed = bool(journal)
        if excess:
            for space in (TRASH, REQUEST):
                freed |= await self._expire_inline(namespace, space)
            dropped, left = await self._drop_parts(namespace, excess)
            freed, more = freed or dropped, more or left
            freed |= await self._shorten_journal(namespace, excess)
        return Swept(journal=journal, freed=freed, more=more)

    async def _expire_inline(self, namespace: str, space: str) -> bool:
        freed = False
        while due := await self._engine.due(space, self._clock.now(), limit=LOOK, namespace=namespace):
            command = Expire(namespace=namespace, space=space, keys=tuple(row.key for row in due))
            outcome = await self._engine.transact([command], self._clock.now)
            freed |= not outcome.empty
            if outcome.empty or len(due) < LOOK:  # if none could be removed, an immediate retry won't help
                break
        return freed

    async def _enough(self, namespace: str, excess: int) -> Callable[[Outcome], bool]:
        """Return what tells, after an outcome, whether there is room for writes that lacked so many bytes.

        All writers wait while one makes room, and there may be millions of items and parts to remove. The
        journal, which grows meanwhile, is shortened after that.
        """
        totals = await self._engine.totals(self._clock.now(), namespace=namespace) if excess else []
        if not totals:
            return lambda outcome: False
        target = settled_bytes(totals[0].namespace) - 2 * excess
        return lambda outcome: any(settled_bytes(row) <= target for row in outcome.namespaces)

    async def _drop_parts(self, namespace: str, excess: int) -> tuple[bool, bool]:
        """Remove parts of blobs that are not needed, even if a reader might still want them.

        Returns:
            Whether some were removed, and whether this ended as soon as there was room.
        """
        if not has_blobs(namespace):
            return False, False
        await self._expire_inline(namespace, UPLOAD)
        enough, now, more = await self._enough(namespace, excess), self._clock.now, False

        async def drop(command: Command) -> bool:
            nonlocal more
            more = enough(await self._engine.transact([command], now))
            return more

        return await purge(self._engine, namespace, now, drop, early=True), more

    async def _shorten_journal(self, namespace: str, excess: int) -> bool:
        """Drop the oldest records until there is room, and some more, so that not every write has to wait."""
        totals = await self._engine.totals(self._clock.now(), namespace=namespace)
        if not totals:
            return False
        row, freed = totals[0].namespace, False
        target = row.kept_bytes - 2 * excess - min(MORE_ROOM, row.kept_bytes // 16)
        while row.kept_bytes > target and journal_yields(row):
            query = JournalQuery(
                namespace=namespace, since=row.journal_floor, limit=LOOK, max_bytes=MORE_ROOM
            )
            page = await self._engine.journal(query)
            if not page.records:
                break
            trim = Trim(namespace=namespace, upto=page.records[-1].version)
            outcome = await self._engine.transact([trim], self._clock.now)
            [row] = outcome.namespaces or [row]
            if outcome.empty:
                break
            freed = True
        return freed

    async def purge(self, namespace: str) -> None:
        """Remove what is left of dropped tables and indexes, and of replaced and deleted blobs."""
        await purge(self._engine, namespace, self._clock.now, self._call)

    async def upkeep(self) -> None:
        """Drop what the trash, the remembered requests, the journal and the audit have kept long enough."""
        now = self._clock.now()
        failed: Exception | None = None
        for namespace in await self._namespaces():
            try:
                await self._tidy(namespace, now)
            except Transient:
                raise
            except Exception as error:  # the other namespaces have done nothing wrong
                _log.error("the upkeep of %s failed: %s", namespace.name, error)
                failed = failed or error
        await self._bind_keys()
        for name, reason in (await suspects(self._engine, self._clock.now)).items():
            _log.error(
                "the audit of %s was tampered with: %s; run holdfast audit verify",
                name or "this store",
                reason,
            )
        if failed is not None:
            raise failed

    async def _tidy(self, namespace: Namespace, now: int) -> None:
        await self._expire_due(TRASH, now, namespace=namespace.name)
        if has_blobs(namespace.name):
            await self._expire_due(UPLOAD, now, namespace=namespace.name)
        if has_tables(namespace.name) or has_blobs(namespace.name):
            await self.purge(namespace.name)
        await self._forget_requests(namespace, now)
        await self._trim_journal(namespace, now)
        await self._keep_audit(namespace, now)

    async def _learn(self) -> None:
        """Read the namespaces once at the start. If that fails, the next upkeep does it."""
        if self._engine.capabilities.owns_reaper:
            return
        decide.load()
        try:
            await self._namespaces()
        except HoldfastError as error:
            _log.warning("reading the policies of namespaces failed: %s", error.message)
        await self._bind_keys(failure=logging.DEBUG)  # opening a store says nothing; an upkeep does

    async def _bind_keys(self, *, failure: int = logging.ERROR) -> None:
        """Switch the audits to a key that was added. A failure is logged at this level."""
        try:
            bound = await bind_keys(self._engine, self._call, self._clock.now)
        except HoldfastError as error:
            _log.log(failure, "switching the audits to the newest key failed: %s", error.message)
            return
        if bound:
            _log.info("the newest key signs from now on; audits switched to it: %d", bound)

    async def _namespaces(self) -> list[Namespace]:
        namespaces = [totals.namespace for totals in await self._engine.totals(self._clock.now())]
        if self.found is not None:
            self.found(namespaces)
        return namespaces

    async def _expire_entries(self, now: int) -> int:
        """Expire all due entries.

        If those of a namespace can't be, for example because the key of its audit is missing, they are due
        for longest at every look. Those of the others are then looked for by namespace.
        """
        try:
            return await self._expire_oldest(now)
        except (Refused, Defect):
            for namespace in await self._namespaces():
                with contextlib.suppress(Refused, Defect):
                    await self._expire_due(KV, now, namespace=namespace.name)
            raise

    async def _expire_oldest(self, now: int) -> int:
        """Expire crowds of plain entries of a namespace in runs, and all other entries one by one."""
        total = 0
        while due := await self._engine.due(KV, now, limit=LOOK):
            crowds = [name for name, count in Counter(row.namespace for row in due).items() if count >= CROWD]
            gone = dict(zip(crowds, await asyncio.gather(*map(self._expire_runs, crowds)), strict=True))
            rest = [row for row in due if not gone.get(row.namespace)]
            removed = sum(gone.values()) + await self._expire(KV, rest)
            total += removed
            if not removed or (len(due) < LOOK and len(rest) == len(due)):
                break
        return total

    async def _expire_runs(self, namespace: str) -> int:
        total, removed = 0, RUN
        while removed == RUN:
            removed = await self._ask(ExpireRun(namespace=namespace, limit=RUN))
            total += removed
        return total

    async def _expire_due(self, space: str, now: int, *, namespace: str | None = None) -> int:
        total = 0
        while due := await self._engine.due(space, now, limit=LOOK, namespace=namespace):
            removed = await self._expire(space, due)
            total += removed
            if len(due) < LOOK or not removed:
                break
        return total

    async def _expire(self, space: str, due: list[Due], *, before: int | None = None) -> int:
        commands = []
        ordered = sorted(due, key=lambda row: row.namespace)
        for namespace, rows in groupby(ordered, key=lambda row: row.namespace):
            keys = [row.key for row in rows]
            for start in range(0, len(keys), CHUNK):
                some = tuple(keys[start : start + CHUNK])
                commands.append(Expire(namespace=namespace, space=space, keys=some, before=before))
        results = await asyncio.gather(*map(self._ask, commands), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):  # all commands have been executed by now
                raise result
        return sum(result for result in results if not isinstance(result, BaseException))

    async def _forget_requests(self, namespace: Namespace, now: int) -> None:
        if not namespace.requests:
            return
        left = namespace.requests - await self._expire_due(REQUEST, now, namespace=namespace.name)
        while left > rules.MAX_REQUESTS:
            limit = min(LOOK, left - rules.MAX_REQUESTS)
            oldest = await self._engine.due(REQUEST, FOR_EVER, limit=limit, namespace=namespace.name)
            removed = await self._expire(REQUEST, oldest, before=oldest[-1].expires_at) if oldest else 0
            if not removed:
                break
            left -= removed

    async def _trim_journal(self, namespace: Namespace, now: int) -> None:
        kept = policy_of(namespace.policy).journal_retention or rules.JOURNAL_RETENTION
        old, many = now - kept * 1000, namespace.revision - rules.MAX_JOURNAL
        floor = namespace.journal_floor
        while floor < namespace.revision:
            page = await self._engine.journal(JournalQuery(namespace=namespace.name, since=floor, limit=LOOK))
            gone = [record.version for record in page.records if record.at <= old or record.version <= many]
            if not gone:
                break
            floor = gone[-1]
            await self._ask(Trim(namespace=namespace.name, upto=floor))

    async def _keep_audit(self, namespace: Namespace, now: int) -> None:
        """Prune the audit to what the policy keeps, and log its head, so that it can be compared later."""
        name, kept = namespace.name, audit_seconds(namespace)
        if kept is None and not audited(namespace):
            return
        try:
            [row] = await self._engine.read([address_of(name, 0)], now)
            head = head_of(row)
            if kept is not None:
                await self._prune_audit(name, head.floor, now - kept * 1000)
        except (DatabaseError, Unsupported) as error:
            _log.error("writing the audit of %s failed: %s", name, error.message)
            return
        if self._heads.get(name, 0) != head.number:
            self._heads.keep(name, head.number)
            _log.info("audit head of %s is %d:%s", name, head.number, head.last)

    async def _prune_audit(self, name: str, floor: int, before: int) -> None:
        while True:
            query = Scan(
                namespace=name,
                space=AUDIT,
                start=address_of(name, floor + 1).key,
                limit=LOOK,
                max_bytes=rules.MAX_TRANSFER_BYTES,
                values=True,
            )
            records = await self._engine.scan(query, self._clock.now())
            old = sum(record_of(row).at <= before for row in records.rows)
            if not old or not await self._ask(PruneAudit(namespace=name, first=floor + 1, upto=floor + old)):
                break
            floor += old

    async def _ask(self, command: Command) -> int:
        result = await self._call(command)
        assert isinstance(result, Removed)
        return result.count

    def _log_interval(self) -> None:
        level = logging.INFO if self._removed else logging.DEBUG
        _log.log(level, "removed %d expired entries in %.0f ms", self._removed, self._seconds * 1000)
        self._removed, self._seconds = 0, 0.0


async def purge(
    engine: Engine,
    namespace: str,
    now: Callable[[], int],
    call: Callable[[Command], Awaitable[object]],
    *,
    early: bool = False,
) -> bool:
    """Remove what is left of a namespace's dropped tables and indexes, and of replaced and deleted blobs.

    The parts of a blob are left for a while to readers that have begun, unless there is no room (`early`).
    It ends before all is removed if `call` returns True.

    Returns:
        True if something was removed.
    """
    marked = [
        bytes(key).decode()
        async for page in pages(lambda query: engine.scan(query, now()), namespace, DROPPED)
        for key, row in zip(page.keys, page.rows, strict=True)
        if early or not bytes(key).decode().startswith(PARTS) or row.updated_at + GRACE * 1000 <= now()
    ]
    for space in marked:
        more, before = True, None
        while more:
            keys = await _left(engine, namespace, space, now)
            if keys and keys == before:
                break  # none of them could be removed, and an immediate retry won't help
            more, before = bool(keys), keys
            if await call(Purge(namespace=namespace, space=space, keys=keys, last=not more)) is True:
                return True
    return bool(marked)


async def _left(engine: Engine, namespace: str, space: str, now: Callable[[], int]) -> tuple[bytes, ...]:
    """Return the keys of some of the rows that are left in a space."""
    if space.startswith(PARTS):
        query = Scan(
            namespace=namespace,
            space=space,
            start=b"",
            limit=PARTS_AT_ONCE,
            max_bytes=rules.MAX_TRANSFER_BYTES,
        )
        return tuple((await engine.scan(query, now())).keys)
    # Values are read too, because their size limits the number of rows: those with a deadline are
    # loaded in full.
    rows = await engine.scan(step(namespace, space, None), now())
    # A scan does not show expired rows, but they must be removed too.
    due = await engine.due(space, now(), limit=DUE, namespace=namespace)
    return tuple({*rows.keys, *(row.key for row in due if isinstance(row.key, bytes))})


async def expired_items(
    engine: Engine, namespace: str, now: Callable[[], int]
) -> AsyncGenerator[ExpireItems]:
    """Yield the commands that expire a namespace's due items. Execute each before taking the next."""
    for schema in await tables_at(lambda query: engine.scan(query, now()), namespace):
        more, before = schema.ttl_attribute is not None, None
        while more:
            due = await engine.due(schema.item_space, now(), limit=DUE, namespace=namespace)
            if due and due == before:
                break  # none of them could be removed, and an immediate retry won't help
            if due:
                yield expiry_of(namespace, schema, due)
            more = len(due) == DUE
            before = due
