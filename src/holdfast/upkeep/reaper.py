"""Noticing what time has done: expired entries go, and so does what was kept long enough.

Law: the reaper has no power of its own. It asks the engine what is due and hands in the same commands as
everybody, a few keys at a time, so that others get their turn between. Entries with semantics are noticed in
time by the look-out, which does not wait for a sweep to end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Final

from holdfast import rules
from holdfast.audit.chain import AUDIT, address_of, head_of, record_of
from holdfast.bounded import Bounded
from holdfast.commands import Expire, ExpireRun, PruneAudit, Removed, Trim
from holdfast.decide.policies import audit_seconds, audited, journal_yields, policy_of
from holdfast.engine import JournalQuery, Scan, Swept
from holdfast.errors import DatabaseError, HoldfastError, Unsupported
from holdfast.pipeline.audit_key import bind_keys
from holdfast.pipeline.audits import suspects
from holdfast.rows import KV, REQUEST, TRASH
from holdfast.upkeep.lookout import Lookout
from holdfast.upkeep.purge import expired_items, purge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import Clock
    from holdfast.commands import Command, Result
    from holdfast.engine import Due, Engine
    from holdfast.rows import Namespace, Record

TICK: Final = 1.0
"""Every how many seconds the reaper looks for entries that are due."""
LOOK: Final = 250
CHUNK: Final = 25
"""How many due rows are asked for at a time, and how many go in one command.

The commands for one look are handed in together, so that they share a commit; each is small, so that an
engine can serve others between two of them.
"""
CROWD: Final = 64
"""From how many due entries of a namespace in one look on they are asked to go as a run."""
RUN: Final = 250
"""How many entries go in one run: a few milliseconds of the writer's, which a write may have to wait for."""
MORE_ROOM: Final = 1_048_576
"""By how many bytes a journal is shortened beyond what is needed, at the most."""
SLOW_SWEEP: Final = 1.0
LONGEST_PAUSE: Final = 60.0
FOR_EVER: Final = 253_402_300_799_000
"""A deadline that nothing has: the last second of the year 9999, which every engine can hold."""

MOST_HEADS: Final = 16_384
"""Of how many audits it is known which head was logged last; past that, some are logged again unchanged."""

TABLES: Final = "table/"
"""How the names of namespaces begin that hold tables."""

_log = logging.getLogger("holdfast.reaper")


class Reaper:
    """Sweeps a store's engine.

    Args:
        engine: What to look through.
        execute: Has a command done.
        clock: The time to go by.
        interval: Every how many seconds records are dropped and a line is logged.
    """

    def __init__(
        self,
        engine: Engine,
        execute: Callable[[Command], Awaitable[Result]],
        clock: Clock,
        *,
        interval: float,
    ) -> None:
        self._engine = engine
        self._execute = execute
        self._clock = clock
        self._interval = interval
        self._removed = 0
        self._seconds = 0.0
        self._heads: Bounded[str, int] = Bounded(MOST_HEADS)
        self._lookout = Lookout(engine, self._expire_in_time, clock, steady=self._may_sweep)
        self.swept: Callable[[int, float], None] | None = None
        self.failed: Callable[[], None] | None = None
        self.found: Callable[[list[Namespace]], None] | None = None
        self.steady: Callable[[], bool] = lambda: True
        """Whether the time is known well enough to remove anything by it."""

    async def run(self) -> None:
        """Sweep every second and keep house every interval, until cancelled."""
        _log.debug("cleanup of expired entries started")
        try:
            await asyncio.gather(self._go_on(), self._lookout.run())
        finally:
            _log.debug("cleanup of expired entries stopped")

    async def _go_on(self) -> None:
        due_at = time.monotonic() + self._interval
        await self._learn()
        while True:
            await asyncio.sleep(min(TICK, self._interval))
            if self._engine.capabilities.owns_reaper or not self._may_sweep():
                continue
            try:
                await self.sweep()
                if time.monotonic() >= due_at:
                    due_at = time.monotonic() + self._interval
                    await self.upkeep()
                    self._log_interval()
            except Exception as error:
                if self.failed is not None:
                    self.failed()
                _log.error("sweeping failed; retrying after a pause: %s", error, exc_info=error)
                await asyncio.sleep(min(self._interval, LONGEST_PAUSE))

    def _may_sweep(self) -> bool:
        return self.steady()

    async def sweep(self) -> int:
        """Expire every entry that is due; how many that was."""
        began = time.monotonic()
        removed = await self._expire_entries(self._clock.now())
        seconds = time.monotonic() - began
        if seconds > SLOW_SWEEP:
            _log.warning("a sweep took %.1f s for %d expired entries", seconds, removed)
        self._count(removed, seconds)
        return removed

    async def _expire_in_time(self, due: list[Due]) -> int:
        """Expire entries that the look-out has found."""
        began = time.monotonic()
        removed = await self._expire(KV, due)
        self._count(removed, time.monotonic() - began)
        return removed

    def _count(self, removed: int, seconds: float) -> None:
        self._removed += removed
        self._seconds += seconds
        if self.swept is not None:
            self.swept(removed, seconds)

    async def sweep_inline(self, namespace: str, *, excess: int = 0) -> Swept:
        """Make room in a namespace within the turn of a group of its own, for so many bytes if any.

        What is due goes, and of the journal the oldest records, unless a policy says how long they stay.
        """
        journal: list[Record] = []
        while due := await self._engine.due(KV, self._clock.now(), limit=LOOK, namespace=namespace):
            command = Expire(namespace=namespace, space=KV, keys=tuple(row.key for row in due))
            outcome = await self._engine.transact([command], self._clock.now)
            journal += outcome.journal
            if not outcome.journal or len(due) < LOOK:
                break
        async for expire in expired_items(self._engine, namespace, self._clock.now):
            journal += (await self._engine.transact([expire], self._clock.now)).journal
        freed = bool(journal)
        if excess:
            for space in (TRASH, REQUEST):
                freed |= await self._expire_inline(namespace, space)
            freed |= await self._shorten_journal(namespace, excess)
        return Swept(journal=journal, freed=freed)

    async def _expire_inline(self, namespace: str, space: str) -> bool:
        freed = False
        while due := await self._engine.due(space, self._clock.now(), limit=LOOK, namespace=namespace):
            command = Expire(namespace=namespace, space=space, keys=tuple(row.key for row in due))
            freed |= not (await self._engine.transact([command], self._clock.now)).empty
            if len(due) < LOOK:
                break
        return freed

    async def _shorten_journal(self, namespace: str, excess: int) -> bool:
        """Drop the oldest records until there is room, and some more, so that not every write has to wait."""
        totals = await self._engine.totals(self._clock.now(), namespace=namespace)
        if not totals:
            return False
        found, freed = totals[0].namespace, False
        target = found.kept_bytes - 2 * excess - min(MORE_ROOM, found.kept_bytes // 16)
        while found.kept_bytes > target and journal_yields(found):
            query = JournalQuery(
                namespace=namespace, since=found.journal_floor, limit=LOOK, max_bytes=MORE_ROOM
            )
            page = await self._engine.journal(query)
            if not page.records:
                break
            trim = Trim(namespace=namespace, upto=page.records[-1].version)
            outcome = await self._engine.transact([trim], self._clock.now)
            [found] = outcome.namespaces or [found]
            if outcome.empty:
                break
            freed = True
        return freed

    async def purge(self, namespace: str) -> None:
        """Remove what is left of tables and indexes that were dropped."""
        await purge(self._engine, namespace, self._clock.now, self._execute)

    async def upkeep(self) -> None:
        """Drop what the trash, the memory of requests and the journal have kept long enough."""
        now = self._clock.now()
        for namespace in await self._namespaces():
            if namespace.name.startswith(TABLES):
                await self.purge(namespace.name)
            await self._expire_due(TRASH, now, namespace=namespace.name)
            await self._forget_requests(namespace, now)
            await self._trim_journal(namespace, now)
            await self._keep_audit(namespace, now)
        await self._bind_keys()
        for name, reason in (await suspects(self._engine, self._clock.now)).items():
            _log.error("the audit of %s was tampered with: %s; run holdfast audit verify", name, reason)

    async def _learn(self) -> None:
        """Find the namespaces once at the beginning; should that fail, the next upkeep does it."""
        if self._engine.capabilities.owns_reaper:
            return
        import_module("holdfast.decide.decision")  # whoever reaps also writes, and then nobody shall wait
        try:
            await self._namespaces()
        except HoldfastError as error:
            _log.warning("reading the policies of namespaces failed: %s", error.message)
        await self._bind_keys()

    async def _bind_keys(self) -> None:
        """Have the audits go over to a key that was added."""
        try:
            bound = await bind_keys(self._engine, self._execute, self._clock.now)
        except HoldfastError as error:
            _log.error("switching the audits to the newest key failed: %s", error.message)
            return
        if bound:
            _log.info("the newest key signs from now on; audits switched to it: %d", bound)

    async def _namespaces(self) -> list[Namespace]:
        found = [totals.namespace for totals in await self._engine.totals(self._clock.now())]
        if self.found is not None:
            self.found(found)
        return found

    async def _expire_entries(self, now: int) -> int:
        """Have many plain entries of a namespace go together, and all others one by one."""
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
            if isinstance(result, BaseException):  # the others have had their turn
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
        """Prune what the policy no longer keeps, and say where the chain ends, so that it can be compared."""
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
            found = await self._engine.scan(query, self._clock.now())
            old = sum(record_of(row).at <= before for row in found.rows)
            if not old or not await self._ask(PruneAudit(namespace=name, first=floor + 1, upto=floor + old)):
                break
            floor += old

    async def _ask(self, command: Command) -> int:
        result = await self._execute(command)
        assert isinstance(result, Removed)
        return result.count

    def _log_interval(self) -> None:
        level = logging.INFO if self._removed else logging.DEBUG
        _log.log(level, "removed %d expired entries in %.0f ms", self._removed, self._seconds * 1000)
        self._removed, self._seconds = 0, 0.0
