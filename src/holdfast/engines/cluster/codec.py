"""Outcomes as bytes: the messages of the log.

An outcome is a list of rows, records and counters, in the order of the fields below. Replicas write these
rows and decide nothing, so a node may run another version of Holdfast than the one that decided.

Law: a message that this version does not understand in full is an error, never a row that lacks a field. A
change of the format gets a new number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import asdict, astuple

from holdfast.decide import Outcome
from holdfast.rows import Address, Namespace, Record, Row, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engines.cluster.loads import Change

FORMAT: Final = 1
"""The number of the format, which every message names first."""


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
    """The body of a message. `names` are the audit's keys to keep, and those that they replace.

    `load` holds raw changes; see `holdfast.engines.cluster.loads`.
    """

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


NOTHING: Final = LogBody(FORMAT, [], [], [], {}, [])
"""The body of an empty message, which changes no row: a barrier."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LogBody)


def encode(outcome: Outcome) -> bytes:
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


def encode_names(names: tuple[list[str], list[str]]) -> bytes:
    """Return the message that keeps the names of the audit's keys, and names those that they replace."""
    return _encoder.encode((FORMAT, [], [], [], {}, [], names))


def encode_load(changes: Sequence[Change]) -> bytes:
    """Return the message of a load."""
    return _encoder.encode((FORMAT, [], [], [], {}, [], None, changes))


def decode(data: bytes) -> LogBody:
    """Return the body of a message.

    Raises:
        Unreadable: It is damaged, or was written by a version with another format.
    """
    if not data:
        return NOTHING
    try:
        body = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None
    if body.format != FORMAT:
        raise Unreadable(f"format {body.format} instead of {FORMAT}")
    return body
