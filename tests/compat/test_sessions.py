"""Sessions beside the verbs: both write to the same rows, and neither loses anything.

What is said of sessions in a SQLite file is tested with writers on both sides at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Mapped, mapped_column

import holdfast
from holdfast.compat import rosey
from holdfast.compat.rosey import Base, BotDatabase, PluginKVStorage
from holdfast.errors import Busy
from tests.compat.conftest import add, row

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

WRITERS = 10
EACH = 8


async def one(session: AsyncSession, key: str) -> PluginKVStorage:
    """A plugin's row, locked where the database can lock rows."""
    return await session.get_one(PluginKVStorage, ("trivia", key), with_for_update=True)


async def test_a_row_of_three_columns_is_seen_by_every_verb(db: BotDatabase) -> None:
    """A row that is added with plugin, key and value alone can be read, listed, replaced and deleted."""
    await add(db, [PluginKVStorage(plugin_name="trivia", key=key, value_json="[1]") for key in "abc"])
    assert await db.kv_get("trivia", "a") == {"exists": True, "value": [1]}
    assert (await db.kv_list("trivia"))["keys"] == ["a", "b", "c"]
    assert await db.kv_delete("trivia", "a") is True
    await db.kv_set("trivia", "b", 2)
    kv = (await db.store()).kv("trivia")
    entries = [await kv.get(key) for key in "bc"]
    assert [(entry.value, entry.version) for entry in entries if entry] == [(2, 5), ([1], 3)]
    assert (await kv.set("c", 3, expected_version=3)).value == 3


async def test_rows_of_sessions_are_counted(db: BotDatabase) -> None:
    """Rows that sessions add, replace and delete count as exactly as the verbs' own."""
    await db.kv_set("trivia", "ours", 1)
    await add(db, [row("a"), row("b"), row("c")])
    async with db.session_factory() as session:
        await session.merge(PluginKVStorage(plugin_name="trivia", key="a", value_json="1"))
        await session.delete(await one(session, "b"))
        if db.engine.dialect.name == "sqlite":
            replace = "INSERT OR REPLACE INTO plugin_kv_storage (plugin_name, key, value_json) "
            await session.execute(text(f"{replace} VALUES ('trivia', 'c', '[2]')"))
        await session.commit()
    store = await db.store()
    assert [(one.namespace, one.keys) for one in await store.namespaces()] == [("kv/trivia", 3)]
    assert (await store.stats("kv/trivia")).keys == 3
    assert await store.recount("kv/trivia") == 0


async def test_sessions_see_what_the_verbs_write(db: BotDatabase) -> None:
    """A key that was set is a row with its value, times and writer, and a deleted one is none."""
    await db.kv_set("trivia", "kept", {"a": 1}, ttl=60)
    await db.kv_set("trivia", "gone", 1)
    await db.kv_delete("trivia", "gone")
    async with db.session_factory() as session:
        [found] = await session.scalars(select(PluginKVStorage))
    assert (found.key, found.get_value(), found.last_writer) == ("kept", {"a": 1}, "trivia")
    assert not found.is_expired
    assert found.created_at <= found.updated_at < (found.expires_at or found.updated_at)


async def test_sessions_update_and_delete(db: BotDatabase) -> None:
    """What a session changes or deletes is changed and gone for the verbs as soon as it commits."""
    await add(db, [row("changed"), row("deleted")])
    async with db.session_factory() as session:
        (await one(session, "changed")).set_value("new")
        await session.execute(delete(PluginKVStorage).where(PluginKVStorage.key == "deleted"))
        await session.commit()
    assert await db.kv_get("trivia", "changed") == {"exists": True, "value": "new"}
    assert (await db.kv_list("trivia"))["keys"] == ["changed"]


async def test_a_rolled_back_session_leaves_nothing(db: BotDatabase) -> None:
    """A session that ends without a commit or by an error leaves nothing, and the next one works."""
    await db.kv_set("trivia", "key", 1)
    async with db.session_factory() as session:
        session.add(row("other"))
        await session.flush()
    with pytest.raises(IntegrityError):
        await add(db, [row("other"), row("key")])
    assert (await db.kv_list("trivia"))["keys"] == ["key"]
    await add(db, [row("other")])
    assert (await db.kv_list("trivia"))["keys"] == ["key", "other"]


async def test_a_session_that_comes_first_opens_the_store(empty_url: str) -> None:
    """Sessions need no `create_tables` either."""
    db = BotDatabase(empty_url)
    await add(db, [row("key")])
    assert (await db.kv_get("trivia", "key"))["exists"]
    await db.close()


async def test_the_engine_takes_plain_sql(db: BotDatabase) -> None:
    """`engine` is an ordinary SQLAlchemy engine on the store's tables."""
    await db.kv_set("trivia", "key", 1)
    async with db.engine.begin() as connection:
        assert await connection.scalar(text("SELECT value_json FROM plugin_kv_storage")) == "1"


@pytest.mark.unmeasured
async def test_increments_of_both_sides_add_up(db: BotDatabase) -> None:
    """With sessions and the store counting on one row at once, each in transactions, no increment is lost."""
    kv = (await db.store()).kv("trivia")
    await kv.set("rounds", 0)
    # On PostgreSQL the store locks its namespace, not the row, so there each side has a row of its own.
    theirs = "rounds" if db.engine.dialect.name == "sqlite" else "theirs"
    await add(
        db, [] if theirs == "rounds" else [PluginKVStorage(plugin_name="trivia", key=theirs, value="0")]
    )

    async def by_session() -> None:
        for _ in range(EACH):
            async with db.session_factory() as session:
                found = await one(session, theirs)
                found.set_value(found.get_value() + 1)
                await session.commit()

    async def by_store() -> None:
        for _ in range(EACH):
            await kv.incr("rounds")

    await asyncio.gather(*(by_session() for _ in range(WRITERS)), *(by_store() for _ in range(WRITERS)))
    counts = [(await db.kv_get("trivia", key))["value"] for key in sorted({"rounds", theirs})]
    assert sum(counts) == 2 * WRITERS * EACH


@pytest.mark.unmeasured
async def test_rows_of_both_sides_are_all_there(db: BotDatabase) -> None:
    """Rows that sessions add and keys that are set at the same time are all listed afterwards."""

    async def by_session(writer: int) -> None:
        for number in range(EACH):
            await add(db, [row(f"session{writer}:{number}")])

    async def by_verb(writer: int) -> None:
        for number in range(EACH):
            await db.kv_set("trivia", f"verb{writer}:{number}", number)

    writers = range(WRITERS)
    await asyncio.gather(*map(by_session, writers), *map(by_verb, writers))
    assert (await db.kv_list("trivia", limit=10_000))["count"] == 2 * WRITERS * EACH


async def test_a_change_by_a_session_is_not_overlooked(db: BotDatabase) -> None:
    """The store counts on from what a session has left, though it had read the row before."""
    kv = (await db.store()).kv("trivia")
    for round_ in range(EACH):
        await kv.incr("rounds")
        async with db.session_factory() as session:
            await session.execute(update(PluginKVStorage).values(value_json=str(100 * (round_ + 1))))
            await session.commit()
    assert (await kv.incr("rounds")).value == 100 * EACH + 1


async def test_reading_goes_on_beside_an_open_session(db: BotDatabase) -> None:
    """While a session is in its transaction, the verbs read what was there before."""
    await db.kv_set("trivia", "key", "old")
    async with db.session_factory() as session:
        (await one(session, "key")).set_value("new")
        await session.flush()
        assert await db.kv_get("trivia", "key") == {"exists": True, "value": "old"}
        assert (await db.kv_list("trivia"))["keys"] == ["key"]
        await session.commit()
        await db.kv_set("trivia", "other", 1)
    assert await db.kv_get("trivia", "key") == {"exists": True, "value": "new"}


class TestOneFile:
    """What holds for a SQLite file alone: one transaction at a time may write to it."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        """A file, though `db` would take any."""
        return f"sqlite:///{tmp_path / 'bot.db'}"

    async def test_a_write_within_a_session_is_refused_in_the_end(
        self, db: BotDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A write that waits for a session which waits for the write gives up, and nothing is kept of it."""
        monkeypatch.setattr(rosey, "STORE_PATIENCE", 0.05)
        async with db.session_factory() as session:
            await session.scalars(select(PluginKVStorage))
            with pytest.raises(Busy, match="session"):
                await db.kv_set("trivia", "key", 1)
        assert await db.kv_get("trivia", "key") == {"exists": False}
        await db.kv_set("trivia", "key", 1)

    async def test_a_second_session_within_a_session_is_refused_in_the_end(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two sessions of which one waits for the other come to an error, not to a standstill."""
        monkeypatch.setattr(rosey, "SESSION_PATIENCE", 0.05)
        db = BotDatabase(url)
        async with db.session_factory() as session:
            await session.scalars(select(PluginKVStorage))
            with pytest.raises(PoolTimeout):
                await add(db, [row("key")])
        await add(db, [row("key")])
        await db.close()

    async def test_whoever_gives_up_waiting_holds_nothing(self, db: BotDatabase) -> None:
        """A session that is cancelled while it waits for its turn does not keep others from theirs."""
        async with db.session_factory() as first:
            await first.scalars(select(PluginKVStorage))
            waiting = asyncio.create_task(add(db, [row("key")]))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with db._turns.right:
            waiting = asyncio.create_task(add(db, [row("key")]))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await add(db, [row("other")])
        await db.kv_set("trivia", "third", 1)
        assert (await db.kv_list("trivia"))["keys"] == ["other", "third"]

    async def test_a_waiting_write_comes_before_later_sessions(self, db: BotDatabase) -> None:
        """Turns are taken in the order of arrival: sessions that come later do not pass a waiting write."""
        order: list[str] = []

        async def by_session(name: str) -> None:
            await add(db, [row(name)])
            order.append(name)

        async def by_verb() -> None:
            await db.kv_set("trivia", "verb", 1)
            order.append("verb")

        async with db.session_factory() as session, asyncio.TaskGroup() as tasks:
            await session.scalars(select(PluginKVStorage))
            tasks.create_task(by_verb())
            await asyncio.sleep(0.05)
            for name in ("first", "second", "third"):
                tasks.create_task(by_session(name))
            await session.close()
        assert order[0] == "verb"

    async def test_sessions_leave_checkpoints_to_the_store(self, db: BotDatabase) -> None:
        """One connection alone moves the log into the file, and it is not a session's."""
        async with db.engine.connect() as connection:
            assert await connection.scalar(text("PRAGMA wal_autocheckpoint")) == 0

    async def test_sessions_beside_another_store(self, url: str) -> None:
        """While another store has the file open, keys and sessions are read and written."""
        async with holdfast.open(url) as other:
            await other.kv("trivia").set("key", 1)
            db = BotDatabase(url)
            assert await db.kv_get("trivia", "key") == {"exists": True, "value": 1}
            await add(db, [row("other")])
            assert (await other.kv("trivia").list()).keys == ["key", "other"]
        assert (await db.kv_list("trivia"))["keys"] == ["key", "other"]
        await db.close()


async def test_a_database_in_memory_is_private_and_leaves_nothing() -> None:
    """Two databases in memory share nothing, and their files are gone when they are closed."""
    first, second = BotDatabase("sqlite:///:memory:"), BotDatabase("sqlite://")
    await add(first, [row("key")])
    assert (await second.kv_list("trivia"))["count"] == 0
    async with second.session_factory() as session:
        assert await session.scalar(select(func.count()).select_from(PluginKVStorage)) == 0
    files = [db.engine.url.database for db in (first, second)]
    await first.close()
    await second.close()
    assert not any(Path(file).parent.exists() for file in files if file is not None)


async def test_models_of_the_program_get_their_tables(empty_url: str) -> None:
    """`create_tables` also creates the tables of models that the program declares on `Base`, once."""

    class UserStats(Base):
        __tablename__ = "user_stats"
        name: Mapped[str] = mapped_column(primary_key=True)
        messages: Mapped[int]

    try:
        for number in range(2):
            db = BotDatabase(empty_url)
            await db.create_tables()
            async with db.session_factory() as session:
                session.add(UserStats(name=f"ada{number}", messages=number))
                await session.commit()
                assert len((await session.scalars(select(UserStats))).all()) == number + 1
            await db.kv_set("trivia", "key", number)
            await db.close()
            if "memory" in empty_url:
                break
    finally:
        Base.metadata.remove(UserStats.__table__)  # type: ignore[arg-type]
        Base.registry._dispose_cls(UserStats)
