"""The ORM model: what a program that uses sessions may rely on.

Each rule about a column is tested on a real database; the model alone promises nothing about it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from sqlalchemy import StaticPool, create_engine, delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.clock import ManualClock
from holdfast.engines.sql import layout, orm
from holdfast.engines.sql.orm import Now, PluginKVStorage, sqlite_statement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
NOON_MS = 1_772_366_400_123

TIMES = [
    pytest.param(NOON, NOON, id="utc"),
    pytest.param(NOON.replace(tzinfo=None), NOON, id="naive is UTC"),
    pytest.param(NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), NOON, id="elsewhere"),
    pytest.param(NOON + timedelta(microseconds=999), NOON, id="cut to milliseconds"),
    pytest.param(None, None, id="none"),
]


@pytest.fixture
def session() -> Iterator[Session]:
    """A session on a SQLite store."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    raw: Any = engine.raw_connection().driver_connection
    raw.executescript(layout.ddl("sqlite"))
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
async def pg_session(pg_store_url: str) -> AsyncIterator[AsyncSession]:
    """A session on a PostgreSQL store."""
    engine = create_async_engine("postgresql+asyncpg://", connect_args={"dsn": pg_store_url})
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session
    await engine.dispose()


def plain(**columns: Any) -> PluginKVStorage:
    return PluginKVStorage(**{"plugin_name": "trivia", "key": "k", "value_json": "1", **columns})


def test_a_row_of_three_columns_is_complete(session: Session) -> None:
    """A row that is added with no more than its name, key and value gets every other column."""
    row = plain()
    session.add(row)
    session.flush()
    assert row.created_at == row.updated_at
    assert row.created_at.tzinfo is UTC
    assert (row.version, row.last_writer) == (0, layout.OUTSIDE_WRITER)
    assert (row.expires_at, row.semantics, row.request_id, row.spec_ref) == (None, None, None, None)


async def test_a_row_of_three_columns_is_complete_on_postgres(pg_session: AsyncSession) -> None:
    """The same on PostgreSQL, where an asynchronous session can't fetch a column when it is looked at."""
    row = plain()
    pg_session.add(row)
    await pg_session.commit()
    assert row.created_at == row.updated_at
    assert row.created_at.tzinfo is UTC
    assert row.created_at.microsecond % 1000 == 0
    assert (row.version, row.last_writer) == (0, layout.OUTSIDE_WRITER)


def test_every_column_is_a_keyword(session: Session) -> None:
    """The constructor takes each column, and the row holds it as it was given."""
    given = {
        "plugin_name": "trivia",
        "key": "k",
        "value_json": '{"a":1}',
        "expires_at": NOON,
        "created_at": NOON - timedelta(hours=2),
        "updated_at": NOON - timedelta(hours=1),
        "version": 2**62,
        "last_writer": "agent:directive",
        "semantics": '{"purpose":"lock"}',
        "request_id": "r-1",
        "spec_ref": "docs/spec.md",
    }
    session.add(PluginKVStorage(**given))
    session.commit()
    row = session.get_one(PluginKVStorage, ("trivia", "k"))
    assert {name: getattr(row, name) for name in given} == given
    assert set(given) == set(PluginKVStorage.__table__.columns.keys())


def test_value_is_another_name_of_value_json(session: Session) -> None:
    """The constructor, the attribute and a query answer to `value` as to `value_json`."""
    row = PluginKVStorage(plugin_name="trivia", key="k", value='"a"')
    assert row.value_json == '"a"'
    row.value = '"b"'
    assert row.value_json == '"b"'
    session.add(row)
    session.execute(insert(PluginKVStorage).values(plugin_name="trivia", key="l", value='"c"'))
    assert session.scalars(select(PluginKVStorage.key).where(PluginKVStorage.value == '"b"')).all() == ["k"]
    assert session.scalars(select(PluginKVStorage.value_json).order_by("key")).all() == ['"b"', '"c"']


@pytest.mark.parametrize(("given", "kept"), TIMES)
def test_times_are_milliseconds_in_sqlite(
    session: Session, given: datetime | None, kept: datetime | None
) -> None:
    """SQLite holds a time as milliseconds since 1970, and gives it back as UTC of whole milliseconds."""
    session.add(plain(expires_at=given))
    session.commit()
    assert session.scalars(select(PluginKVStorage.expires_at)).one() == kept
    assert session.scalars(text("SELECT expires_at FROM plugin_kv_storage")).one() == (kept and NOON_MS)


@pytest.mark.parametrize(("given", "kept"), TIMES)
async def test_times_are_timestamps_in_postgres(
    pg_session: AsyncSession, given: datetime | None, kept: datetime | None
) -> None:
    """PostgreSQL holds a time as a timestamp of whole milliseconds, and gives it back in UTC."""
    pg_session.add(plain(expires_at=given))
    await pg_session.commit()
    found = (await pg_session.scalars(select(PluginKVStorage.expires_at))).one()
    assert found == kept
    assert found is None or found.tzinfo is UTC
    stored = (await pg_session.scalars(text("SELECT expires_at FROM plugin_kv_storage"))).one()
    assert stored == kept


async def test_finer_times_written_past_us_are_cut_in_postgres(pg_session: AsyncSession) -> None:
    """A timestamp with microseconds that another program wrote is read as whole milliseconds."""
    await pg_session.execute(
        text(
            "INSERT INTO plugin_kv_storage (plugin_name, key, value_json, expires_at) "
            "VALUES ('trivia', 'k', '1', '2026-03-01 12:00:00.123999Z')"
        )
    )
    assert (await pg_session.scalars(select(PluginKVStorage.expires_at))).one() == NOON


def test_times_before_1970_are_cut_downwards(session: Session) -> None:
    """Cutting goes the same way on both sides of 1970, so it never changes the order of times."""
    session.add(plain(expires_at=datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)))
    session.commit()
    assert session.scalars(text("SELECT expires_at FROM plugin_kv_storage")).one() == -1


def test_an_update_moves_updated_at(session: Session) -> None:
    """A change through a session sets `updated_at` to the database's time, and gives a new version."""
    row = plain(created_at=NOON, updated_at=NOON)
    session.add(row)
    session.commit()
    row.set_value({"b": [1, 2]})
    session.flush()
    now = session.scalars(select(Now())).one()
    assert NOON < row.updated_at <= now
    session.refresh(row)
    assert (row.created_at, row.version, row.value_json) == (NOON, 2, '{"b":[1,2]}')


async def test_an_update_moves_updated_at_on_postgres(pg_session: AsyncSession) -> None:
    """The same on PostgreSQL: the new time is there without another query."""
    row = plain(created_at=NOON, updated_at=NOON)
    pg_session.add(row)
    await pg_session.commit()
    row.set_value(2)
    await pg_session.flush()
    assert row.updated_at == (await pg_session.scalars(select(Now()))).one()


def test_func_now_compares_as_a_time(session: Session) -> None:
    """Deleting what expired before `func.now()` leaves what has not expired, in SQLite too."""
    past, future = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1))
    session.add_all([plain(key="past", expires_at=past), plain(key="future", expires_at=future), plain()])
    session.flush()
    expired = select(PluginKVStorage.key).where(PluginKVStorage.expires_at < func.current_timestamp())
    assert session.scalars(expired).all() == ["past"]
    session.execute(delete(PluginKVStorage).where(PluginKVStorage.expires_at <= func.now()))
    assert session.scalars(select(PluginKVStorage.key).order_by("key")).all() == ["future", "k"]


@pytest.mark.parametrize(
    ("expires_at", "expired"),
    [
        (None, False),
        (NOON + timedelta(milliseconds=1), False),
        (NOON, True),
        (NOON - timedelta(milliseconds=1), True),
        (NOON.replace(tzinfo=None), True),
        ((NOON + timedelta(milliseconds=1)).replace(tzinfo=None), False),
        (NOON.astimezone(timezone(timedelta(hours=-8))), True),
    ],
)
def test_is_expired_at_the_instant(
    monkeypatch: pytest.MonkeyPatch, expires_at: datetime | None, expired: bool
) -> None:
    """A row is expired from the very instant of its deadline; a deadline without a timezone is UTC."""
    monkeypatch.setattr(orm, "_CLOCK", ManualClock(NOON_MS))
    assert plain(expires_at=expires_at).is_expired is expired


@pytest.mark.parametrize("value", [None, True, 0, 2**80, 1.5, "é\u2028", [], {"a": [1, {"b": None}]}])
def test_value_round_trips(value: Any) -> None:
    """Any JSON value that is set is read back equal."""
    row = plain()
    row.set_value(value)
    assert row.get_value() == value


def test_a_value_is_compact() -> None:
    """The stored form is the one that every store writes: no spaces, text as UTF-8."""
    row = plain()
    row.set_value({"name": "Zoë", "list": [1, 2]})
    assert row.value_json == '{"name":"Zoë","list":[1,2]}'


def test_an_illegal_value_changes_nothing() -> None:
    """A value that no store would take is refused by the model too, and the old one stays."""
    row = plain()
    with pytest.raises(TypeError, match="not JSON-serializable"):
        row.set_value(object())
    with pytest.raises(TypeError, match="not JSON-serializable"):
        row.set_value(float("nan"))
    with pytest.raises(ValueError, match="exceeds 64KB limit"):
        row.set_value("x" * 65_536)
    assert row.get_value() == 1


def test_names_of_a_value_become_text() -> None:
    """A value may have names that are no text, as the standard library takes them."""
    row = plain()
    row.set_value({1: {None: True}})
    assert row.get_value() == {"1": {"null": True}}


def test_now_in_a_statement_is_a_number() -> None:
    """In a statement about plain keys the present is a number, except in what is quoted."""
    asked = "SELECT 'CURRENT_TIMESTAMP' FROM plugin_kv_storage WHERE expires_at < current_timestamp"
    changed = sqlite_statement(asked)
    assert changed.startswith("SELECT 'CURRENT_TIMESTAMP' FROM")
    assert "julianday('now')" in changed
    assert "< current_timestamp" not in changed
    made = "CREATE VIEW v AS SELECT CURRENT_TIMESTAMP FROM plugin_kv_storage"
    for other in ("SELECT CURRENT_TIMESTAMP", made):
        assert sqlite_statement(other) == other


def test_a_broken_value_is_an_error() -> None:
    """What is no JSON is not passed off as a value."""
    with pytest.raises(msgspec.DecodeError):
        plain(value_json="{").get_value()


def test_repr_names_the_key_and_hides_the_value() -> None:
    """A row in a log says which one it is, and does not give its value away."""
    assert repr(plain(value_json='"secret"')) == "<PluginKVStorage(plugin=trivia, key=k)>"
