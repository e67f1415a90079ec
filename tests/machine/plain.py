"""The library's answers in the oracle's form.

Everything that a caller can see of an answer is kept; only a request id that the store made up, which
differs from store to store, is replaced by a word.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import HoldfastError, VersionConflict
from holdfast.model import BatchResult, Change, Changes, Conflict, Entry, Page, Semantics, Stats
from holdfast.testing.exact import text_of
from tests.machine.ledger import MADE

if TYPE_CHECKING:
    from tests.machine.ledger import Plain

REQUESTS: Final = ("r1", "r2", "r3")
"""The request ids that the steps give."""
INTENTIONS: Final = ("o1", "o2")
"""The ids of intentions that the steps give as `once`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def plain(answer: Any) -> Any:
    """An answer as the oracle would give it."""
    match answer:
        case Entry():
            return _fields(answer) | {"value": text_of(answer.value)}
        case Change() | Conflict():
            return _fields(answer)
        case Page():
            entries = None if answer.entries is None else [plain(entry) for entry in answer.entries]
            return {"keys": answer.keys, "truncated": answer.truncated, "entries": entries}
        case Changes():
            return _fields(answer) | {"changes": [plain(change) for change in answer.changes]}
        case BatchResult():
            return answer.versions
        case Stats():
            return {"keys": answer.keys, "bytes": answer.bytes, "version": answer.version}
        case HoldfastError():
            return _error(answer)
        case list():
            return [plain(member) for member in answer]
        case _:
            return answer


def _fields(answer: msgspec.Struct) -> Plain:
    return {name: _field(name, value) for name, value in msgspec.structs.asdict(answer).items()}


def _field(name: str, value: Any) -> Any:
    if name == "request_id":
        return value if value is None or value in (*REQUESTS, *INTENTIONS) else MADE
    match value:
        case datetime():
            return round((value - _EPOCH).total_seconds() * 1000)
        case Semantics():
            given = msgspec.structs.asdict(value)
            return {field: _listed(meant) for field, meant in given.items() if meant not in (None, ())}
        case Entry():
            return plain(value)
        case _:
            return value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _error(error: HoldfastError) -> Plain:
    found: Plain = {"error": type(error).__name__, "code": error.code, "field": error.field}
    if isinstance(error, VersionConflict):
        found |= {
            "current": plain(error.current),
            "conflicts": [plain(conflict) for conflict in error.conflicts],
            "reason": error.reason,
        }
    return found
