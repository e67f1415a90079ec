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

Law: this module holds the protocol and the plain data that passes through it. `holdfast.testing` certifies an
implementation.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from holdfast import rules
from holdfast.model import Policy
from holdfast.rows import Ends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from holdfast.audit.chain import SigningKeys
    from holdfast.audit.keyring import Keyring
    from holdfast.clock import Reading
    from holdfast.commands import Command, Origin
    from holdfast.decide import Outcome
    from holdfast.model import AuditPage, LetterPage, Page, Rescued, SlowPage, TrashPage
    from holdfast.rows import Address, Namespace, Record, Row


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
    batching: bool = True
    """Commands should be grouped before they are passed to the engine."""
    lane_per_namespace: bool = False
    """Groups of different namespaces may be in flight together, and each group holds a single namespace."""
    owns_clock: bool = False
    """The other side provides the time: `now` is ignored."""
    owns_reaper: bool = False
    """The other side expires entries by itself."""
    glances: bool = False
    """Entries can be read without waiting, except at rare moments."""


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
    """The result of making room for a quota: records of expired entries, and whether space was freed."""

    journal: list[Record]
    freed: bool


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
    """A namespace's row, with the number and size of its counted entries that are past their deadline.

    `defaults` are the values that apply where its policy sets none, if the other side knows them.
    """

    namespace: Namespace
    due_keys: int
    due_bytes: int
    defaults: Policy | None = None


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

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` when others may have changed a namespace.

        Returns a function that stops that. May do nothing.
        """
        ...

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """Read the storage's own clock at a tick; None if it has no clock or its time is unknown."""
        ...

    async def remembered(self) -> int:
        """Return the latest time that the storage knows, either remembered or that of a change."""
        ...

    async def remember(self, now: int) -> int:
        """Remember a time if it is the latest and this process may write. Returns the latest time kept."""
        ...

    async def aclose(self) -> None:
        """Finish all accepted work and release the storage."""
        ...


@runtime_checkable
class Housekeeper(Protocol):
    """An optional interface for engines whose other side sweeps by itself, and also on request."""

    async def sweep(self) -> int:
        """Remove expired entries. Returns the number removed."""
        ...

    async def upkeep(self) -> None:
        """Drop everything that is past its retention."""
        ...

    async def recount(self, namespace: str) -> int:
        """Recount the contents of a namespace. Returns the number of wrong counters."""
        ...


@runtime_checkable
class Rescuer(Protocol):
    """An optional interface for engines that can copy their whole storage while it is in use."""

    async def rescue(self, path: str) -> Rescued:
        """Copy everything from the open storage into a new file, whatever is at its own path now.

        Raises:
            ValidationError: The path can't be used: a file exists there, or its folder does not exist.
            Busy: Another long read of the storage is under way.
        """
        ...


@runtime_checkable
class Onlooker(Protocol):
    """An optional interface for engines that would create files when opened, but can do without."""

    def look_on(self) -> None:
        """Make `start` open the storage read-only: it then creates and changes nothing."""
        ...


@runtime_checkable
class Announcer(Protocol):
    """An optional interface for engines that can tell other local processes where their store is served."""

    def announce(self, url: str) -> None:
        """Publish the URL, which must not contain secrets."""
        ...


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check of the storage: its scope, the problems found, and whether it was complete."""

    checked: str
    troubles: list[str] = []
    complete: bool = True


@runtime_checkable
class Examined(Protocol):
    """An optional interface for engines that can check the integrity of their storage."""

    async def examine(self, *, seconds: float | None = None) -> Checkup:
        """Check for corruption: thoroughly, or as far as a quick check gets in this many seconds."""
        ...


@runtime_checkable
class Selector(Protocol):
    """An optional interface for engines whose other side filters, so that only matching entries are sent."""

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """Return the entries of a page that pass a filter, or all of them without one."""
        ...


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys to remove: those with a prefix, after a cursor. `dry_run` only lists them."""

    namespace: str
    prefix: str
    limit: int
    cursor: str | None
    dry_run: bool


@runtime_checkable
class Remover(Protocol):
    """An optional interface for engines whose other side removes keys by prefix. Keys are sent once."""

    async def delete_prefix(self, asked: Removal, origin: Origin, now: Callable[[], int]) -> Page:
        """Remove a page of keys."""
        ...


@runtime_checkable
class TrashKeeper(Protocol):
    """An optional interface for engines whose other side shows operators the trash."""

    async def trash(self, query: Scan) -> TrashPage:
        """Return the entries in a range of the trash, with their values if the query asks for them."""
        ...


@runtime_checkable
class SlowKeeper(Protocol):
    """An optional interface for engines whose other side keeps slow requests."""

    async def slowlog(self, *, before: int | None, limit: int, instance: str | None) -> SlowPage:
        """Return a page of them, the newest first: before a number, and of one instance if given."""
        ...


@runtime_checkable
class TableDoor(Protocol):
    """An optional interface for engines whose other side answers calls about tables."""

    async def table(self, namespace: str, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a call; see `holdfast.handles.table_calls`."""
        ...


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of an audit: records after number `after` that match all the other fields."""

    after: int = 0
    limit: int
    prefix: str = ""
    writer: str | None = None
    op: str | None = None
    purpose: str | None = None
    request_id: str | None = None
    since: int | None = None
    until: int | None = None


class AuditPart(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a part of an audit: the last valid record, and what is wrong after it.

    `floor` is the number of the newest record that was pruned. `complete` means that nothing is left to
    verify.
    """

    number: int
    signature: str
    floor: int
    complete: bool
    broken_at: int | None = None
    reason: str | None = None


@runtime_checkable
class Auditor(Protocol):
    """An optional interface for engines whose other side reads and verifies the audit with its keys."""

    async def audit_log(self, namespace: str, query: AuditQuery) -> AuditPage:
        """Return records of an audit."""
        ...

    async def audits(self) -> list[str]:
        """Return the namespaces that have an audit or should have one, by name."""
        ...

    async def audit_verify(self, namespace: str, *, after: int, anchor: str) -> AuditPart:
        """Verify one part of the audit, starting after the record whose signature is `anchor`."""
        ...


@runtime_checkable
class KeyKeeper(Engine, Protocol):
    """An optional interface for engines whose storage outlives the process and may be opened with other keys.

    The storage keeps the names of the keys that have signed its audit, with the current one last. Names are
    not secret.
    """

    @property
    def keys(self) -> Keyring:
        """The keys that sign the audit."""
        ...

    async def kept_keys(self) -> list[str]:
        """Return the names that are kept; none if the store has never signed."""
        ...

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """Replace the kept names if they equal `before`. Returns the names kept afterwards."""
        ...


@runtime_checkable
class LetterBox(Protocol):
    """An optional interface for engines whose other side handles dead letters, which are stored there."""

    async def letters(self, namespace: str, *, after: int, limit: int) -> LetterPage:
        """Return the dead letters of a namespace after a number."""
        ...

    async def retry_letter(self, namespace: str, number: int) -> dict[str, Any]:
        """Execute the request of a dead letter and drop it. Returns the fields of the reply."""
        ...

    async def drop_letter(self, namespace: str, number: int) -> bool:
        """Remove a dead letter. Returns whether it was there."""
        ...


async def ends_of(scan: Callable[[Scan, int], Awaitable[Scanned]], namespace: str, space: str) -> Ends | None:
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
    return Ends(first=(bytes(first.keys[0]), first.rows[0]), last=(bytes(last.keys[0]), last.rows[0]))


def loadable(commands: Sequence[Command]) -> int | None:
    """Return how many bytes of values may be loaded for these commands; None if there is no limit.

    A group has room for several requests. A group that needs more is refused, then executed command by
    command.
    """
    if len(commands) > 1:
        return 4 * rules.MAX_LOADED_BYTES
    return rules.MAX_LOADED_BYTES if commands[0].weighed else None


def fitting(records: Iterable[Record], query: JournalQuery) -> tuple[list[Record], bool]:
    """Return as many of the records as the query allows, and whether these are all."""
    given: list[Record] = []
    room = query.max_bytes
    for record in records:
        if room is not None:
            room -= len((record.detail or "").encode())
        if len(given) == query.limit or (given and room is not None and room < 0):
            return given, False
        given.append(record)
    return given, True


def no_hint() -> None:
    """Do nothing. Engines that give no hints return this from `hint`."""


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
