"""Code as bots have it: what works on PostgreSQL works on SQLite, and values are as `json` takes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, MetaData, String, Table, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.schema import Column

from holdfast.compat.rosey import BotDatabase, PluginKVStorage
from holdfast.engines.sql.orm import sqlite_statement
from tests.compat.conftest import add, row

if TYPE_CHECKING:
    from sqlalchemy.sql.elements import ColumnElement

SOON = timedelta(minutes=1)
TIMES: list[Any] = [func.now(), func.current_timestamp(), text("CURRENT_TIMESTAMP")]


@pytest.mark.parametrize("now", TIMES, ids=["func.now", "func.current_timestamp", "text"])
async def test_the_present_is_written_through_a_session(db: BotDatabase, now: ColumnElement[Any]) -> None:
    """A session that inserts or updates with the database's own time stores that time."""
    async with db.session_factory() as session:
        await session.execute(
            insert(PluginKVStorage).values(plugin_name="trivia", key="k", value_json="1", created_at=now)
        )
        await session.execute(update(PluginKVStorage).values(updated_at=now))
        await session.commit()
        found = await session.get_one(PluginKVStorage, ("trivia", "k"))
    for time in (found.created_at, found.updated_at):
        assert abs(datetime.now(UTC) - time) < SOON
    assert await db.kv_get("trivia", "k") == {"exists": True, "value": 1}


async def test_an_upsert_as_bots_write_it(db: BotDatabase) -> None:
    """Insert, and on conflict update with `func.now()`, runs on both databases; so does one of the ORM."""
    make = sqlite_insert if db.engine.dialect.name == "sqlite" else postgresql_insert
    for value in ("1", "2"):
        statement = make(PluginKVStorage).values(plugin_name="trivia", key="k", value_json=value)
        statement = statement.on_conflict_do_update(
            index_elements=["plugin_name", "key"], set_={"value_json": value, "updated_at": func.now()}
        )
        async with db.session_factory() as session:
            await session.execute(statement)
            await session.commit()
    async with db.session_factory() as session:
        stored = await session.get_one(PluginKVStorage, ("trivia", "k"))
        stored.updated_at = func.now()
        await session.commit()
        assert abs(datetime.now(UTC) - stored.updated_at) < SOON
    assert await db.kv_get("trivia", "k") == {"exists": True, "value": 2}


async def test_operators_compare_with_the_present(db: BotDatabase) -> None:
    """Plain SQL finds expired keys by `expires_at < CURRENT_TIMESTAMP`, and no others; text is left alone."""
    now = datetime.now(UTC)
    rows = {"old": now - SOON, "new": now + SOON, "CURRENT_TIMESTAMP": None}
    await add(db, [row(key, expires_at=at) for key, at in rows.items()])
    async with db.session_factory() as session:
        found = await session.execute(
            text("SELECT key FROM plugin_kv_storage WHERE expires_at < CURRENT_TIMESTAMP")
        )
        assert found.scalars().all() == ["old"]
        named = await session.execute(
            text("SELECT key FROM plugin_kv_storage WHERE key = 'CURRENT_TIMESTAMP' -- CURRENT_TIMESTAMP")
        )
        assert named.scalars().all() == ["CURRENT_TIMESTAMP"]
        living = select(PluginKVStorage.key).where(PluginKVStorage.expires_at > func.now())
        assert (await session.scalars(living)).all() == ["new"]


async def test_other_tables_keep_their_times(db: BotDatabase) -> None:
    """A table of the bot's own, beside ours, has its `func.now()` as ever."""
    own = Table(
        "users",
        MetaData(),
        Column("name", String, primary_key=True),
        Column("seen", DateTime, server_default=func.now()),
    )
    async with db.engine.begin() as connection:
        await connection.run_sync(own.metadata.create_all)
        await connection.execute(insert(own).values(name="a"))
        seen = (await connection.execute(select(own.c.seen))).scalar_one()
    assert abs(datetime.now(UTC).replace(tzinfo=None) - seen) < timedelta(days=1)


def test_statements_that_define_tables_are_left_alone() -> None:
    """What makes a table, and what is not about plain keys, is passed on as it is."""
    for statement in (
        "CREATE TABLE copy AS SELECT CURRENT_TIMESTAMP FROM plugin_kv_storage",
        "SELECT CURRENT_TIMESTAMP",
        "SELECT 'CURRENT_TIMESTAMP' FROM plugin_kv_storage",
    ):
        assert sqlite_statement(statement) == statement


@pytest.mark.parametrize(
    "value", [{1: 2}, {None: 1, True: [{2.5: "x"}]}, {"a": ({3: 4},)}, {2**70: 1}], ids=str
)
async def test_names_become_text_as_with_json(db: BotDatabase, value: Any) -> None:
    """A value that `json.dumps` takes is stored as it would write it, by the verb and by the row."""
    await db.kv_set("trivia", "k", value)
    assert await db.kv_get("trivia", "k") == {"exists": True, "value": json.loads(json.dumps(value))}
    stored = PluginKVStorage(plugin_name="trivia", key="row")
    stored.set_value(value)
    assert stored.get_value() == json.loads(json.dumps(value))


@pytest.mark.parametrize("value", [object(), {1: object()}, {(1, 2): 3}, float("nan"), {1, 2}])
async def test_a_value_that_is_not_json_is_a_type_error(db: BotDatabase, value: Any) -> None:
    """The verb and the row refuse it alike, with the words that bots look for."""
    with pytest.raises(TypeError, match="not JSON-serializable"):
        await db.kv_set("trivia", "k", value)
    with pytest.raises(TypeError, match="not JSON-serializable"):
        PluginKVStorage(plugin_name="trivia", key="k").set_value(value)
    with pytest.raises(ValueError, match="exceeds 64KB limit"):
        PluginKVStorage(plugin_name="trivia", key="k").set_value("x" * 70_000)
