"""Migrating a store: up and down, all of it or nothing, one at a time, and never a store of the future.

A rule that holds on both databases is tested on both, through the same test.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import asyncpg
import msgspec
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

import holdfast
from holdfast.engines.sql import layout, migrate
from holdfast.engines.sql.migrate import Need, needed
from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEWER = (
    "the store was written by a newer Holdfast (schema 0008; this version knows up to 0007): upgrade Holdfast"
)
EVERYTHING = {
    "holdfast_alembic_version",
    "holdfast_journal",
    "holdfast_meta",
    "holdfast_namespaces",
    "holdfast_parts",
    "holdfast_rows",
    "idx_kv_expires_at",
    "idx_rows_expires_at",
    "plugin_kv",
    "plugin_kv_storage",
}
ROW = "INSERT INTO plugin_kv_storage (plugin_name, key, value_json) VALUES ('trivia', 'k', '\"kept\"')"


class Database(Protocol):
    """An empty database of one kind, and the functions that migrate it."""

    duplicate: type[Exception]

    async def upgrade(self) -> None: ...

    async def downgrade(self) -> None: ...

    async def create(self) -> None: ...

    async def execute(self, statement: str) -> list[tuple[Any, ...]]: ...

    async def names(self) -> set[str]: ...


class SqliteDatabase:
    duplicate: type[Exception] = sqlite3.OperationalError

    def __init__(self, path: Path) -> None:
        self.path = path

    async def upgrade(self) -> None:
        await asyncio.to_thread(migrate.upgrade_sqlite, self.path)

    async def downgrade(self) -> None:
        await asyncio.to_thread(migrate.downgrade_sqlite, self.path)

    async def create(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(layout.ddl("sqlite"))

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()

    async def names(self) -> set[str]:
        found = await self.execute(
            "SELECT name FROM sqlite_master WHERE type <> 'trigger' AND name NOT LIKE 'sqlite_autoindex%'"
        )
        return {name for (name,) in found}


class PostgresDatabase:
    duplicate: type[Exception] = asyncpg.DuplicateTableError

    def __init__(self, url: str) -> None:
        self.url = url

    async def upgrade(self) -> None:
        await migrate.upgrade_postgres(self.url)

    async def downgrade(self) -> None:
        await migrate.downgrade_postgres(self.url)

    async def create(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(layout.ddl("postgresql"))
        await connection.close()

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        found = await connection.fetch(statement)
        await connection.close()
        return [tuple(row) for row in found]

    async def names(self) -> set[str]:
        found = await self.execute(
            "SELECT relname FROM pg_class LEFT JOIN pg_constraint ON conindid = pg_class.oid "
            "WHERE relnamespace = 'public'::regnamespace AND pg_constraint.oid IS NULL"
        )
        return {name for (name,) in found}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Each kind of database in turn."""
    if request.param == "sqlite":
        yield SqliteDatabase(request.getfixturevalue("tmp_path") / "state.db")
    else:
        yield PostgresDatabase(request.getfixturevalue("pg_url"))


@pytest.mark.parametrize(
    ("found", "need"),
    [
        (None, Need.CREATE),
        ("0007", Need.NOTHING),
        ("0006", Need.MIGRATE),
        ("0005", Need.MIGRATE),
        ("0004", Need.MIGRATE),
        ("0003", Need.MIGRATE),
        ("0001", Need.MIGRATE),
    ],
)
def test_a_store_is_created_migrated_or_left_alone(found: str | None, need: Need) -> None:
    """An empty store is created, an older one migrated, and one of this version is left alone."""
    assert needed(found) is need


def test_an_unknown_revision_is_refused() -> None:
    """A store that a newer Holdfast has migrated is refused with a sentence that says what to do."""
    with pytest.raises(Unsupported) as refused:
        needed("0008")
    assert refused.value.message == NEWER


def test_known_revisions_are_the_migrations() -> None:
    """What is known without Alembic is what Alembic finds: one line of revisions up to the newest."""
    config = Config()
    config.set_main_option("script_location", "holdfast.engines.sql:migrations")
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == layout.KNOWN_REVISIONS
    assert scripts.get_current_head() == layout.SCHEMA_REVISION == layout.KNOWN_REVISIONS[-1]


def test_deciding_imports_neither_alembic_nor_sqlalchemy() -> None:
    """Opening a store that is up to date does not pay for libraries that only a migration needs."""
    program = (
        "import sys; from holdfast.engines.sql.migrate import needed; needed('0001'); "
        "sys.exit(bool({'alembic', 'sqlalchemy', 'asyncpg'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_down_to_nothing_and_up_again(database: Database) -> None:
    """A downgrade to the base leaves Alembic's own table alone, and the way up is open again."""
    await database.upgrade()
    assert await database.names() == EVERYTHING
    await database.downgrade()
    assert await database.names() == {"holdfast_alembic_version"}
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == []
    await database.upgrade()
    assert await database.names() == EVERYTHING
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [(layout.SCHEMA_REVISION,)]


async def test_the_script_creates_a_store_after_a_downgrade(database: Database) -> None:
    """An engine that finds no revision runs the rendered script, also where a downgrade went before."""
    await database.upgrade()
    await database.downgrade()
    await database.create()
    assert await database.names() == EVERYTHING
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [(layout.SCHEMA_REVISION,)]


async def test_data_survives_an_upgrade_that_has_nothing_to_do(database: Database) -> None:
    """Upgrading a store of this version changes no row, and a store made by the script can be upgraded."""
    await database.create()
    await database.execute(ROW)
    before = await database.execute("SELECT * FROM plugin_kv_storage")
    await database.upgrade()
    assert await database.execute("SELECT * FROM plugin_kv_storage") == before
    assert before[0][:3] == ("trivia", "k", '"kept"')


async def test_a_store_of_the_future_is_left_alone(database: Database) -> None:
    """Neither way is a store touched whose revision this version does not know."""
    await database.create()
    await database.execute("UPDATE holdfast_alembic_version SET version_num = '0008'")
    for migration in (database.upgrade, database.downgrade):
        with pytest.raises(Unsupported) as refused:
            await migration()
        assert refused.value.message == NEWER
    assert await database.names() == EVERYTHING
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [("0008",)]


async def test_a_failed_upgrade_leaves_nothing(database: Database) -> None:
    """A migration is one transaction: what it did before it failed is undone; the driver's error says why."""
    await database.execute("CREATE TABLE holdfast_meta (other TEXT)")
    with pytest.raises(database.duplicate, match="holdfast_meta"):
        await database.upgrade()
    assert await database.names() == {"holdfast_meta"}


async def test_a_failed_downgrade_leaves_everything(database: Database) -> None:
    """Data is not half removed: a downgrade that fails at its last table has removed none."""
    await database.create()
    await database.execute(ROW)
    await database.execute("ALTER TABLE plugin_kv_storage RENAME TO kept")
    await database.execute("CREATE VIEW plugin_kv_storage AS SELECT * FROM kept")
    with pytest.raises((sqlite3.OperationalError, asyncpg.UndefinedObjectError)):
        await database.downgrade()
    assert await database.names() == EVERYTHING | {"kept"}
    assert await database.execute("SELECT value_json FROM kept") == [('"kept"',)]


async def test_several_may_upgrade_at_once(database: Database) -> None:
    """Of several that upgrade the same store at once one does it, and the others find it done."""
    await asyncio.gather(*(database.upgrade() for _ in range(4)))
    assert await database.names() == EVERYTHING
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [(layout.SCHEMA_REVISION,)]


async def test_processes_take_turns_on_postgres(pg_url: str) -> None:
    """A process that finds another one migrating waits, and has touched nothing until then."""
    connection = await asyncpg.connect(pg_url)
    turn = connection.transaction()
    await turn.start()
    await connection.execute("SELECT pg_advisory_xact_lock(x'686f6c6466617374'::bigint)")
    upgrading = asyncio.create_task(migrate.upgrade_postgres(pg_url))
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = ("
        "SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    while not await connection.fetchval(waiting):
        assert not upgrading.done()
    assert await PostgresDatabase(pg_url).names() == set()
    await turn.commit()
    await upgrading
    assert await PostgresDatabase(pg_url).names() == EVERYTHING
    await connection.close()


def test_processes_take_turns_on_sqlite(tmp_path: Path) -> None:
    """The right to write is taken before the revision is read: a store that is being written is not read."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(path, timeout=0)) as connection:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                migrate.upgrade_sqlite(connection)
            other.execute("COMMIT")
            migrate.upgrade_sqlite(connection)


@pytest.mark.parametrize("isolation_level", ["DEFERRED", "IMMEDIATE", None])
def test_a_connection_is_left_as_it_was(isolation_level: Literal["DEFERRED", "IMMEDIATE"] | None) -> None:
    """A connection that is handed over comes back open, outside a transaction, with its own settings."""
    with closing(sqlite3.connect(":memory:", isolation_level=isolation_level)) as connection:
        connection.row_factory = sqlite3.Row
        migrate.upgrade_sqlite(connection)
        migrate.downgrade_sqlite(connection)
        migrate.upgrade_sqlite(connection)
        assert connection.isolation_level == isolation_level
        assert connection.row_factory is sqlite3.Row
        assert not connection.in_transaction
        [revision] = connection.execute("SELECT version_num FROM holdfast_alembic_version").fetchone()
        assert revision == layout.SCHEMA_REVISION


BOT_REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = {revision!r}, None


def upgrade() -> None:
    op.create_table("bot_users", sa.Column("name", sa.Text))
"""
BOT_ENVIRONMENT = """
from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
"""


class Bot:
    """Another program with migrations of its own, in the same database."""

    def __init__(self, folder: Path, url: str, revision: str) -> None:
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(BOT_ENVIRONMENT)
        (folder / "versions" / "first.py").write_text(BOT_REVISION.format(revision=revision))
        self._folder = folder
        self._url = url

    async def upgrade(self) -> None:
        """Run `alembic upgrade head`."""
        await asyncio.to_thread(asyncio.run, self._upgrade())

    async def _upgrade(self) -> None:
        sqlite = f"sqlite+aiosqlite:///{self._url}"
        postgres = self._url.startswith("postgresql")
        engine = create_async_engine(
            "postgresql+asyncpg://" if postgres else sqlite,
            connect_args={"dsn": self._url} if postgres else {},
            poolclass=NullPool,
        )
        async with engine.begin() as connection:
            await connection.run_sync(self._run)
        await engine.dispose()

    def _run(self, connection: Any) -> None:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(self._folder))
        config.set_main_option("path_separator", "os")
        command.upgrade(config, "head")


def url_of(database: Database) -> str:
    return database.url if isinstance(database, PostgresDatabase) else str(cast("Any", database).path)


@pytest.mark.parametrize("first", ["bot", "store"])
@pytest.mark.parametrize("revision", ["9f1c2d3e4a5b", "0003"])
async def test_another_programs_migrations_share_the_database(
    database: Database, tmp_path: Path, first: str, revision: str
) -> None:
    """`alembic upgrade head` of a bot and a store work in one database in either order, again and again."""
    bot = Bot(tmp_path / "bot", url_of(database), revision)
    if first == "bot":
        await bot.upgrade()
    for number in range(2):
        async with holdfast.open(url_of(database)) as store:
            await store.kv("p").set("k", number)
        await bot.upgrade()
    assert await database.execute("SELECT * FROM alembic_version") == [(revision,)]
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [(layout.SCHEMA_REVISION,)]
    assert await database.execute("SELECT * FROM bot_users") == []


async def test_a_store_of_today_is_taken_over(database: Database, tmp_path: Path) -> None:
    """Opening an older store moves its revision to a table of its own, and makes room for a bot's."""
    url = url_of(database)
    async with holdfast.open(url) as store:
        await store.kv("p").set("k", 1)
    if isinstance(database, PostgresDatabase):
        await migrate.downgrade_postgres(url, "0005")
    else:
        await asyncio.to_thread(migrate.downgrade_sqlite, url, "0005")
    assert await database.execute("SELECT * FROM alembic_version") == [("0005",)]
    assert "holdfast_alembic_version" not in await database.names()
    async with holdfast.open(url) as store:
        entry = await store.kv("p").get("k")
        assert entry is not None
    assert await database.names() == EVERYTHING
    await Bot(tmp_path / "bot", url, "0005").upgrade()
    async with holdfast.open(url) as store:
        assert await store.kv("p").get("k") == entry


async def test_a_downgrade_leaves_a_bots_revision_alone(database: Database, tmp_path: Path) -> None:
    """Where a bot has the shared table, a store that goes down keeps its own, and can come up again."""
    url = url_of(database)
    await database.upgrade()
    await Bot(tmp_path / "bot", url, "b1").upgrade()
    if isinstance(database, PostgresDatabase):
        await migrate.downgrade_postgres(url, "0005")
    else:
        await asyncio.to_thread(migrate.downgrade_sqlite, url, "0005")
    assert await database.execute("SELECT * FROM alembic_version") == [("b1",)]
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [("0005",)]
    await database.upgrade()
    assert await database.execute("SELECT * FROM alembic_version") == [("b1",)]
    assert await database.execute("SELECT * FROM holdfast_alembic_version") == [(layout.SCHEMA_REVISION,)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_store_of_the_version_before_is_counted(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What was written before namespaces counted all that they keep counts once it is migrated, exactly."""
    url = str(tmp_path / "store.db") if kind == "sqlite" else str(request.getfixturevalue("pg_url"))
    names = ("kv/p", "semantic/acme/web", "table/p")
    async with holdfast.open(url, reap=False, audit_key="a-secret-of-sixteen") as store:
        kv, tables = store.kv("p"), store.tables("p")
        await kv.set("ключ", "ä", semantics={"purpose": "config"}, request_id="r", spec_ref="§")
        await kv.delete("ключ")
        await kv.set("k", 1)
        await kv.batch(writes=[{"guard": "lock"}])
        await store.semantic("acme", "web").set("flag", True)
        await tables.create_table("t", partition_key=("id", "string"))
        await tables.create_index("t", "by-a", key=("a", "string"))
        await tables.put_item("t", {"id": "1", "a": "x"})
        before = [await store.stats(name) for name in names]
    if kind == "sqlite":
        migrate.downgrade_sqlite(url, "0002")
        migrate.upgrade_sqlite(url)
    else:
        await migrate.downgrade_postgres(url, "0002")
        await migrate.upgrade_postgres(url)
    async with holdfast.open(url, reap=False) as store:
        assert [await store.stats(name) for name in names] == before
        assert [await store.recount(name) for name in names] == [0, 0, 0]
    kinds = {kind for stats in before for kind in msgspec.structs.asdict(stats.parts).items() if kind[1]}
    assert {kind for kind, _ in kinds} == set(holdfast.Parts.__struct_fields__) - {"letters", "blobs"}
