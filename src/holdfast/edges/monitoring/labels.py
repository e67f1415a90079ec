"""The outcome and the purpose of a write, as labels of a metric.

Law: there are few labels. An unknown purpose becomes `other`, and every error has one of five outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.commands import Batch, Deleted, KeyChange, Many, Results, Set, Stored, Versions, WriteCommand
from holdfast.errors import OutcomeUnknown, Refused, Transient, VersionConflict, peek
from holdfast.stored import purpose_of
from holdfast.tables.commands import ItemsDone, ItemWrite, TransactWrite, WriteItems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.commands import Command, Result

LOCK: Final = "lock"
PURPOSES: Final = frozenset(
    {"cache", "checkpoint", "config", "counter", "cursor", "feature_flag", LOCK, "session"}
)
"""The purposes with a label of their own."""
OUTCOMES: Final = ("ok", "conflict", "refused", "unavailable", "unknown", "error")


_STORED_PLAINLY: Final = (("none", "ok"),)


def purpose_label(purpose: str | None) -> str:
    """Return the label of a purpose."""
    if purpose is None:
        return "none"
    return purpose if purpose in PURPOSES else "other"


def writes_of(command: Command, result: Result | Exception) -> Sequence[tuple[str, str]]:
    """Return the labels of purpose and outcome for each write; a batch counts as one write."""
    if isinstance(result, Stored) and result.row.semantics is None:
        return _STORED_PLAINLY
    if isinstance(command, (KeyChange, Batch, ItemWrite, TransactWrite)):
        return ((purpose_label(_purpose(command, result)), _outcome(result)),)
    if isinstance(command, Many):
        parts: Sequence[Command] = command.items
    elif isinstance(command, WriteItems):
        parts = command.writes
    else:
        return ()
    results = result.items if isinstance(result, (Results, ItemsDone)) else [result] * len(parts)
    return [one for part in zip(parts, results, strict=True) for one in writes_of(*part)]


def _outcome(result: Result | Exception) -> str:
    if not isinstance(result, Exception):
        return "ok"
    match result:
        case VersionConflict():
            return "conflict"
        case Refused():
            return "refused"
        case Transient():
            return "unavailable"
        case OutcomeUnknown():
            return "unknown"
        case _:
            return "error"


def _purpose(command: WriteCommand, result: Result | Exception) -> str | None:
    """Return the purpose of the stored or removed entry, else of the intended or conflicting one."""
    match result:
        case Stored():
            return purpose_of(result.row.semantics)
        case Deleted():
            return result.purpose
        case Versions():
            return _first(result.purposes)
    wanted = command.writes if isinstance(command, Batch) else (command,)
    named = _first(purpose_of(write.semantics) for write in wanted if isinstance(write, Set))
    return named if named is not None else _met(result)


def _met(result: Result | Exception) -> str | None:
    """Return the purpose of the entry that a conflict reports."""
    current = peek(result, "current") if isinstance(result, VersionConflict) else None
    return None if current is None or current.semantics is None else current.semantics.purpose


def _first(purposes: Iterable[str | None]) -> str | None:
    return next((purpose for purpose in purposes if purpose is not None), None)
