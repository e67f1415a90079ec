"""The contract between a store and whatever keeps its rows: read this to write a new engine.

An engine keeps four kinds of things: rows by address (`holdfast.rows`), one row per namespace, the journal
(records by namespace and version) and an epoch, which names this life of the storage. It gives them no
meaning. A change goes through `transact`, which every engine writes in the same four steps:

    wanted  = needs(commands)                     what to load
    loaded  = <one transaction begins: load>      lock the namespaces first, then load; in that order
    more    = further(commands, wanted, loaded)   what to load besides, as a policy or a table asks
    outcome = decide(loaded, commands, now(), keys, defaults)   pure; the keys sign the audit
    <while outcome.unfinished: load what it wants, decide again>
    <save outcome; commit>                        all of it or nothing, durable before the return

Many entries expire at once, and most leave nothing but a record. So `wanted.runs` may ask for the sums of
what is due in a namespace (`holdfast.rows.Overdue`), and `outcome.runs` says that these entries go and which
versions their records get (`holdfast.rows.Run`), without a row or a record for each. An engine that sums up
no runs does no wrong: its entries expire one by one. What the journal holds up to a version (`wanted.trims`)
and what a namespace keeps (`wanted.counts`) is summed up in the same way, and must be: by it a namespace
knows how much room it has. `holdfast.decide.weights` says what each thing counts for.

The first record of an audit, and one whose head was tampered with, can't be decided before it is known which
records are there. Then `outcome.wants` names the space: an engine saves nothing, puts its `ends_of` into
`loaded.ends`, in the same transaction, and decides again. `outcome.looks` are rows that have to be loaded in
the same way, since only deciding has shown that they count; they and what `further` asks for are noted in
`loaded.looked`, there or not.

What must hold:

- Groups that touch the same namespace take effect one after the other, across all processes.
- A failure before the commit raises a `Transient` error or `DatabaseError`, and nothing is kept. One during
  the commit, of which the engine can't know the end, raises `OutcomeUnknown`.
- Keys are ordered by their UTF-8 bytes. Text is compared as it is: no case folding, no normalisation.
- A row whose `expires_at` is not later than `now` is invisible to `read`, `scan` and `totals`.
- Nothing is committed after `outcome.deadline`: the engine looks at the time once more when it holds whatever
  it had to wait for, as late before the commit as it can. If it is too late, it rolls back and decides anew,
  which refuses the commands whose callers have given up and lets the others go on.
- An engine that copies what it loads keeps to `loadable`: past that it raises `TooExpensive` before it has
  loaded all of it. It may let others have a turn whenever `Decision.take` returns before the last command.
- Cancelling a caller never stops a commit half way.
- What an engine can't do raises `Unsupported`; it never does something weaker instead.

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

    from holdfast.audit.chain import Keys
    from holdfast.audit.keyring import Keyring
    from holdfast.clock import Reading
    from holdfast.commands import Command, Origin
    from holdfast.decide import Outcome
    from holdfast.model import AuditPage, LetterPage, Page, Rescued, SlowPage, TrashPage
    from holdfast.rows import Address, Namespace, Record, Row


class Later(Enum):
    """The type of `LATER`: not without waiting."""

    LATER = "later"


LATER: Final = Later.LATER


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store must know of its engine."""

    durable: bool = True
    """What was acknowledged survives the process."""
    multi_process: bool = False
    """Others may write to the same storage at the same time."""
    batching: bool = True
    """Commands are to be grouped before they are handed over."""
    lane_per_namespace: bool = False
    """Groups of different namespaces may be in flight together, and a group holds one namespace alone."""
    owns_clock: bool = False
    """The other side knows the time: `now` is ignored."""
    owns_reaper: bool = False
    """The other side notices expiry by itself."""
    glances: bool = False
    """Entries can be read without waiting, but for rare moments."""


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A walk over the keys of a space: from `start` to before `stop` (None: to the end), in their order.

    `after` leaves out keys up to and including it. (U+0000 can't be part of a bound in PostgreSQL, so "the
    key after that one" has no other form.) With `reverse` the walk goes backwards from the other end, and
    `after` leaves out keys from it on.

    The walk ends after `limit` rows, or before the row whose size would take the sum past `max_bytes`; the
    first row is always given. The size of a row is that of its key, and with `values` also that of its value
    and 256 bytes for the rest.
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
    """Which entries a listing wants, by their envelope: those that have all that is given here.

    One that lives for ever does not end before any time.
    """

    purpose: str | None = None
    producer: str | None = None
    writer: str | None = None
    spec_ref: str | None = None
    expires_before: int | None = None


class Selected(msgspec.Struct, kw_only=True):
    """The keys and rows that a filter let through. `last` is the last key looked at; None at the end."""

    keys: list[Any]
    rows: list[Row]
    last: Any


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A row that has passed its deadline and is still there."""

    namespace: str
    key: str | bytes
    expires_at: int


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What making room for a quota came to: the records of what has expired, and whether anything went."""

    journal: list[Record]
    freed: bool


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a journal: after version `since`, of keys from `start` to before `stop`, oldest first.

    With `key` only those of this very key; with `newest_first` the order is turned round. With `max_bytes`
    the answer ends before the record whose detail would take the sum past it; the first is always given.
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
    """Records of a journal and, of the same instant, its bounds: what was dropped and what was given last.

    `complete` says that there are no more such records.
    """

    records: list[Record]
    complete: bool
    floor: int
    head: int
    epoch: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace's row, and of its entries those that are past their deadline but still counted.

    `defaults` is what holds where its policy says nothing, if another side knows that.
    """

    namespace: Namespace
    due_keys: int
    due_bytes: int
    defaults: Policy | None = None


class Engine(Protocol):
    """Keeps rows, knows no rules. Times are milliseconds since 1970."""

    @property
    def keys(self) -> Keys:
        """What signs the audit."""
        ...

    defaults: Policy | None
    """The quotas of namespaces whose policy names none, for `decide`; the store sets it before `start`."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine is like."""
        ...

    async def start(self) -> None:
        """Reach the storage, and create or migrate it where that is needed."""
        ...

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Apply a group in one transaction. The outcome has a result per command, or what refused it.

        `now` tells the time, from any thread. Ask it when everything is loaded, and again when an attempt is
        repeated, so that a deadline is judged by the clock as it is then.
        """
        ...

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """What `read` gives for entries, if it can be had without waiting; else `LATER`."""
        ...

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """The rows at these addresses that are alive, by position."""
        ...

    async def scan(self, query: Scan, now: int) -> Scanned:
        """The living rows of a range of keys."""
        ...

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """Rows of a space whose deadline is not later than `now`, the longest overdue first."""
        ...

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """Entries with semantics, and those of the semantic family, by their deadline, the earliest first.

        The deadline is later than `since` and not later than `until`. What this costs may grow with the
        entries of all kinds that have such a deadline, but not with what has been overdue for longer.
        """
        ...

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Records of a namespace's journal."""
        ...

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """The row of a namespace (none if it has never been written to) or of all, by name."""
        ...

    async def owners(self, space: str) -> list[str]:
        """The namespaces that have rows in a space other than `kv`, by name, also those without a row."""
        ...

    async def ready(self) -> None:
        """Make sure that a write would be accepted now; the error that would refuse it is raised."""
        ...

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring when others may have changed a namespace; returns what ends that. Need not do anything."""
        ...

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """What the storage's own clock shows at which of these ticks; None if it has none or is not known."""
        ...

    async def remembered(self) -> int:
        """The latest time that the storage knows: one that it was told to remember, or that of a change."""
        ...

    async def remember(self, now: int) -> int:
        """Keep a time in case it is the latest, if this process may write; the latest that is kept."""
        ...

    async def aclose(self) -> None:
        """Let go of the storage; what was accepted is finished first."""
        ...


@runtime_checkable
class Housekeeper(Protocol):
    """What an engine also has whose other side sweeps by itself, and at once when it is asked to."""

    async def sweep(self) -> int:
        """Remove what has expired; how many entries that was."""
        ...

    async def upkeep(self) -> None:
        """Drop what was kept long enough."""
        ...

    async def recount(self, namespace: str) -> int:
        """Count anew what a namespace keeps; how many counters were wrong."""
        ...


@runtime_checkable
class Rescuer(Protocol):
    """What an engine also has that can copy all it keeps while it is in use."""

    async def rescue(self, path: str) -> Rescued:
        """Copy everything into a new file, from what is open here, whatever is at its path now.

        Raises:
            ValidationError: The path can't be used: something is there, or its folder is not.
            Busy: Another long look at the storage is under way.
        """
        ...


@runtime_checkable
class Onlooker(Protocol):
    """What an engine also has that would make files when it is opened, and need not."""

    def look_on(self) -> None:
        """Be opened for reading alone, before that happens: nothing is made or changed."""
        ...


@runtime_checkable
class Announcer(Protocol):
    """What an engine also has that can tell other processes of this machine where its store is served."""

    def announce(self, url: str) -> None:
        """Tell them; the URL must not hold anything secret."""
        ...


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What examining the storage came to: what was looked at, what is wrong, and whether that was all."""

    checked: str
    troubles: list[str] = []
    complete: bool = True


@runtime_checkable
class Examined(Protocol):
    """What an engine also has that can tell whether its storage is sound."""

    async def examine(self, *, seconds: float | None = None) -> Checkup:
        """Look for corruption: thoroughly, or as far as a quick look gets in so many seconds."""
        ...


@runtime_checkable
class Selector(Protocol):
    """What an engine also has whose other side filters by itself, so that only what is wanted travels."""

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """The entries of a page that a filter lets through; without one all of them."""
        ...


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A page of keys to remove: those that begin with a prefix, after a cursor. `dry_run` only names them."""

    namespace: str
    prefix: str
    limit: int
    cursor: str | None
    dry_run: bool


@runtime_checkable
class Remover(Protocol):
    """What an engine also has whose other side removes keys by prefix, so that they travel once."""

    async def delete_prefix(self, asked: Removal, origin: Origin, now: Callable[[], int]) -> Page:
        """Remove a page of keys."""
        ...


@runtime_checkable
class TrashKeeper(Protocol):
    """What an engine also has whose other side shows operators the trash."""

    async def trash(self, query: Scan) -> TrashPage:
        """What a walk over the trash finds, with the values if it asks for them."""
        ...


@runtime_checkable
class SlowKeeper(Protocol):
    """What an engine also has whose other side keeps the requests that took long."""

    async def slowlog(self, *, before: int | None, limit: int, instance: str | None) -> SlowPage:
        """A page of them, the newest first: before a number, and of one instance if that is given."""
        ...


@runtime_checkable
class TableDoor(Protocol):
    """What an engine also has whose other side answers calls about tables."""

    async def table(self, namespace: str, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a call: see `holdfast.handles.table_calls`."""
        ...


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of an audit: after number `after`, of keys with a prefix, and as the rest says."""

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
    """What verifying a part of an audit came to: up to which record it is whole, and what is wrong after it.

    `floor` is the number of the newest record that was pruned. `complete`: there is nothing more to verify.
    """

    number: int
    signature: str
    floor: int
    complete: bool
    broken_at: int | None = None
    reason: str | None = None


@runtime_checkable
class Auditor(Protocol):
    """What an engine also has whose other side reads and verifies the audit, since it has the keys."""

    async def audit_log(self, namespace: str, query: AuditQuery) -> AuditPage:
        """Records of an audit."""
        ...

    async def audits(self) -> list[str]:
        """The namespaces that have an audit or should have one, by name."""
        ...

    async def audit_verify(self, namespace: str, *, after: int, anchor: str) -> AuditPart:
        """Verify what follows a record whose signature is `anchor`, as far as one part goes."""
        ...


@runtime_checkable
class KeyKeeper(Engine, Protocol):
    """What an engine also has whose storage outlives the process and may be opened with other keys.

    It keeps the names of the keys that have signed its audit, which are no secrets, the one in force last.
    """

    @property
    def keys(self) -> Keyring:
        """What signs the audit."""
        ...

    async def kept_keys(self) -> list[str]:
        """The names that are kept; none in a store that was never signed."""
        ...

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """Keep these names if those before are kept now; the names that are kept after that."""
        ...


@runtime_checkable
class LetterBox(Protocol):
    """What an engine also has whose other side deals with dead letters, since they lie there."""

    async def letters(self, namespace: str, *, after: int, limit: int) -> LetterPage:
        """The dead letters of a namespace after a number."""
        ...

    async def retry_letter(self, namespace: str, number: int) -> dict[str, Any]:
        """Do what a letter asks for and drop it; the fields of the reply."""
        ...

    async def drop_letter(self, namespace: str, number: int) -> bool:
        """Remove a letter; whether it was there."""
        ...


async def ends_of(scan: Callable[[Scan, int], Awaitable[Scanned]], namespace: str, space: str) -> Ends | None:
    """The first and the last row of a space whose rows have no deadlines; None if it is empty."""
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
    """How many bytes of values may be loaded for commands; None if nobody minds.

    A group has room for several requests. One that needs more is refused, and then done command by command.
    """
    if len(commands) > 1:
        return 4 * rules.MAX_LOADED_BYTES
    return rules.MAX_LOADED_BYTES if commands[0].weighed else None


def fitting(records: Iterable[Record], query: JournalQuery) -> tuple[list[Record], bool]:
    """As many of the records as a query may be given, and whether those are all."""
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
    """What ends the hints of an engine that gives none."""


def row_size(key: str | bytes, row: Row | None) -> int:
    """What a key counts for in a scan, alone or with its row."""
    width = len(key.encode()) if isinstance(key, str) else len(key)
    return width if row is None else width + row.size + 256


def successor(prefix: str) -> str | None:
    """The least text that is greater than every text with this prefix; None if there is none."""
    for end in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[end]) + 1
        if point == 0xD800:
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:end] + chr(point)
    return None
