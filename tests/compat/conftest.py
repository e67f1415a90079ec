"""The databases and the service that these tests speak to.

What a bot's program would put together itself, put together here in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pytest

from holdfast.compat.rosey import BotDatabase, DatabaseService, PluginKVStorage
from tests.nats import library_client

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from holdfast.edges.nats.server import NatsServer


KINDS: Final = ("sqlite:///:memory:", "a file", "postgresql")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without an entry, once of each kind. The tables may be there."""
    return _url(request, tmp_path, "pg_store_url")


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once of each kind."""
    return _url(request, tmp_path, "pg_url")


def _url(request: pytest.FixtureRequest, folder: Path, database: str) -> str:
    match request.param:
        case "a file":
            return f"sqlite:///{folder / 'bot.db'}"
        case "postgresql":
            return str(request.getfixturevalue(database))
        case memory:
            return str(memory)


@pytest.fixture
async def db(url: str) -> AsyncIterator[BotDatabase]:
    """A database with its tables."""
    db = BotDatabase(url)
    await db.create_tables()
    yield db
    await db.close()


@pytest.fixture
def nats_server(shared_nats_server: NatsServer) -> NatsServer:
    """One that the tests of this process share: a start takes longer than most of them."""
    return shared_nats_server


@pytest.fixture
async def service(db: BotDatabase, nats_server: NatsServer) -> AsyncIterator[DatabaseService]:
    """A service that runs on the database."""
    service = DatabaseService(db, nats_server.url)
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def client(service: DatabaseService) -> AsyncIterator[Client]:
    """A plugin's connection to the server of the service."""
    async with contextlib.AsyncExitStack() as stack:
        yield await stack.enter_async_context(library_client(service.nats_url))


def row(key: str, *, plugin: str = "trivia", expires_at: datetime | None = None) -> PluginKVStorage:
    """A row as a program adds it to a session."""
    return PluginKVStorage(plugin_name=plugin, key=key, value_json='"data"', expires_at=expires_at)


async def add(db: BotDatabase, rows: Iterable[PluginKVStorage]) -> None:
    """Add rows through a session of their own."""
    async with db.session_factory() as session:
        session.add_all(rows)
        await session.commit()
