"""From what is stored to the nouns of `holdfast.model`: rows to entries and items, records to changes.

Law: nothing is decided or looked up. What can't be read raises `DatabaseError`.
"""

from __future__ import annotations

import gc
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.clock import moment
from holdfast.errors import DatabaseError
from holdfast.model import Change, Entry, Item, Semantics

if TYPE_CHECKING:
    from collections.abc import Set

    from holdfast.rows import Record, Row

_ITEM: Final = "of an item"
LONG: Final = 32_768
"""From how many characters on a value is read without looking for garbage meanwhile."""
_LOOK_OVER: Final = msgspec.json.Decoder(msgspec.Raw).decode
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LONGEST_NEGATIVE: Final = re.compile(r"-[0-9]{4300}(?![0-9])")


class Escalation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the record of an escalation says besides: why it was given up, and the keyed hash of the value."""

    error_code: str
    attempts: int
    value_hash: str | None = None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text} is no number that can be held")
    return number


def value_of(key: str, row: Row) -> Any:
    """The value in a row of the space `kv`.

    Raises:
        DatabaseError: It can't be read.
    """
    return _value(row.value or "", key)


def look_over(key: str, row: Row) -> msgspec.Raw:
    """The value in a row as JSON, found to be legal but not made into anything.

    Raises:
        DatabaseError: It is none; somebody has written past Holdfast.
    """
    try:
        return _LOOK_OVER(row.value or "")
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(key) from None


def _value(text: str, key: str) -> Any:
    try:
        return msgspec.json.decode(text) if len(text) < LONG else _decoded(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    if _LONGEST_NEGATIVE.search(text):  # msgspec takes the sign for one digit too many
        import json  # for such a number alone: every command would wait for it

        try:
            return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    raise _unreadable(key)


def _decoded(text: str) -> Any:
    """A long value. Of a hundred thousand new lists none is garbage, and to look for it doubles the time."""
    if not gc.isenabled():
        return msgspec.json.decode(text)
    gc.disable()
    try:
        return msgspec.json.decode(text)
    finally:
        gc.enable()


def _unreadable(key: str) -> DatabaseError:
    return DatabaseError(f"the stored value of key {key!r} can't be read", field="key")


def semantics_of(text: str | None) -> Semantics | None:
    """The semantics in a row; what can't be read as such was written past Holdfast and means nothing."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Semantics)
    except msgspec.DecodeError:
        return None


@lru_cache(maxsize=1024)
def purpose_of(semantics: str | None) -> str | None:
    """The purpose that the semantics in a row name."""
    meaning = None if semantics is None else semantics_of(semantics)
    return None if meaning is None else meaning.purpose


def entry_of(key: str, row: Row, *, value: bool = True) -> Entry:
    """The entry that a row of the space `kv` stands for; without its value if that is not wanted."""
    return Entry(
        key=key,
        value=value_of(key, row) if value else msgspec.UNSET,
        version=row.version,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        expires_at=None if row.expires_at is None else moment(row.expires_at),
        last_writer=row.last_writer,
        semantics=None if row.semantics is None else semantics_of(row.semantics),
        request_id=row.request_id,
        spec_ref=row.spec_ref,
    )


def item_of(row: Row) -> Item:
    """The item that a row stands for.

    Raises:
        DatabaseError: It can't be read.
    """
    return Item(
        value=attributes_of(row),
        version=row.version,
        expires_at=None if row.expires_at is None else moment(row.expires_at),
    )


def stored_item(row: Row, *, value: bool = True) -> Item:
    """The item that a row stands for, its attributes still as JSON, or left out if they are not wanted.

    Raises:
        DatabaseError: It can't be read.
    """
    shown: Any = look_over(_ITEM, row) if value else msgspec.UNSET
    if value and not (row.value or "").startswith("{"):
        raise DatabaseError("a stored item can't be read")
    return Item(
        value=shown,
        version=row.version,
        expires_at=None if row.expires_at is None else moment(row.expires_at),
    )


def made(value: Any) -> Any:
    """What an answer holds, also where it holds it as JSON still."""
    return _value(bytes(value).decode(), _ITEM) if isinstance(value, msgspec.Raw) else value


def some_attributes(text: str, names: Set[str]) -> dict[str, Any]:
    """Of an item's text the attributes of these names; of a list or an object only that it is one.

    Neither can be a key or a deadline, and to make one takes up to 30 ms.

    Raises:
        DatabaseError: It can't be read.
    """
    try:
        found = _MEMBERS(text)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("a stored item can't be read") from None
    return {name: _scalar(bytes(found[name]).decode()) for name in found.keys() & names}


def _scalar(text: str) -> Any:
    """A value as JSON; an empty list or object where it is one."""
    if text.startswith("["):
        return []
    return {} if text.startswith("{") else _value(text, _ITEM)


def attributes_of(row: Row) -> dict[str, Any]:
    """What the item is that a row stands for, without its envelope.

    Raises:
        DatabaseError: It can't be read.
    """
    value = value_of(_ITEM, row)
    if not isinstance(value, dict):
        raise DatabaseError("a stored item can't be read")
    return value


class SeenEntry:
    """An entry that a refusal shows: made when somebody looks at it, and passed on over a wire without that.

    Args:
        row: The row that was seen.
        key: The entry's.
        value: Whether its value is shown.

    Raises:
        DatabaseError: The value can't be read.
    """

    __slots__ = ("_made", "json", "key", "row")

    def __init__(self, row: Row, *, key: str, value: bool = True) -> None:
        self.row = row
        self.key = key
        self.json = look_over(key, row) if value else msgspec.UNSET
        self._made: Entry | None = None

    @property
    def version(self) -> int:
        """The entry's, without making it."""
        return self.row.version

    @property
    def semantics(self) -> Semantics | None:
        """The entry's, without making it."""
        return semantics_of(self.row.semantics)

    def __call__(self) -> Entry:
        """The entry: the same one whenever it is looked at."""
        if self._made is None:
            self._made = entry_of(self.key, self.row, value=self.json is not msgspec.UNSET)
        return self._made


class SeenItem:
    """An item that a refusal shows; see `SeenEntry`."""

    __slots__ = ("_made", "stored")

    def __init__(self, row: Row, *, value: bool = True) -> None:
        self.stored = stored_item(row, value=value)
        self._made: Item | None = None

    @property
    def version(self) -> int:
        """The item's, without making it."""
        return self.stored.version

    def __call__(self) -> Item:
        """The item: the same one whenever it is looked at."""
        if self._made is None:
            self._made = msgspec.structs.replace(self.stored, value=made(self.stored.value))
        return self._made


def change_of(record: Record) -> Change:
    """The change that a record of the journal stands for."""
    escalation = _escalation_of(record)
    return Change(
        op=record.op,
        key=record.key,
        version=record.version,
        at=moment(record.at),
        last_writer=record.last_writer,
        request_id=record.request_id,
        purpose=record.purpose,
        lag_ms=record.lag_ms,
        expired_version=record.expired_version,
        error_code=None if escalation is None else escalation.error_code,
        attempts=None if escalation is None else escalation.attempts,
        value_hash=None if escalation is None else escalation.value_hash,
    )


def _escalation_of(record: Record) -> Escalation | None:
    if record.op != "escalated" or record.detail is None:
        return None
    return msgspec.json.decode(record.detail, type=Escalation)
