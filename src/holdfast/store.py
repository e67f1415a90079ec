"""The store, which callers hold. It opens and closes the pipeline and hands out handles on it.

Law: everything asynchronous here has an owner, and closing waits for it. Nothing below this module imports
it, not even for types.
"""

from __future__ import annotations

import asyncio
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from holdfast import families, operators, rules, upkeep
from holdfast.handles.kv import KV
from holdfast.operators.operations import Operations
from holdfast.pipeline.entrance import CLOSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from holdfast.clock import Clock
    from holdfast.commands import Command, Result
    from holdfast.engine import Engine, ServiceEngine, Swept
    from holdfast.errors import HoldfastError

    # late: tables take 12 ms to import, blobs some more, and few programs have any
    from holdfast.handles.blobs import Blobs
    from holdfast.handles.tables import Tables
    from holdfast.model import Policy
    from holdfast.operators.rescues import Rescues
    from holdfast.upkeep.reaper import Reaper


class Store(Operations):
    """Everything behind one URL. Use it as an asynchronous context manager.

    Programs get a store from `holdfast.open` and call `kv`, `semantic`, `tables` and `blobs`. The methods
    that take commands, queries or addresses are for edges and recipes.

    Args:
        engine: Where rows are kept.
        clock: The clock to use instead of the machine's, for tests.
        writer: Name of the writer if a call does not give one.
        sweep_interval: Longest time in seconds until plain entries that have expired are removed.
        reap: Whether this store notices expiry by itself.
        defaults: The `quota_bytes` and the `rate_limit` of namespaces whose policies have none. Its other
            fields have no effect.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        writer: str | None = None,
        sweep_interval: float = 300,
        reap: bool = True,
        defaults: Policy | None = None,
    ) -> None:
        super().__init__(engine, self._make_room, clock=clock, writer=writer, defaults=defaults)
        self._reap = reap
        self._sweep_interval = sweep_interval
        self._tasks: list[asyncio.Task[None]] = []

    @cached_property
    def _reaper(self) -> Reaper:
        """The reaper, imported on first use: a process that only reads does not need it."""
        reaper = upkeep.Reaper(self._engine, self.execute, self._clock, interval=self._sweep_interval)
        reaper.found = self._rates.learn
        reaper.steady = lambda: self.timekeeper.steady
        return reaper

    async def start(self) -> None:
        """Open the store. `async with` does this.

        Raises:
            HoldfastError: The storage can't be opened.
        """
        await self._engine.start()
        self._refusal = None
        try:
            await self.timekeeper.open()
        except BaseException:  # nobody closes a store that was not opened
            self._refusal = CLOSED
            await self._engine.aclose()
            raise
        self._tasks.append(asyncio.create_task(self.timekeeper.run(), name="holdfast clock"))
        if self._reap:
            self._tasks.append(asyncio.create_task(self._reaper.run(), name="holdfast reaper"))
            if not self.capabilities.owns_reaper:
                finishing = upkeep.keep_finishing(self, self._sweep_interval)
                self._tasks.append(asyncio.create_task(finishing, name="holdfast tables"))

    async def aclose(self) -> None:
        """Close the store: refuse new calls, and finish those that were accepted."""
        self._refusal = CLOSED
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._batcher.aclose()
        for bells in self._bells.values():
            for bell in bells:
                bell.close()
        await self.timekeeper.close()
        await self._engine.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def kv(self, plugin: str) -> KV:
        """Get the keys of a plugin.

        Args:
            plugin: Name of 1 to 100 of the characters a-z, 0-9, `_` and `-`.

        Returns:
            A handle on the namespace `kv/<plugin>`.

        Raises:
            InvalidPluginName: The name breaks this rule.

        Example:
            `kv = store.kv("trivia")`
        """
        return KV(self, self.verbs(families.plain(rules.plugin_name(plugin))))

    def semantic(self, tenant: str, project: str) -> KV:
        """Get the keys of a tenant's project. Keys may be given relative or in full, and are shown in full.

        Args:
            tenant: Name of 1 to 63 of the characters a-z, 0-9, `_` and `-`, beginning with a letter or digit.
            project: Name of the same form.

        Returns:
            A handle on the namespace `semantic/<tenant>/<project>`.

        Raises:
            ValidationError: A name breaks this rule.

        Example:
            `kv = store.semantic("acme", "billing")`
        """
        tenant = rules.tenant_part(tenant, field="tenant")
        project = rules.tenant_part(project, field="project")
        namespace = families.semantic(tenant, project)
        return KV(self, self.verbs(namespace, root=rules.semantic_root(namespace)))

    def tables(self, plugin: str) -> Tables:
        """Get the tables of a plugin.

        Args:
            plugin: Name of 1 to 100 of the characters a-z, 0-9, `_` and `-`.

        Returns:
            A handle on the namespace `table/<plugin>`.

        Raises:
            InvalidPluginName: The name breaks this rule.
        """
        # late: tables take 12 ms to import, and few programs have any
        from holdfast.handles.tables import Tables

        namespace = families.tables(rules.plugin_name(plugin))
        return Tables(namespace, self.table_calls(namespace), self._take_charge)

    def blobs(self, plugin: str) -> Blobs:
        """Get the blobs of a plugin.

        Args:
            plugin: Name of 1 to 100 of the characters a-z, 0-9, `_` and `-`.

        Returns:
            A handle on the namespace `blob/<plugin>`.

        Raises:
            InvalidPluginName: The name breaks this rule.

        Example:
            `blobs = store.blobs("trivia")`
        """
        # late: blobs take a few ms to import, and few programs have any
        from holdfast.handles.blobs import Blobs

        return Blobs(self, self.verbs(families.blobs(rules.plugin_name(plugin))))

    def table_calls(
        self, namespace: str, *, writer: str | None = None, principal: str | None = None
    ) -> Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]:
        """Get the function that answers calls about tables, for an edge that knows who calls.

        Args:
            namespace: The namespace's full name.
            writer: Name of the writer if a call does not give one; the store's if None.
            principal: Name of the caller, where it is known for certain; the audit records it.

        Returns:
            A function that takes a verb and its fields and returns the fields of the answer.
        """
        # late: tables take 12 ms to import, and few programs have any
        from holdfast.handles.table_calls import TableCalls
        from holdfast.verbs.tables import TableVerbs

        if (service := self._service) is not None:
            return partial(self._ask_service, service, namespace)
        verbs = TableVerbs(namespace, self.verbs(namespace, writer=writer, principal=principal).origin)
        return TableCalls(self, verbs, self.purge).call

    async def _finish_indexes(self) -> None:
        await upkeep.finish_indexes(self)

    async def _ask_service(
        self, service: ServiceEngine, namespace: str, verb: str, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Forward a call to the other side, which does not know this store's default writer."""
        # late: tables take 12 ms to import, and few programs have any
        from holdfast.verbs.tables import WRITES

        if verb in WRITES and self._writer and fields.get("last_writer") is None:
            fields = {**fields, "last_writer": self._writer}
        return await service.table(namespace, verb, fields)

    @cached_property
    def rescues(self) -> Rescues:
        """Copies of this store that callers of a service ask for."""
        return operators.Rescues(self.rescue, self._take_charge)

    def _take_charge(self, task: asyncio.Task[None]) -> None:
        """Cancel a task when the store closes."""
        self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)

    async def _make_room(self, namespace: str, excess: int) -> Swept:
        self._reading()
        return await self._reaper.sweep_inline(namespace, excess=excess)

    async def sweep(self) -> int:
        """Remove the entries that have expired, now.

        Returns:
            The number of entries removed.
        """
        return await (self.service or self._reaper).sweep()

    async def upkeep(self) -> None:
        """Drop what the trash, the remembered requests and the journal have kept long enough, now.

        Interrupted work continues: dropping tables and indexes, and filling indexes.
        """
        if (service := self.service) is not None:
            await service.upkeep()
        else:
            await self._reaper.upkeep()
            await self._finish_indexes()

    async def purge(self, namespace: str) -> None:
        """Remove what is left of tables and indexes that were dropped. Upkeep does this too.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        self._reading()
        await self._reaper.purge(rules.namespace(namespace))

    def measure(
        self,
        *,
        grouped: Callable[[int], None] | None = None,
        swept: Callable[[int, float], None] | None = None,
        failed: Callable[[], None] | None = None,
        decided: Callable[[Command, Result | HoldfastError], None] | None = None,
        retried: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """Report groups, sweeps, commands and retries to callbacks, which replace earlier ones.

        Args:
            grouped: Called with the size of every group.
            swept: Called with the number of entries that a sweep removed and the seconds that it took.
            failed: Called when a sweep of this store failed.
            decided: Called with every command and its result or error.
            retried: Called for every write that this process repeats or gives up, with its namespace, with
                `retried`, `fatal` or `escalated`, and with the code of the error. With `decided`, a write
                that is kept as a dead letter in this store is reported there alone, as an `Escalate`.
        """
        self._batcher.grouped = grouped
        self._reaper.swept = swept
        self._reaper.failed = failed
        self._groups.decided = decided
        self._retried = retried
