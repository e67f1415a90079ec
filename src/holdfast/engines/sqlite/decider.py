"""Loads what a group of commands needs, and decides it.

This is done on the event loop as long as this process writes alone, and on the writer's thread, within its
transaction, when other processes write as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from holdfast import decide
from holdfast.commands import Command, WriteCommand
from holdfast.decide import Loaded, Needs, Outcome
from holdfast.engine import Scan, Scanned, ends_of
from holdfast.engines.sqlite import reads
from holdfast.engines.sqlite.cache import RowCache
from holdfast.engines.sqlite.reads import ByteBudget, TooLargeToLoad
from holdfast.model import Policy
from holdfast.pace import PART_ROWS, TURNS_AFTER_SLICE, TURNS_BEFORE_PART, turns
from holdfast.rows import Address, Row

if TYPE_CHECKING:
    from holdfast.audit.chain import SigningKeys

T = TypeVar("T")

INLINE_ROWS: Final = 128
INLINE_BYTES: Final = 131_072
"""The maximum number of rows, and of bytes of values, to load on the loop. The reader's thread loads more."""


class Queries(Protocol):
    """Runs queries on a connection."""

    async def quick(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query that takes little time."""
        ...

    async def aside(self, query: Callable[..., T], *arguments: object) -> T:
        """Run a query that may take long, with these arguments after the connection."""
        ...


class Transaction:
    """Runs queries at once, within the transaction of the writer's connection. See `Queries`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def quick(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """See `Queries.quick`."""
        return query(self._connection)

    async def aside(self, query: Callable[..., T], *arguments: object) -> T:
        """See `Queries.aside`."""
        return query(self._connection, *arguments)


class Decider(msgspec.Struct, eq=False):
    """Decides one group.

    Args:
        queries: Where rows are loaded from.
        cache: The rows that need not be loaded.
        keys: The keys that sign the audit.
        defaults: The quotas of namespaces whose policy sets none.
    """

    _queries: Queries
    _cache: RowCache
    _keys: SigningKeys
    _defaults: Policy | None

    async def decide(
        self, commands: Sequence[Command], now: Callable[[], int], known: Loaded | None = None
    ) -> Outcome:
        """Load and decide part by part without saving anything; other tasks run between two parts.

        The time is taken when the first part is loaded. If the later parts take too long, the writer notices.
        `known` holds what an unfinished outcome wanted.
        """
        loaded = Loaded(namespaces={}, rows={}) if known is None else known
        decision: decide.Decision | None = None
        budget = ByteBudget(commands)
        for part in _parts(commands):
            if decision is not None:
                await turns(TURNS_BEFORE_PART[isinstance(part[0], WriteCommand)])
            wanted = decide.needs(part)
            await self._load(wanted, loaded, budget)
            if decision is None:
                at = now()
                decision = decide.Decision(loaded, at, self._keys, self._defaults)
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
            rows=await load_rows(self._queries, decide.looked_for(looked)) if looked else {},
            ends=loaded.ends | {at: await ends_of(self._scan, *at) for at in outcome.wants},
            looked=looked,
        )

    async def _scan(self, query: Scan, now: int) -> Scanned:
        return await self._queries.aside(reads.scan, query, now)

    async def _sum_up(self, wanted: Needs, loaded: Loaded, now: int) -> None:
        """Load the wanted sums."""
        aside = self._queries.aside
        loaded.runs.update(await aside(reads.overdue, wanted.runs, now))
        loaded.trims.update(await aside(reads.journal_bytes, wanted.trims))
        loaded.counts.update(await aside(reads.counts, wanted.counts))

    async def _load(self, wanted: Needs, loaded: Loaded, budget: ByteBudget) -> None:
        if rows := self._cache.add_rows(loaded.rows, wanted.rows):
            loaded.rows.update(await load_rows(self._queries, rows, budget.for_rows(rows)))
        if names := self._cache.add_namespaces(loaded.namespaces, sorted(wanted.namespaces)):
            loaded.namespaces.update(
                await self._queries.quick(lambda connection: reads.load_namespaces(connection, names))
            )


async def load_rows(
    queries: Queries, wanted: dict[Address, bool], budget: ByteBudget | None = None
) -> dict[Address, Row]:
    """Load rows: a few small ones quickly, the others aside."""
    if len(wanted) > INLINE_ROWS:
        return await queries.aside(reads.load_rows, wanted, budget)
    most = INLINE_BYTES if len(wanted) > 1 else 0
    try:
        return await queries.quick(lambda file: reads.load_rows(file, wanted, budget, most=most))
    except TooLargeToLoad as rest:
        return rest.rows | await queries.aside(reads.load_rows, rest.wanted, budget)


def without_loop(work: Coroutine[object, None, T]) -> T:
    """Run a coroutine that waits for nothing on a thread without an event loop."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result


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
