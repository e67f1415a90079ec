"""The table of plain keys in SQLAlchemy: the type of its times and the ORM model.

This module holds what programs with SQLAlchemy sessions use. Holdfast's internal tables are in
`tools/pages/schema.py`. The stores themselves never use this module. A session bypasses them, and
triggers (`holdfast.engines.sql.outside`) give what it writes a version and count it.
"""

from __future__ import annotations

import contextlib
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast import extras

with extras.imported("migrate", "the ORM model"):
    import sqlalchemy  # noqa: F401
from collections.abc import Iterator

from sqlalchemy import BigInteger, Dialect, Index, Integer, Text, TypeDecorator, text
from sqlalchemy.dialects.postgresql import TEXT as POSTGRESQL_TEXT
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, synonym
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement, current_timestamp, now
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TIMESTAMP, TypeEngine

from holdfast.clock import Clock, SystemClock
from holdfast.engines.sql.layout import OUTSIDE_WRITER
from holdfast.errors import InvalidPluginName, ValidationError, ValueTooLarge
from holdfast.rules import MAX_VALUE_BYTES, encode_value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CLOCK: Clock = SystemClock()
_NOT_JSON: Final = "not JSON-serializable"

Count = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit integer. SQLite's strict tables accept it only as INTEGER."""

Name = Text().with_variant(POSTGRESQL_TEXT(collation="C"), "postgresql")
"""Text that is part of a key, ordered by its bytes."""

HAS_DEADLINE = text("expires_at IS NOT NULL")
"""The condition of the partial indexes on deadlines."""


class Instant(TypeDecorator[datetime]):
    """A time: integer milliseconds since 1970 in SQLite, TIMESTAMPTZ in PostgreSQL.

    In Python it is a timezone-aware datetime in UTC, in whole milliseconds. A datetime without a timezone is
    taken as UTC, and fractions of a millisecond are truncated.
    """

    impl = TIMESTAMP(timezone=True)
    cache_ok = True

    class Comparator(TypeDecorator.Comparator[datetime]):
        """Allows comparisons with `func.now()`.

        In SQLite that function returns text, which is greater than every number. If it were not replaced, a
        session that deletes rows that expired before `func.now()` would delete every row with a deadline.
        """

        def operate(self, op: OperatorType, *other: Any, **kwargs: Any) -> Any:
            times = (Now() if isinstance(each, (now, current_timestamp)) else each for each in other)
            return super().operate(op, *times, **kwargs)

    comparator_factory = Comparator

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's type in this database."""
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else TIMESTAMP(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Convert a datetime for the database."""
        if value is None:
            return None
        milliseconds = (_aware(value) - _EPOCH) // _MILLISECOND
        return milliseconds if dialect.name == "sqlite" else _EPOCH + milliseconds * _MILLISECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Convert a stored time to a datetime."""
        if value is None:
            return None
        milliseconds: int = value if dialect.name == "sqlite" else (value - _EPOCH) // _MILLISECOND
        return _EPOCH + milliseconds * _MILLISECOND


class Now(FunctionElement[datetime]):
    """The database's time as an `Instant`."""

    type = Instant()
    inherit_cache = True


@compiles(Now)
def _now(element: Now, compiler: SQLCompiler, **kwargs: Any) -> str:
    return "now()"


@compiles(Now, "sqlite")
def _now_sqlite(element: Now, compiler: SQLCompiler, **kwargs: Any) -> str:
    return _SQLITE_NOW


# Julian days because unixepoch('subsec') is too new; rounded because a millisecond is not exact as a fraction
# of a day.
_SQLITE_NOW: Final = "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))"
_SQLITE_WORDS: Final = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)|\bCURRENT_TIMESTAMP\b""", re.IGNORECASE | re.DOTALL
)
_SQLITE_OURS: Final = re.compile(
    r"^\s*(?!CREATE|ALTER)\w+\b.*\bplugin_kv_storage\b", re.IGNORECASE | re.DOTALL
)


def sqlite_statement(statement: str) -> str:
    """Replace `CURRENT_TIMESTAMP` in a statement about plain keys by the time in the form of our columns.

    In SQLite `CURRENT_TIMESTAMP`, and so `func.now()`, is text: our columns of times reject it, and every
    number is less than it. Statements about other tables, and those that define one, are returned unchanged.
    """
    if not _SQLITE_OURS.match(statement):
        return statement
    return _SQLITE_WORDS.sub(lambda found: found[1] or _SQLITE_NOW, statement)


class Base(DeclarativeBase):
    """The base class with the metadata of all tables of a store."""


class PluginKVStorage(Base):
    """One plain key of a plugin with its value: a row of `plugin_kv_storage`.

    The constructor takes the columns as keywords; `value` is a synonym of `value_json`. A row needs only
    `plugin_name`, `key` and `value_json`.
    """

    __tablename__ = "plugin_kv_storage"

    plugin_name: Mapped[str] = mapped_column(Name, primary_key=True)
    key: Mapped[str] = mapped_column(Name, primary_key=True)
    value_json: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime | None] = mapped_column(Instant)
    created_at: Mapped[datetime] = mapped_column(Instant, server_default=Now())
    updated_at: Mapped[datetime] = mapped_column(Instant, server_default=Now(), onupdate=Now())
    version: Mapped[int] = mapped_column(Count, server_default=text("0"))
    last_writer: Mapped[str] = mapped_column(Text, server_default=OUTSIDE_WRITER)
    semantics: Mapped[str | None] = mapped_column(Text)
    request_id: Mapped[str | None] = mapped_column(Text)
    spec_ref: Mapped[str | None] = mapped_column(Text)

    value: Mapped[str] = synonym("value_json")

    __table_args__: Any = (
        Index(
            "idx_kv_expires_at",
            "expires_at",
            sqlite_where=HAS_DEADLINE,
            postgresql_where=HAS_DEADLINE,
        ),
        {"sqlite_strict": True, "sqlite_with_rowid": False},
    )
    # An asynchronous session can't load server defaults lazily, when an attribute is accessed.
    __mapper_args__: Any = {"eager_defaults": True}  # noqa: RUF012 - SQLAlchemy reads a plain dict

    @property
    def is_expired(self) -> bool:
        """True from the instant of `expires_at` on."""
        deadline = self.expires_at
        return deadline is not None and _aware(deadline) <= _EPOCH + _CLOCK.now() * _MILLISECOND

    def get_value(self) -> Any:
        """Return the decoded value.

        Raises:
            msgspec.DecodeError: The column does not hold JSON.
        """
        return msgspec.json.decode(self.value_json)

    def set_value(self, value: Any) -> None:
        """Set the value to anything that `json.dumps` accepts, stored as compact JSON.

        Raises:
            TypeError: The value is not JSON-serializable.
            ValueError: The compact JSON is larger than 65,536 bytes.
        """
        with builtin_errors():
            self.value_json = json_text(value)

    def __repr__(self) -> str:
        return f"<PluginKVStorage(plugin={self.plugin_name}, key={self.key})>"


def json_text(value: Any) -> str:
    """Encode a value as compact JSON. Numeric member names become text, as with `json.dumps`.

    Raises:
        ValidationError: The value is not JSON-serializable.
        ValueTooLarge: The compact JSON is larger than 65,536 bytes.
    """
    try:
        return encode_value(value, most=MAX_VALUE_BYTES)[0]
    except ValidationError:
        return encode_value(dumped(value), most=MAX_VALUE_BYTES)[0]


def dumped(value: Any) -> Any:
    """Round-trip a value through `json`. A value that `json.dumps` rejects is returned unchanged."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return value


@contextlib.contextmanager
def builtin_errors() -> Iterator[None]:
    """Raise Python's own exceptions for illegal input, for programs that don't know Holdfast's errors.

    Raises:
        TypeError: A value is not JSON-serializable.
        ValueError: Anything else is illegal.
    """
    try:
        yield
    except (InvalidPluginName, ValidationError, ValueTooLarge) as error:
        if isinstance(error, ValidationError) and error.field == "value":
            message = (
                error.message if _NOT_JSON in error.message else f"value is {_NOT_JSON}: {error.message}"
            )
            raise TypeError(message) from error
        raise ValueError(error.message) from error


def _aware(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value
