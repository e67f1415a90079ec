"""The messages of a shard's log: their headers, their bodies, and messages in several parts.

Every message names the one before it twice: by its sequence (the base), which the server checks, and by its
id, which replicas check. An outcome that is larger than a message may be is a batch: JetStream stores all of
its parts or none.

The body holds an outcome of `decide` as a list of rows, records and counters. Replicas write these rows and
decide nothing, so a node may run another version of Holdfast than the one that decided. A message that this
version does not understand in full is an error, never a row that lacks a field. A change of the format gets a
new number.

A body may carry a load instead: raw contents and facts about the store, as a list of changes in their order.
Every replica runs the same statements for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import asdict, astuple

from holdfast import seams
from holdfast.bus.protocol import Message
from holdfast.decide import Outcome
from holdfast.engine.raw import Position, Positioned, Section, StoreInfo
from holdfast.engines.cluster.jetstream import sequence_of
from holdfast.engines.sql import sections
from holdfast.engines.sqlite import raw
from holdfast.engines.sqlite import sql as sqlite_sql
from holdfast.engines.sqlite.raw import Loads
from holdfast.engines.sqlite.sql import ADD_FACT, DROP_FACT, INSIDE, Statement
from holdfast.errors import ValueTooLarge
from holdfast.rows import Address, Namespace, Record, Row, Run

Part: TypeAlias = tuple[Mapping[str, str], bytes]
"""The headers and the payload of a message."""
KeyNames: TypeAlias = tuple[list[str], list[str]]
"""The names of the audit's keys to keep, and of those that they replace."""
Change: TypeAlias = tuple[str, str, str, list[Any]]
"""Its kind, the namespace and the section where it has any, and its rows, positions or names."""

HEADROOM: Final = 1024
"""The bytes of a message that are left to its headers."""
MOST_PARTS: Final = 1000
"""The number of messages that JetStream accepts in a batch."""

_BASE: Final = "Nats-Expected-Last-Subject-Sequence"
_ID: Final = "Nats-Msg-Id"
_PART_ID: Final = "Hf-Id"
_PART: Final = "Hf-Part"
_PREVIOUS: Final = "Hf-Prev"
_NODE: Final = "Hf-Node"
_LEASE: Final = "Hf-Lease"
_CHECK: Final = "Hf-Check"
_FORWARDED: Final = "Hf-Forwarded"
_FIRST: Final = "-"
"""Stands for the id of the message before the first one."""

FORMAT: Final = 1
"""The number of the format, which every message names first."""

_PUT: Final = "put"
_DROP: Final = "drop"
_PUT_NAMESPACES: Final = "put namespaces"
_DROP_NAMESPACES: Final = "drop namespaces"
_REMEMBER: Final = "remember"
_CLOCK: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('clock', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)"
)
"""A node's own clock may be later, and never goes back."""


class LogPlace(msgspec.Struct, frozen=True, gc=False):
    """A place in a shard's log: the sequence of a message, and its id."""

    seq: int = 0
    id: str = _FIRST

    def __str__(self) -> str:
        return f"{self.seq} ({self.id})"


class ForwardedName(NamedTuple):
    """The id of a group that another node forwarded, and the last sequence of the log that it knew."""

    id: str
    after: int


class Logged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A whole message of the log, as a replica receives it."""

    place: LogPlace
    base: LogPlace
    node: str
    lease: int
    data: bytes
    check: str = ""
    """Where to send the hash of the contents right after this message, if that is asked for."""
    forwarded: tuple[str, ...] = ()
    """The ids of the groups in it that other nodes forwarded to its writer."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that is to be published, the same at every attempt."""

    id: str
    base: LogPlace
    node: str
    lease: int
    data: bytes
    check: str = ""
    forwarded: tuple[str, ...] = ()

    def parts(self, max_payload: int) -> list[Part]:
        """Return the headers and the payload of every message that carries this one.

        Raises:
            ValueTooLarge: It does not fit a batch.
        """
        heading = {
            _BASE: str(self.base.seq),
            _PREVIOUS: self.base.id,
            _NODE: self.node,
            _LEASE: str(self.lease),
        }
        if self.check:
            heading[_CHECK] = self.check
        if self.forwarded:
            heading[_FORWARDED] = " ".join(self.forwarded)
        room = max_payload - HEADROOM
        if len(self.data) <= room:
            return [({_ID: self.id, **heading}, self.data)]
        pieces = [self.data[start : start + room] for start in range(0, len(self.data), room)]
        if len(pieces) > MOST_PARTS:
            raise ValueTooLarge(
                f"the write changes {len(self.data)} bytes at once, more than the log of the cluster accepts"
            )
        batch = seams.token(8)
        headers = [
            {
                "Nats-Batch-Id": batch,
                "Nats-Batch-Sequence": str(number),
                _PART_ID: self.id,
                _PART: f"{number}/{len(pieces)}",
            }
            for number in range(1, len(pieces) + 1)
        ]
        headers[0] |= heading
        headers[-1]["Nats-Batch-Commit"] = "1"
        return list(zip(headers, pieces, strict=True))


class Assembler:
    """Makes whole messages out of what a consumer delivers, in order."""

    def __init__(self) -> None:
        self._head: Message | None = None
        self._pieces: list[bytes] = []

    def add(self, message: Message) -> Logged | None:
        """Take the next message. Return the entry that it completes, or None.

        A consumer may skip messages. The last part of an outcome that lacks another part completes an entry
        without data, whose place can still be compared, and whose base is the message before that part: a
        replica that has applied less lacks that.
        """
        part = message.header(_PART)
        if part is None:
            return _entry(message, message, message.data)
        number, _, count = part.partition("/")
        if number == "1":
            self._head, self._pieces = message, []
        elif not self._goes_on(message, int(number)):
            self._head = None
        self._pieces.append(message.data)
        if number != count:
            return None
        head, data = self._head, b"".join(self._pieces)
        self._head, self._pieces = None, []
        if head is not None:
            return _entry(head, message, data)
        before = LogPlace(sequence_of(message) - 1, "")
        return msgspec.structs.replace(_entry(message, message, b""), base=before)

    def _goes_on(self, message: Message, number: int) -> bool:
        """Return whether a part comes right after those that are here, of the same outcome."""
        head = self._head
        return (
            head is not None
            and number == len(self._pieces) + 1
            and head.header(_PART_ID) == message.header(_PART_ID)
        )


def base_in(head: bytes) -> int:
    """Return the sequence of the base that a block of headers names; -1 if it names none."""
    return int(Message("", "", "", b"", head).header(_BASE) or -1)


def _entry(head: Message, last: Message, data: bytes) -> Logged:
    return Logged(
        place=LogPlace(sequence_of(last), last.header(_ID) or last.header(_PART_ID) or ""),
        base=LogPlace(int(head.header(_BASE) or -1), head.header(_PREVIOUS) or ""),
        node=head.header(_NODE) or "",
        lease=int(head.header(_LEASE) or 0),
        data=data,
        check=head.header(_CHECK) or "",
        forwarded=tuple((head.header(_FORWARDED) or "").split()),
    )


class Unreadable(Exception):
    """A message has another format than this version writes."""


class _Row(Row, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A row, as a list."""


class _Namespace(Namespace, array_like=True, forbid_unknown_fields=True, gc=False):
    """The row of a namespace, as a list."""


class _Record(Record, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A record of the journal, as a list."""


class _Run(Run, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A run of expiries, as a list."""


class LogBody(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The body of a message: an outcome, the names of the audit's keys, or a load."""

    format: int
    namespaces: list[_Namespace]
    rows: list[tuple[str, str, Any, _Row | None]]  # a key is text or bytes, which no type tells apart here
    journal: list[_Record]
    trims: dict[str, int]
    runs: list[_Run]
    names: tuple[list[str], list[str]] | None = None
    load: list[tuple[str, str, str, list[Any]]] = []

    def outcome(self) -> Outcome:
        """Return what is to be saved, without the classes of this module: theirs is another form in JSON."""
        return Outcome(
            results=[],
            namespaces=[Namespace(**asdict(namespace)) for namespace in self.namespaces],
            rows={
                Address(name, space, key): None if row is None else Row(**asdict(row))
                for name, space, key, row in self.rows
            },
            journal=[Record(**asdict(record)) for record in self.journal],
            trims=self.trims,
            runs=[Run(**asdict(run)) for run in self.runs],
        )

    def statements(self) -> list[Statement]:
        """Return what a replica runs besides saving the outcome.

        Raises:
            KeyError: This version does not know a kind of change.
        """
        names = [] if self.names is None else key_name_statements(self.names)
        return [*names, *load_statements(self.load)]


_EMPTY: Final = LogBody(FORMAT, [], [], [], {}, [])
"""The body of an empty message, which changes no row: a barrier."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LogBody)


def encode_outcome(outcome: Outcome) -> bytes:
    """Return the message of an outcome; empty if there is nothing to save."""
    if outcome.empty:
        return b""
    return _encoder.encode(
        (
            FORMAT,
            [astuple(namespace) for namespace in outcome.namespaces],
            [
                (at.namespace, at.space, at.key, None if row is None else astuple(row))
                for at, row in outcome.rows.items()
            ],
            [astuple(record) for record in outcome.journal],
            outcome.trims,
            [astuple(run) for run in outcome.runs],
            None,
        )
    )


def encode_names(names: KeyNames) -> bytes:
    """Return the message that keeps the names of the audit's keys, and names those that they replace."""
    return _encoder.encode((FORMAT, [], [], [], {}, [], names))


def encode_load(changes: Sequence[Change]) -> bytes:
    """Return the message of a load."""
    return _encoder.encode((FORMAT, [], [], [], {}, [], None, changes))


def decode_body(data: bytes) -> LogBody:
    """Return the body of a message.

    Raises:
        Unreadable: It is damaged, or was written by a version with another format.
    """
    if not data:
        return _EMPTY
    try:
        body = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None
    if body.format != FORMAT:
        raise Unreadable(f"format {body.format} instead of {FORMAT}")
    return body


def key_name_statements(names: KeyNames) -> list[Statement]:
    """Return the statement that keeps the names of the audit's keys."""
    return [(sqlite_sql.KEEP_KEYS, [" ".join(names[0]), " ".join(names[1])])]


def put_rows(namespace: str, section: Section, held: Sequence[Positioned]) -> Change:
    """Put things on a section."""
    return (_PUT, namespace, section.value, sections.columns(section, held))


def drop_rows(namespace: str, section: Section, positions: Sequence[Position]) -> Change:
    """Remove what is at these positions."""
    return (_DROP, namespace, section.value, list(positions))


def put_namespaces(namespaces: Sequence[Namespace]) -> Change:
    """Put the rows of namespaces."""
    return (_PUT_NAMESPACES, "", "", sections.namespace_columns(namespaces))


def drop_namespaces(names: Sequence[str]) -> Change:
    """Remove namespaces with everything on their sections."""
    return (_DROP_NAMESPACES, "", "", list(names))


def put_facts(facts: StoreInfo) -> Change:
    """Replace what the store remembers about itself. The epoch of the log stays as it is."""
    rows = [("store_epoch" if name == "epoch" else name, value) for name, value in sections.facts_rows(facts)]
    return (_REMEMBER, "", "", rows)


def load_statements(changes: Iterable[Change]) -> list[Statement]:
    """Return the statements of a load.

    Raises:
        KeyError: This version does not know a kind of change.
    """
    statements = [
        (sql, row) for change in changes for sql, rows in _KINDS[change[0]](*change[1:]) for row in rows
    ]
    if not statements:
        return []
    return [(ADD_FACT, INSIDE), *statements, (DROP_FACT, INSIDE[:1])]


def loaded_namespaces(changes: Iterable[Change]) -> list[str]:
    """Return the names of the namespaces whose rows a load puts or drops."""
    names: list[str] = []
    for kind, _, _, rows in changes:
        if kind == _PUT_NAMESPACES:
            names += [row[0] for row in rows]
        elif kind == _DROP_NAMESPACES:
            names += rows
    return names


def _remembered(namespace: str, section: str, rows: list[Any]) -> list[Loads]:
    kept = [(name, value) for name, value in rows if name != "clock"]
    return [
        (DROP_FACT, [(name,) for name, _ in kept]),
        (ADD_FACT, [row for row in kept if row[1] is not None]),
        (_CLOCK, [(value,) for name, value in rows if name == "clock"]),
    ]


_KINDS: Final = {
    _PUT: lambda namespace, section, rows: [raw.put_rows(namespace, Section(section), rows)],
    _DROP: lambda namespace, section, rows: [raw.drop_rows(namespace, Section(section), rows)],
    _PUT_NAMESPACES: lambda namespace, section, rows: [raw.put_namespaces(rows)],
    _DROP_NAMESPACES: lambda namespace, section, rows: raw.drop_namespaces(rows),
    _REMEMBER: _remembered,
}
