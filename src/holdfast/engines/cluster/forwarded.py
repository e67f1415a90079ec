"""Forwarded groups and their results as bytes.

Both sides may have different versions. A group that the other side can't read is refused whole; commands that
are not forwarded are decided by the node that was called.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias, Union

import msgspec

from holdfast.commands import Command, Deleted, Done, Got, Missed, Stored, Versions, kinds_of
from holdfast.decide import Outcome
from holdfast.errors import HoldfastError, QuotaExceeded
from holdfast.rows import Record, Run
from holdfast.wire.errors import error_fields, error_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.commands import Result

FORMAT: Final = 1
"""The number of the format, which every group names first."""

if TYPE_CHECKING:
    Carried: TypeAlias = Command
else:
    Carried = Union[tuple(kind for kind in kinds_of(Command) if kind.forwards)]  # noqa: UP007 - of their number
Found: TypeAlias = Stored | Missed | Got | Deleted | Versions | Done


class ForwardedGroup(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A group of commands, its id, and the last sequence of the log that its sender knew."""

    format: int
    id: str
    after: int
    commands: list[Carried]


class _Refusal(msgspec.Struct, tag=True):
    """An error, as JSON, and the number of bytes over a quota."""

    fields: bytes
    excess: int = 0


class ForwardedOutcome(msgspec.Struct, array_like=True):
    """The results of a group, the changes to tell listeners of, and the place in the log that has them."""

    seq: int
    results: list[Found | _Refusal]
    journal: list[Record]
    runs: list[Run]
    expired: bool


_forwards = attrgetter("forwards")
_encoder = msgspec.msgpack.Encoder()
_group = msgspec.msgpack.Decoder(ForwardedGroup)
_outcome = msgspec.msgpack.Decoder(ForwardedOutcome)


def can_carry(commands: Sequence[Command]) -> bool:
    """Return whether a group can be forwarded."""
    return all(map(_forwards, commands))


def group_as_bytes(name: str, after: int, commands: Sequence[Command]) -> bytes:
    """Return a group as bytes."""
    return _encoder.encode((FORMAT, name, after, commands))


def group_of_bytes(data: bytes) -> tuple[str, int, list[Carried]]:
    """Return the id of a group, the last sequence that its sender knew, and its commands.

    Raises:
        msgspec.DecodeError: This version can't read it.
    """
    group = _group.decode(data)
    if group.format != FORMAT:
        raise msgspec.DecodeError(f"format {group.format} instead of {FORMAT}")
    return group.id, group.after, group.commands


def outcome_as_bytes(outcome: Outcome, seq: int) -> bytes:
    """Return what the sender of a group needs of its outcome, which the log has by a sequence."""
    results = [_refusal(one) if isinstance(one, HoldfastError) else one for one in outcome.results]
    return _encoder.encode((seq, results, outcome.journal, outcome.runs, outcome.expired))


def outcome_of_bytes(data: bytes) -> tuple[int, Outcome]:
    """Return the outcome of a group that another node has stored, and the sequence that the log had then."""
    told = _outcome.decode(data)
    results: list[Result | HoldfastError] = [
        _error(one) if isinstance(one, _Refusal) else one for one in told.results
    ]
    return told.seq, Outcome(
        results=results,
        namespaces=[],
        rows={},
        journal=told.journal,
        trims={},
        runs=told.runs,
        expired=told.expired,
    )


def _refusal(error: HoldfastError) -> _Refusal:
    excess = error.excess if isinstance(error, QuotaExceeded) else 0
    return _Refusal(msgspec.json.encode(error_fields(error)), excess)


def _error(refusal: _Refusal) -> HoldfastError:
    error = error_of(msgspec.json.decode(refusal.fields))
    if isinstance(error, QuotaExceeded):
        error.excess = refusal.excess
    return error
