"""Loading and deciding a group from a SQLite file.

Law: nothing is written here. What the last commits wrote comes from memory, the rest from the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import decide
from holdfast.commands import WriteCommand
from holdfast.decide import Loaded
from holdfast.engine import ends_of
from holdfast.engines.sqlite import reads
from holdfast.engines.sqlite.last_written import Recent
from holdfast.engines.sqlite.reader import SqliteReader
from holdfast.pace import PART_ROWS, TURNS_AFTER_SLICE, TURNS_BEFORE_PART, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.audit.keyring import Keyring
    from holdfast.commands import Command
    from holdfast.decide import Needs, Outcome
    from holdfast.model import Policy


class SqliteDecider(SqliteReader):
    """The part of the engine that decides groups.

    Args:
        path: The database file.
    """

    keys: Keyring

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._recent = Recent()
        self.defaults: Policy | None = None

    async def decide(
        self,
        commands: Sequence[Command],
        now: Callable[[], int],
        known: Loaded | None = None,
    ) -> Outcome:
        """Load and decide part by part without saving anything; other tasks run between two parts.

        The time is taken when the first part is loaded. If the later parts take too long, the writer notices.
        `known` holds what an unfinished outcome wanted.
        """
        loaded = Loaded(namespaces={}, rows={}) if known is None else known
        decision: decide.Decision | None = None
        room = reads.Room(commands)
        for number, part in enumerate(_parts(commands)):
            if number:
                await turns(TURNS_BEFORE_PART[isinstance(part[0], WriteCommand)])
            wanted = decide.needs(part)
            await self._load(wanted, loaded, room)
            if decision is None:
                at = now()
                decision = decide.Decision(loaded, at, self.keys, self.defaults)
            if wanted.sums:
                await self._sum_up(wanted, loaded, at)
            more = decision.further(part, wanted)
            if more is not None:
                await self._load(more, loaded, room)
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
            rows=await self._load_rows(decide.looked_for(looked)) if looked else {},
            ends=loaded.ends | {at: await ends_of(self.scan, *at) for at in outcome.wants},
            looked=looked,
        )

    async def _sum_up(self, wanted: Needs, loaded: Loaded, now: int) -> None:
        """Load the wanted sums."""
        loaded.runs.update(await self._aside(reads.overdue, wanted.runs, now))
        loaded.trims.update(await self._aside(reads.journal_bytes, wanted.trims))
        loaded.counts.update(await self._aside(reads.counts, wanted.counts))

    async def _load(self, wanted: Needs, loaded: Loaded, room: reads.Room) -> None:
        loaded.rows.update(self._recent.rows(wanted.rows))
        known = loaded.rows
        rows = {
            address: shown
            for address, shown in wanted.rows.items()
            if (row := known.get(address)) is None or row.value is None
        }
        if rows:
            loaded.rows.update(await self._load_rows(rows, room.for_rows(rows)))
        loaded.namespaces.update(self._recent.namespaces(wanted.namespaces - loaded.namespaces.keys()))
        if names := sorted(wanted.namespaces - loaded.namespaces.keys()):
            loaded.namespaces.update(
                await self._look(lambda connection: reads.load_namespaces(connection, names))
            )


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
