"""All errors that Holdfast raises. Each class has its own stable code.

    HoldfastError
    ├── Refused                nothing was written; the same call will be refused again
    │   ├── InvalidJson  MissingField  InvalidSubject  InvalidPluginName  ValidationError  ValueTooLarge
    │   ├── KeyNotFound  ConditionFailed  Fenced (LockLost)  PermissionDenied  QuotaExceeded  Unsupported
    │   └── TableNotFound  TableExists  ItemNotFound  IndexNotFound  TtlNotConfigured  TooExpensive
    ├── VersionConflict        nothing was written; read again, then decide
    ├── Transient              nothing was written; the same call may succeed later
    │   └── RateLimited  Busy  Timeout  Unavailable  StorageFull
    ├── OutcomeUnknown         it may or may not have been written: read, or retry with the same request id
    ├── Escalated              a retry gave up; it has the code of the last error
    └── Defect                 a failure that no caller can fix: report it
        └── DatabaseError  InternalError

Errors carry what a caller needs to act, as fields; messages are for people. The text of a driver's exception
never becomes part of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from msgspec.structs import replace

from holdfast.model import Conflict, Entry, Item, ItemConflict


class HoldfastError(Exception):
    """The base class of all errors. `code` is stable; `field` names the offending input, if there is one."""

    code: str
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


T = TypeVar("T")


class _Shown(Generic[T]):
    """An attribute that shows a stored entry or item, decoded on first access.

    A group may refuse hundreds of calls for the same large value. Most callers never read it, and a service
    forwards it in its stored form, which `peek` returns.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, error: HoldfastError, owner: type) -> T:
        made: T = _made(vars(error)[self._name])
        vars(error)[self._name] = made
        return made

    def __set__(self, error: HoldfastError, seen: object) -> None:
        vars(error)[self._name] = seen


def _made(seen: Any) -> Any:
    if isinstance(seen, tuple):
        return tuple(replace(one, current=_made(one.current)) for one in seen)
    return seen() if callable(seen) else seen


def peek(error: HoldfastError, name: str) -> Any:
    """Return an attribute of an error in its stored form, unless it was read before."""
    return vars(error)[f"_{name}"]


class Refused(HoldfastError):
    """A refusal for good: nothing was written, and the same call will be refused again."""


class InvalidJson(Refused):
    """The payload is not JSON."""

    code = "INVALID_JSON"


class MissingField(Refused):
    """A required field is absent."""

    code = "MISSING_FIELD"


class InvalidSubject(Refused):
    """The subject names no known verb, or has the wrong form."""

    code = "INVALID_SUBJECT"


class InvalidPluginName(Refused):
    """The plugin's name breaks the rule for names."""

    code = "INVALID_PLUGIN_NAME"


class ValidationError(Refused):
    """A field breaks its rule; `field` says which."""

    code = "VALIDATION_ERROR"


class ValueTooLarge(Refused):
    """A value, a batch or a reply is larger than its limit."""

    code = "VALUE_TOO_LARGE"


class KeyNotFound(Refused):
    """The verb requires an existing key, and the key does not exist."""

    code = "KEY_NOT_FOUND"


class ConditionFailed(Refused):
    """The item does not meet the condition of the write; nothing was written.

    `current` is the existing item, or None. `conflicts` lists every part of a transaction that failed. Those
    past 512 KB of a reply have no value (`msgspec.UNSET`).
    """

    code = "CONDITION_FAILED"
    current: _Shown[Item | None] = _Shown()
    conflicts: _Shown[tuple[ItemConflict, ...]] = _Shown()

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        current: Item | Callable[[], Item] | None = None,
        conflicts: Sequence[ItemConflict] = (),
    ) -> None:
        super().__init__(message, field=field)
        self.current = current
        self.conflicts = tuple(conflicts)


class Fenced(Refused):
    """A newer holder has taken the lock that this write relies on."""

    code = "FENCED"


class LockLost(Fenced):
    """The lease of a lock ended before its holder was done: the store may refuse writes under its fence.

    The lock raises this error instead of the cancellation that stopped the holder. Earlier writes remain.
    """


class TableNotFound(Refused):
    """The table does not exist."""

    code = "TABLE_NOT_FOUND"


class TableExists(Refused):
    """A table of that name already exists."""

    code = "TABLE_EXISTS"


class ItemNotFound(Refused):
    """The verb requires an existing item, and the item does not exist."""

    code = "ITEM_NOT_FOUND"


class IndexNotFound(Refused):
    """The index does not exist."""

    code = "INDEX_NOT_FOUND"


class TtlNotConfigured(Refused):
    """The table has no attribute for deadlines."""

    code = "TTL_NOT_CONFIGURED"


class QuotaExceeded(Refused):
    """The namespace's quota is used up; `excess` is the number of bytes over it, where known."""

    code = "QUOTA_EXCEEDED"
    excess: int = 0


class PermissionDenied(Refused):
    """The caller lacks permission for the call."""

    code = "PERMISSION_DENIED"


class Unsupported(Refused):
    """The engine, or this version of Holdfast, can't perform the call."""

    code = "UNSUPPORTED"


class TooExpensive(Refused):
    """The request exceeds the work limit for one request; the message says what cost most.

    Nothing was written. The same request costs the same again, so do not retry it: ask for less at a time.
    """

    code = "TOO_EXPENSIVE"


class VersionConflict(HoldfastError):
    """A check on a version failed; nothing was written.

    `current` is the existing entry, or None; in a table it is `item`. `conflicts` lists every failed check of
    a batch; those past 512 KB of a reply have no value (`msgspec.UNSET`). `reason` is `request_id_reused`
    when a request id was used earlier with other content.
    """

    code = "VERSION_CONFLICT"
    current: _Shown[Entry | None] = _Shown()
    item: _Shown[Item | None] = _Shown()
    conflicts: _Shown[tuple[Conflict, ...]] = _Shown()

    def __init__(
        self,
        message: str,
        *,
        current: Entry | Callable[[], Entry] | None = None,
        item: Item | Callable[[], Item] | None = None,
        conflicts: Sequence[Conflict] = (),
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.current = current
        self.item = item
        self.conflicts = tuple(conflicts)
        self.reason = reason


class Transient(HoldfastError):
    """A failure that may pass: nothing was written, and the same call may succeed later.

    `retry_after` is the number of seconds to wait before the next attempt, if known.
    """

    retryable = True

    def __init__(self, message: str, *, field: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, field=field)
        self.retry_after = retry_after


class RateLimited(Transient):
    """The namespace has exceeded its rate limit."""

    code = "RATE_LIMITED"


class Busy(Transient):
    """Too many requests are pending, or a resource is in use."""

    code = "BUSY"


class Timeout(Transient):
    """The deadline passed before the engine committed the call: nothing was written."""

    code = "TIMEOUT"


class Unavailable(Transient):
    """The storage can't be reached, or this process may not write to it now."""

    code = "UNAVAILABLE"


class StorageFull(Transient):
    """The disk is full. Reads and deletions still work."""

    code = "STORAGE_FULL"


class OutcomeUnknown(HoldfastError):
    """The write may or may not have happened: read, or retry with the same request id."""

    code = "OUTCOME_UNKNOWN"


class Escalated(HoldfastError):
    """A retry gave up on a write and stored it as a dead letter for an operator.

    The error has no code of its own: `code` is that of `error`, the last error of the write. Code that
    handles errors by their code therefore needs no case for this class. As with that error, nothing was
    written unless it is `OutcomeUnknown`.

    `attempts` is the number of attempts, and `letter` the number of the dead letter. `letter` is None if
    storing the letter failed; the log then says why.
    """

    def __init__(self, message: str, *, error: HoldfastError, attempts: int, letter: int | None) -> None:
        super().__init__(message, field=error.field)
        self.code: str = error.code
        self.error = error
        self.attempts = attempts
        self.letter = letter

    def __reduce__(self) -> tuple[object, ...]:
        return _escalated, (self.message, self.error, self.attempts, self.letter)


def _escalated(message: str, error: HoldfastError, attempts: int, letter: int | None) -> Escalated:
    """Rebuild an `Escalated` when unpickling."""
    return Escalated(message, error=error, attempts=attempts, letter=letter)


class Defect(HoldfastError):
    """A failure that no caller can fix."""


class DatabaseError(Defect):
    """The database failed, or contains data that can't be read."""

    code = "DATABASE_ERROR"


class InternalError(Defect):
    """A defect in Holdfast itself."""

    code = "INTERNAL_ERROR"


def error_classes() -> Iterator[type[HoldfastError]]:
    """Yield every class that has its own code, so that each edge can check that its table is complete."""
    waiting: list[type[HoldfastError]] = [HoldfastError]
    while waiting:
        current = waiting.pop()
        waiting.extend(current.__subclasses__())
        if "code" in vars(current):
            yield current
