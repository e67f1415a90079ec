"""The contract between a store and its storage. Read this to write a new engine.

An engine keeps four kinds of things: rows by address (`holdfast.rows`), one row per namespace, the journal
(records by namespace and version) and an epoch, which identifies this life of the storage. It does not
interpret them. A change goes through `transact`, which every engine implements in the same steps:

    wanted  = needs(commands)                     what to load
    loaded  = <one transaction begins: load>      lock the namespaces first, then load; in that order
    more    = further(commands, wanted, loaded)   what else to load, as a policy or a table requires
    outcome = decide(loaded, commands, now(), keys, defaults)   pure; the keys sign the audit
    <while outcome.unfinished: load what it wants, decide again>
    <save outcome; commit>                        all of it or nothing, durable before the return

Entries often expire in large numbers, and most leave nothing but a record. So `wanted.runs` may ask for the
totals of the due entries of a namespace (`holdfast.rows.Overdue`). `outcome.runs` then says that these
entries are removed and which versions their records get (`holdfast.rows.Run`), without a row or a record for
each. An engine may leave out these totals: its entries then expire one by one. It must sum up what the
journal holds up to a version (`wanted.trims`) and what a namespace keeps (`wanted.counts`), because quotas
depend on these sums. `holdfast.decide.weights` defines what each thing counts for.

`decide` can't write the first record of an audit, or one whose head was tampered with, before it knows which
records exist. `outcome.wants` then names the space. The engine saves nothing, puts its `ends_of` into
`loaded.ends` in the same transaction, and decides again. `outcome.looks` names rows to load in the same way,
because only deciding showed that they matter. The engine notes these rows, and those that `further` asks for,
in `loaded.looked`, whether they exist or not.

Guarantees:

- Groups that touch the same namespace take effect one after the other, across all processes.
- A failure before the commit raises a `Transient` error or `DatabaseError`, and nothing is kept. A failure
  during the commit whose outcome the engine can't know raises `OutcomeUnknown`.
- Keys are ordered by their UTF-8 bytes. Text is compared as it is: no case folding, no normalisation.
- A row whose `expires_at` is not later than `now` is invisible to `read`, `scan` and `totals`.
- Nothing is committed after `outcome.deadline`. The engine checks the time again once it holds every lock it
  had to wait for, as late before the commit as it can. If the deadline has passed, it rolls back and decides
  again. That refuses the commands whose callers have given up and executes the others.
- An engine that copies what it loads respects `loadable`: beyond it, it raises `TooExpensive` before it has
  loaded everything. It may yield to others whenever `Decision.take` returns before the last command.
- Cancelling a caller never stops a commit half way.
- An operation that an engine can't perform raises `Unsupported`. It never does something weaker instead.

This module holds the contract, then the questions that a store asks, with the forms of the answers, and at
the end the abilities that only some engines have, each a protocol of its own. A store asks with `isinstance`
whether an engine has the methods. An engine without them lacks the ability and imitates nothing.
`holdfast.testing` certifies an implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from holdfast import rules
from holdfast.audit.keyring import Keyring
from holdfast.clock import KeptLine, Reading, SystemClock
from holdfast.commands import Command
from holdfast.decide import Outcome
from holdfast.engine.raw import RawLoader, RawSnapshot
from holdfast.model import Policy, Rescued
from holdfast.rows import KV, Address, FirstAndLast, Namespace, Record, Row

if TYPE_CHECKING:
    from holdfast.audit.chain import SigningKeys


class Later(Enum):
    """The type of `LATER`: the answer is not available without waiting."""

    LATER = "later"


LATER: Final = Later.LATER


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of an engine that a store must know."""

    durable: bool = True
    """Acknowledged writes survive the process."""
    multi_process: bool = False
    """Other processes may write to the same storage at the same time."""
    lane_per_namespace: bool = False
    """Groups of different namespaces may be in flight together, and each group holds a single namespace."""
    owns_reaper: bool = False
    """Another process expires the entries."""
    glances: bool = False
    """Entries can be read without waiting, except at rare moments."""


class Engine(Protocol):
    """Storage for rows, without rules. Times are milliseconds since 1970."""

    @property
    def keys(self) -> SigningKeys:
        """The keys that sign the audit."""
        ...

    defaults: Policy | None
    """The quotas for namespaces whose policy sets none, for `decide`. The store sets it before `start`."""

    @property
    def capabilities(self) -> Capabilities:
        """The properties of this engine."""
        ...

    async def start(self) -> None:
        """Connect to the storage, and create or migrate it where needed."""
        ...

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Apply a group in one transaction.

        The outcome has a result per command, or the error that refused it. `now` returns the time and may be
        called from any thread. Call it once everything is loaded, and again for each further attempt, so that
        deadlines are judged by the current time.
        """
        ...

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """Return what `read` would for entries if that needs no waiting, else `LATER`."""
        ...

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """Return the rows at these addresses that are alive, by position."""
        ...

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Return the live rows of a range of keys."""
        ...

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """Return rows of a space whose deadline is not later than `now`, the longest overdue first."""
        ...

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """Return entries with semantics, and those of the semantic family, by deadline, the earliest first.

        The deadline is later than `since` and not later than `until`. The cost may grow with the number of
        entries of all kinds that have such a deadline, but not with that of entries overdue for longer.
        """
        ...

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Return records of a namespace's journal."""
        ...

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """Return the row of a namespace (none if it has never been written to) or of all, by name."""
        ...

    async def owners(self, space: str) -> list[str]:
        """Return the namespaces with rows in a space other than `kv`, by name, also those without a row."""
        ...

    async def ready(self) -> None:
        """Check that a write would be accepted now, and raise the error that would refuse it."""
        ...

    async def aclose(self) -> None:
        """Finish all accepted work and release the storage."""
        ...


def loadable(commands: Sequence[Command]) -> int | None:
    """Return how many bytes of values may be loaded for these commands; None if there is no limit.

    A group has room for several requests. A group that needs more is refused, then executed command by
    command.
    """
    if len(commands) > 1:
        return 4 * rules.MAX_LOADED_BYTES
    return rules.MAX_LOADED_BYTES if commands[0].weighed else None


def no_hint() -> None:
    """Do nothing. An engine without hints returns this as the function that stops them."""


# The questions, and the forms of the answers


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A walk in order over the keys of a space, from `start` to before `stop` (None: to the end).

    `after` excludes keys up to and including it. (PostgreSQL allows no U+0000 in a bound, so there is no
    other way to express "the next key".) With `reverse` the walk goes backwards from the other end, and
    `after` excludes keys from it on.

    The walk ends after `limit` rows, or before the row whose size would take the sum past `max_bytes`; the
    first row is always returned. The size of a row is that of its key. With `values` it also includes its
    value and 256 bytes for the rest.
    """

    namespace: str
    space: str
    start: str | bytes
    stop: str | bytes | None = None
    after: str | bytes | None = None
    limit: int
    max_bytes: int
    values: bool = False
    reverse: bool = False


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that a scan found, their rows if it asked for values, and whether there is more."""

    keys: list[Any]
    rows: list[Row]
    more: bool


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on the envelope of listed entries. An entry must match all that are given.

    An entry without a deadline never matches `expires_before`.
    """

    purpose: str | None = None
    producer: str | None = None
    writer: str | None = None
    spec_ref: str | None = None
    expires_before: int | None = None


class Selected(msgspec.Struct, kw_only=True):
    """The keys and rows that passed a filter. `last` is the last key examined; None at the end."""

    keys: list[Any]
    rows: list[Row]
    last: Any


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A row that is past its deadline and still stored."""

    namespace: str
    key: str | bytes
    expires_at: int


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The result of making room for a quota: records of expired entries, and whether space was freed.

    `more` says that it ended as soon as there was room, so that more could be removed.
    """

    journal: list[Record]
    freed: bool
    more: bool = False


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of a journal: records after version `since`, the oldest first.

    It selects keys from `start` to before `stop`. With `key`, it selects only the records of that key.
    `newest_first` reverses the order. With `max_bytes`, the answer ends before the record whose detail would
    take the sum past it; the first one is always returned.
    """

    namespace: str
    since: int = 0
    key: str | None = None
    start: str = ""
    stop: str | None = None
    limit: int
    newest_first: bool = False
    max_bytes: int | None = None


class JournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a journal, with its bounds at the same instant.

    `floor` is the newest version whose record was dropped, `head` the last version given. `complete` means
    that no more records match.
    """

    records: list[Record]
    complete: bool
    floor: int
    head: int
    epoch: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace's row, with the number and size of its counted entries that are past their deadline."""

    namespace: Namespace
    due_keys: int
    due_bytes: int


async def ends_of(
    scan: Callable[[Scan, int], Awaitable[Scanned]], namespace: str, space: str
) -> FirstAndLast | None:
    """Return the first and the last row of a space whose rows have no deadlines; None if it is empty."""
    first, last = [
        await scan(
            Scan(
                namespace=namespace,
                space=space,
                start=b"",
                limit=1,
                max_bytes=1,
                values=True,
                reverse=reverse,
            ),
            0,
        )
        for reverse in (False, True)
    ]
    if not first.keys or not last.keys:
        return None
    return FirstAndLast(first=(bytes(first.keys[0]), first.rows[0]), last=(bytes(last.keys[0]), last.rows[0]))


async def rows_of(
    scan: Callable[[Scan], Awaitable[Scanned]],
    namespace: str,
    space: str,
    *,
    start: str | bytes | None = None,
    step: int,
) -> AsyncIterator[tuple[Any, Row]]:
    """Yield the keys and the rows of a space, from `start` or the first on. Reads `step` at a time."""
    if start is None:
        start = "" if space == KV else b""
    after: str | bytes | None = None
    more = True
    while more:
        page = await scan(
            Scan(
                namespace=namespace,
                space=space,
                start=start,
                after=after,
                limit=step,
                max_bytes=2 * rules.MAX_TRANSFER_BYTES,
                values=True,
            )
        )
        for pair in zip(page.keys, page.rows, strict=True):
            yield pair
        more, after = page.more, page.keys[-1] if page.keys else None


def fitting(records: Iterable[Record], query: JournalQuery) -> tuple[list[Record], bool]:
    """Return as many of the records as the query allows, and whether these are all."""
    page: list[Record] = []
    room = query.max_bytes
    for record in records:
        if room is not None:
            room -= len((record.detail or "").encode())
        if len(page) == query.limit or (page and room is not None and room < 0):
            return page, False
        page.append(record)
    return page, True


def row_size(key: str | bytes, row: Row | None) -> int:
    """Return the size that a key counts for in a scan, alone or with its row."""
    width = len(key.encode()) if isinstance(key, str) else len(key)
    return width if row is None else width + row.size + 256


def successor(prefix: str) -> str | None:
    """Return the least text that is greater than every text with this prefix; None if there is none."""
    for end in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[end]) + 1
        if point == 0xD800:
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:end] + chr(point)
    return None


# What only some engines can do


@runtime_checkable
class LocalFile(Protocol):
    """An optional interface for engines whose storage is a file of this machine."""

    cache_bytes: int
    """How much memory rows may take, so that they need not be read again. A store sets it before `start`."""

    def peek(self, address: Address, now: int) -> Row | Later | None:
        """Return an entry that is alive as `read` would, or `LATER` if the loop has to be asked.

        It may be called from any thread, and sees every write whose result was returned before the call.
        """
        ...

    def announce(self, url: str) -> None:
        """Tell other processes of this machine where the store is served. The URL must hold no secrets."""
        ...

    def follow(self, changed: Callable[[Sequence[tuple[str, int]]], None]) -> Callable[[], None]:
        """Call `changed` with the newest version of every namespace, soon, and when other processes write.

        Returns a function that stops that.
        """
        ...

    def publishes(self, bus: str) -> bool:
        """Return whether this process, of all that have the file open, publishes its changes on a bus.

        Asking tries to take this over from a process that has ended.
        """
        ...

    def leads_upkeep(self) -> bool:
        """Return whether this process, of all that have the file open, removes what has expired.

        Asking tries to take this over from a process that has ended or is stopped. So only a process that
        does the work may ask, and it must go on asking at least every second.
        """
        ...

    async def rescue(self, path: str) -> Rescued:
        """Copy everything from the open storage into a new file, whatever is at its own path now.

        Raises:
            ValidationError: The path can't be used: a file exists there, or its folder does not exist.
            Busy: Another long read of the storage is under way.
        """
        ...


def does_upkeep(engine: Engine) -> bool:
    """Return whether this process removes what has expired now; see `LocalFile.leads_upkeep`."""
    if engine.capabilities.owns_reaper:
        return False
    return not isinstance(engine, LocalFile) or engine.leads_upkeep()


class ClusterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of its cluster. Numbers by shard are those of this node."""

    nodes: int
    """The nodes that answered at the last look, this one included."""
    skew: float
    """The seconds by which the clocks of the nodes differ at most."""
    behind: dict[int, int]
    """The messages of the log that are not applied yet."""
    leads: dict[int, bool]
    """Whether this node was the last to write."""
    stopped: dict[int, bool]
    """Whether this node does not serve the shard."""


@runtime_checkable
class SharedStorage(Protocol):
    """An optional interface for engines whose storage other machines use too."""

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None] | None:
        """Call `ring` when others may have changed a namespace.

        Returns a function that stops that. May do nothing and return None: changes are also found by polling,
        and waiters for a lock then poll more often.
        """
        ...

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """Read the storage's own clock at a tick; None if it has no clock or its time is unknown."""
        ...

    def figures(self) -> ClusterFigures | None:
        """Return what this node knows of its cluster, without asking anyone; None if there is no cluster."""
        ...


class CannotShareTransaction(Exception):
    """The groups of several namespaces can't share a transaction now. Nothing was written."""


@runtime_checkable
class Sharer(Protocol):
    """An optional interface for engines with a lane per namespace whose transactions can hold several.

    `transact` then also gets commands of several namespaces, plain changes of keys and nothing else. All of
    them are kept or none. It may raise `CannotShareTransaction` instead, and then gets the commands of each
    namespace alone.
    """

    shared: int
    """The maximum number of namespaces in one transaction."""

    def shares(self, namespace: str) -> bool:
        """Return whether commands of a namespace may share a transaction with those of others now."""
        ...


@runtime_checkable
class LineKeeper(Protocol):
    """An optional interface for engines whose store has the time of the machine that it is open on.

    The time that a store remembers is up to a second old. A line is exact: a process that is started after
    another one was killed goes on from the very time that the other one had reached.
    """

    async def kept_line(self) -> KeptLine | None:
        """Return the line of the clock that the store was or is open with, or None if none is kept."""
        ...

    async def agree_on_line(self, clock: SystemClock) -> KeptLine | None:
        """Keep the line of a clock before it is used, unless other processes have the store open.

        Returns the line that this process must go by. Its `opened` is None, or the line is None, if this
        process may not write: it has to ask again from time to time.

        Raises:
            Unsupported: The clocks of the other processes can't be compared with this one.
        """
        ...

    async def close_line(self, clock: SystemClock) -> None:
        """Keep that the store is closed: nobody was answered with a later time than this clock has now."""
        ...


@runtime_checkable
class DurableStorage(Engine, Protocol):
    """An optional interface for engines whose storage outlives the process. A durable engine has it.

    The storage remembers the latest time that callers were answered with, so that time does not go back when
    it is opened again. It may then be opened with other keys, so it also keeps the names of the keys that
    have signed its audit, with the current one last. Names are not secret.
    """

    @property
    def keys(self) -> Keyring:
        """The keys that sign the audit."""
        ...

    async def remembered(self) -> int:
        """Return the latest time that the storage knows, either remembered or that of a change."""
        ...

    async def remember(self, now: int) -> int:
        """Remember a time if it is the latest and this process may write. Returns the latest time kept."""
        ...

    async def kept_keys(self) -> list[str]:
        """Return the names that are kept; none if the store has never signed."""
        ...

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """Replace the kept names if they equal `before`. Returns the names kept afterwards."""
        ...


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check of the storage: its scope, the problems found, and whether it was complete."""

    checked: str
    troubles: list[str] = []
    complete: bool = True


@runtime_checkable
class Movable(Engine, Protocol):
    """An optional interface for engines whose whole contents an operator can read and load as they are."""

    def open_read_only(self) -> None:
        """Make `start` open the storage for reading: it then creates no files and changes nothing."""
        ...

    def open_unfinished(self) -> None:
        """Let `start` open a store into which a copy is under way. Otherwise `start` refuses it."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[RawSnapshot]:
        """Read everything at one instant, while others write."""
        ...

    def loading(self) -> AbstractAsyncContextManager[RawLoader]:
        """Change raw contents in one transaction, which is committed when the block ends without an error.

        A store that is closed can be loaded. A cluster commits in pieces: it must first be closed, with a
        reason that begins with `UNFINISHED`, and all changes between two calls of `RawLoader.remember` may
        be kept in part.
        """
        ...

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """Refuse all writes of all processes from now on, with this reason; None allows them again.

        When it returns, every write that was accepted before is visible to a new snapshot, and no write is
        accepted any more. Other processes may have the store open, even for writing.

        Args:
            reason: The reason that writers are given.
            instead_of: The reason for which the store is closed so far; None if it is open.

        Raises:
            Busy: Another process has closed or opened the store in between. Nothing was changed.
        """
        ...

    async def examine(self, *, seconds: float | None = None) -> Checkup | None:
        """Check the storage for corruption: thoroughly, or as far as a quick check gets in so many seconds.

        Returns None if this storage can't be examined.
        """
        ...
