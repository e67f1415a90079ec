"""The table of plain keys as SQLAlchemy sees it: the type of its times and the ORM model.

Law: what a program that uses sessions touches lives here; the tables that are Holdfast's own are in
`holdfast.engines.schema`. The stores themselves never go through this module. A session writes past them: a
row that it adds has version 0, and a row that it changes keeps the version it had.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import extras

with extras.imported("migrate", "the ORM model"):
    import sqlalchemy  # noqa: F401
from sqlalchemy import BigInteger, Dialect, Index, Integer, Text, TypeDecorator, text
from sqlalchemy.dialects.postgresql import TEXT as POSTGRESQL_TEXT
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, synonym
from sqlalchemy.sql.functions import FunctionElement, current_timestamp, now
from sqlalchemy.types import TIMESTAMP

from holdfast.clock import Clock, SystemClock
from holdfast.engines.layout import OUTSIDE_WRITER
from holdfast.rules import encode_value

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_CLOCK: Clock = SystemClock()

Count = BigInteger().with_variant(Integer(), "sqlite")
"""A whole number of 64 bits. SQLite's strict tables know it by no other name than INTEGER."""

Name = Text().with_variant(POSTGRESQL_TEXT(collation="C"), "postgresql")
"""Text that is part of a key: ordered by its bytes."""

HAS_DEADLINE = text("expires_at IS NOT NULL")
"""What the indexes of deadlines hold."""


class Instant(TypeDecorator[datetime]):
    """A time: integer milliseconds since 1970 in SQLite, TIMESTAMPTZ in PostgreSQL.

    In Python it is a timezone-aware datetime in UTC of whole milliseconds. One without a timezone is taken to
    be UTC, and what is finer than a millisecond is cut off.
    """

    impl = TIMESTAMP(timezone=True)
    cache_ok = True

    class Comparator(TypeDecorator.Comparator[datetime]):
        """Compares with `func.now()` as with any other time.

        In SQLite that function gives a text, which is greater than every number: unless it were replaced, a
        session that deletes what expired before `func.now()` would delete all that has a deadline.
        """

        def operate(self, op: OperatorType, *other: Any, **kwargs: Any) -> Any:
            times = (Now() if isinstance(each, (now, current_timestamp)) else each for each in other)
            return super().operate(op, *times, **kwargs)

    comparator_factory = Comparator

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column's type in this database."""
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else TIMESTAMP(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """From Python to the database."""
        if value is None:
            return None
        milliseconds = (_aware(value) - _EPOCH) // _MILLISECOND
        return milliseconds if dialect.name == "sqlite" else _EPOCH + milliseconds * _MILLISECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """From the database to Python."""
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
    # Julian days, because unixepoch('subsec') is too new; rounded, because a millisecond has no exact form as
    # a fraction of days.
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))"


class Base(DeclarativeBase):
    """Holds the metadata of every table of a store."""


class PluginKVStorage(Base):
    """One plain key of a plugin with its value: a row of `plugin_kv_storage`.

    The constructor takes the columns as keywords, `value` standing for `value_json`. A row that is given no
    more than `plugin_name`, `key` and `value_json` is complete.
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

    __table_args__ = (
        Index(
            "idx_kv_expires_at",
            "expires_at",
            sqlite_where=HAS_DEADLINE,
            postgresql_where=HAS_DEADLINE,
        ),
        {"sqlite_strict": True, "sqlite_with_rowid": False},
    )
    # An asynchronous session can't fetch what the database filled in at the moment it is looked at.
    __mapper_args__ = {"eager_defaults": True}  # noqa: RUF012 - SQLAlchemy reads a plain dict

    @property
    def is_expired(self) -> bool:
        """Whether the deadline is reached: at the instant of `expires_at` the key is gone."""
        deadline = self.expires_at
        return deadline is not None and _aware(deadline) <= _EPOCH + _CLOCK.now() * _MILLISECOND

    def get_value(self) -> Any:
        """The value, decoded.

        Raises:
            msgspec.DecodeError: The column does not hold JSON.
        """
        return msgspec.json.decode(self.value_json)

    def set_value(self, value: Any) -> None:
        """Replace the value by any JSON value, in its compact form.

        Raises:
            ValidationError: It is no JSON value.
            ValueTooLarge: Its compact form has more than 65,536 bytes.
        """
        self.value_json, _ = encode_value(value)

    def __repr__(self) -> str:
        return f"PluginKVStorage(plugin_name={self.plugin_name!r}, key={self.key!r})"


def _aware(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value
