"""One group of commands in one transaction: load, decide, save.

If only this process seems to write to a namespace, its rows are loaded without a lock and the statement that
saves is a transaction by itself: two messages. That statement does nothing if the namespace has changed since
the load. In that case, and where other processes write too, the namespace is locked first: four messages.

One statement locks the namespace and a later one loads its rows. A statement sees what was committed
when it began, so a statement that both waited for the lock and read would read what the previous holder of
the lock has since replaced. Rows loaded without a lock are saved only if the mark of the namespace's row is
unchanged, which PostgreSQL checks again after a wait. The statement that commits checks the server's clock:
past the deadline of a command it fails, and the group is decided again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import asyncpg

from holdfast import families, rules, seams
from holdfast.audit.chain import SigningKeys
from holdfast.bounded import Bounded
from holdfast.commands import Command, WriteCommand
from holdfast.decide import Decision, Loaded, Needs, Outcome, further, looked_for, needs
from holdfast.decide.weights import summed
from holdfast.engine import ends_of, loadable
from holdfast.engines.postgres import reads, sql
from holdfast.engines.postgres.connections import LOCK_SECONDS, Connection, require_replicated
from holdfast.engines.postgres.errors import DRIVER_ERRORS, may_have_committed, unknown
from holdfast.engines.postgres.save_sql import changes, save
from holdfast.engines.postgres.sql import COUNTERS, ROW, flags_text, keys_text, numbers_of, row_of
from holdfast.engines.sql.layout import WALK, plugin_column
from holdfast.errors import Busy, DatabaseError, HoldfastError
from holdfast.model import Policy
from holdfast.rows import KV, PARTS, Address, Namespace, Overdue, Row
from holdfast.work import too_much_loaded

PLAIN: Final = re.compile(r"[a-z0-9_/-]+")
_ROW_END: Final = 1 + len(ROW)
FEW_ROWS: Final = 16
"""The number of rows that are loaded without checking their size first: together they can't be too large."""
MANY_ROWS: Final = 64
MOST_ROWS: Final = 512
"""The numbers of rows that a group may load without that check: `MANY_ROWS` with their values, `MOST_ROWS` in
all. Rows whose values are not wanted rarely come with one."""
_ATTEMPTS: Final = 10
"""The number of attempts at a group whose deadline passes before the commit."""
MOST_MARKS: Final = 16_384
"""The maximum number of namespaces whose marks are kept."""


class LeftState(NamedTuple):
    """A namespace as a commit has left it, its mark then, and the start of the server that kept it."""

    mark: int
    namespace: Namespace
    started: int


class Marks:
    """The mark (`sql.MARK`) of each namespace's row after the last commit, and whether others write there.

    A commit that several namespaces share also leaves their states here, so that the next one need not load
    them. Marks only predict whether the next group is the sole writer; correctness never depends on them. If
    the prediction is wrong, the statement that saves detects it.
    """

    def __init__(self) -> None:
        self._left: Bounded[str, int] = Bounded(MOST_MARKS)
        self._states: Bounded[str, LeftState] = Bounded(MOST_MARKS)
        self._shared: Bounded[str, None] = Bounded(MOST_MARKS)
        self._apart: Bounded[str, None] = Bounded(MOST_MARKS)

    def known(self, namespace: str) -> bool:
        """Return whether the namespace is known to have a row."""
        return namespace in self._left

    def alone(self, namespace: str) -> bool:
        """Return whether no other writer has been detected in the namespace."""
        return namespace in self._left and namespace not in self._shared

    def together(self, namespace: str) -> bool:
        """Return whether a group of the namespace may share a transaction with those of others."""
        return namespace in self._left and namespace not in self._apart

    def keep_apart(self, namespaces: Iterable[str]) -> None:
        """Record that groups of these namespaces load more than those that share a transaction."""
        for namespace in namespaces:
            self._apart.keep(namespace, None)

    def found(self, namespace: str, mark: int) -> None:
        """Detect from a loaded mark whether another process has written since our last commit."""
        left = self._left.get(namespace)
        if left == mark:
            self._shared.pop(namespace, None)
        elif left is not None:
            self._shared.keep(namespace, None)

    def left(self, namespace: str, mark: int) -> None:
        """Record the mark that a commit has left."""
        self._left.keep(namespace, mark)

    def left_as(self, state: LeftState) -> None:
        """Record the state that a commit has left."""
        self._left.keep(state.namespace.name, state.mark)
        self._states.keep(state.namespace.name, state)

    def states(self, namespaces: Iterable[str]) -> dict[str, LeftState]:
        """Return the namespaces as our last commits have left them, where that is known."""
        known: dict[str, LeftState] = {}
        for namespace in namespaces:
            state = self._states.get(namespace)
            if state is not None and state.mark == self._left.get(namespace):
                known[namespace] = state
        return known

    def forget(self, namespace: str) -> None:
        """Forget a namespace whose row is gone because the content of the database was replaced."""
        self._left.pop(namespace, None)


class Late(Exception):
    """A deadline passed on the server before the commit. Nothing was written."""


class _Found(NamedTuple):
    """The loaded state, the mark of the namespace's row, and how far the server's clock is ahead of ours.

    The difference is computed after the answer has arrived, so it is too small by the time that the answer
    took. A time converted to the server's clock is therefore too early rather than too late.
    """

    loaded: Loaded
    mark: int
    ahead: int


class Group:
    """Commands for one namespace. A group may be run again as long as no commit was attempted."""

    def __init__(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        keys: SigningKeys,
        defaults: Policy | None = None,
        *,
        wanted: Needs | None = None,
    ) -> None:
        self._wanted = needs(commands) if wanted is None else wanted
        (self.namespace,) = self._wanted.namespaces
        self._locks = families.locks(self.namespace)
        self._fences = Needs()
        """What is loaded from the namespace that has the locks, if that is another one."""
        self._looked_twice = False
        if self._locks != self.namespace:
            self._set_fences_apart()
        self._commands = commands
        self._now = now
        self._keys = keys
        self._defaults = defaults

    async def run(self, connection: Connection, marks: Marks) -> Outcome:
        """Apply the commands and update `marks`.

        Raises:
            OutcomeUnknown: The commit was not confirmed. Any other error means that nothing was written.
        """
        late, give_up = 0, seams.monotonic() + LOCK_SECONDS
        while late < _ATTEMPTS:
            try:
                return await self._attempt(connection, marks)
            except Late:
                late += 1
            except asyncpg.LockNotAvailableError:  # see `save_sql.ENTRY_WAIT_MS`
                if seams.monotonic() >= give_up:
                    raise
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK")
        raise Busy("PostgreSQL is too slow for the deadlines of the callers")

    async def _attempt(self, connection: Connection, marks: Marks) -> Outcome:
        if marks.alone(self.namespace) and not self._wanted.sums and not self._fences.rows:
            outcome = await self._unlocked(connection, marks)
            if outcome is not None:
                return outcome
        return await self._locked(connection, marks)

    async def _unlocked(self, connection: Connection, marks: Marks) -> Outcome | None:
        """Apply the commands without a lock. Return None if nothing was done because the state changed."""
        self._looked_twice = False
        found = await self._load(connection, self._wanted)
        if found is None:
            return None
        marks.found(self.namespace, found.mark)
        await self._load_further(connection, found.loaded)
        outcome = await self._decide(connection, found.loaded, self._now())
        if outcome.empty and not repeats(self._commands, outcome):
            return None if self._looked_twice else outcome  # the loads may have seen different states
        left = await self._save(connection, outcome, found, commits=True)
        if left is None:
            return None
        marks.left(self.namespace, left)
        return outcome

    async def _locked(self, connection: Connection, marks: Marks) -> Outcome:
        await self._lock(connection, known=marks.known(self.namespace))
        found = await self._load(connection, self._wanted)
        if found is None:
            # The content of the database was replaced while this process was running.
            await connection.execute("ROLLBACK")
            marks.forget(self.namespace)
            return await self._locked(connection, marks)
        marks.found(self.namespace, found.mark)
        if self._fences.rows:
            guards = await self._load(connection, self._fences, self._locks)
            found.loaded.rows.update({} if guards is None else guards.loaded.rows)
        await self._load_further(connection, found.loaded)
        now = self._now()
        if self._wanted.sums:
            await self._sum_up(connection, found.loaded, now)
        outcome = await self._decide(connection, found.loaded, now)
        if outcome.empty and not repeats(self._commands, outcome):
            # After locking a row, a commit would wait for the disk; a rollback never does.
            await connection.execute("ROLLBACK")
            return outcome
        left = await self._save(connection, outcome, found, commits=False)
        if left is None:
            raise DatabaseError("a namespace has changed while it was locked")
        await commit(connection, _until(outcome, found))
        marks.left(self.namespace, left)
        return outcome

    async def _decide(self, connection: Connection, loaded: Loaded, now: int) -> Outcome:
        """Decide, yielding to other tasks if that is a lot of work."""
        decision = Decision(loaded, now, self._keys, self._defaults)
        taken = decision.take(self._commands)
        while taken < len(self._commands):
            await asyncio.sleep(0)
            taken += decision.take(self._commands[taken:])
        outcome = decision.outcome()
        if outcome.unfinished:
            self._looked_twice = True
            for at in outcome.wants:
                loaded.ends[at] = await ends_of(partial(reads.scan, connection), *at)
            await self._load_besides(connection, loaded, looked_for(outcome.looks))
            return await self._decide(connection, loaded, now)
        return outcome

    async def _sum_up(self, connection: Connection, loaded: Loaded, now: int) -> None:
        """Load the wanted sums. The namespace must be locked."""
        for name, most in self._wanted.runs.items():
            loaded.runs[name] = await self._overdue(connection, most, now)
        for name, upto in self._wanted.trims:
            loaded.trims[name, upto] = await connection.fetchval(sql.JOURNAL_BYTES, name, upto)
        for name in self._wanted.counts:
            spaces = await connection.fetch(sql.COUNT, plugin_column(name), name)
            journal = await connection.fetchval(sql.JOURNAL_BYTES, name, rules.MAX_VERSION)
            loaded.counts[name] = summed(map(tuple, spaces), journal=journal)

    async def _save(
        self, connection: Connection, outcome: Outcome, found: _Found, *, commits: bool
    ) -> int | None:
        """Save the outcome if the namespace has not changed since the load.

        With `commits` the statement is a transaction by itself: it fails past the deadline, and only a
        refusal by the server means that nothing was written.

        Returns:
            The new mark of the namespace's row, or None if the namespace had changed.
        """
        until = _until(outcome, found) if commits else None
        made = changes(self.namespace, outcome, found.mark, until=until)
        try:
            left = await connection.fetch(save(*made.parts), *made.parameters)
        except asyncpg.DivisionByZeroError:
            raise Late from None
        except DRIVER_ERRORS as error:
            if commits and may_have_committed(error):
                raise unknown() from error
            raise
        if commits:
            require_replicated(connection)
        return left[0][0] if left else None

    async def _lock(self, connection: Connection, *, known: bool) -> None:
        """Begin and lock the namespace, in one message if its name needs no escaping."""
        if PLAIN.fullmatch(self.namespace):
            name = f"'{self.namespace}'"
            add = () if known else (sql.add_namespace(name, str(self._now())),)
            # Nobody locks these two in the other order: fences of keys name locks of their own namespace. A
            # lock that transactions share would be theirs for as long as new ones come before the last ends.
            fences = (sql.lock_namespace(f"'{self._locks}'"),) if self._fences.rows else ()
            await connection.execute("; ".join([sql.BEGIN, *add, sql.lock_namespace(name), *fences]))
        else:
            await connection.execute(sql.BEGIN)
            await connection.execute(sql.add_namespace("$1", "$2"), self.namespace, self._now())
            await connection.execute(sql.lock_namespace("$1"), self.namespace)

    def _set_fences_apart(self) -> None:
        rows = self._wanted.rows
        self._fences.rows = {at: value for at, value in rows.items() if at.namespace == self._locks}
        self._wanted.rows = {at: value for at, value in rows.items() if at.namespace == self.namespace}

    async def _load_further(self, connection: Connection, loaded: Loaded) -> None:
        """Load what else turned out to be needed."""
        more = further(self._commands, self._wanted, loaded)
        if more is not None:
            self._looked_twice = True
            await self._load_besides(connection, loaded, more.rows)

    async def _load_besides(
        self, connection: Connection, loaded: Loaded, wanted: dict[Address, bool]
    ) -> None:
        """Load more rows of the namespace."""
        if not wanted:
            return
        more = Needs()
        more.rows = wanted
        also = await self._load(connection, more)
        for address in wanted:
            loaded.rows.pop(address, None)  # without a lock it may be gone by now
        if also is not None:
            loaded.rows.update(also.loaded.rows)
        loaded.looked.update(wanted)

    async def _load(
        self, connection: Connection, wanted: Needs, namespace: str | None = None
    ) -> _Found | None:
        """Load what is wanted, all from one namespace. Return None if the namespace has no row."""
        name = self.namespace if namespace is None else namespace
        kv = [address for address in wanted.rows if address.space == KV]
        others = [address for address in wanted.rows if address.space != KV]
        parts = [address for address in others if address.space.startswith(PARTS)]
        if parts:
            others = [address for address in others if not address.space.startswith(PARTS)]
        if len(wanted.rows) > FEW_ROWS:
            await self._weigh(connection, wanted, kv, others)
        shown = [[wanted.rows[address] for address in addresses] for addresses in (kv, others)]
        alike = all(len(set(some)) <= 1 for some in shown)
        statement = sql.load(kv=bool(kv), others=bool(others), alike=alike, parts=bool(parts))
        wanted_values = [some[0] if alike and some else flags_text(some) for some in shown]
        parameters = _load_parameters(name, kv, others, *wanted_values)
        asked = [*kv, *others, *parts]
        if parts:
            spaces = [at.space for at in parts]
            parameters += [name, spaces, keys_text(parts), len(kv) + len(others)]
        found = await connection.fetch(statement, *parameters)
        rows: dict[Address, Row] = {}
        namespaces: dict[str, Namespace] = {}
        mark = ahead = 0
        for answer in found:
            if position := answer[0]:
                rows[asked[position - 1]] = row_of(answer[1:_ROW_END])
            else:
                mark, clock, *numbers = numbers_of(answer[_ROW_END])
                ahead = clock - self._now()
                counters = dict(zip(COUNTERS, numbers, strict=True))
                namespaces[name] = Namespace(name=name, policy=answer[1], **counters)
        return _Found(Loaded(namespaces, rows), mark, ahead) if namespaces else None

    async def _weigh(
        self, connection: Connection, wanted: Needs, kv: list[Address], others: list[Address]
    ) -> None:
        """Refuse to load more than a request may load. A group has a higher limit and can be split.

        Raises:
            TooExpensive: The values are too large.
        """
        most, alone = loadable(self._commands), len(self._commands) == 1
        if most is None:
            return
        if not alone and sum(wanted.rows.values()) <= MANY_ROWS and len(wanted.rows) <= MOST_ROWS:
            return
        size = await connection.fetchval(
            sql.WEIGH,
            plugin_column(self.namespace),
            [address.key for address in kv],
            flags_text(wanted.rows[address] for address in kv),
            self.namespace,
            [address.space for address in others],
            keys_text(others),
            flags_text(wanted.rows[address] for address in others),
        )
        if size > most:
            raise too_much_loaded()

    async def _overdue(self, connection: Connection, most: int, now: int) -> Overdue:
        plugin = plugin_column(self.namespace)
        [(count, size, until, envelope, names)] = await connection.fetch(
            sql.OVERDUE, now, max(WALK, most), plugin, most
        )
        return Overdue(count=count, bytes=size, until=until or 0, envelope=envelope, names=names)


def _load_parameters(
    namespace: str, kv: list[Address], others: list[Address], kv_shown: Any, others_shown: Any
) -> list[Any]:
    parameters: list[Any] = [namespace]
    if kv:
        parameters += [plugin_column(namespace), [address.key for address in kv], kv_shown]
    if others:
        spaces = [at.space for at in others]
        parameters += [namespace, spaces, keys_text(others), others_shown, len(kv)]
    return parameters


def _until(outcome: Outcome, found: _Found) -> int | None:
    """Return the outcome's deadline on the server's clock."""
    return None if outcome.deadline is None else outcome.deadline + found.ahead


def repeats(commands: Sequence[Command], outcome: Outcome) -> bool:
    """Return whether a caller may be told again of a write that no standby has yet.

    A write that waits for a standby can be seen once the server has been started again. To acknowledge it,
    something must be committed: that commit waits until a standby has all before it.
    """
    return any(
        isinstance(command, WriteCommand)
        and command.origin.repeatable
        and not isinstance(result, HoldfastError)
        for command, result in zip(commands, outcome.results, strict=True)
    )


async def commit(connection: Connection, until: int | None = None) -> None:
    """Commit, unless the server's clock has passed a time. Only the server's confirmation counts.

    Raises:
        OutcomeUnknown: The commit was not confirmed.
        DatabaseError: The server rolled back instead.
    """
    try:
        done = await connection.execute("COMMIT" if until is None else sql.commit_until(until))
    except asyncpg.DivisionByZeroError:
        await connection.execute("ROLLBACK")
        raise Late from None
    except DRIVER_ERRORS as error:
        raise unknown() from error
    require_replicated(connection)
    if done != "COMMIT":
        raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
