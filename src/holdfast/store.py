"""The store: what callers hold. Commands go through it to the engine, results and hints come back.

Law: everything asynchronous here has an owner, and closing waits for it. The store groups, orders, retries a
poisoned group one by one, logs, and rings the watchers' bells; what a command means is not its business.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.batcher import Batcher
from holdfast.clock import SystemClock
from holdfast.commands import Change, Get, Got, Written
from holdfast.decide import Outcome
from holdfast.decide.entries import policy_of
from holdfast.engine import LATER, Housekeeper, Later
from holdfast.errors import Defect, HoldfastError, InternalError, QuotaExceeded, Unavailable
from holdfast.kv import KV
from holdfast.model import Stats, moment
from holdfast.reaper import Reaper
from holdfast.report import report
from holdfast.rows import KV as KV_SPACE
from holdfast.rows import Address, Row
from holdfast.verbs import Verbs, id_maker
from holdfast.watch import Bell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from holdfast.clock import Clock
    from holdfast.commands import Command, Result
    from holdfast.engine import Capabilities, Engine, JournalPage, JournalQuery, Scan, Scanned, Totals
    from holdfast.model import Entry, Policy
    from holdfast.rows import Record

CLOCK_INTERVAL = 30.0
"""Every how many seconds the offset to the storage's clock is measured."""

_log = logging.getLogger("holdfast")


class Store:
    """Everything behind one URL. Use it as an asynchronous context manager.

    Args:
        engine: Where rows are kept.
        clock: The time to go by.
        writer: Who writes when a call does not say.
        sweep_interval: Every how many seconds plain entries that have expired are removed at the latest.
        reap: Whether this store notices expiry by itself.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        writer: str | None = None,
        sweep_interval: float = 300,
        reap: bool = True,
    ) -> None:
        self._engine = engine
        self._clock = SystemClock() if clock is None else clock
        self._writer = rules.identity(writer, field="writer") if writer else _default_writer(engine)
        self._new_id = id_maker()
        self._batcher = Batcher(self._run, lane_per_namespace=self.capabilities.lane_per_namespace)
        self._reaper = Reaper(engine, self.execute, self._clock, interval=sweep_interval)
        self._reap = reap
        self._bells: defaultdict[str, dict[Bell, Callable[[], None]]] = defaultdict(dict)
        self._listeners: list[Callable[[list[Record]], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._open = False

    @property
    def capabilities(self) -> Capabilities:
        """What this store's engine is like."""
        return self._engine.capabilities

    async def start(self) -> None:
        """Open the store; `async with` does it for you."""
        await self._engine.start()
        self._open = True
        await self._steer()
        self._tasks.append(asyncio.create_task(self._keep_time(), name="holdfast clock"))
        if self._reap:
            self._tasks.append(asyncio.create_task(self._reaper.run(), name="holdfast reaper"))

    async def aclose(self) -> None:
        """Close the store: nothing more is accepted, and all that was is finished first."""
        self._open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._batcher.aclose()
        for bells in self._bells.values():
            for bell in bells:
                bell.close()
        await self._engine.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def kv(self, plugin: str) -> KV:
        """The keys of a plugin."""
        return KV(self, self.verbs(f"kv/{rules.plugin_name(plugin)}"))

    def semantic(self, tenant: str, project: str) -> KV:
        """The keys of a tenant's project. Keys are given relative or full and shown full."""
        tenant = rules.tenant_part(tenant, field="tenant")
        project = rules.tenant_part(project, field="project")
        namespace = f"semantic/{tenant}/{project}"
        return KV(self, self.verbs(namespace, root=rules.semantic_root(namespace)))

    def verbs(self, namespace: str, *, root: str | None = None, writer: str | None = None) -> Verbs:
        """What makes commands for a namespace, for a door that knows who writes."""
        return Verbs(namespace, writer=writer or self._writer, new_id=self._new_id, root=root)

    async def namespaces(self) -> list[Stats]:
        """What every namespace holds, by name."""
        return [_stats(totals) for totals in await self._reading().totals(self.now())]

    async def stats(self, namespace: str) -> Stats:
        """What one namespace holds, at a cost that does not grow with it. One never written to is empty."""
        await self._batcher.settled(namespace)
        found = await self._reading().totals(self.now(), namespace=namespace)
        if found:
            return _stats(found[0])
        return Stats(namespace=namespace, keys=0, bytes=0, version=0, changed_at=moment(0))

    async def sweep(self) -> int:
        """Remove what has expired, now; how many entries that was."""
        keeper = self._reading()
        return await (keeper if isinstance(keeper, Housekeeper) else self._reaper).sweep()

    async def upkeep(self) -> None:
        """Drop what the trash, the memory of requests and the journal have kept long enough, now."""
        keeper = self._reading()
        await (keeper if isinstance(keeper, Housekeeper) else self._reaper).upkeep()

    async def policy(self, namespace: str) -> Policy:
        """What was asked of a namespace."""
        found = await self._reading().totals(self.now(), namespace=rules.namespace(namespace))
        return policy_of(found[0].namespace.policy if found else None)

    async def set_policy(self, namespace: str, policy: Policy | dict[str, Any]) -> Policy:
        """Put a namespace under a policy, in place of the one it has; it applies at every door."""
        command = self.verbs(rules.namespace(namespace)).set_policy(policy)
        await self.execute(command)
        return policy_of(command.policy)

    async def load(self, namespace: str, entries: Sequence[Entry], *, keep_versions: bool) -> int:
        """Put at most 1,000 entries with their whole envelopes, as another store had them; how many that was.

        Those that have expired are left out. With `keep_versions` an entry keeps its version where that is
        greater than the namespace's last one, which then goes on from there; else it gets a new one.
        """
        verbs = self.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        result = await self.execute(verbs.load(entries, keep_versions=keep_versions))
        assert isinstance(result, Written)
        return result.count

    async def ready(self) -> None:
        """Make sure that a write would be accepted now; the error that would refuse it is raised."""
        await self._reading().ready()

    def now(self) -> int:
        """The store's time."""
        return self._clock.now()

    @property
    def waiting(self) -> int:
        """How many commands wait for their group."""
        return self._batcher.waiting

    async def overdue(self) -> float:
        """For how many seconds the entry has been due that should go first; 0 if none is."""
        now = self.now()
        due = await self._reading().due(KV_SPACE, now, limit=1)
        return (now - due[0].expires_at) / 1000 if due else 0.0

    def measure(self, *, grouped: Callable[[int], None], swept: Callable[[int, float], None]) -> None:
        """Have the size of every group passed on, and of every sweep what it removed and the seconds."""
        self._batcher.grouped = grouped
        self._reaper.swept = swept

    def listen(self, listener: Callable[[list[Record]], None]) -> None:
        """Have the changes of every commit of this store passed on, after it and in its order."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[list[Record]], None]) -> None:
        """No longer pass changes on to a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def execute(self, command: Command) -> Result:
        """Have a command done; the error that refused it is raised."""
        if not self.capabilities.batching:
            self._reading()
            [result] = await self._run([command])
            if isinstance(result, HoldfastError):
                raise result
            return result
        return await self.submit(command)

    def submit(self, command: Command) -> asyncio.Future[Result]:
        """Hand a command over to be grouped with others; the future gets its result or its error."""
        self._reading()
        return self._batcher.submit(command)

    async def get(self, namespace: str, key: str) -> Row | None:
        """The row of an entry."""
        row, _ = await self.get_at(namespace, key)
        return row

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """The row of an entry, and the time at which it was there.

        A key that is being written to is read in its turn, so that a caller sees a write that it did not
        wait for.
        """
        if self._batcher.writing(namespace, key):
            result = await self.execute(Get(namespace=namespace, key=key))
            assert isinstance(result, Got)
            now = self.now()
            return (result.row if result.row is not None and result.row.alive(now) else None), now
        now = self.now()
        address = Address(namespace, KV_SPACE, key)
        seen = self._reading().glance(address, now)
        if isinstance(seen, Later):
            with self._batcher.reading(namespace, [key]):
                [seen] = await self._engine.read([address], now)
            if self.capabilities.owns_clock:
                await self._steer()
                now = self.now()
        return seen, now

    def glance(self, namespace: str, key: str) -> Row | Later | None:
        """The row of an entry if it can be had without waiting, else `LATER`."""
        if self._batcher.writing(namespace, key):
            return LATER
        return self._reading().glance(Address(namespace, KV_SPACE, key), self.now())

    async def get_all(self, namespace: str, keys: Sequence[str]) -> list[Row | None]:
        """The rows of several entries, by position."""
        with self._batcher.reading(namespace, keys):
            await self._batcher.settled(namespace)
            addresses = [Address(namespace, KV_SPACE, key) for key in keys]
            return await self._reading().read(addresses, self.now())

    async def scan(self, query: Scan) -> Scanned:
        """Rows of a range of keys."""
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await self._reading().scan(query, self.now())

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Records of a namespace's journal."""
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await self._reading().journal(query)

    def bell(self, namespace: str) -> Bell:
        """A bell that rings when something may have changed in a namespace."""
        bell = Bell(lambda: self._put_away(namespace, bell))
        self._bells[namespace][bell] = self._reading().hint(namespace, bell.ring)
        return bell

    def _put_away(self, namespace: str, bell: Bell) -> None:
        self._bells[namespace].pop(bell)()

    def _reading(self) -> Engine:
        if not self._open:
            raise Unavailable("the store is not open")
        return self._engine

    async def _run(self, commands: list[Command]) -> list[Result | HoldfastError]:
        try:
            outcome = await self._engine.transact(commands, self.now())
        except Exception as error:
            if isinstance(error, HoldfastError) and not isinstance(error, Defect):
                raise
            outcome = await self._one_by_one(commands, error)
        outcome = await self._after_sweeping(commands, outcome)
        try:
            self._tell(outcome.journal)
            for command, result in zip(commands, outcome.results, strict=True):
                report(command, result)
        except Exception as defect:
            # The group is committed: whatever those who are told of it do can't change its outcome.
            _log.error("a commit could not be told of", exc_info=defect)
        return outcome.results

    async def _one_by_one(self, commands: list[Command], error: Exception | None) -> Outcome:
        """Do each command for itself, so that one which can't be done fails alone.

        `error` is that of the whole group: that of its only command is known already.
        """
        together = Outcome(results=[], namespaces=[], rows={}, journal=[], trims={})
        for command in commands:
            try:
                if error is not None and len(commands) == 1:
                    raise error
                outcome = await self._engine.transact([command], self.now())
            except Exception as alone:
                together.results.append(_defect(command, alone))
            else:
                together.results.extend(outcome.results)
                together.journal.extend(outcome.journal)
        return together

    async def _after_sweeping(self, commands: list[Command], outcome: Outcome) -> Outcome:
        """Before a quota refuses, what has expired must go: then those it refused are judged once more."""
        full = {
            command.namespace
            for command, result in zip(commands, outcome.results, strict=True)
            if isinstance(result, QuotaExceeded)
        }
        journal, results = list(outcome.journal), list(outcome.results)
        for name in sorted(full):
            journal += await self._swept(name)
        for position, command in enumerate(commands) if len(journal) > len(outcome.journal) else ():
            if isinstance(results[position], QuotaExceeded):
                again = await self._one_by_one([command], None)
                results[position] = again.results[0]
                journal += again.journal
        return msgspec.structs.replace(outcome, results=results, journal=journal)

    async def _swept(self, namespace: str) -> list[Record]:
        """What a sweep for a quota removed: nothing if it failed, and then the quota's refusal stands."""
        try:
            return await self._reaper.sweep_inline(namespace)
        except HoldfastError as error:
            _log.warning("sweeping %s for its quota failed: %s", namespace, error.message)
            return []

    def _tell(self, journal: list[Record]) -> None:
        """Ring for those who watch, and pass the changes on to whoever asked for them."""
        for namespace in {record.namespace for record in journal} & self._bells.keys():
            for bell in self._bells[namespace]:
                bell.ring()
        for listener in self._listeners:
            listener(journal)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_INTERVAL)
            await self._steer()

    async def _steer(self) -> None:
        try:
            self._clock.steer(await self._engine.clock_offset())
        except HoldfastError as error:
            _log.warning("the storage's clock could not be read: %s", error.message)


def _default_writer(engine: Engine) -> str:
    """Who writes when nobody says: a service knows its callers by itself."""
    return "embedded" if engine.capabilities.batching else ""


def _defect(command: Command, error: Exception) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    name = type(command).__name__
    request_id = command.origin.request_id if isinstance(command, Change) else None
    _log.error("%s in %s failed, request %s", name, command.namespace, request_id, exc_info=error)
    return InternalError(f"{name} failed for a reason that Holdfast did not foresee")


def _stats(totals: Totals) -> Stats:
    namespace = totals.namespace
    return Stats(
        namespace=namespace.name,
        keys=namespace.keys - totals.due_keys,
        bytes=namespace.bytes - totals.due_bytes,
        version=namespace.revision,
        changed_at=moment(namespace.changed_at),
    )
