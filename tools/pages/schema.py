"""The relational schema of a store: its tables, its view, and the scripts that create an empty store.

This module and `holdfast.engines.sql.orm` define the schema of this version, and the tests prove that the
migrations lead to it. A store knows only the scripts in `holdfast/engines/sql/ddl`, which are rendered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    DDL,
    Column,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    create_mock_engine,
    event,
    insert,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateTable, CreateView
from sqlalchemy.sql.functions import FunctionElement

from holdfast.engines.sql.layout import PARTS, SCHEMA_REVISION, VERSION_TABLE
from holdfast.engines.sql.orm import HAS_DEADLINE, Base, Count, Instant, Name, PluginKVStorage
from holdfast.engines.sql.outside import TRIGGERS

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler

DIALECTS: Final = {"sqlite": "sqlite://", "postgresql": "postgresql+asyncpg://"}
_STRICT: Final[dict[str, Any]] = {"sqlite_strict": True, "sqlite_with_rowid": False}

metadata: Final = Base.metadata

rows = Table(
    "holdfast_rows",
    metadata,
    Column("namespace", Name, primary_key=True),
    Column("space", Name, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("value", Text, nullable=False),
    Column("expires_at", Instant),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("version", Count, nullable=False),
    Column("last_writer", Text, nullable=False),
    Column("semantics", Text),
    Column("request_id", Text),
    Column("spec_ref", Text),
    Index(
        "idx_rows_expires_at",
        "namespace",
        "space",
        "expires_at",
        sqlite_where=HAS_DEADLINE,
        postgresql_where=HAS_DEADLINE,
    ),
    **_STRICT,
)
"""The rows of every space but `kv` and those of the parts of blobs."""

# This table has row ids in SQLite, unlike the others. Without them a row is stored in the index itself, and
# every comparison on the way to a row reads the whole rows that it passes: a quarter of a megabyte each.
parts = Table(
    "holdfast_parts",
    metadata,
    Column("namespace", Name, primary_key=True),
    Column("space", Name, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("value", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("version", Count, nullable=False),
    Column("last_writer", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_strict=True,
)
"""The bytes of blobs, in parts, with their checksums."""

namespaces = Table(
    "holdfast_namespaces",
    metadata,
    Column("name", Name, primary_key=True),
    Column("revision", Count, nullable=False),
    Column("keys", Count, nullable=False),
    Column("bytes", Count, nullable=False),
    Column("requests", Count, nullable=False),
    Column("journal_floor", Count, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column("policy", Text),
    *(Column(name, Count, server_default=text("0"), nullable=False) for name in PARTS),
    # Every group of writes updates its namespace's row. If most of a page is free, the new version of the row
    # fits beside the old one, and PostgreSQL need not update the primary key's index.
    postgresql_with={"fillfactor": 20},
    **_STRICT,
)
"""One row per namespace, never deleted."""

# The primary key is the only index: the history of a key reads the journal backwards. An index by key would
# serve that better, but would double the pages that every write dirties.
journal = Table(
    "holdfast_journal",
    metadata,
    Column("namespace", Name, primary_key=True),
    Column("version", Count, primary_key=True),
    Column("op", Text, nullable=False),
    Column("key", Name, nullable=False),
    Column("at", Instant, nullable=False),
    Column("last_writer", Text),
    Column("request_id", Text),
    Column("purpose", Text),
    Column("lag_ms", Count),
    Column("expired_version", Count),
    Column("detail", Text),
    **_STRICT,
)
"""All changes, in the order of their versions."""

meta = Table(
    "holdfast_meta",
    metadata,
    Column("name", Name, primary_key=True),
    Column("value", Text, nullable=False),
    **_STRICT,
)
"""Facts about the store itself: `epoch` identifies this life of the storage, `clock` is the latest time that
it answered with, `clock_line` relates its time to the ticks of the machine (SQLite), and `audit_key` holds
the names of the keys that signed its audit."""


class ViewTime(FunctionElement[Any]):
    """An `Instant` as the view shows it: comparable with the CURRENT_TIMESTAMP of its database."""

    inherit_cache = True


# SQLite compares times as text. A fraction only where there is one sorts rightly against CURRENT_TIMESTAMP,
# which has none: '12:00:00' < '12:00:00.250', and a whole second equals itself.
@compiles(ViewTime, "sqlite")
def _view_time_sqlite(element: ViewTime, compiler: SQLCompiler, **kwargs: Any) -> str:
    time = compiler.process(element.clauses, **kwargs)
    return f"replace(strftime('%Y-%m-%d %H:%M:%f', {time} / 1000.0, 'unixepoch'), '.000', '')"


@compiles(ViewTime, "postgresql")
def _view_time_postgresql(element: ViewTime, compiler: SQLCompiler, **kwargs: Any) -> str:
    return compiler.process(element.clauses, **kwargs)


plugin_kv = CreateView(
    select(
        *(
            ViewTime(column).label(column.name) if isinstance(column.type, Instant) else column
            for column in PluginKVStorage.__table__.columns
        )
    ),
    "plugin_kv",
    metadata=metadata,
).table
"""The view of `plugin_kv_storage` whose times compare with CURRENT_TIMESTAMP."""

for _dialect, _statements in TRIGGERS.items():
    for _statement in _statements:
        _trigger = DDL(_statement.replace("%", "%%")).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]
        event.listen(PluginKVStorage.__table__, "after_create", _trigger)

_alembic_version = Table(
    VERSION_TABLE,
    # Separate metadata, since the table is Alembic's. It is here only to be rendered as Alembic creates it.
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def render(dialect: str) -> str:
    """Render the script that creates an empty store of this version, for `sqlite` or `postgresql`.

    The script neither begins nor commits a transaction. It accepts a table of revisions left by a downgrade.
    """
    statements = ["-- Rendered from the schema by ./dev pages, not to be edited."]

    def collect(element: Any, *args: Any, **kwargs: Any) -> None:
        compiled = element.compile(dialect=engine.dialect, compile_kwargs={"literal_binds": True})
        lines = (line.rstrip() for line in str(compiled).strip().splitlines())
        statements.append("\n".join(lines) + ";")

    engine = create_mock_engine(DIALECTS[dialect], collect)
    metadata.create_all(engine, checkfirst=False)
    collect(CreateTable(_alembic_version, if_not_exists=True))
    collect(insert(_alembic_version).values(version_num=SCHEMA_REVISION))
    return "\n\n".join(statements).replace("\t", "    ") + "\n"
