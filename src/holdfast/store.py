"""The store, which programs hold. It opens and closes what executes commands, and hands out handles on it.

Everything asynchronous here has an owner, and closing waits for it. Nothing below this module imports it, not
even for types.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import msgspec

from holdfast import families, operators, rules, upkeep
from holdfast.clock import Clock, SystemClock
from holdfast.commands import Command, Measured, ReadStats, Removed, Result, Written
from holdfast.decide.policies import policy_of
from holdfast.engine import Capabilities, Checkup, Engine, LocalFile, Movable, Swept
from holdfast.errors import HoldfastError, Unavailable, Unsupported, ValidationError
from holdfast.handles.kv import KV
from holdfast.model import Entry, Policy, Rescued, SlowPage, Stats, TrashPage
from holdfast.pipeline.caller import Service
from holdfast.pipeline.outage import Outage
from holdfast.pipeline.pipeline import Pipeline
from holdfast.rows import KV as KV_SPACE
from holdfast.upkeep_commands import Recount
from holdfast.verbs.fields import Provenance

if TYPE_CHECKING:
    # late: tables take 12 ms to import, blobs some more, and few programs have any
    from holdfast.handles.blobs import Blobs
    from holdfast.handles.tables import Tables
    from holdfast.operators.audit import Audit
    from holdfast.operators.letters import Letters
    from holdfast.operators.rescues import Rescues
    from holdfast.operators.store_stats import StoreStats
    from holdfast.operators.tokens import Tokens
    from holdfast.upkeep.reaper import Reaper


AGAIN_SECONDS: Final = 1.0
"""Seconds after which background work goes on that the program has cancelled together with all its tasks."""
_SOUGHT: Final = 64
"""The number of attempts to get an answer from one particular instance of a service."""


class Store:
    """Everything behind one URL. Use it as an asynchronous context manager.

    Programs get a store from `holdfast.open` and call `kv`, `semantic`, `tables` and `blobs`. Handles hold
    its `caller`, which takes commands and answers reads: the pipeline of an engine, or the client of a
    service. Most other methods are for operators.

    Args:
        backend: The engine that keeps the rows, or the client of a service.
        clock: The clock to use instead of the machine's, for tests.
        writer: Name of the writer if a call does not give one.
        principal: Name of the caller, where it is known for certain; the audit records it.
        sweep_interval: Longest time in seconds until plain entries that have expired are removed.
        reap: Whether this store notices expiry by itself.
        defaults: The `quota_bytes` and the `rate_limit` of namespaces whose policies have none. Its other
            fields have no effect.
        cache_bytes: How much memory rows of a SQLite file may take; 0 to keep none, None for 32 MB.
    """

    def __init__(
        self,
        backend: Engine | Service,
        *,
        clock: Clock | None = None,
        writer: str | None = None,
        principal: str | None = None,
        sweep_interval: float = 300,
        reap: bool = True,
        defaults: Policy | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self.caller: Pipeline | Service
        if isinstance(backend, Service):
            backend.use(clock, writer)
            self.caller = backend
        else:
            if cache_bytes is not None and isinstance(backend, LocalFile):
                backend.cache_bytes = rules.whole(cache_bytes, field="cache_bytes")
            self.caller = Pipeline(
                backend,
                self._make_room,
                clock=self._clock,
                writer=writer,
                principal=principal,
                defaults=defaults,
            )
        self._reap = reap
        self._sweep_interval = sweep_interval
        self._tasks: list[asyncio.Task[None]] = []
        self._open = False
        self._engine_at: Callable[[str], object] | None = None
        self._answers_tables = False

    @cached_property
    def _reaper(self) -> Reaper:
        """The reaper, imported on first use: a process that only reads does not need it."""
        pipeline = self.pipeline
        reaper = upkeep.reaper.Reaper(self._engine, pipeline.call, self._clock, interval=self._sweep_interval)
        reaper.found = pipeline.rates.learn
        reaper.steady = lambda: pipeline.timekeeper.steady
        return reaper

    @property
    def _engine(self) -> Engine:
        return self.pipeline.engine

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of this process, for doors.

        Raises:
            Unsupported: The store is behind a service.
        """
        if isinstance(self.caller, Pipeline):
            return self.caller
        raise Unsupported("a service has its pipeline itself: open its store where that is")

    async def start(self) -> None:
        """Open the store. `async with` does this.

        Raises:
            HoldfastError: The storage can't be opened.
        """
        await self.caller.open()
        if isinstance(self.caller, Service):
            return
        self._open = True
        self._keep_running(self.pipeline.timekeeper.run, "holdfast clock")
        if self._reap:
            self._keep_running(self._reaper.run, "holdfast reaper")
            if not self.capabilities.owns_reaper:
                finishing = partial(upkeep.tables.keep_finishing, self.pipeline, self._sweep_interval)
                self._keep_running(finishing, "holdfast tables")

    def _keep_running(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run work in a task until the store is closed, also if the program cancels all its tasks."""
        if not self._open:
            return
        task = asyncio.create_task(work(), name=name)
        self._take_charge(task)

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() and self._open:
                # Later, since the program may be about to end its loop, which would find a new task pending.
                task.get_loop().call_later(AGAIN_SECONDS, self._keep_running, work, name)

        task.add_done_callback(ended)

    async def aclose(self) -> None:
        """Close the store: refuse new calls, and finish those that were accepted."""
        self._open = False
        self.caller.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.caller.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def capabilities(self) -> Capabilities:
        """The properties of this store's engine, or of a service."""
        return self.caller.capabilities

    def now(self) -> int:
        """Get the store's time, in milliseconds since 1970."""
        return self.caller.now()

    async def ready(self) -> None:
        """Check that a write would be accepted now.

        Raises:
            HoldfastError: The error that would refuse it.
        """
        await self.caller.ready()

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
        return KV(self.caller, self.caller.verbs(families.plain(rules.plugin_name(plugin))))

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
        return KV(self.caller, self.caller.verbs(namespace, root=rules.semantic_root(namespace)))

    def tables(self, plugin: str) -> Tables:
        """Get the tables of a plugin.

        Args:
            plugin: Name of 1 to 100 of the characters a-z, 0-9, `_` and `-`.

        Returns:
            A handle on the namespace `table/<plugin>`.

        Raises:
            InvalidPluginName: The name breaks this rule.
        """
        return self.tables_in(families.tables(rules.plugin_name(plugin)))

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

        return Blobs(self.caller, self.caller.verbs(families.blobs(rules.plugin_name(plugin))))

    def tables_in(self, namespace: str, *, writer: str | None = None, principal: str | None = None) -> Tables:
        """Get the tables of a namespace, for an edge that knows who calls.

        Args:
            namespace: The namespace's full name.
            writer: Name of the writer if a call does not give one; the store's if None.
            principal: Name of the caller, where it is known for certain; the audit records it.

        Returns:
            A handle on the namespace.
        """
        # late: tables take 12 ms to import, and few programs have any
        from holdfast.handles.table_answers import TableAnswers
        from holdfast.handles.tables import Tables
        from holdfast.verbs.tables import TableVerbs

        if isinstance(self.caller, Pipeline) and not self._answers_tables:
            self.caller.answer(TableAnswers(self.caller, self.purge).all())
            self._answers_tables = True
        verbs = TableVerbs(self.caller.verbs(namespace, writer=writer, principal=principal))
        return Tables(self.caller, verbs, self._take_charge)

    @cached_property
    def rescues(self) -> Rescues:
        """Copies of this store that callers of a service ask for."""
        return operators.rescues.Rescues(self.rescue, self._take_charge)

    def _take_charge(self, task: asyncio.Task[None]) -> None:
        """Cancel a task when the store closes."""
        self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)

    async def _make_room(self, namespace: str, excess: int) -> Swept:
        self.caller.require_engine()
        return await self._reaper.sweep_inline(namespace, excess=excess)

    async def sweep(self) -> int:
        """Remove the entries that have expired, now.

        Returns:
            The number of entries removed.
        """
        if isinstance(self.caller, Service):
            return int((await self.caller.operator("sweep", {}))["removed"])
        self.caller.require_engine()
        return await self._reaper.sweep()

    async def upkeep(self) -> None:
        """Drop what the trash, the remembered requests and the journal have kept long enough, now.

        Interrupted work continues: dropping tables and indexes, and filling indexes.
        """
        if isinstance(self.caller, Service):
            await self.caller.operator("upkeep", {})
            return
        self.caller.require_engine()
        await self._reaper.upkeep()
        await upkeep.tables.finish_indexes(self.caller)

    async def purge(self, namespace: str) -> None:
        """Remove what is left of tables and indexes that were dropped. Upkeep does this too.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        self.caller.require_engine()
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
        if isinstance(self.caller, Service):
            self.caller.observe(decided=decided, retried=retried)
            return
        self.pipeline.observe(grouped=grouped, decided=decided, retried=retried)
        self._reaper.swept = swept
        self._reaper.failed = failed

    def may_move(self, engine_at: Callable[[str], object]) -> None:
        """Note how this process gets the engine of another URL, because it follows a store that moves.

        Args:
            engine_at: Returns the engine of a URL, not started.
        """
        self._engine_at = engine_at

    async def namespaces(self) -> list[Stats]:
        """List what every namespace holds, ordered by name."""
        return await operators.store_stats.stats_of_all(self.caller)

    async def stats(self, namespace: str) -> Stats:
        """Get what one namespace holds, at a cost that does not grow with it.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            Its numbers. A namespace that was never written to is empty.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.

        Example:
            `stats = await store.stats("kv/trivia")`
        """
        return (await self._measured(namespace)).stats

    async def _measured(self, namespace: str) -> Measured:
        measured: Measured = await self.caller.call(ReadStats(namespace=rules.namespace(namespace)))
        return measured

    async def policy(self, namespace: str) -> Policy:
        """Get the policy of a namespace.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            Its policy, in which a field that was never set is None.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        return (await self._measured(namespace)).policy

    async def defaults(self, namespace: str) -> Policy:
        """Get the quota and the rate that hold for a namespace whose policy has none.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            A policy with the defaults.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        return (await self._measured(namespace)).defaults

    async def set_policy(
        self,
        namespace: str,
        policy: Policy | dict[str, Any],
        *,
        principal: str | None = None,
        **provenance: Unpack[Provenance],
    ) -> Policy:
        """Replace the policy of a namespace. It applies to every caller.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            policy: The new policy, or its fields.
            principal: Name of the caller, where it is known for certain; the audit records it.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The policy as it is stored.

        Raises:
            ValidationError: The policy has a field that does not exist or a value that is not allowed.

        Example:
            `await store.set_policy("kv/trivia", {"quota_bytes": 10_000_000, "trash": True})`
        """
        verbs = self.caller.verbs(rules.namespace(namespace), principal=principal)
        command = verbs.set_policy(policy, **provenance)
        await self.caller.call(command)
        return policy_of(command.policy)

    async def load(
        self,
        namespace: str,
        entries: Sequence[Entry],
        *,
        keep_versions: bool,
        principal: str | None = None,
        **provenance: Unpack[Provenance],
    ) -> int:
        """Put entries with their whole envelopes, as another store had them, except those that have expired.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            entries: At most 1,000 entries.
            keep_versions: Whether an entry keeps its version if that is greater than the namespace's last
                one, which then continues from there. Otherwise every entry gets a new version.
            principal: Name of the caller, where it is known for certain; the audit records it.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The number of entries that were put.

        Raises:
            ValidationError: One of the entries breaks a rule; nothing was written.
            ValueTooLarge: The entries have more than 524,288 bytes together.
        """
        root = rules.semantic_root(rules.namespace(namespace))
        if families.has_blobs(namespace):
            raise ValidationError(
                "the entries of blobs can't be loaded without their bytes", field="namespace"
            )
        verbs = self.caller.verbs(namespace, root=root, principal=principal)
        result = await self.caller.call(verbs.load(entries, keep_versions=keep_versions, **provenance))
        assert isinstance(result, Written)
        return result.count

    async def recount(self, namespace: str) -> int:
        """Count what a namespace keeps and correct its counters.

        This is needed only after rows were changed with SQL. It reads everything that the namespace keeps,
        and writes to it wait until it has ended.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            The number of counters that were wrong.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        name = rules.namespace(namespace)
        if isinstance(self.caller, Service):
            reply = await self.caller.operator("recount", {"namespace": name}, writes=True)
            return int(reply["corrected"])
        result = await self.caller.call(Recount(namespace=name))
        assert isinstance(result, Removed)
        return result.count

    async def rescue(self, path: str | Path) -> Rescued:
        """Copy everything into a new file while the store is in use, also when its own file has vanished.

        Args:
            path: File to create, on the machine of the store. A relative path starts at the folder of the
                store's file.

        Returns:
            What the copy holds.

        Raises:
            ValidationError: The path can't be used, for example because there is a file.
            Unsupported: The store is not a SQLite file.
        """
        if isinstance(self.caller, Service):
            return await operators.rescues.rescue_at(self.caller, str(path))
        engine = self.caller.require_engine()
        if isinstance(engine, LocalFile):
            return await engine.rescue(str(path))
        raise Unsupported("only a SQLite file can be copied like this: use the tools of your database")

    async def examine(self, *, seconds: float | None = None) -> Checkup | None:
        """Check the storage for corruption.

        Args:
            seconds: Seconds after which to stop; None examines everything.

        Returns:
            What was found, or None if this storage can't be examined.
        """
        engine = None if isinstance(self.caller, Service) else self.caller.require_engine()
        return await engine.examine(seconds=seconds) if isinstance(engine, Movable) else None

    def announce(self, url: str) -> None:
        """Announce to other processes of this machine where this store is served.

        They can then write through the service.

        Args:
            url: The service's URL.
        """
        if isinstance(engine := self._engine, LocalFile):
            engine.announce(url)

    @property
    def outage(self) -> Outage:
        """The time for which the storage has refused writes, as far as is known."""
        return self.pipeline.outage

    async def overdue(self) -> float:
        """Get the seconds for which the longest overdue entry has been due; 0 if none is."""
        now = self.now()
        due = await self.caller.require_engine().due(KV_SPACE, now, limit=1)
        return (now - due[0].expires_at) / 1000 if due else 0.0

    def survey(self) -> StoreStats:
        """Get the numbers that monitoring needs, at a bounded cost."""
        return operators.store_stats.StoreStats(self.caller.require_engine(), self.now)

    async def trash(
        self,
        namespace: str,
        prefix: str = "",
        *,
        limit: int | None = None,
        cursor: str | None = None,
        values: bool = False,
    ) -> TrashPage:
        """List the entries that were removed and can be restored, in the order of their keys.

        A page ends as that of `KV.list` does. An entry that has expired is in the trash once its expiry was
        noticed.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            prefix: The beginning of the keys; empty for all keys.
            limit: Largest number of entries in the page, from 1 to 10,000; 1,000 if not given.
            cursor: The cursor of the page before.
            values: Whether the entries have their values. A service masks them if the policy `reveal` of the
                namespace is `audited` or `never`.

        Returns:
            A page of removed entries.

        Raises:
            ValidationError: An argument breaks its rule.
        """
        verbs = self.caller.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        return await operators.trash.trash_page(
            self.caller, namespace, verbs.prefix(prefix), limit=limit, cursor=cursor, values=values
        )

    async def slowlog(
        self, *, before: int | None = None, limit: int | None = None, instance: str | None = None
    ) -> SlowPage:
        """List the slow requests of a running service, newest first. For operators.

        Args:
            before: Return older requests than this number, the `next` of an earlier page. Then also pass the
                instance of that page.
            limit: Return at most this many, 1 to 10,000. A page never has more than 200.
            instance: The instance of the service to ask, if there are several. By default, any answers.

        Returns:
            A page of slow requests.

        Raises:
            Unsupported: The store is not reached through a service.
        """
        service = self.caller
        if not isinstance(service, Service):
            raise Unsupported(
                "only a running service has a slow log: open the store through one, at its NATS URL"
            )
        if before is not None:
            rules.positive(before, field="before", most=rules.MAX_LOADED_VERSION)
        fields = {"before": before, "limit": rules.limit(limit), "instance": instance}
        for _ in range(_SOUGHT):  # the server chooses which instance answers
            page = msgspec.convert(await service.operator("slowlog", fields), SlowPage)
            if instance in (None, page.instance):
                return page
        raise Unavailable(f"no instance {instance!r} of the service has answered: it may have ended")

    def audit(self, namespace: str) -> Audit:
        """Get the audit of a namespace: the record of who changed what.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            A handle that reads and verifies the audit.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.

        Example:
            `verdict = await store.audit("kv/trivia").verify()`
        """
        return operators.audit.Audit(self.caller, rules.namespace(namespace))

    async def audits(self) -> list[str]:
        """List the names of the namespaces that have an audit or should have one, in order."""
        if isinstance(self.caller, Service):
            return list((await self.caller.operator("audits", {}))["namespaces"])
        return await operators.audits.audits(self.caller.require_engine(), self.now)

    async def audit_heads(self) -> dict[str, str]:
        """Get the heads of all audits, as `number:signature`, by namespace, without verifying anything.

        Keep them elsewhere: `Audit.verify` takes them later, and finds what was cut off since.

        Returns:
            The heads. A store behind a service returns none: the service logs them.
        """
        if isinstance(self.caller, Service):
            return {}
        return await operators.audits.heads(self.caller.require_engine(), self.now)

    async def suspected_audits(self) -> dict[str, str]:
        """Get the audits that were tampered with at first sight, each with the reason.

        Returns:
            The reasons, by namespace; that of "" is about the store as a whole. A store behind a service
            returns none: the service logs them.
        """
        if isinstance(self.caller, Service):
            return {}
        return await operators.audits.suspects(self.caller.require_engine(), self.now)

    async def require_able(self, place: str) -> None:
        """Check that this process, or the service of this store, has the driver for a store at another place.

        Args:
            place: The URL of the other store. Nothing is opened.

        Raises:
            Unsupported: The driver is missing; the message names the extra that brings it.
        """
        if isinstance(self.caller, Service):
            await self.caller.operator("ready", {"place": place})
        elif self._engine_at is not None:
            self._engine_at(place)

    async def key_trouble(self) -> HoldfastError | None:
        """Get the error that would refuse audited writes for lack of a key; None if there is none."""
        return await operators.audits.key_trouble(self.caller.require_engine(), self.now)

    async def bind_keys(self) -> int:
        """Sign every audit with the newest key, and retire the others.

        A store with a reaper does this when it is opened and with every upkeep.

        Returns:
            The number of audits that changed their key.
        """
        return await operators.audits.bind_keys(self.caller.require_engine(), self.pipeline.call, self.now)

    def tokens(self) -> Tokens:
        """Get the tokens that let callers in over HTTP.

        Returns:
            A handle that makes, lists and revokes tokens.

        Example:
            `made = await store.tokens().create(plugin="trivia", verbs=["get", "list"], ttl=86_400)`
        """
        return operators.tokens.Tokens(self.caller)

    def letters(self, namespace: str, *, principal: str | None = None) -> Letters:
        """Get the dead letters of a namespace.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            principal: Name of the caller, where it is known for certain; the audit records it.

        Returns:
            A handle that lists, retries and drops the letters.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        root = rules.semantic_root(rules.namespace(namespace))
        return operators.letters.Letters(
            self.caller, self.caller.verbs(namespace, root=root, principal=principal)
        )
