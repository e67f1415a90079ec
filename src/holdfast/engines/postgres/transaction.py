"""One group of commands in one transaction: lock, load, decide, save, commit.

Law: the namespace is locked by one statement and its rows are loaded by a later one. A statement sees what
was committed when it began, so one that both waited for the lock and read would read what the holder of the
lock has meanwhile replaced.
"""

from __future__ import annotations

import re
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from holdfast.decide import Loaded, decide, further, needs
from holdfast.engines.layout import WALK, plugin_column
from holdfast.engines.postgres import statements
from holdfast.engines.postgres.columns import COUNTERS, PUT, RECORD, ROW, row_of
from holdfast.engines.postgres.translate import DRIVER_ERRORS, unknown
from holdfast.errors import DatabaseError
from holdfast.rows import KV, Address, Namespace, Overdue, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.audit import Keys
    from holdfast.commands import Command
    from holdfast.decide import Needs, Outcome
    from holdfast.engines.postgres.connections import Connection

_PLAIN: Final = re.compile(r"[a-z0-9_/-]+")
_ROW_END: Final = 1 + len(ROW)
_put_columns: Final = attrgetter(*PUT)
_record_columns: Final = attrgetter(*RECORD)
_counters: Final = attrgetter(*COUNTERS)


class Group:
    """Commands for one namespace. It may be run again as long as no commit has been asked for."""

    def __init__(self, commands: Sequence[Command], now: int, keys: Keys) -> None:
        self._wanted = needs(commands)
        (self.namespace,) = self._wanted.namespaces
        self._commands = commands
        self._now = now
        self._keys = keys

    async def run(self, connection: Connection, known: set[str]) -> Outcome:
        """Apply the commands. `known` names the namespaces that are there for sure, and is kept up to date.

        Raises:
            OutcomeUnknown: The commit was not confirmed. Any other error means that nothing was kept.
        """
        await self._lock(connection, known=self.namespace in known)
        loaded = await self._load(connection, self._wanted)
        if loaded is None:
            # Somebody has put another content into the database while this process was at work.
            await connection.execute("ROLLBACK")
            known.discard(self.namespace)
            return await self.run(connection, known)
        more = further(self._commands, self._wanted, loaded)
        if more is not None and (also := await self._load(connection, more)) is not None:
            loaded.rows.update(also.rows)
        for name, most in self._wanted.runs.items():
            loaded.runs[name] = await self._overdue(connection, most)
        outcome = decide(loaded, self._commands, self._now, self._keys)
        if outcome.empty:
            # Having locked a row, a commit would wait for the disk; a rollback never does.
            await connection.execute("ROLLBACK")
            return outcome
        changes = _changes(self.namespace, outcome)
        await connection.execute(statements.save(*changes), *chain.from_iterable(changes.values()))
        await commit(connection)
        known.add(self.namespace)
        return outcome

    async def _lock(self, connection: Connection, *, known: bool) -> None:
        """Begin, and wait for the namespace: all in one message if its name is one that needs no escaping."""
        if _PLAIN.fullmatch(self.namespace):
            name = f"'{self.namespace}'"
            add = () if known else (statements.add_namespace(name, str(self._now)),)
            await connection.execute("; ".join([statements.BEGIN, *add, statements.lock_namespace(name)]))
        else:
            await connection.execute(statements.BEGIN)
            await connection.execute(statements.add_namespace("$1", "$2"), self.namespace, self._now)
            await connection.execute(statements.lock_namespace("$1"), self.namespace)

    async def _load(self, connection: Connection, wanted: Needs) -> Loaded | None:
        kv = [address for address in wanted.rows if address.space == KV]
        others = [address for address in wanted.rows if address.space != KV]
        statement = statements.load(kv=bool(kv), others=bool(others))
        found = await connection.fetch(statement, *self._load_parameters(wanted, kv, others))
        asked = [*kv, *others]
        rows: dict[Address, Row] = {}
        namespaces: dict[str, Namespace] = {}
        for answer in found:
            if position := answer[0]:
                rows[asked[position - 1]] = row_of(answer[1:_ROW_END])
            else:
                counters = dict(zip(COUNTERS, answer[_ROW_END], strict=True))
                namespaces[self.namespace] = Namespace(name=self.namespace, policy=answer[1], **counters)
        return Loaded(namespaces, rows) if namespaces else None

    async def _overdue(self, connection: Connection, most: int) -> Overdue:
        plugin = plugin_column(self.namespace)
        [(count, size, until)] = await connection.fetch(
            statements.OVERDUE, self._now, max(WALK, most), plugin, most
        )
        return Overdue(count=count, bytes=size, until=until or 0)

    def _load_parameters(self, wanted: Needs, kv: list[Address], others: list[Address]) -> list[Any]:
        parameters: list[Any] = [self.namespace]
        if kv:
            shown = [wanted.rows[address] for address in kv]
            parameters += [plugin_column(self.namespace), [address.key for address in kv], shown]
        if others:
            _, spaces, other_keys = zip(*others, strict=True)
            shown = [wanted.rows[address] for address in others]
            parameters += [self.namespace, spaces, other_keys, shown, len(kv)]
        return parameters


def _changes(name: str, outcome: Outcome) -> dict[str, Iterable[Any]]:
    """The parts of the statement that saves an outcome, each with its parameters."""
    changes: dict[str, Iterable[Any]] = {}
    _add_kv(changes, name, {key: row for (_, space, key), row in outcome.rows.items() if space == KV})
    _add_others(changes, name, {address: row for address, row in outcome.rows.items() if address.space != KV})
    for run in outcome.runs:
        changes["drop_run"] = (plugin_column(name), run.until, run.count)
        changes["record_run"] = (name, run.first - 1, run.at)
    upto = outcome.trims.get(name)
    if upto is not None:
        changes["drop_records"] = (name, upto)
    # The parts of a statement don't see each other's work: what is to be dropped must not be added.
    records = [record for record in outcome.journal if upto is None or record.version > upto]
    if records:
        changes["add_records"] = (name, *_transposed(map(_record_columns, records)))
    for namespace in outcome.namespaces:
        changes["set_namespace"] = (name, *_counters(namespace), namespace.policy)
    return changes


def _add_kv(changes: dict[str, Iterable[Any]], name: str, rows: dict[str | bytes, Row | None]) -> None:
    puts = {key: row for key, row in rows.items() if row is not None}
    if puts:
        columns = _transposed(map(_put_columns, puts.values()))
        changes["put_kv"] = (plugin_column(name), list(puts), *columns)
    if len(puts) < len(rows):
        changes["drop_kv"] = (plugin_column(name), [key for key, row in rows.items() if row is None])


def _add_others(changes: dict[str, Iterable[Any]], name: str, rows: dict[Address, Row | None]) -> None:
    puts = {address: row for address, row in rows.items() if row is not None}
    if puts:
        _, spaces, keys = _transposed(puts)
        changes["put_others"] = (name, spaces, keys, *_transposed(map(_put_columns, puts.values())))
    if len(puts) < len(rows):
        _, spaces, keys = _transposed(address for address, row in rows.items() if row is None)
        changes["drop_others"] = (name, spaces, keys)


def _transposed(tuples: Iterable[Sequence[Any]]) -> Iterable[Sequence[Any]]:
    return zip(*tuples, strict=True)


async def commit(connection: Connection) -> None:
    """Commit, and believe nothing but the confirmation."""
    try:
        done = await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        raise unknown() from error
    if done != "COMMIT":
        raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
