"""Execution of a group of commands, and recovery when part of it fails.

A command that can't be executed fails alone. A command whose caller has given up is not executed. A quota
refuses only after expired entries are removed. Listeners can't change the outcome of a commit. Nothing here
knows what a command means.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from holdfast import seams, tracing
from holdfast.audit.keyring import Unsettled
from holdfast.clock import Clock
from holdfast.commands import Command, Many, Result, WriteCommand
from holdfast.decide import Outcome
from holdfast.decide.draft import TOO_LATE
from holdfast.engine import CannotShareTransaction, DurableStorage, Engine, JournalQuery, Swept
from holdfast.errors import (
    Defect,
    HoldfastError,
    InternalError,
    OutcomeUnknown,
    QuotaExceeded,
    Timeout,
    TooExpensive,
    Unavailable,
)
from holdfast.pace import MANY_ROWS, TURNS_AFTER_SLICE, turns
from holdfast.pipeline.batcher import GroupDone
from holdfast.pipeline.outage import Outage
from holdfast.pipeline.write_log import report, report_expired
from holdfast.rows import Record

_log = logging.getLogger("holdfast")

PART: Final = 100
"""Number of records of an expiry run that are passed on before the event loop gets a turn."""


class Executor:
    """Executes groups of commands on an engine.

    Args:
        engine: Executes the commands.
        clock: The store's clock.
        sweep: Makes room where a quota refuses; for a quota of bytes, by this many bytes.
        tell: Called with the outcome of every commit.
        listeners: Called with the records of entries that expired in runs, which no outcome contains.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        sweep: Callable[[str, int], Awaitable[Swept]],
        tell: Callable[[Outcome], None],
        listeners: Sequence[Callable[[list[Record]], None]],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._sweep = sweep
        self._tell = tell
        self._listeners = listeners
        self.outage: Outage = Outage(clock.now)
        self.decided: Callable[[Command, Result | HoldfastError], None] | None = None
        if isinstance(engine, DurableStorage):
            engine.keys.kept = True

    async def run(self, commands: list[Command]) -> GroupDone:
        """Execute commands in one transaction, except those whose callers have given up by now."""
        late = too_late(commands, self._clock.now)
        if late:
            return await self._run_the_rest(commands, late)
        began = 0 if tracing.spans is None else seams.wall_ns()
        try:
            try:
                outcome = await self._engine.transact(commands, self._clock.now)
            except Unsettled:
                outcome = await self._settled(commands)
        except CannotShareTransaction:
            raise
        except Exception as error:
            # A group may be too expensive to load although each of its commands alone is not.
            if isinstance(error, HoldfastError) and not isinstance(error, (Defect, TooExpensive)):
                self._report(commands, [error] * len(commands))
                raise
            outcome = await self._one_by_one(commands, error)
        finally:
            if tracing.spans is not None:
                tracing.spans.record_engine(commands, began)
        if any(map(_may_be_full, set(map(type, outcome.results)))):
            outcome = await self._after_sweeping(commands, outcome)
        return GroupDone(outcome.results, partial(self._tell_of, commands, outcome))

    async def _settled(self, commands: list[Command]) -> Outcome:
        """Execute commands that sign something, after settling with the store which key signs."""
        with await self._settle():
            return await self._engine.transact(commands, self._clock.now)

    async def _settle(self) -> AbstractContextManager[None]:
        # late: it takes 2 ms with OpenSSL, and few stores sign anything
        from holdfast.pipeline.audits import settle

        return await settle(self._engine, self._clock.now)

    async def _run_the_rest(self, commands: list[Command], late: dict[int, HoldfastError]) -> GroupDone:
        """Refuse the late commands and run the others, whose error does not affect the late ones."""
        rest = [command for position, command in enumerate(commands) if position not in late]
        try:
            done = await self.run(rest) if rest else GroupDone([])
        except HoldfastError as error:
            done = GroupDone([error] * len(rest))
        self._report([commands[position] for position in late], list(late.values()))
        results = iter(done.results)
        return GroupDone(
            [late.get(position) or next(results) for position in range(len(commands))], done.tell
        )

    async def ready(self, require_time: Callable[[], object]) -> None:
        """Check that a write would be accepted now. Raises the error that would refuse it.

        Args:
            require_time: Raises an error while the store's time is not known.
        """
        try:
            await self._engine.ready()
            require_time()
        except HoldfastError as error:
            self.outage.failed(error.message)
            raise
        self.outage.worked()

    def _report(
        self,
        commands: Sequence[Command],
        results: Sequence[Result | HoldfastError],
        outcome: Outcome | None = None,
    ) -> None:
        """Report results and their commit. A listener that fails cannot change the outcome."""
        try:
            if outcome is not None:
                self._tell(outcome)
                if outcome.expired:
                    report_expired(outcome.journal)
            for command, result in zip(commands, results, strict=True):
                report(command, result)
                if isinstance(command, WriteCommand):  # upkeep may fail where another process is the writer
                    self.outage.heard(result)
                if self.decided is not None:
                    self.decided(command, result)
        except Exception as defect:
            _log.error("notifying listeners of a commit failed", exc_info=defect)

    async def _tell_of(self, commands: Sequence[Command], outcome: Outcome) -> None:
        if len(outcome.journal) > MANY_ROWS:
            journal = outcome.journal
            for start in range(0, len(journal), MANY_ROWS):
                some = journal[start : start + MANY_ROWS]
                self._report((), (), msgspec.structs.replace(outcome, journal=some))
                await turns(TURNS_AFTER_SLICE)
            self._report(commands, outcome.results)
        else:
            self._report(commands, outcome.results, outcome)
        if outcome.runs:
            await self._tell_of_runs(outcome)

    async def _tell_of_runs(self, outcome: Outcome) -> None:
        """Read the journal records of expiry runs and pass them to listeners, a part at a time.

        If that fails, the hint is lost like any other hint. A listener that must not miss a record reads the
        journal.
        """
        for run in outcome.runs if self._listeners else ():
            last = run.first + run.count - 1
            for since in range(run.first - 1, last, PART):
                query = JournalQuery(namespace=run.namespace, since=since, limit=min(PART, last - since))
                try:
                    page = await self._engine.journal(query)
                    for listener in self._listeners:
                        listener(page.records)
                except Exception as error:
                    _log.error("notifying listeners of expired entries failed", exc_info=error)

    async def _one_by_one(self, commands: list[Command], error: Exception | None) -> Outcome:
        """Execute each command on its own, so that one which cannot be executed fails alone.

        `error` is the error of the whole group. If the group has one command, it is that command's error.
        """
        together = Outcome(results=[], namespaces=[], rows={}, journal=[], trims={}, expired=True)
        for command in commands:
            try:
                if error is not None and len(commands) == 1:
                    raise error
                try:
                    outcome = await self._engine.transact([command], self._clock.now)
                except Unsettled:
                    outcome = await self._settled([command])
            except Exception as alone:
                together.results.append(_defect(command, alone))
            else:
                together.results.extend(outcome.results)
                together.journal.extend(outcome.journal)
                together.runs.extend(outcome.runs)
        return together

    async def _after_sweeping(self, commands: list[Command], outcome: Outcome) -> Outcome:
        """Remove expired entries where a quota refused, then execute the refused commands once more.

        Whether a quota refuses is known only after a sweep that worked. So where a sweep failed, its error
        takes the place of the refusal. A sweep ends once there should be room. If a quota refuses then, there
        is another one.
        """
        journal, results = list(outcome.journal), list(outcome.results)
        more = True
        while more:
            refused = {place: parts for place, result in enumerate(results) if (parts := _refused(result))}
            excess: Counter[str] = Counter()
            for position in refused:
                excess[commands[position].namespace] += _excess(results[position])
            freed = more = False
            failed: dict[str, HoldfastError] = {}
            for name in sorted(excess):
                try:
                    swept = await self._swept(name, excess[name])
                except HoldfastError as error:
                    _log.warning("sweeping %s for its quota failed: %s", name, error.message)
                    failed[name] = _not_made(error)
                else:
                    journal += swept.journal
                    freed |= swept.freed
                    more |= swept.more
            for position, parts in refused.items():
                command = commands[position]
                if command.namespace in failed:
                    results[position] = _merged(results[position], parts, failed[command.namespace])
                elif freed:
                    again = await self._one_by_one([_anew(command, parts)], None)
                    results[position] = _merged(results[position], parts, again.results[0])
                    journal += again.journal
        return msgspec.structs.replace(outcome, results=results, journal=journal, expired=True)

    async def _swept(self, namespace: str, excess: int) -> Swept:
        """Sweep a namespace for its quota.

        Another process may have made the room in between, so a sweep that finds nothing decides nothing then.
        """
        try:
            swept = await self._sweep(namespace, excess)
        except Unsettled:
            with await self._settle():
                swept = await self._sweep(namespace, excess)
        if self._engine.capabilities.multi_process:
            swept = msgspec.structs.replace(swept, freed=True)
        return swept


@cache
def _may_be_full(kind: type) -> bool:
    """Return True if a result of this type may contain a refusal by a quota."""
    return kind is QuotaExceeded or hasattr(kind, "items")


def too_late(commands: Sequence[Command], now: Callable[[], int]) -> dict[int, HoldfastError]:
    """Return the refusals of commands whose deadline has passed, by position."""
    late: dict[int, HoldfastError] = {}
    at: int | None = None  # few programs give deadlines, so the clock is seldom read
    for position, command in enumerate(commands):
        if isinstance(command, WriteCommand):
            deadline = command.origin.deadline
            if deadline is not UNSET:
                at = now() if at is None else at
                if at > deadline:
                    late[position] = Timeout(TOO_LATE)
    return late


def _refused(result: Any) -> Sequence[int]:
    """Return the positions of parts that a quota refused: [0] if it refused the whole command."""
    if isinstance(result, HoldfastError):
        return [0] if isinstance(result, QuotaExceeded) else []
    parts = getattr(result, "items", ())
    return [position for position, part in enumerate(parts) if isinstance(part, QuotaExceeded)]


def _excess(result: Any) -> int:
    """Return the number of bytes by which a command, or its parts together, would have exceeded a quota."""
    parts = (result,) if isinstance(result, HoldfastError) else result.items
    return sum(part.excess for part in parts if isinstance(part, QuotaExceeded))


def _not_made(error: HoldfastError) -> HoldfastError:
    """Return the error of a write that was not made because the sweep for its quota failed with this one.

    It may be unknown whether the sweep was committed; that the write was not is certain.
    """
    return Unavailable(error.message) if isinstance(error, OutcomeUnknown) else error


def _anew(command: Command, positions: Sequence[int]) -> Command:
    """Build the command that repeats what was refused. A repeatable command skips its finished parts."""
    if command.parts is None or (isinstance(command, WriteCommand) and command.origin.repeatable):
        return command
    field = "items" if isinstance(command, Many) else "writes"
    parts = command.parts
    return msgspec.structs.replace(command, **{field: tuple(parts[position] for position in positions)})


def _merged(before: Any, positions: Sequence[int], again: Any) -> Any:
    """Return a result in which the parts that were executed again have their new outcome."""
    if isinstance(before, HoldfastError) or len(getattr(again, "items", ())) == len(before.items):
        return again
    items = list(before.items)
    for place, position in enumerate(positions):
        items[position] = again if isinstance(again, HoldfastError) else again.items[place]
    return msgspec.structs.replace(before, items=tuple(items))


def _defect(command: Command, error: Exception) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    name = type(command).__name__
    request_id = command.origin.request_id if isinstance(command, WriteCommand) else None
    _log.error("%s in %s failed, request %s", name, command.namespace, request_id, exc_info=error)
    named = "" if request_id is None else f" (request id {request_id})"
    return InternalError(f"internal error in {name}; see the log{named}")
