"""The pipeline: the one way in for every command, and reads that are in step with them.

A command is admitted, grouped with others (`batcher`), executed in one transaction (`executor`) and announced
to watchers and listeners. Nothing here knows what a command means. A read sees every write that was accepted
before it. Handles and doors hold a pipeline; `holdfast.store` opens and closes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.clock import Clock, moment
from holdfast.commands import (
    Command,
    Delete,
    Deleted,
    DeletePrefix,
    Done,
    Exists,
    Get,
    GetMany,
    GetTtl,
    Got,
    Listed,
    ListKeys,
    Many,
    Measured,
    Present,
    ReadChanges,
    ReadHistory,
    ReadStats,
    Ready,
    Records,
    Remaining,
    Result,
    Results,
    Reveal,
    Rows,
    WriteCommand,
)
from holdfast.decide import Outcome
from holdfast.decide.policies import parts_of, policy_of
from holdfast.engine import (
    LATER,
    Capabilities,
    Due,
    Engine,
    Filter,
    JournalPage,
    JournalQuery,
    Later,
    LocalFile,
    Scan,
    Scanned,
    Selected,
    SharedStorage,
    Sharer,
    Swept,
    Totals,
    no_hint,
    successor,
)
from holdfast.errors import HoldfastError, Unavailable, ValueTooLarge, VersionConflict
from holdfast.letter_commands import RevealLetter
from holdfast.model import Policy, Stats
from holdfast.pace import GETS_PER_TURN
from holdfast.pipeline.batcher import Batcher
from holdfast.pipeline.caller import CLOSED, Caller
from holdfast.pipeline.executor import Executor
from holdfast.pipeline.listing import select
from holdfast.pipeline.outage import Outage
from holdfast.pipeline.rates import Rates
from holdfast.pipeline.timekeeper import Timekeeper
from holdfast.pipeline.watch import records_after
from holdfast.rows import KV as KV_SPACE
from holdfast.rows import Address, Record, Row

if TYPE_CHECKING:
    from holdfast.tables.commands import RevealItem

GET_AT_ONCE: Final = 128
"""Number of a call's keys that are read at a time, since each value may be large."""
OPENING: Final = "the store is being opened"
MAX_REMOVED: Final = 500
"""Largest number of keys that a page removes, so that a reply can name them however JSON escapes them."""

_log = logging.getLogger("holdfast.reveals")


class View:
    """A view of one namespace for the duration of a read-only call.

    A view opens after the writes submitted before it have settled, and later writes wait until it ends. So a
    call that reads through a view must not wait for a write, or both would wait forever.

    Args:
        batcher: Orders reads and writes.
        namespace: The namespace.
        engine: Returns where rows are kept.
        now: Returns the time.
    """

    def __init__(
        self, batcher: Batcher, namespace: str, engine: Callable[[], Engine], now: Callable[[], int]
    ) -> None:
        self._settled = partial(batcher.settled, namespace)
        self._reading = batcher.reading(namespace)
        self._require_engine = engine
        self._now = now

    async def __aenter__(self) -> View:
        self._reading.__enter__()
        try:
            await self._settled()
            self._engine = self._require_engine()
        except BaseException:
            self._reading.__exit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._reading.__exit__()

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read the rows at these addresses. Returns None for each that is absent or expired."""
        return await self._engine.read(addresses, self._now())

    async def scan(self, query: Scan) -> Scanned:
        """Read rows of a range of keys of any space."""
        return await self._engine.scan(query, self._now())

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Read records of the journal."""
        return await self._engine.journal(query)


class Pipeline(Caller):
    """The kernel of a store.

    Args:
        engine: Where rows are kept.
        make_room: Removes expired entries of a namespace that is full, so that a write fits.
        clock: The store's clock.
        writer: Name of the writer for calls that give none.
        principal: Name of the caller of all handles that no door makes, where it is known for certain.
        defaults: The quota of bytes and the rate of namespaces whose policies set none. Nothing else of it
            applies.
    """

    def __init__(
        self,
        engine: Engine,
        make_room: Callable[[str, int], Awaitable[Swept]],
        *,
        clock: Clock,
        writer: str | None = None,
        principal: str | None = None,
        defaults: Policy | None = None,
    ) -> None:
        super().__init__(clock, rules.identity(writer, field="writer") if writer else "embedded", principal)
        self.engine = engine
        if defaults is not None:
            engine.defaults = defaults
        self.rates: Rates = Rates(clock.now, None if defaults is None else defaults.rate_limit)
        self._listeners: list[Callable[[list[Record]], None]] = []
        self._executor = Executor(engine, clock, make_room, self._tell, self._listeners)
        self._batcher = Batcher(
            self._executor.run,
            lane_per_namespace=self.capabilities.lane_per_namespace,
            sharer=engine if isinstance(engine, Sharer) else None,
        )
        self.timekeeper: Timekeeper = Timekeeper(clock, engine, self._doubt_time)
        self._gets = 0
        self._peeker = engine if isinstance(engine, LocalFile) else None
        self._answers: dict[type[Command], Callable[[Any], Awaitable[Any]]] = {
            Get: self._get,
            Exists: self._exists,
            GetTtl: self._get_ttl,
            GetMany: self._get_many,
            Reveal: self._reveal,
            ListKeys: self._list,
            DeletePrefix: self._delete_prefix,
            ReadChanges: self._changes,
            ReadHistory: self._history,
            ReadStats: self._stats,
            Ready: self._ready,
        }

    async def open(self) -> None:
        """See `Caller.open`. Commands are accepted once the time is known."""
        await self.engine.start()
        self._refusal = OPENING
        try:
            await self.timekeeper.open()
            if self._refusal == OPENING:
                self._refusal = None
        except BaseException:  # nobody closes a store that was not opened
            self._refusal = CLOSED
            await self.engine.aclose()
            raise

    async def aclose(self) -> None:
        """See `Caller.aclose`."""
        self.refuse()
        await self._batcher.aclose()
        self._close_bells()
        try:
            await self.timekeeper.close()
        finally:
            await self.engine.aclose()

    @property
    def capabilities(self) -> Capabilities:
        """The properties of this store's engine."""
        return self.engine.capabilities

    @property
    def waiting(self) -> int:
        """The number of pending commands."""
        return self._batcher.waiting

    def in_groups_of(self, most: int, *, turns: int) -> None:
        """Limit the number of commands that share a commit.

        Args:
            most: Largest number of commands in a group.
            turns: Turns of the event loop for which commands that are not alone wait for others.
        """
        self._batcher.most, self._batcher.turns = most, turns

    def observe(
        self,
        *,
        grouped: Callable[[int], None] | None,
        decided: Callable[[Command, Result | HoldfastError], None] | None,
        retried: Callable[[str, str, str], None] | None,
    ) -> None:
        """Report groups, commands and retries to callbacks; see `Store.measure`.

        Args:
            grouped: Called with the size of every group.
            decided: Called with every command and its result or error.
            retried: Called for every write that this process repeats or gives up.
        """
        self._batcher.grouped = grouped
        self._executor.decided = decided
        self._retried = retried

    @property
    def outage(self) -> Outage:
        """The time for which the storage has refused writes, as far as is known."""
        return self._executor.outage

    def listen(self, listener: Callable[[list[Record]], None]) -> None:
        """Pass the changes of every commit of this store on to a listener, after the commit and in its order.

        Args:
            listener: Called with the records of each commit.
        """
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[list[Record]], None]) -> None:
        """Stop passing changes on to a listener.

        Args:
            listener: The listener. One that does not listen is ignored.
        """
        if listener in self._listeners:
            self._listeners.remove(listener)

    def answer(self, answers: Mapping[type[Command], Callable[[Any], Awaitable[Any]]]) -> None:
        """Answer further kinds of commands, which need more than to be executed.

        Args:
            answers: Takes a command and returns its result, by the class of the command.
        """
        self._answers.update(answers)

    def call(self, command: Command) -> Awaitable[Any]:
        """See `Caller.call`."""
        answer = self._answers.get(type(command))
        return self.execute(command) if answer is None else answer(command)

    def execute(self, command: Command) -> Awaitable[Any]:
        """Execute a command, also where there is an answer for its kind, which calls this.

        Args:
            command: The command.

        Returns:
            The command's result, to come.

        Raises:
            HoldfastError: The command was refused.
        """
        self._admit(command)
        return self._batcher.call(command)

    def submit(self, command: Command, tell: Callable[[Result | HoldfastError], None]) -> None:
        """Accept a command that will be executed together with others, and report its outcome to a callback.

        Doors use this: a task or a future for each request would cost them more than the request.

        Args:
            command: The command.
            tell: Called with the command's result or error.

        Raises:
            Unavailable: The store is not open, or its time is not known.
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self._admit(command)
        self._batcher.submit(command, tell)

    def _admit(self, command: Command) -> None:
        if self._refusal is not None:
            if self._refusal != CLOSED and isinstance(command, WriteCommand):
                self._executor.outage.failed(self._refusal)
            raise Unavailable(self._refusal)
        self.timekeeper.answered = True
        if command.limited:
            self.rates.admit(command.namespace)

    @property
    def busy(self) -> bool:
        """True while a write is pending."""
        return self._batcher.busy

    def writing(self, namespace: str, key: str) -> bool:
        """Return True if a write of a key is pending.

        Args:
            namespace: The namespace's full name.
            key: The key, in full.

        Returns:
            True if one is.
        """
        return self._batcher.writing(namespace, key)

    def admit(self, namespace: str) -> None:
        """See `Caller.admit`."""
        self.rates.admit(namespace)

    def _hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None] | None:
        engine = self.engine
        return engine.hint(namespace, ring) if isinstance(engine, SharedStorage) else no_hint

    def require_engine(self) -> Engine:
        """See `Caller.require_engine`."""
        if self._refusal is not None:
            raise Unavailable(self._refusal)
        self.timekeeper.answered = True
        return self.engine

    def _doubt_time(self, refusal: str | None) -> None:
        """Refuse requests while the time is not known, and accept them with None."""
        if self._refusal != CLOSED:
            self._refusal = refusal

    def _tell(self, outcome: Outcome) -> None:
        """Ring the bells of changed namespaces, and pass the changes on to listeners."""
        self.rates.learn(outcome.namespaces)
        if self._bells:
            changed = dict.fromkeys(record.namespace for record in outcome.journal)
            changed |= dict.fromkeys(run.namespace for run in outcome.runs)
            for namespace in changed:
                for bell in self._bells.get(namespace, ()):
                    bell.ring()
        for listener in self._listeners:
            listener(outcome.journal)

    async def ready(self) -> None:
        """See `Caller.ready`."""
        if self._refusal == CLOSED:
            raise Unavailable(CLOSED)
        # The storage is asked even if the time is not known: an outage lasts until writes are accepted.
        await self._executor.ready(self.require_engine)

    def count_retry(self, namespace: str, outcome: str, code: str, *, kept: bool = False) -> None:
        """See `Caller.count_retry`."""
        if not kept or self._executor.decided is None:
            super().count_retry(namespace, outcome, code)

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """See `Caller.get_at`.

        A key with a pending write is read after that write, so that a caller sees a write that it did not
        wait for.
        """
        self.rates.admit(namespace)
        if self._batcher.writing(namespace, key):
            row = await self._row_of(self.execute(Get(namespace=namespace, key=key)))
            return row, self.now()
        now = self._clock.now()
        address = Address(namespace, KV_SPACE, key)
        seen = self.require_engine().glance([address], now)
        if isinstance(seen, Later):
            with self._batcher.reading(namespace, [key]):
                seen = await self.engine.read([address], now)
        else:
            self._gets += 1
            if self._gets % GETS_PER_TURN == 0:
                await asyncio.sleep(0)
        return seen[0], now

    def get_first(self, namespace: str, key: str) -> Awaitable[Row | None]:
        """Get the row of an entry as it is before the pending writes of its key, which came after this.

        Args:
            namespace: The namespace's full name.
            key: The entry's key, in full.

        Returns:
            The row to come, or None if there is none or it has expired.

        Raises:
            Unavailable: The store is closed.
        """
        return self._row_of(self._batcher.call_first(Get(namespace=namespace, key=key)))

    async def _row_of(self, answer: Awaitable[Result]) -> Row | None:
        result = await answer
        assert isinstance(result, Got)
        return result.row if result.row is not None and result.row.alive(self.now()) else None

    def peek(self, namespace: str, key: str) -> tuple[Row | None, int] | Later:
        """See `Caller.peek`."""
        if self._peeker is None or self._refusal is not None or not self.rates.unlimited(namespace):
            return LATER
        now = self._clock.now()
        row = self._peeker.peek(Address(namespace, KV_SPACE, key), now)
        if isinstance(row, Later):
            return LATER
        self.timekeeper.answered = True
        return row, now

    def glance(self, keys: Sequence[tuple[str, str]]) -> list[Row | None] | Later:
        """Read entries as they are now, if that is possible without waiting.

        Args:
            keys: Pairs of a namespace and a key.

        Returns:
            A row or None for each pair, by position; or `LATER` if the storage would have to be waited for.

        Raises:
            Unavailable: The store is not open, or its time is not known.
        """
        addresses = [Address(namespace, KV_SPACE, key) for namespace, key in keys]
        return self.require_engine().glance(addresses, self.now())

    async def get_all(self, namespace: str, keys: Sequence[str]) -> list[Row | None]:
        """Read several entries of a namespace.

        Args:
            namespace: The namespace's full name.
            keys: The keys, in full.

        Returns:
            A row or None for each key, by position.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
            ValueTooLarge: The values are larger than an answer may be.
        """
        self.rates.admit(namespace)
        rows: list[Row | None] = []
        with self._batcher.reading(namespace, keys):
            await self._batcher.settled(namespace)
            addresses = [Address(namespace, KV_SPACE, key) for key in keys]
            for start in range(0, len(addresses), GET_AT_ONCE):
                rows += await self.require_engine().read(addresses[start : start + GET_AT_ONCE], self.now())
                size = sum(row.size for row in rows if row is not None)
                if size > rules.MAX_TRANSFER_BYTES:
                    raise ValueTooLarge(
                        f"the values of the first {len(rows)} keys hold {size} bytes; at most "
                        f"{rules.MAX_TRANSFER_BYTES} fit a reply"
                    )
        return rows

    async def select(self, query: Scan, criteria: Filter | None) -> Selected:
        """Read the entries of a range of keys that match a filter.

        Args:
            query: The range.
            criteria: The filter; None for every entry.

        Returns:
            The keys and rows that were found, and where to continue.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self.rates.admit(query.namespace)
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await select(self.require_engine(), query, criteria, self.now)

    def view(self, namespace: str) -> View:
        """Open a view of a namespace. It sees every write accepted before it, and none of this store's after.

        Nothing may be written while the view is open: the write would wait for its end.

        Args:
            namespace: The namespace's full name.

        Returns:
            The view, for an `async with`.
        """
        return View(self._batcher, namespace, self.require_engine, self.now)

    async def rows(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read rows of any kind.

        Args:
            addresses: Where the rows are.

        Returns:
            A row for each address, by position; None if there is none or it has expired.
        """
        for namespace in dict.fromkeys(address.namespace for address in addresses):
            await self._batcher.settled(namespace)
        return await self.require_engine().read(addresses, self.now())

    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """See `Caller.parts`."""
        return await self.require_engine().read(addresses, self.now())

    async def scan(self, query: Scan) -> Scanned:
        """Read rows of a range of keys of any space.

        Args:
            query: The range.

        Returns:
            The keys and rows that were found.
        """
        await self._batcher.settled(query.namespace)
        return await self.require_engine().scan(query, self.now())

    async def due(self, namespace: str, space: str, limit: int) -> list[Due]:
        """Find rows of a space that are past their deadline.

        Args:
            namespace: The namespace's full name.
            space: The space.
            limit: Largest number of rows.

        Returns:
            The rows, the longest overdue first.
        """
        return await self.require_engine().due(space, self.now(), limit=limit, namespace=namespace)

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Read records of a namespace's journal.

        Args:
            query: Which records.

        Returns:
            A page of records.
        """
        with self._batcher.reading(query.namespace):
            await self._batcher.settled(query.namespace)
            return await self.require_engine().journal(query)

    async def _get(self, command: Get) -> Got:
        row, _ = await self.get_at(command.namespace, command.key)
        return Got(row)

    async def _exists(self, command: Exists) -> Present:
        row, _ = await self.get_at(command.namespace, command.key)
        return Present(row is not None)

    async def _reveal(self, command: Reveal) -> Got:
        return Got(await revealed(self.execute, command, command.key))

    async def _get_ttl(self, command: GetTtl) -> Remaining:
        row, now = await self.get_at(command.namespace, command.key)
        if row is None:
            return Remaining(0)
        return Remaining(None if row.expires_at is None else -((now - row.expires_at) // 1000))

    async def _get_many(self, command: GetMany) -> Rows:
        return Rows(await self.get_all(command.namespace, command.keys))

    async def _list(self, command: ListKeys) -> Listed:
        criteria = Filter(
            purpose=command.purpose,
            producer=command.producer,
            writer=command.writer,
            spec_ref=command.spec_ref,
            expires_before=command.expires_before,
        )
        page = await self.select(
            _scan(command, command.limit, values=command.values), None if criteria == Filter() else criteria
        )
        return Listed(page.keys, page.rows, page.last)

    async def _delete_prefix(self, command: DeletePrefix) -> Listed:
        """Remove the keys of a page at the versions that were read.

        So the rules of single deletes apply (quotas, trash, journal, audit, fence, deadline), concurrent
        writes are not lost, and a walk can be stopped and resumed at any time.
        """
        if command.dry_run:
            page = await self.select(_scan(command, command.limit, values=False), None)
            return Listed(page.keys, [], page.last)
        page = await self.select(_scan(command, min(command.limit, MAX_REMOVED), values=True), None)
        # A page without keys has nothing to remove, but the caller is told if its lock is lost.
        told = page.keys or command.origin.fence is not None
        return Listed(await self._removed(command, page) if told else [], [], page.last)

    async def _removed(self, command: DeletePrefix, page: Selected) -> list[str]:
        """Remove the keys that were read. Returns those that had not changed since, and so are removed.

        A key that was written past the triggers of the store has version 0, which is not checked.
        """
        namespace, origin = command.namespace, command.origin.asked
        deletes = tuple(
            Delete(namespace=namespace, origin=origin, key=key, expected=row.version or None)
            for key, row in zip(page.keys, page.rows, strict=True)
        )
        result = await self.execute(Many(namespace=namespace, origin=command.origin, items=deletes))
        assert isinstance(result, Results)
        for item in result.items:
            if isinstance(item, Exception) and not isinstance(item, VersionConflict):
                raise item
        outcomes = zip(page.keys, result.items, strict=True)
        return [key for key, item in outcomes if isinstance(item, Deleted) and item.version is not None]

    async def _changes(self, command: ReadChanges) -> Records:
        if not command.watching:
            self.admit(command.namespace)
        return await records_after(self, command.namespace, command.prefix, command.since, command.limit)

    async def _history(self, command: ReadHistory) -> Records:
        self.admit(command.namespace)
        query = JournalQuery(
            namespace=command.namespace, key=command.key, limit=command.limit, newest_first=True
        )
        return Records((await self.journal(query)).records)

    async def _stats(self, command: ReadStats) -> Measured:
        namespace = command.namespace
        await self._batcher.settled(namespace)
        totals = await self.require_engine().totals(self.now(), namespace=namespace)
        return Measured(
            stats=stats_of(namespace, totals[0] if totals else None),
            policy=policy_of(totals[0].namespace.policy if totals else None),
            defaults=self.engine.defaults or Policy(),
        )

    async def _ready(self, command: Ready) -> Done:
        await self.ready()
        return Done()


def stats_of(name: str, totals: Totals | None) -> Stats:
    """Return the numbers of a namespace, without overdue entries. One that was never written to is empty."""
    if totals is None:
        return Stats(namespace=name, keys=0, bytes=0, version=0, changed_at=moment(0))
    namespace = totals.namespace
    return Stats(
        namespace=name,
        keys=namespace.keys - totals.due_keys,
        bytes=namespace.bytes - totals.due_bytes,
        version=namespace.revision,
        changed_at=moment(namespace.changed_at),
        kept_bytes=namespace.kept_bytes,
        parts=parts_of(namespace),
    )


def _scan(command: ListKeys | DeletePrefix, limit: int, *, values: bool) -> Scan:
    return Scan(
        namespace=command.namespace,
        space=KV_SPACE,
        start=command.prefix,
        stop=successor(command.prefix),
        after=command.after,
        limit=limit,
        max_bytes=rules.MAX_TRANSFER_BYTES,
        values=values,
        reverse=isinstance(command, ListKeys) and command.reverse,
    )


async def revealed(
    execute: Callable[[Command], Awaitable[Result]], command: Reveal | RevealItem | RevealLetter, what: str
) -> Row | None:
    """Read a row for a person.

    The command checks the policy and writes the audit. The log line also names the reason where a namespace
    has no audit.

    Args:
        execute: Executes a command.
        command: The command that reads it.
        what: Name of what is revealed, for the log.

    Returns:
        The row, or None if there is none.

    Raises:
        PermissionDenied: The policy never reveals values.
        MissingField: The policy wants a reason.
    """
    result = await execute(command)
    assert isinstance(result, Got)
    if result.row is not None:
        _log.info(
            "revealed %s of %s to %s: %s",
            what,
            command.namespace,
            command.origin.principal or command.origin.writer,
            command.why or "no reason was given",
        )
    return result.row
