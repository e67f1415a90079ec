"""The groups of several namespaces in one transaction: load, decide, save in two messages, or in four.

With 128 callers this is neither faster nor slower in one namespace. In 10 namespaces it makes 2.1 times as
many sets for 0.36 of the processor time, and in 1,000 namespaces 10 times as many for 0.09 (medians of six
rounds, with and without it in turn; ADR 0052).

Only plain changes of keys come here. If no other process seems to write to any of the namespaces, the
statement that saves is a transaction by itself. It checks every namespace's mark, as for a group of one
namespace, and does nothing if one of them has changed. Then all are decided again. Since the marks are
checked, the first attempt takes the state of a namespace from memory where this process has written last.

If another process writes to one of them, all are locked first, as for a group of one namespace, so that
services with the same busy plugins take turns with large groups instead of undoing each other's small ones.

If one changes repeatedly or stays locked, or if something else has to be loaded, the groups do not share a
transaction now, and the caller runs each of them alone.

Nothing here waits for a namespace for more than a moment, so none holds up another. All is kept or nothing. A
refusal holds for the database as it is: none comes from a state in memory.

Each statement takes one array per column, or one text where an array would cost the driver more (see
`sql.array_text`; names of namespaces have no commas), and its text never depends on how many namespaces or
rows there are. It locks the rows of namespaces in the order of their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import asyncpg

from holdfast.audit.chain import SigningKeys
from holdfast.commands import Command
from holdfast.decide import Decision, Loaded, Needs, Outcome, further
from holdfast.engine import CannotShareTransaction, loadable
from holdfast.engines.postgres.connections import Connection, require_replicated
from holdfast.engines.postgres.errors import DRIVER_ERRORS, may_have_committed, translate, unknown
from holdfast.engines.postgres.save_sql import Parameters, Part, SaveParts, add_records, drop_rows, put_rows
from holdfast.engines.postgres.sql import (
    BEGIN,
    CLOCK,
    COUNTERS,
    MARK,
    OTHER_KEY,
    PUT,
    RECORD,
    ROW,
    answered,
    array_of,
    array_text,
    flags_text,
    in_time,
    keys_text,
    looked_up,
    numbers_of,
    row,
    row_of,
    stored,
    type_of,
)
from holdfast.engines.postgres.transaction import (
    FEW_ROWS,
    MANY_ROWS,
    MOST_ROWS,
    PLAIN,
    Late,
    LeftState,
    Marks,
    commit,
    repeats,
)
from holdfast.engines.sql.layout import plugin_column
from holdfast.errors import Busy, HoldfastError
from holdfast.model import Policy
from holdfast.rows import KV, PARTS, Address, Namespace, Row

_ROW_END: Final = 1 + len(ROW)
_ATTEMPTS: Final = 3
"""The number of attempts before the groups are applied apart."""
_put_columns: Final = attrgetter(*PUT)
_record_columns: Final = attrgetter(*RECORD)
_counters: Final = attrgetter(*COUNTERS)
_revision: Final = attrgetter(COUNTERS[0])

PATIENCE_MS: Final = 100
"""Milliseconds for which a statement waits for a namespace that another process has locked."""
TURN_MS: Final = 250
"""Milliseconds for which a group waits for each namespace to which other processes write too.

Four processes on two busy cores need more than 100 for their turns. The commands of all namespaces wait, and
those of the service may take a second in all.
"""
_LOCK: Final = (
    f"{BEGIN}; SET LOCAL lock_timeout = {TURN_MS}; SELECT 1 FROM holdfast_namespaces "
    "WHERE name = ANY (string_to_array('{}', ',')) ORDER BY name FOR UPDATE"
)

_STATE: Final = f"policy, ARRAY[{', '.join([MARK, *map(answered, COUNTERS)])}]::text AS counters"
_STARTED: Final = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
_NOTHING: Final = ", ".join(f"NULL::{type_of(column)}" for column in ROW[1:])
_KV_KEY: Final = "plugin_name = asked_plugin AND key = asked_key"
_NAMES: Final = "unnest(string_to_array($1::text, ',')) "
_KV: Final = "unnest(string_to_array($2::text, ','), $3::text[], $4::text::boolean[]) "
_OTHERS: Final = "unnest(string_to_array($5::text, ','), $6::text[], $7::text::bytea[], $8::text::boolean[]) "
_WANTED: Final = "CASE WHEN wanted OR expires_at IS NOT NULL THEN {} END"

LOAD: Final = (
    f"SELECT 0::bigint AS position, NULL::text AS policy, {_NOTHING}, "
    f"ARRAY[{CLOCK}, {_STARTED}]::text AS counters "
    f"UNION ALL SELECT -position, policy, {_NOTHING}, counters "
    f"FROM {_NAMES} WITH ORDINALITY AS asked (asked_name, position) "
    f"CROSS JOIN LATERAL {looked_up(_STATE, 'holdfast_namespaces', 'name = asked_name')} "
    f"UNION ALL SELECT position, {', '.join(ROW)}, NULL::text "
    f"FROM {_KV} WITH ORDINALITY AS asked (asked_plugin, asked_key, wanted, position) CROSS JOIN LATERAL "
    + looked_up(row("value_json", shown=_WANTED.format("value_json")), "plugin_kv_storage", _KV_KEY)
)
"""The server's clock and the time of its start, at position 0; the rows of namespaces, each with its mark and
its counters, by position from -1 downwards; entries by position from 1.

Parameters: names; plugins, keys, and whether each value is wanted.
"""
LOAD_OTHERS: Final = (
    f"{LOAD} UNION ALL SELECT position + $9::bigint, {', '.join(ROW)}, NULL::text FROM {_OTHERS} "
    "WITH ORDINALITY AS asked (asked_namespace, asked_space, asked_key, wanted, position) CROSS JOIN LATERAL "
    + looked_up(row("value", shown=_WANTED.format("value")), "holdfast_rows", OTHER_KEY)
)
"""The same with other rows. Parameters: those of `LOAD`; namespaces, spaces, keys, and whether each value is
wanted; the offset of their positions."""

_WEIGHT: Final = "CASE WHEN wanted OR expires_at IS NOT NULL THEN octet_length({}) ELSE 0 END AS weight"
WEIGH: Final = (
    "SELECT coalesce(sum(weight), 0)::bigint FROM ("
    "SELECT weight FROM unnest(string_to_array($1::text, ','), $2::text[], $3::text::boolean[]) "
    "AS asked (asked_plugin, asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(_WEIGHT.format("value_json"), "plugin_kv_storage", _KV_KEY)
    + " UNION ALL SELECT weight "
    "FROM unnest(string_to_array($4::text, ','), $5::text[], $6::text::bytea[], $7::text::boolean[]) "
    "AS asked (asked_namespace, asked_space, asked_key, wanted) CROSS JOIN LATERAL "
    + looked_up(_WEIGHT.format("value"), "holdfast_rows", OTHER_KEY)
    + ") AS weights"
)
"""The total size of the values that `LOAD_OTHERS` would return.

Parameters: plugins, keys, and whether each value is wanted; namespaces, spaces, keys, and whether each value
is wanted.
"""


class _Doubted(Exception):
    """A state in memory would refuse a command, or is not of this server. Nothing was written."""


class _FoundTogether(NamedTuple):
    """The loaded state, the marks of the namespaces, how far the server's clock is ahead of ours, and when
    the server was started."""

    loaded: Loaded
    marks: dict[str, int]
    ahead: int
    started: int


class SharedGroup:
    """Plain changes of keys in several namespaces."""

    def __init__(
        self,
        commands: Sequence[Command],
        wanted: Needs,
        now: Callable[[], int],
        keys: SigningKeys,
        defaults: Policy | None = None,
    ) -> None:
        self._commands = commands
        self._wanted = wanted
        self._names = sorted(wanted.namespaces)
        self._now = now
        self._keys = keys
        self._defaults = defaults

    async def run(self, connection: Connection, marks: Marks) -> Outcome | None:
        """Apply the commands and update `marks`. Return None and store nothing if they must be apart.

        Raises:
            OutcomeUnknown: The commit was not confirmed. Any other error means that nothing was written.
        """
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    if not all(map(marks.alone, self._names)):
                        return await self._locked(connection, marks)
                    known = {} if attempt else marks.states(self._names)
                    return await self._attempt(connection, marks, known, commits=True)
                except (asyncpg.DivisionByZeroError, Late, _Doubted):
                    await _roll_back(connection)
                    # a namespace has changed, or a deadline has passed: decide again
        except CannotShareTransaction:
            pass
        except asyncpg.PostgresError as error:
            if not isinstance(translate(error), Busy):
                raise
        await _roll_back(connection)
        return None

    async def _locked(self, connection: Connection, marks: Marks) -> Outcome:
        """Apply the commands under the locks of their namespaces, which are taken in the order of names."""
        if not all(map(PLAIN.fullmatch, self._names)):
            raise CannotShareTransaction
        await connection.execute(_LOCK.format(",".join(self._names)))
        outcome = await self._attempt(connection, marks, {}, commits=False)
        await _roll_back(connection)  # of a transaction that has changed nothing
        return outcome

    async def _attempt(
        self, connection: Connection, marks: Marks, known: dict[str, LeftState], *, commits: bool
    ) -> Outcome:
        """Load, decide and save. With `commits`, the statement that saves is a transaction by itself."""
        found = await self._load(connection, known)
        for name, mark in found.marks.items():
            if name not in known:
                marks.found(name, mark)
        more = further(self._commands, self._wanted, found.loaded)
        if more is not None:
            marks.keep_apart({address.namespace for address in more.rows})
            raise CannotShareTransaction
        outcome = await self._decide(found.loaded)
        if outcome.unfinished or outcome.runs or outcome.trims:
            marks.keep_apart({name for name, _ in outcome.wants} | {at.namespace for at in outcome.looks})
            raise CannotShareTransaction
        if outcome.empty and repeats(self._commands, outcome):
            raise CannotShareTransaction
        if known and (outcome.empty or any(isinstance(one, HoldfastError) for one in outcome.results)):
            raise _Doubted
        if not outcome.empty:
            states = _states(outcome, found.loaded)
            for name, mark in await self._save(connection, outcome, found, states, commits=commits):
                marks.left_as(LeftState(mark, states[name], found.started))
        return outcome

    async def _decide(self, loaded: Loaded) -> Outcome:
        decision = Decision(loaded, self._now(), self._keys, self._defaults)
        taken = decision.take(self._commands)
        while taken < len(self._commands):
            await asyncio.sleep(0)
            taken += decision.take(self._commands[taken:])
        return decision.outcome()

    async def _load(self, connection: Connection, known: dict[str, LeftState]) -> _FoundTogether:
        wanted = self._wanted.rows
        kv = [address for address in wanted if address.space == KV]
        others = [address for address in wanted if address.space != KV]
        if self._wanted.sums or any(address.space.startswith(PARTS) for address in others):
            raise CannotShareTransaction
        asked: list[Any] = [*_kv_columns(kv), flags_text(wanted[address] for address in kv)]
        if others:
            asked += [*_columns(others), flags_text(wanted[address] for address in others)]
        if len(wanted) > FEW_ROWS:
            await self._weigh(connection, asked)
        names = [name for name in self._names if name not in known]
        if others:
            found = await connection.fetch(LOAD_OTHERS, ",".join(names), *asked, len(kv))
        else:
            found = await connection.fetch(LOAD, ",".join(names), *asked)
        return self._found(found, [*kv, *others], names, known)

    def _found(
        self, answers: Sequence[Any], asked: Sequence[Address], names: list[str], known: dict[str, LeftState]
    ) -> _FoundTogether:
        rows: dict[Address, Row] = {}
        namespaces = {name: state.namespace for name, state in known.items()}
        marks = {name: state.mark for name, state in known.items()}
        clock = started = 0
        for answer in answers:
            position = answer[0]
            if position > 0:
                rows[asked[position - 1]] = row_of(answer[1:_ROW_END])
            elif position == 0:
                clock, started = numbers_of(answer[_ROW_END])
            else:
                name = names[-position - 1]
                marks[name], *numbers = numbers_of(answer[_ROW_END])
                counters = dict(zip(COUNTERS, numbers, strict=True))
                namespaces[name] = Namespace(name=name, policy=answer[1], **counters)
        if len(namespaces) < len(self._names):
            raise CannotShareTransaction  # one of them is new, or the content of the database was replaced
        if any(state.started != started for state in known.values()):
            raise _Doubted  # a server that lacks our last commit may have given its mark to another
        return _FoundTogether(Loaded(namespaces, rows), marks, clock - self._now(), started)

    async def _weigh(self, connection: Connection, asked: list[Any]) -> None:
        """Load less together than a request may load at most."""
        wanted, most = self._wanted.rows, loadable(self._commands)
        if most is None or (sum(wanted.values()) <= MANY_ROWS and len(wanted) <= MOST_ROWS):
            return
        if (
            await connection.fetchval(WEIGH, *(asked if len(asked) > 3 else [*asked, "", [], "{}", "{}"]))
            > most
        ):
            raise CannotShareTransaction

    async def _save(
        self,
        connection: Connection,
        outcome: Outcome,
        found: _FoundTogether,
        states: dict[str, Namespace],
        *,
        commits: bool,
    ) -> Sequence[tuple[str, int]]:
        """Save the outcome if no namespace has changed since the load; return their new marks."""
        until = None if outcome.deadline is None else outcome.deadline + found.ahead
        made = _changes(outcome, found, list(states.values()), until if commits else None)
        try:
            left: list[Any] = await connection.fetch(save_together(*made.parts), *made.parameters)
        except asyncpg.DivisionByZeroError:
            raise
        except DRIVER_ERRORS as error:
            if commits and may_have_committed(error):
                raise unknown() from error
            raise
        if commits:
            require_replicated(connection)
        else:
            await commit(connection, until)
        return left[:-1]


async def _roll_back(connection: Connection) -> None:
    """End the transaction, if there is one."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


def _states(outcome: Outcome, loaded: Loaded) -> dict[str, Namespace]:
    """Return the namespaces that an outcome changes, as it leaves them, in the order of their names."""
    changed = {namespace.name: namespace for namespace in outcome.namespaces}
    for address in outcome.rows:
        changed.setdefault(address.namespace, loaded.namespaces[address.namespace])
    return dict(sorted(changed.items()))


def _changes(
    outcome: Outcome, found: _FoundTogether, states: list[Namespace], until: int | None
) -> SaveParts:
    """Return the changes of an outcome as columns."""
    made = SaveParts()
    before = zip(*(_counters(found.loaded.namespaces[state.name]) for state in states), strict=True)
    after = zip(*map(_counters, states), strict=True)
    columns = [(column, new) for column, old, new in zip(COUNTERS, before, after, strict=True) if old != new]
    same = tuple(column for column in COUNTERS if column not in dict(columns))
    made.parts.append(Part("set_namespaces", same if columns else COUNTERS[1:]))
    names = ",".join(state.name for state in states)
    made.parameters += [names, array_text(found.marks[state.name] for state in states), until]
    made.parameters += [array_text(new) for _, new in columns] or [array_text(map(_revision, states))]
    _add_rows(made, {at: row for at, row in outcome.rows.items() if at.space == KV}, kv=True)
    _add_rows(made, {at: row for at, row in outcome.rows.items() if at.space != KV}, kv=False)
    if outcome.journal:
        owners = ",".join(record.namespace for record in outcome.journal)
        made.add_rows("add_records", owners, columns=RECORD, rows=map(_record_columns, outcome.journal))
    made.parameters.append(len(states))
    return made


def _add_rows(made: SaveParts, rows: dict[Address, Row | None], *, kv: bool) -> None:
    puts = {address: row for address, row in rows.items() if row is not None}
    key, put, drop = (_kv_columns, "put_kv", "drop_kv") if kv else (_columns, "put_others", "drop_others")
    if puts:
        made.add_rows(put, *key(list(puts)), columns=PUT, rows=map(_put_columns, puts.values()))
    if len(puts) < len(rows):
        made.add(drop, *key([address for address, row in rows.items() if row is None]))


def _kv_columns(addresses: Sequence[Address]) -> list[Any]:
    return [",".join(plugin_column(at.namespace) for at in addresses), [at.key for at in addresses]]


def _columns(addresses: Sequence[Address]) -> list[Any]:
    """Return the namespaces, spaces and keys of addresses."""
    return [
        ",".join(address.namespace for address in addresses),
        [address.space for address in addresses],
        keys_text(addresses),
    ]


# The statement that saves.


@cache
def save_together(*parts: Part) -> str:
    """Return one statement for all changes of several namespaces. Its parameters are those of its parts.

    The first part is `set_namespaces`. The statement returns the name and the new mark of each namespace. It
    fails with a division by zero and does nothing if a namespace has changed since it was loaded, or if the
    server's clock has passed the given time.
    """
    parameters = Parameters()
    first, *others = parts
    changes = [f"unchanged AS ({parameters.of(first, _PARTS_OF_SAVE)})"]
    changes += [f"{part.name} AS ({parameters.of(part, _PARTS_OF_SAVE)})" for part in others]
    whole = f"((SELECT count(*) FROM unchanged) = {next(parameters)}::bigint)::int"
    # The last row is there even if no namespace is unchanged, so that the division takes place.
    return f"WITH {', '.join(changes)} SELECT name, mark FROM unchanged UNION ALL SELECT '', 1 / {whole}"


def _set_namespaces(parameters: Parameters) -> str:
    """Update the rows of namespaces that have their marks, in the order of their names.

    Parameters: names; the marks when they were loaded; the time limit; the columns `COUNTERS`, except those
    that are the same as before. Plain changes of keys leave policies alone.
    """
    names, marks, until = _listed(next(parameters)), f"{next(parameters)}::text::xid[]", next(parameters)
    columns = [column for column in COUNTERS if column not in parameters.same]
    arrays = [array_of(column, next(parameters)) for column in columns]
    changes = ", ".join(f"{column} = {stored(column, f'given.{column}')}" for column in columns)
    patience = f"(SELECT set_config('lock_timeout', '{PATIENCE_MS}', true)) IS NOT NULL"
    given = f"given ({', '.join(['name', 'mark', *columns])})"
    return (
        f"UPDATE holdfast_namespaces AS stored SET {changes} "
        f"FROM unnest({', '.join([names, marks, *arrays])}) AS {given} "
        f"WHERE stored.name = given.name AND stored.xmin = given.mark AND {patience} "
        f"RETURNING stored.name, stored.{MARK} / {in_time(until)} AS mark"
    )


def _put_kv(parameters: Parameters) -> str:
    """Upsert entries. Parameters: plugins; an array of keys; the columns `PUT`."""
    key = {"plugin_name": _listed(next(parameters)), "key": f"{next(parameters)}::text[]"}
    return put_rows("plugin_kv_storage", {}, key, {"value": "value_json"}, parameters)


def _put_others(parameters: Parameters) -> str:
    """Upsert other rows. Parameters: namespaces; arrays of spaces and of keys; the columns `PUT`."""
    return put_rows("holdfast_rows", {}, _other_key(parameters), {}, parameters)


def _drop_kv(parameters: Parameters) -> str:
    """Delete entries. Parameters: plugins; an array of keys."""
    key = {"plugin_name": _listed(next(parameters)), "key": f"{next(parameters)}::text[]"}
    return drop_rows("plugin_kv_storage", key)


def _drop_others(parameters: Parameters) -> str:
    """Delete other rows. Parameters: namespaces; arrays of spaces and of keys."""
    return drop_rows("holdfast_rows", _other_key(parameters))


def _other_key(parameters: Parameters) -> dict[str, str]:
    namespace, space, key = (next(parameters) for _ in range(3))
    return {"namespace": _listed(namespace), "space": f"{space}::text[]", "key": f"{key}::text::bytea[]"}


def _listed(parameter: str) -> str:
    """Return SQL for an array of names, which are passed as one text with commas between them."""
    return f"string_to_array({parameter}::text, ',')"


def _add_records(parameters: Parameters) -> str:
    """Add records to the journals. Parameters: namespaces; the columns `RECORD`."""
    return add_records({"namespace": _listed(next(parameters))}, parameters)


_PARTS_OF_SAVE: Final = {
    "set_namespaces": _set_namespaces,
    "put_kv": _put_kv,
    "put_others": _put_others,
    "drop_kv": _drop_kv,
    "drop_others": _drop_others,
    "add_records": _add_records,
}
