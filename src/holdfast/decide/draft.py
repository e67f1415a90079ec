"""The draft of a group: what was loaded, and over it what the commands so far have made of it.

Law: a draft knows rows and versions but no verb. Nothing leaves it but the outcome; what was loaded is never
changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from holdfast.decide.account import Account, Items
from holdfast.decide.policies import check_quota
from holdfast.decide.weights import COUNTER, record_weight, row_weight
from holdfast.errors import DatabaseError, HoldfastError, Timeout
from holdfast.model import Policy
from holdfast.rows import KV, OVERHEAD, Address, Ends, Namespace, Overdue, Record, Row, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.audit.chain import Head, Keys
    from holdfast.commands import Command, Result


class Needs:
    """What has to be loaded: namespaces, and rows with a word on whether the value matters.

    `runs` holds, by namespace, how many of its plain entries past their deadline are to be summed up. `trims`
    are versions, by namespace, of which is to be summed up what the journal holds up to them. `counts` are
    namespaces whose counters are to be found anew.

    An engine may leave out the value where it is not wanted, but never that of a row with a deadline: it
    may turn out to have expired, and then the trash wants it. `Row.size` is given all the same.
    """

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.rows: dict[Address, bool] = {}
        self.runs: dict[str, int] = {}
        self.trims: set[tuple[str, int]] = set()
        self.counts: set[str] = set()

    @property
    def sums(self) -> bool:
        """Whether anything is to be summed up."""
        return bool(self.runs or self.trims or self.counts)

    def row(self, address: Address, *, value: bool = False) -> None:
        """Ask for a row."""
        self.rows[address] = value or self.rows.get(address, False)


class Loaded(msgspec.Struct, frozen=True):
    """What was found of what was needed; what is not in here does not exist.

    `ends` holds, by namespace and space, what an outcome has wanted; None where the space is empty. `looked`
    are the addresses of rows that were asked for by `further` or wanted by an outcome, there or not. `trims`
    and `counts` hold what `Needs` asks to be summed up: bytes, and counters by their name.
    """

    namespaces: dict[str, Namespace]
    rows: dict[Address, Row]
    runs: dict[str, Overdue] = {}
    ends: dict[tuple[str, str], Ends | None] = {}
    looked: set[Address] = set()
    trims: dict[tuple[str, int], int] = {}
    counts: dict[str, dict[str, int]] = {}


class Outcome(msgspec.Struct, frozen=True):
    """What a group leads to. An engine saves all of it or nothing.

    `rows` maps an address to its new row, or to None where the row goes. `trims` holds, by namespace, the
    version up to which the journal is to be dropped. `runs` are entries that go unseen: they are no part of
    `rows`, and their records no part of `journal`. `deadline` is the earliest of the commands that were not
    refused: after it the outcome must not be saved any more, but decided anew.

    `expired` says that the journal tells of entries that have passed their deadline.

    `wants` are spaces, by namespace, whose ends must be known first, and `looks` are rows that must be looked
    for: an engine then saves nothing, loads them into `Loaded.ends` and `Loaded.rows`, notes the latter in
    `Loaded.looked`, and decides again. That is rare.
    """

    results: list[Result | HoldfastError]
    namespaces: list[Namespace]
    rows: dict[Address, Row | None]
    journal: list[Record]
    trims: dict[str, int]
    runs: list[Run] = []
    deadline: int | None = None
    wants: set[tuple[str, str]] = set()
    expired: bool = False
    looks: set[Address] = set()

    @property
    def unfinished(self) -> bool:
        """Whether something has to be loaded first, and all of it decided again."""
        return bool(self.wants or self.looks)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to save."""
        return not self.namespaces and not self.rows


_NOTHING: Final = Overdue()

TOO_LATE: Final = "the deadline passed before the request could be carried out: nothing was written"

Apply: TypeAlias = "Callable[[Draft, Command], Result]"


class Paused(Exception):
    """A slice of work is over in the middle of a command."""


class Draft:
    """A group in the making. `name` and `now` are those of the command at hand, `keys` sign the audit.

    `namespace` is that of the command at hand, to be changed in place. `heads` are those that the audit has
    signed here, with their rows. `command` is that of the group which is being applied, and `charged` what it
    has been charged with so far; what its parts do is charged to it.
    `expired` says that an entry was found to have passed its deadline, `slices` are what takes long and is
    not done in one piece, and `updates` those that were read of commands.
    """

    def __init__(self, loaded: Loaded, now: int, keys: Keys, defaults: Policy | None = None) -> None:
        self.name = ""
        self.namespace = Namespace(name="")
        self.now = now
        self.keys = keys
        self._defaults = defaults
        self._group_now = now
        self._deadline: int | None = None
        self._loaded = loaded
        self._rows: dict[Address, Row | None] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._journal: list[Record] = []
        self._trims: dict[str, int] = {}
        self._runs: list[Run] = []
        self.heads: dict[str, tuple[Row, Head]] = {}
        self._wants: set[tuple[str, str]] = set()
        self._looks: set[Address] = set()
        self._items: Items | None = None
        self.command: Command | None = None
        self.charged: Account | None = None
        self.expired = False
        self.slices: dict[tuple[int, int], Any] = {}
        self.updates: dict[int, tuple[Command, Any]] = {}
        self._began = 0
        self._undo: list[tuple[Address, bool, Row | None]] = []
        self._blind: set[Address] = set()

    @property
    def known(self) -> Loaded:
        """What was loaded, with the namespaces as the commands so far have left them."""
        if not self._namespaces:
            return self._loaded
        return Loaded(self._loaded.namespaces | self._namespaces, self._loaded.rows)

    @property
    def loaded_bytes(self) -> int:
        """How many bytes the values have that were loaded for the group."""
        return sum(row.size for row in self._loaded.rows.values())

    def bytes_of(self, wanted: Mapping[Address, bool]) -> int:
        """How many bytes the values have that were loaded because they were wanted, or have a deadline."""
        found = [(self._loaded.rows.get(address), value) for address, value in wanted.items()]
        return sum(row.size for row, value in found if row and (value or row.expires_at is not None))

    @property
    def unchanged(self) -> bool:
        """Whether the command at hand has changed no row so far."""
        return len(self._undo) == self._began

    @property
    def account(self) -> Account:
        """What the command at hand has looked at and shown."""
        if self.charged is None:
            assert self.command is not None
            self.charged = Account(self.command)
        return self.charged

    @property
    def items(self) -> Items:
        """The items that were read for conditions and updates."""
        if self._items is None:
            self._items = Items()
        return self._items

    def attempt(self, apply: Callable[[Draft, Command], Result], command: Command) -> Result | HoldfastError:
        """Apply a command; if it is refused, take back whatever it did and return the error.

        Raises:
            Paused: A slice of work is over; whatever the command did was taken back.
        """
        self._enter(command.namespace)
        namespace = msgspec.structs.replace(self.namespace)
        undo, journal = len(self._undo), len(self._journal)
        if command is self.command:
            self._began = undo
        try:
            result = apply(self, command)
            if self._defaults is not None or self.namespace.policy is not None:
                check_quota(namespace, self.namespace, command, defaults=self._defaults)
            return result
        except (HoldfastError, Paused) as refusal:
            self._namespaces[self.name] = self.namespace = namespace
            self._take_back(undo)
            del self._journal[journal:]
            if isinstance(refusal, Paused):
                raise
            return refusal

    def require_time(self, deadline: int) -> None:
        """Refuse a command whose caller has given up. This goes by the clock, not by the last change."""
        if self._group_now > deadline:
            raise Timeout(TOO_LATE)
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline

    def keep(self) -> None:
        """Forget how to take back what was done so far."""
        self._undo.clear()

    def row(self, address: Address) -> Row | None:
        """The row as the commands so far have left it."""
        if address in self._rows:
            return self._rows[address]
        return self._loaded.rows.get(address)

    def put(self, address: Address, row: Row | None) -> None:
        """Put a row at an address, or take away the one that was found there."""
        if address.space != KV and address.space in COUNTER:
            self._weigh(address, row)
        self._undo.append((address, address in self._rows, self._rows.get(address)))
        self._rows[address] = row

    def remove_unseen(self, address: Address) -> None:
        """Take away a row that was not looked for; it may not be there."""
        self._blind.add(address)
        self.put(address, None)

    def look(self, address: Address) -> Row | None:
        """The row at an address that may not have been asked for; then the outcome wants it."""
        if address not in self._rows and address not in self._loaded.looked:
            self._looks.add(address)
            return None
        return self.row(address)

    def ends(self, space: str) -> Ends | None:
        """The first and the last row of a space of the namespace, as they were loaded; None if it is empty.

        Raises:
            DatabaseError: They were not loaded. The outcome wants them.
        """
        wanted = self.name, space
        if wanted not in self._loaded.ends:
            self._wants.add(wanted)
            raise DatabaseError(f"this engine has not told where the space {space} of {self.name} ends")
        return self._loaded.ends[wanted]

    def version(self, *, at_least: int = 0) -> int:
        """A new version: the next in the namespace, or a later one that is asked for; never given before."""
        namespace = self.namespace
        following = namespace.revision + 1
        namespace.revision = following if following > at_least else at_least
        namespace.changed_at = self.now
        return namespace.revision

    def record(self, record: Record) -> None:
        """Write to the journal."""
        self._journal.append(record)
        # `record_weight`, written out: every write comes here
        detail = 0 if record.detail is None else len(record.detail.encode())
        self.namespace.journal_bytes += (
            len(record.key)
            + len(record.last_writer or "")
            + len(record.request_id or "")
            + len(record.purpose or "")
            + detail
            + OVERHEAD
        )

    @property
    def overdue(self) -> Overdue:
        """What may go as a run: nothing once a command here has changed the namespace, a run among them."""
        unchanged = self.namespace == self._found(self.name)
        return self._loaded.runs.get(self.name, _NOTHING) if unchanged else _NOTHING

    def run(self, overdue: Overdue) -> None:
        """Let entries go as one, each with a version and a record of its own."""
        first, count = self.namespace.revision + 1, overdue.count
        self.version(at_least=self.namespace.revision + count)
        self._runs.append(
            Run(namespace=self.name, first=first, count=count, at=self.now, until=overdue.until)
        )

    def trim(self, upto: int, *, asked: int) -> None:
        """Drop the journal of the namespace up to a version, where a command has asked for one as late."""
        self._trims[self.name] = upto
        self.namespace.journal_floor = upto
        left = [one for one in self._journal if one.namespace == self.name and one.version > upto]
        stored = self._found(self.name).journal_bytes - self._loaded.trims.get((self.name, asked), 0)
        self.namespace.journal_bytes = stored + sum(map(record_weight, left))

    @property
    def miscounts(self) -> dict[str, int]:
        """By how much counters of the namespace were too low before this group, if they were counted anew."""
        loaded = self._found(self.name)
        counted = self._loaded.counts.get(self.name, {})
        return {name: by for name, found in counted.items() if (by := found - getattr(loaded, name))}

    def outcome(self, results: list[Result | HoldfastError]) -> Outcome:
        """What all this comes to: only what is different from what was loaded."""
        if self._runs:
            self._require_runs_alone()
        return Outcome(
            results=results,
            namespaces=[now for name, now in self._namespaces.items() if now != self._found(name)],
            rows={address: row for address, row in self._rows.items() if row or self._removes(address)},
            journal=self._journal,
            trims=self._trims,
            runs=self._runs,
            deadline=self._deadline,
            wants=self._wants,
            expired=self.expired,
            looks=self._looks,
        )

    def _require_runs_alone(self) -> None:
        swept = {run.namespace for run in self._runs}
        if any(address.namespace in swept for address in self._rows):
            raise RuntimeError("a run of expired entries shares a group with commands that may be about them")

    def _removes(self, address: Address) -> bool:
        """Whether there may be something at an address that has to go."""
        return address in self._loaded.rows or address in self._blind

    def _weigh(self, address: Address, row: Row | None) -> None:
        """Count a row that comes or goes in a space with a counter."""
        before = None if address in self._looks else self.row(address)
        counter = COUNTER[address.space]
        change = 0 if row is None else row_weight(address.key, row)
        if before is not None:
            change -= row_weight(address.key, before)
        setattr(self.namespace, counter, getattr(self.namespace, counter) + change)

    def _enter(self, name: str) -> None:
        """Turn to a namespace. Its time is at least that of its last change, whatever this clock says."""
        self.name = name
        namespace = self._namespaces.get(name)
        if namespace is None:
            namespace = self._namespaces[name] = msgspec.structs.replace(self._found(name))
        self.namespace = namespace
        self.now = self._group_now if self._group_now > namespace.changed_at else namespace.changed_at

    def _found(self, name: str) -> Namespace:
        """The namespace as it was loaded, or as it is before its first change."""
        found = self._loaded.namespaces.get(name)
        return Namespace(name=name, created_at=self._group_now) if found is None else found

    def _take_back(self, length: int) -> None:
        while len(self._undo) > length:
            address, was_written, row = self._undo.pop()
            if was_written:
                self._rows[address] = row
            else:
                del self._rows[address]
