"""How a group of commands gets done, whatever comes in its way.

Law: one that can't be done fails alone, one whose caller has given up is not done, a quota refuses only after
what has expired is gone, and whoever is told of a commit can't change its outcome. What a command means is
not known here.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from holdfast.audit.keyring import Unsettled
from holdfast.commands import Change, Many
from holdfast.decide import Outcome
from holdfast.decide.draft import TOO_LATE
from holdfast.engine import JournalQuery, KeyKeeper, Swept
from holdfast.errors import Defect, HoldfastError, InternalError, QuotaExceeded, Timeout, TooExpensive
from holdfast.pipeline.batcher import Done
from holdfast.pipeline.outage import Outage
from holdfast.pipeline.write_log import report, report_expired

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from holdfast.clock import Clock
    from holdfast.commands import Command, Result
    from holdfast.engine import Engine
    from holdfast.rows import Record

_log = logging.getLogger("holdfast")

PART: Final = 100
"""How many records of a run are passed on before the loop gets a turn."""


class Groups:
    """Has groups done by an engine.

    Args:
        engine: What does them.
        clock: The time to go by.
        sweep: Makes room where a quota refuses, by so many bytes if it is one of bytes.
        tell: Is told of every commit.
        listeners: Are given the records of what expired in runs, which no outcome has.
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
        self.outage = Outage(clock.now)
        self.decided: Callable[[Command, Result | HoldfastError], None] | None = None
        if isinstance(engine, KeyKeeper):
            engine.keys.kept = True

    async def run(self, commands: list[Command]) -> Done:
        """Have commands done in one transaction, but for those whose callers have given up meanwhile."""
        late = too_late(commands, self._clock.now())
        if late:
            return await self._run_the_rest(commands, late)
        try:
            try:
                outcome = await self._engine.transact(commands, self._clock.now)
            except Unsettled:
                outcome = await self._settled(commands)
        except Exception as error:
            # A group that has too much to load may be one of commands each of which has not.
            if isinstance(error, HoldfastError) and not isinstance(error, (Defect, TooExpensive)):
                self._report(commands, [error] * len(commands))
                raise
            outcome = await self._one_by_one(commands, error)
        if any(map(_may_be_full, set(map(type, outcome.results)))):
            outcome = await self._after_sweeping(commands, outcome)
        return Done(outcome.results, partial(self._tell_of, commands, outcome))

    async def _settled(self, commands: list[Command]) -> Outcome:
        """Have commands done that sign something, once it is settled with the store which key does."""
        from holdfast.pipeline.audit_key import settle

        with await settle(self._engine, self._clock.now):
            return await self._engine.transact(commands, self._clock.now)

    async def _run_the_rest(self, commands: list[Command], late: dict[int, HoldfastError]) -> Done:
        """Refuse those who are late. An error of the others is not theirs."""
        self._report([commands[position] for position in late], list(late.values()))
        rest = [command for position, command in enumerate(commands) if position not in late]
        try:
            done = await self.run(rest) if rest else Done([])
        except HoldfastError as error:
            done = Done([error] * len(rest))
        results = iter(done.results)
        return Done([late.get(position) or next(results) for position in range(len(commands))], done.tell)

    async def ready(self) -> None:
        """Make sure that a write would be accepted now; the error that would refuse it is raised."""
        try:
            await self._engine.ready()
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
        """Tell what became of commands, and of their commit. Whoever is told can't change it by failing."""
        try:
            if outcome is not None:
                self._tell(outcome)
                if outcome.expired:
                    report_expired(outcome.journal)
            for command, result in zip(commands, results, strict=True):
                report(command, result)
                if isinstance(command, Change):  # upkeep fails by rights where another process writes
                    self.outage.heard(result)
                if self.decided is not None:
                    self.decided(command, result)
        except Exception as defect:
            _log.error("notifying listeners of a commit failed", exc_info=defect)

    async def _tell_of(self, commands: Sequence[Command], outcome: Outcome) -> None:
        self._report(commands, outcome.results, outcome)
        if outcome.runs:
            await self._tell_of_runs(outcome)

    async def _tell_of_runs(self, outcome: Outcome) -> None:
        """Read what runs have left in the journal for those who listen, a part at a time.

        Should that fail, it is as with any hint that gets lost: whoever must not miss it reads the journal.
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
        """Do each command for itself, so that one which can't be done fails alone.

        `error` is that of the whole group: that of its only command is known already.
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
        """Before a quota refuses, what has expired must go: then those it refused are judged once more."""
        refused = {
            position: _refused(result) for position, result in enumerate(outcome.results) if _refused(result)
        }
        journal, results = list(outcome.journal), list(outcome.results)
        excess: Counter[str] = Counter()
        for position in refused:
            excess[commands[position].namespace] += _excess(outcome.results[position])
        freed = False
        for name in sorted(excess):
            swept = await self._swept(name, excess[name])
            journal += swept.journal
            freed |= swept.freed
        for position, parts in refused.items() if freed else ():
            again = await self._one_by_one([_anew(commands[position], parts)], None)
            results[position] = _merged(results[position], parts, again.results[0])
            journal += again.journal
        return msgspec.structs.replace(outcome, results=results, journal=journal, expired=True)

    async def _swept(self, namespace: str, excess: int) -> Swept:
        """What a sweep for a quota removed: nothing if it failed, and then the quota's refusal stands."""
        try:
            try:
                return await self._sweep(namespace, excess)
            except Unsettled:
                from holdfast.pipeline.audit_key import settle

                with await settle(self._engine, self._clock.now):
                    return await self._sweep(namespace, excess)
        except HoldfastError as error:
            _log.warning("sweeping %s for its quota failed: %s", namespace, error.message)
            return Swept(journal=[], freed=False)


@cache
def _may_be_full(kind: type) -> bool:
    """Whether a result of this kind may say that a quota has refused something."""
    return kind is QuotaExceeded or hasattr(kind, "items")


def too_late(commands: Sequence[Command], now: int) -> dict[int, HoldfastError]:
    """The refusals of commands whose deadline has passed, by position."""
    late: dict[int, HoldfastError] = {}
    for position, command in enumerate(commands):
        if isinstance(command, Change):
            deadline = command.origin.deadline
            if deadline is not UNSET and now > deadline:
                late[position] = Timeout(TOO_LATE)
    return late


def _refused(result: Any) -> Sequence[int]:
    """What a quota has refused: the positions of parts where each is done for itself, 0 where it is all."""
    if isinstance(result, HoldfastError):
        return [0] if isinstance(result, QuotaExceeded) else []
    parts = getattr(result, "items", ())
    return [position for position, part in enumerate(parts) if isinstance(part, QuotaExceeded)]


def _excess(result: Any) -> int:
    """By how many bytes a command, or its parts together, would have been past a quota."""
    parts = (result,) if isinstance(result, HoldfastError) else result.items
    return sum(part.excess for part in parts if isinstance(part, QuotaExceeded))


def _anew(command: Command, positions: Sequence[int]) -> Command:
    """The command that has done what was refused. One that is remembered knows by itself what it has done."""
    if command.parts is None or (isinstance(command, Change) and command.origin.repeatable):
        return command
    field = "items" if isinstance(command, Many) else "writes"
    parts = command.parts
    return msgspec.structs.replace(command, **{field: tuple(parts[position] for position in positions)})


def _merged(before: Any, positions: Sequence[int], again: Any) -> Any:
    """A result, with what came of those parts that were judged once more."""
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
    request_id = command.origin.request_id if isinstance(command, Change) else None
    _log.error("%s in %s failed, request %s", name, command.namespace, request_id, exc_info=error)
    return InternalError(f"{name} failed for a reason that Holdfast did not foresee")
