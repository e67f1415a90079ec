"""The draft of a group: the loaded rows, overlaid with the changes of the commands so far.

A draft knows rows and versions but no verbs. Only the outcome leaves it. Loaded data is never changed. The
work of each command is counted separately, so that its limit does not depend on the rest of its group. A
command with many parts is applied in slices: a slice ends between two parts, and what was done stays. The
results are the same as in one piece, as what a command checks before its first write is not checked again in
a later slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast import rules
from holdfast.commands import Command, Result
from holdfast.decide.policies import check_quota
from holdfast.decide.weights import COUNTER, record_weight, row_weight
from holdfast.errors import DatabaseError, HoldfastError, Timeout
from holdfast.model import Policy
from holdfast.rows import KV, OVERHEAD, UPLOAD, Address, FirstAndLast, Namespace, Overdue, Record, Row, Run
from holdfast.stored import SeenEntry, SeenItem, attributes_of
from holdfast.work import Work

if TYPE_CHECKING:
    from holdfast.audit.chain import Head, SigningKeys

ENVELOPE: Final = 256
"""Bytes that an entry or an item in a reply counts for, in addition to its value."""
DECODED_BYTES: Final = 1_048_576
"""Maximum bytes of text of the decoded items that are kept for a group."""


_NOTHING: Final = Overdue()
TOO_LATE: Final = "the deadline passed before the request could be carried out: nothing was written"
Apply: TypeAlias = "Callable[[Draft, Command], Result]"
T = TypeVar("T")
PARTS_IN_A_SLICE: Final = 100
"""The number of parts in a slice. A hundred small writes take about a millisecond."""


class Account(Work):
    """The work of one command, and the stored data that its refusals show.

    Args:
        command: The command. Each of its writes raises the limit.
    """

    __slots__ = ("_read", "_room", "_seen")

    def __init__(self, command: Command) -> None:
        super().__init__(rules.MAX_WORK + rules.MAX_WORK_PER_WRITE * command.rows)
        self._room = rules.MAX_TRANSFER_BYTES
        self._read: set[int] = set()
        self._seen: dict[int, SeenEntry | SeenItem] = {}

    def follow(self, other: Account) -> None:
        """Continue from the count of another account."""
        self.count_on(other)
        self._read = set(other._read)

    def read(self, row: Row) -> None:
        """Count the reading of a row, once."""
        if id(row) not in self._read:
            self._read.add(id(row))
            super().read(row)

    def entry(self, key: str, row: Row) -> SeenEntry:
        """Return an entry for a refusal, with its value as long as the reply has room for it."""
        if not self._fits(row):
            return SeenEntry(row, key=key, value=False)
        seen = self._seen.get(id(row))
        if seen is None:
            seen = self._seen[id(row)] = SeenEntry(row, key=key)
        return cast("SeenEntry", seen)

    def item(self, row: Row) -> SeenItem:
        """Return an item for a refusal; see `entry`."""
        if not self._fits(row):
            return SeenItem(row, value=False)
        seen = self._seen.get(id(row))
        if seen is None:
            seen = self._seen[id(row)] = SeenItem(row)
        return cast("SeenItem", seen)

    def _fits(self, row: Row) -> bool:
        self._room -= row.size + ENVELOPE
        return self._room >= 0 and row.value is not None


class Items:
    """The decoded items of a group, so that each one is decoded once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Row, dict[str, Any]]] = {}
        self._bytes = 0

    def attributes(self, row: Row) -> dict[str, Any]:
        """Return the attributes of the item in a row. Do not modify them.

        Raises:
            DatabaseError: The item can't be read.
        """
        known = self._known.get(id(row))
        if known is not None:
            return known[1]
        attributes = attributes_of(row)
        self._bytes += row.size
        if self._bytes > DECODED_BYTES:
            self._known.clear()
            self._bytes = row.size
        self._known[id(row)] = row, attributes
        return attributes


class Needs(msgspec.Struct, eq=False):
    """The data to load: namespaces, and rows with a flag that says whether the value is needed.

    `runs` holds, by namespace, for how many plain entries past their deadline the totals are needed. `trims`
    are versions, by namespace, up to which the size of the journal is needed. `counts` are namespaces whose
    counters must be recomputed.

    An engine may leave out a value that is not needed, except for a row with a deadline: the row may have
    expired, and then the trash needs its value. `Row.size` is always set.
    """

    namespaces: set[str] = set()
    rows: dict[Address, bool] = {}
    runs: dict[str, int] = {}
    trims: set[tuple[str, int]] = set()
    counts: set[str] = set()

    @property
    def sums(self) -> bool:
        """True if any totals are needed."""
        return bool(self.runs or self.trims or self.counts)

    def row(self, address: Address, *, value: bool = False) -> None:
        """Request a row."""
        self.rows[address] = value or self.rows.get(address, False)


class Loaded(msgspec.Struct, frozen=True):
    """The data that was found. Anything requested that is missing here does not exist.

    `ends` holds, by namespace and space, what an outcome has requested; None where the space is empty.
    `looked` are the addresses of rows that `further` or an outcome requested, whether they exist or not.
    `trims` and `counts` hold the sums that `Needs` requests: bytes, and counters by name. `named` caches
    what a command on an item names, by the identity of the command: `further` and `decide` both need it.
    `appended` holds, by the address of a log's head, the last number whose entry `further` has requested.
    """

    namespaces: dict[str, Namespace]
    rows: dict[Address, Row]
    runs: dict[str, Overdue] = {}
    ends: dict[tuple[str, str], FirstAndLast | None] = {}
    looked: set[Address] = set()
    trims: dict[tuple[str, int], int] = {}
    counts: dict[str, dict[str, int]] = {}
    named: dict[int, tuple[Any, ...]] = {}
    appended: dict[Address, int] = {}


class Outcome(msgspec.Struct, frozen=True):
    """The effect of a group. An engine saves all of it or nothing.

    `rows` maps an address to its new row, or to None if the row is removed. `trims` holds, by namespace, the
    version up to which the journal is dropped. `runs` are entries removed in bulk: they are not in `rows`,
    and their records are not in `journal`. `deadline` is the earliest of the commands that were not refused.
    After it the outcome must not be saved; the group must be decided again.

    `expired` says that the journal contains expiries of entries.

    `wants` are spaces, by namespace, whose ends must be known first, and `looks` are rows that must be loaded
    first. An engine then saves nothing, loads them into `Loaded.ends` and `Loaded.rows`, adds the latter to
    `Loaded.looked`, and decides again. This is rare.
    """

    results: list[Result | HoldfastError]
    namespaces: list[Namespace]
    rows: dict[Address, Row | None]
    journal: list[Record]
    trims: dict[str, int]
    runs: list[Run] = []
    deadline: int | None = None
    wants: frozenset[tuple[str, str]] = frozenset()
    expired: bool = False
    looks: frozenset[Address] = frozenset()

    @property
    def unfinished(self) -> bool:
        """True if more must be loaded before the group is decided again."""
        return bool(self.wants or self.looks)

    @property
    def empty(self) -> bool:
        """True if there is nothing to save."""
        return not self.namespaces and not self.rows


def looked_for(addresses: Iterable[Address]) -> dict[Address, bool]:
    """Return whether the value of each row that outcomes look for is needed: only those of uploads are."""
    return {address: address.space == UPLOAD for address in addresses}


class Paused(Exception):
    """Raised when a slice of work ends in the middle of a command, which is then undone."""


class Suspended(Exception):
    """Raised when a slice of work ends between two parts of a command. What was done so far stays."""


class Draft(msgspec.Struct, eq=False):
    """A group in progress. `name` and `now` belong to the current command; `keys` sign the audit.

    `namespace` is the current command's own copy, which is changed in place. `heads` are the audit heads that
    were signed here, with their rows. `command` is the one of the group that is being applied, and `charged`
    the work charged to it so far, including that of its parts. `expired` says that an entry was found past
    its deadline. `slices` holds long work that is done in pieces, and `updates` the decoded updates of
    commands.
    """

    _loaded: Loaded
    _group_now: int
    keys: SigningKeys
    _defaults: Policy | None = None
    name: str = ""
    namespace: Namespace = msgspec.field(default_factory=partial(Namespace, name=""))
    now: int = 0
    heads: dict[str, tuple[Row, Head]] = {}
    command: Command | None = None
    charged: Account | None = None
    expired: bool = False
    slices: dict[tuple[int, int], Any] = {}
    updates: dict[int, tuple[Command, Any]] = {}
    _deadline: int | None = None
    _rows: dict[Address, Row | None] = {}
    _namespaces: dict[str, Namespace] = {}
    _journal: list[Record] = []
    _trims: dict[str, int] = {}
    _runs: list[Run] = []
    _items: Items | None = None
    _began: int = 0
    _undo: list[tuple[Address, Row | UnsetType | None]] = []
    _wants: frozenset[tuple[str, str]] = frozenset()
    _looks: frozenset[Address] = frozenset()
    _blind: frozenset[Address] = frozenset()
    _suspended: tuple[Namespace, int, int] | None = None  # the state before the suspended command

    @property
    def named(self) -> dict[int, tuple[Any, ...]]:
        """See `Loaded.named`."""
        return self._loaded.named

    @property
    def known(self) -> Loaded:
        """The loaded data, with the namespaces as the commands so far have left them."""
        if not self._namespaces:
            return self._loaded
        return Loaded(
            self._loaded.namespaces | self._namespaces,
            self._loaded.rows,
            named=self._loaded.named,
            appended=self._loaded.appended,
        )

    @property
    def loaded_bytes(self) -> int:
        """The total size of the values loaded for the group."""
        return sum(row.size for row in self._loaded.rows.values())

    def bytes_of(self, wanted: Mapping[Address, bool]) -> int:
        """Return the total size of the values loaded because they were wanted or have a deadline."""
        rows = [(self._loaded.rows.get(address), value) for address, value in wanted.items()]
        return sum(row.size for row, value in rows if row and (value or row.expires_at is not None))

    @property
    def unchanged(self) -> bool:
        """True if the current command has not changed any row so far."""
        return len(self._undo) == self._began

    @property
    def account(self) -> Account:
        """The account of what the current command has read and shown."""
        if self.charged is None:
            assert self.command is not None
            self.charged = Account(self.command)
        return self.charged

    @property
    def items(self) -> Items:
        """The items that were decoded for conditions and updates."""
        if self._items is None:
            self._items = Items()
        return self._items

    def attempt(self, apply: Callable[[Draft, Command], Result], command: Command) -> Result | HoldfastError:
        """Apply a command. If it is refused, undo it and return the error.

        Raises:
            Paused: The slice of work is over; the command was undone.
            Suspended: The slice of work is over. The next attempt must be at the same command, and goes on
                with it.
        """
        self._enter(command.namespace)
        if self._suspended is None:
            before, undo, journal = self.namespace, len(self._undo), len(self._journal)
            self.namespace = self._namespaces[self.name] = replace(before)
        else:
            (before, undo, journal), self._suspended = self._suspended, None
        if command is self.command:
            self._began = undo
        try:
            result = apply(self, command)
            if self._defaults is not None or self.namespace.policy is not None:
                check_quota(before, self.namespace, command, defaults=self._defaults)
            return result
        except (HoldfastError, Paused) as refusal:
            self._namespaces[self.name] = self.namespace = before
            self._take_back(undo)
            del self._journal[journal:]
            if isinstance(refusal, Paused):
                raise
            return refusal
        except Suspended:
            self._suspended = before, undo, journal
            raise

    def require_time(self, deadline: int) -> None:
        """Refuse a command whose caller has given up.

        This uses the clock, not the time of the last change.
        """
        if self._group_now > deadline:
            raise Timeout(TOO_LATE)
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline

    def keep(self) -> None:
        """Discard the undo log."""
        self._undo.clear()

    def row(self, address: Address) -> Row | None:
        """Return the row as the commands so far have left it."""
        if address in self._rows:
            return self._rows[address]
        return self._loaded.rows.get(address)

    def put(self, address: Address, row: Row | None) -> None:
        """Store a row at an address, or remove the one that was found there."""
        counter = None if address.space == KV else COUNTER.get(address.space)
        if counter is not None:
            self._weigh(counter, address, row)
        self._undo.append((address, self._rows.get(address, UNSET)))
        self._rows[address] = row

    def remove_unseen(self, address: Address) -> None:
        """Remove a row that was not loaded and may not exist."""
        self._blind |= {address}
        self.put(address, None)

    def look(self, address: Address) -> Row | None:
        """Return a row that may not have been requested. In that case the outcome requests it."""
        if address not in self._rows and address not in self._loaded.looked:
            self._looks |= {address}
            return None
        return self.row(address)

    def ends(self, space: str) -> FirstAndLast | None:
        """Return the first and the last row of a space as loaded; None if the space is empty.

        Raises:
            DatabaseError: They were not loaded. The outcome requests them.
        """
        address = self.name, space
        if address not in self._loaded.ends:
            self._wants |= {address}
            raise DatabaseError(f"the engine did not load the ends of the space {space} of {self.name}")
        return self._loaded.ends[address]

    def version(self, *, at_least: int = 0) -> int:
        """Return a new version: the next in the namespace, or `at_least` if that is later."""
        namespace = self.namespace
        following = namespace.revision + 1
        version = namespace.revision = following if following > at_least else at_least
        namespace.changed_at = self.now
        return version

    def record(self, record: Record) -> None:
        """Add a record to the journal."""
        self._journal.append(record)
        # `record_weight`, inlined for speed: every write gets here, and only few have a purpose or a detail
        if record.purpose is None and record.detail is None:
            names = f"{record.key}{record.last_writer or ''}{record.request_id or ''}"
            self.namespace.journal_bytes += len(names) + OVERHEAD
        else:
            self.namespace.journal_bytes += record_weight(record)

    @property
    def overdue(self) -> Overdue:
        """Entries that may expire in bulk. Empty once a command of the group has changed the namespace."""
        unchanged = self.namespace == self._found(self.name)
        return self._loaded.runs.get(self.name, _NOTHING) if unchanged else _NOTHING

    def run(self, overdue: Overdue) -> None:
        """Expire entries in bulk, each with its own version and record."""
        first, count = self.namespace.revision + 1, overdue.count
        self.version(at_least=self.namespace.revision + count)
        self._runs.append(
            Run(namespace=self.name, first=first, count=count, at=self.now, until=overdue.until)
        )

    def trim(self, upto: int, *, asked: int) -> None:
        """Drop the namespace's journal up to a version. `asked` is the version named by the command."""
        self._trims[self.name] = upto
        self.namespace.journal_floor = upto
        left = [one for one in self._journal if one.namespace == self.name and one.version > upto]
        stored = self._found(self.name).journal_bytes - self._loaded.trims.get((self.name, asked), 0)
        self.namespace.journal_bytes = stored + sum(map(record_weight, left))

    @property
    def miscounts(self) -> dict[str, int]:
        """The amounts by which counters of the namespace were too low before this group, if recounted."""
        loaded = self._found(self.name)
        counted = self._loaded.counts.get(self.name, {})
        return {name: by for name, actual in counted.items() if (by := actual - getattr(loaded, name))}

    def outcome(self, results: list[Result | HoldfastError]) -> Outcome:
        """Return the outcome, with only what differs from the loaded data."""
        if self._runs:
            self._require_runs_alone()
        return Outcome(
            results=results,
            namespaces=[now for name, now in self._namespaces.items() if now != self._found(name)],
            rows=self._rows if None not in self._rows.values() else self._saved_rows(),
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

    def _saved_rows(self) -> dict[Address, Row | None]:
        """Return the rows without those that were added and removed again."""
        loaded, blind = self._loaded.rows, self._blind
        return {at: row for at, row in self._rows.items() if row or at in loaded or at in blind}

    def _weigh(self, counter: str, address: Address, row: Row | None) -> None:
        """Count a row that is added or removed in a space with a counter."""
        before = None if address in self._looks else self.row(address)
        change = 0 if row is None else row_weight(address.key, row)
        if before is not None:
            change -= row_weight(address.key, before)
        setattr(self.namespace, counter, getattr(self.namespace, counter) + change)

    def _enter(self, name: str) -> None:
        """Switch to a namespace. Its time is at least that of its last change, whatever the clock says."""
        self.name = name
        namespace = self.namespace = self._namespaces.get(name) or self._found(name)
        self.now = self._group_now if self._group_now > namespace.changed_at else namespace.changed_at

    def _found(self, name: str) -> Namespace:
        """Return the namespace as loaded, or as it is before its first change."""
        namespace = self._loaded.namespaces.get(name)
        return Namespace(name=name, created_at=self._group_now) if namespace is None else namespace

    def _take_back(self, length: int) -> None:
        while len(self._undo) > length:
            address, row = self._undo.pop()
            if row is UNSET:
                del self._rows[address]
            else:
                self._rows[address] = row


def each(draft: Draft, phase: int, todo: Sequence[T], apply: Callable[[Draft, T], Any]) -> list[Any]:
    """Apply a function to each part of the current command.

    Args:
        draft: The draft.
        phase: A number that tells this call from others about the same command.
        todo: The parts.
        apply: The function.

    Returns:
        The results, by position.

    Raises:
        Suspended: The slice is over. The next call goes on behind the last part.
    """
    if len(todo) <= PARTS_IN_A_SLICE:
        return [apply(draft, part) for part in todo]
    done: list[Any] = draft.slices.setdefault((id(draft.command), phase), [])
    done.extend(apply(draft, part) for part in todo[len(done) : len(done) + PARTS_IN_A_SLICE])
    if len(done) < len(todo):
        raise Suspended
    return done


def begun(draft: Draft, phase: int) -> bool:
    """Return whether an earlier slice has applied parts of the current command in a phase."""
    return (id(draft.command), phase) in draft.slices
