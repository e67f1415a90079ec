"""The store: what callers hold. Commands go through it to the engine, results and hints come back.

Law: everything asynchronous here has an owner, and closing waits for it. The store orders, hands on and rings
the watchers' bells; what a command means is not its business.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from holdfast import rules
from holdfast.auditing import Audit
from holdfast.batcher import Batcher
from holdfast.clock import SystemClock
from holdfast.commands import Change, DropLetter, Get, Got, SetPolicy, Written
from holdfast.decide.policies import policy_of
from holdfast.engine import LATER, Housekeeper, Later, TableDoor
from holdfast.errors import HoldfastError, Unavailable
from holdfast.groups import Groups
from holdfast.kv import KV
from holdfast.letters import Letters
from holdfast.model import Stats, moment
from holdfast.rates import Rates
from holdfast.reaper import Reaper
from holdfast.rows import KV as KV_SPACE
from holdfast.rows import Address, Row
from holdfast.selection import select
from holdfast.survey import Survey, stats_of
from holdfast.table import Tables
from holdfast.table_calls import TableCalls
from holdfast.table_upkeep import finish_indexes, keep_finishing
from holdfast.tables.verbs import TableVerbs
from holdfast.trash import trash_page, trash_query
from holdfast.verbs import Verbs, id_maker
from holdfast.view import View
from holdfast.watch import Bell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from holdfast.clock import Clock
    from holdfast.commands import Command, Result
    from holdfast.decide import Outcome
    from holdfast.engine import (
        Capabilities,
        Due,
        Engine,
        Filter,
        JournalPage,
        JournalQuery,
        Scan,
        Scanned,
        Selected,
    )
    from holdfast.model import Entry, Policy, TrashPage
    from holdfast.outage import Outage
    from holdfast.rows import Record
    from holdfast.verbs import Provenance

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
        self._rates = Rates(self._clock.now)
        self._reaper = Reaper(engine, self.execute, self._clock, interval=sweep_interval)
        self._reaper.found = self._rates.learn
        self._groups = Groups(engine, self._clock, self._reaper, self._tell)
        self._batcher = Batcher(self._groups.run, lane_per_namespace=self.capabilities.lane_per_namespace)
        self._reap = reap
        self._sweep_interval = sweep_interval
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
            if not self.capabilities.owns_reaper:
                finishing = keep_finishing(self, self._sweep_interval)
                self._tasks.append(asyncio.create_task(finishing, name="holdfast tables"))

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

    def tables(self, plugin: str) -> Tables:
        """The tables of a plugin."""
        namespace = f"table/{rules.plugin_name(plugin)}"
        return Tables(namespace, self.table_calls(namespace), self._take_charge)

    def table_calls(
        self, namespace: str, *, writer: str | None = None
    ) -> Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]:
        """What answers calls about the tables of a namespace, for a door that knows who calls."""
        engine = self._engine
        if isinstance(engine, TableDoor):
            return partial(engine.table, namespace)
        verbs = TableVerbs(namespace, self.verbs(namespace, writer=writer).origin)
        return TableCalls(self, verbs).call

    def _take_charge(self, task: asyncio.Task[None]) -> None:
        """Have a task end with the store."""
        self._tasks.append(task)

    def verbs(self, namespace: str, *, root: str | None = None, writer: str | None = None) -> Verbs:
        """What makes commands for a namespace, for a door that knows who writes."""
        return Verbs(namespace, writer=writer or self._writer, new_id=self._new_id, root=root)

    async def namespaces(self) -> list[Stats]:
        """What every namespace holds, by name."""
        return [stats_of(totals) for totals in await self._reading().totals(self.now())]

    async def stats(self, namespace: str) -> Stats:
        """What one namespace holds, at a cost that does not grow with it. One never written to is empty."""
        await self._batcher.settled(namespace)
        found = await self._reading().totals(self.now(), namespace=namespace)
        if found:
            return stats_of(found[0])
        return Stats(namespace=namespace, keys=0, bytes=0, version=0, changed_at=moment(0))

    async def sweep(self) -> int:
        """Remove what has expired, now; how many entries that was."""
        keeper = self._reading()
        return await (keeper if isinstance(keeper, Housekeeper) else self._reaper).sweep()

    async def upkeep(self) -> None:
        """Drop what the trash, the memory of requests and the journal have kept long enough, now.

        What was interrupted goes on: dropping tables and indexes, and filling indexes.
        """
        keeper = self._reading()
        if isinstance(keeper, Housekeeper):
            await keeper.upkeep()
        else:
            await self._reaper.upkeep()
            await finish_indexes(self)

    async def purge(self, namespace: str) -> None:
        """Remove what is left of tables and indexes that were dropped; upkeep does it too."""
        self._reading()
        await self._reaper.purge(namespace)

    async def policy(self, namespace: str) -> Policy:
        """What was asked of a namespace."""
        found = await self._reading().totals(self.now(), namespace=rules.namespace(namespace))
        return policy_of(found[0].namespace.policy if found else None)

    async def set_policy(
        self, namespace: str, policy: Policy | dict[str, Any], **provenance: Unpack[Provenance]
    ) -> Policy:
        """Put a namespace under a policy, in place of the one it has; it applies at every door."""
        command = self.verbs(rules.namespace(namespace)).set_policy(policy, **provenance)
        await self.execute(command)
        return policy_of(command.policy)

    async def load(
        self,
        namespace: str,
        entries: Sequence[Entry],
        *,
        keep_versions: bool,
        **provenance: Unpack[Provenance],
    ) -> int:
        """Put at most 1,000 entries with their whole envelopes, as another store had them; how many that was.

        Those that have expired are left out. With `keep_versions` an entry keeps its version where that is
        greater than the namespace's last one, which then goes on from there; else it gets a new one.
        """
        verbs = self.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        result = await self.execute(verbs.load(entries, keep_versions=keep_versions, **provenance))
        assert isinstance(result, Written)
        return result.count

    async def ready(self) -> None:
        """Make sure that a write would be accepted now; the error that would refuse it is raised."""
        self._reading()
        await self._groups.ready()

    @property
    def outage(self) -> Outage:
        """Since when the storage takes no writes, as far as is known."""
        return self._groups.outage

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

    def measure(
        self,
        *,
        grouped: Callable[[int], None],
        swept: Callable[[int, float], None],
        failed: Callable[[], None] | None = None,
        decided: Callable[[Command, Result | HoldfastError], None] | None = None,
    ) -> None:
        """Have the size of every group passed on, of every sweep what it removed and the seconds, and more.

        Args:
            grouped: Is given the size of a group.
            swept: Is given what a sweep removed and the seconds that it took.
            failed: Is called when a sweep of this store's own failed.
            decided: Is given every command and what became of it.
        """
        self._batcher.grouped = grouped
        self._reaper.swept = swept
        self._reaper.failed = failed
        self._groups.decided = decided

    def survey(self) -> Survey:
        """What monitoring looks up, at a bounded cost."""
        return Survey(self._reading(), self.now)

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
            [result] = await self._groups.run([command])
            if isinstance(result, HoldfastError):
                raise result
            return result
        return await self.submit(command)

    def submit(self, command: Command) -> asyncio.Future[Result]:
        """Hand a command over to be grouped with others; the future gets its result or its error."""
        self._reading()
        if isinstance(command, Change) and not isinstance(command, (SetPolicy, DropLetter)):
            self._rates.admit(command.namespace)
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
        self._rates.admit(namespace)
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
        seen = self._reading().glance(Address(namespace, KV_SPACE, key), self.now())
        if seen is not LATER:
            self._rates.admit(namespace)
        return seen

    async def get_all(self, namespace: str, keys: Sequence[str]) -> list[Row | None]:
        """The rows of several entries, by position."""
        self._rates.admit(namespace)
        with self._batcher.reading(namespace, keys):
            await self._batcher.settled(namespace)
            addresses = [Address(namespace, KV_SPACE, key) for key in keys]
            return await self._reading().read(addresses, self.now())

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """Entries of a range of keys, those that a filter lets through."""
        self._rates.admit(query.namespace)
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await select(self._reading(), query, wanted, self.now)

    @asynccontextmanager
    async def view(self, namespace: str) -> AsyncIterator[View]:
        """A look at a namespace that sees all writes handed over before it, and none of this store's after.

        Nothing may be written while it lasts: that would wait for its end.
        """
        with self._batcher.reading(namespace):
            await self._batcher.settled(namespace)
            yield View(self._reading(), self.now)

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Rows of one namespace, whatever they are, that are alive; by position."""
        for namespace in {address.namespace for address in addresses}:
            await self._batcher.settled(namespace)
        return await self._reading().read(addresses, self.now())

    async def scan(self, query: Scan) -> Scanned:
        """Rows of a range of keys of any space."""
        await self._batcher.settled(query.namespace)
        return await self._reading().scan(query, self.now())

    async def due(self, namespace: str, space: str, limit: int) -> list[Due]:
        """Rows of a space that are past their deadline, the longest overdue first."""
        return await self._reading().due(space, self.now(), limit=limit, namespace=namespace)

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Records of a namespace's journal."""
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await self._reading().journal(query)

    def admit(self, namespace: str) -> None:
        """Count a request that the store does not see as one.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self._rates.admit(namespace)

    async def trash(
        self,
        namespace: str,
        prefix: str = "",
        *,
        limit: int | None = None,
        cursor: str | None = None,
        values: bool = False,
    ) -> TrashPage:
        """What was removed of the keys that begin with a prefix and can be restored, for operators.

        A page ends as that of a listing does. An entry is in the trash once its expiry has been noticed.
        """
        verbs = self.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        query = trash_query(namespace, verbs.prefix(prefix), limit=limit, cursor=cursor, values=values)
        with self._batcher.reading(namespace):
            await self._batcher.settled(namespace)
            return await trash_page(self._reading(), query, self.now())

    def audit(self, namespace: str) -> Audit:
        """The record of who changed what in a namespace, for operators."""
        return Audit(self._reading(), rules.namespace(namespace), self.now)

    def letters(self, namespace: str) -> Letters:
        """The dead letters of a namespace, for operators."""
        verbs = self.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        return Letters(self._reading(), verbs, now=self.now, execute=self.execute)

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

    def _tell(self, outcome: Outcome) -> None:
        """Ring for those who watch, and pass the changes on to whoever asked for them."""
        self._rates.learn(outcome.namespaces)
        for namespace in {record.namespace for record in outcome.journal} & self._bells.keys():
            for bell in self._bells[namespace]:
                bell.ring()
        for listener in self._listeners:
            listener(outcome.journal)

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
