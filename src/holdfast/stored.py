"""Conversion of stored data to the values of `holdfast.model`: rows to entries and items, records to changes.

Nothing is decided or looked up here. Data that can't be read raises `DatabaseError`.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Set
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.clock import moment
from holdfast.errors import DatabaseError
from holdfast.model import Change, Entry, Item, Semantics
from holdfast.rows import Record, Row

_ITEM: Final = "of an item"
LONG: Final = 32_768
"""Length in characters from which a value is decoded with garbage collection off."""
_LOOK_OVER: Final = msgspec.json.Decoder(msgspec.Raw).decode
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LONGEST_NEGATIVE: Final = re.compile(r"-[0-9]{4300}(?![0-9])")


class Escalation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Details in the record of an escalation: the reason for giving up, and the keyed hash of the value."""

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
    """Return the value in a row of the space `kv`.

    Raises:
        DatabaseError: The value can't be read.
    """
    return _value(row.value or "", key)


def look_over(key: str, row: Row) -> msgspec.Raw:
    """Return the value in a row as JSON, checked but not decoded.

    Raises:
        DatabaseError: The value is not JSON, because it was written outside Holdfast.
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
    if _LONGEST_NEGATIVE.search(text):  # msgspec counts the sign as one digit too many
        # late: it takes 2 ms, and such numbers are rare
        import json

        try:
            return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    raise _unreadable(key)


def _decoded(text: str) -> Any:
    """Decode a long value with garbage collection off.

    None of a hundred thousand new lists is garbage, and collecting doubles the time.
    """
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
    """Return the semantics in a row. Unreadable ones, written outside Holdfast, count as None."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Semantics)
    except msgspec.DecodeError:
        return None


@lru_cache(maxsize=1024)
def purpose_of(semantics: str | None) -> str | None:
    """Return the purpose in the semantics of a row."""
    meaning = None if semantics is None else semantics_of(semantics)
    return None if meaning is None else meaning.purpose


def entry_of(key: str, row: Row, *, value: bool = True) -> Entry:
    """Return the entry of a row in the space `kv`, on request without its value."""
    return Entry(
        key=key,
        value=_value(row.value or "", key) if value else msgspec.UNSET,
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
    """Return the item of a row.

    Raises:
        DatabaseError: It can't be read.
    """
    return Item(
        value=attributes_of(row),
        version=row.version,
        expires_at=None if row.expires_at is None else moment(row.expires_at),
    )


def stored_item(row: Row, *, value: bool = True) -> Item:
    """Return the item of a row, with its attributes still as JSON, or left out on request.

    Raises:
        DatabaseError: It can't be read.
    """
    document: Any = look_over(_ITEM, row) if value else msgspec.UNSET
    if value and not (row.value or "").startswith("{"):
        raise DatabaseError("a stored item can't be read")
    return Item(
        value=document,
        version=row.version,
        expires_at=None if row.expires_at is None else moment(row.expires_at),
    )


def made(value: Any) -> Any:
    """Decode a value if it is still JSON; return any other as it is."""
    return _value(bytes(value).decode(), _ITEM) if isinstance(value, msgspec.Raw) else value


def some_attributes(text: str, names: Set[str]) -> dict[str, Any]:
    """Return the attributes of these names from an item's text, with lists and objects left empty.

    Neither can be a key or a deadline, and decoding one takes up to 30 ms.

    Raises:
        DatabaseError: The text can't be read.
    """
    try:
        members = _MEMBERS(text)
    except (msgspec.DecodeError, RecursionError):
        raise DatabaseError("a stored item can't be read") from None
    return {name: _scalar(bytes(members[name]).decode()) for name in members.keys() & names}


def _scalar(text: str) -> Any:
    """Decode a JSON value; return an empty list or object in place of one."""
    if text.startswith("["):
        return []
    return {} if text.startswith("{") else _value(text, _ITEM)


def attributes_of(row: Row) -> dict[str, Any]:
    """Return the attributes of the item of a row, without its envelope.

    Raises:
        DatabaseError: It can't be read.
    """
    value = value_of(_ITEM, row)
    if not isinstance(value, dict):
        raise DatabaseError("a stored item can't be read")
    return value


class SeenEntry:
    """An entry in a refusal, decoded on first access. A service forwards it without decoding it.

    Args:
        row: The row that was found.
        key: The entry's key.
        value: Whether its value is shown.

    Raises:
        DatabaseError: The value can't be read.
    """

    __slots__ = ("_made", "json", "key", "row")

    def __init__(self, row: Row, *, key: str, value: bool = True) -> None:
        self.row: Row = row
        self.key: str = key
        self.json = look_over(key, row) if value else msgspec.UNSET
        self._made: Entry | None = None

    @property
    def version(self) -> int:
        """The entry's version, without decoding the entry."""
        return self.row.version

    @property
    def semantics(self) -> Semantics | None:
        """The entry's semantics, without decoding the entry."""
        return semantics_of(self.row.semantics)

    def __call__(self) -> Entry:
        """Return the entry, the same object on every call."""
        if self._made is None:
            self._made = entry_of(self.key, self.row, value=self.json is not msgspec.UNSET)
        return self._made


class SeenItem:
    """An item in a refusal; see `SeenEntry`."""

    __slots__ = ("_made", "stored")

    def __init__(self, row: Row, *, value: bool = True) -> None:
        self.stored: Item = stored_item(row, value=value)
        self._made: Item | None = None

    @property
    def version(self) -> int:
        """The item's version, without decoding the item."""
        return self.stored.version

    def __call__(self) -> Item:
        """Return the item, the same object on every call."""
        if self._made is None:
            self._made = msgspec.structs.replace(self.stored, value=made(self.stored.value))
        return self._made


def change_of(record: Record) -> Change:
    """Return the change of a journal record."""
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
