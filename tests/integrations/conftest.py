"""The stores that every integration is tested on.

A test that takes `ground` or `store` runs on SQLite, on PostgreSQL, and through a service over NATS and
over HTTP. Each starts empty.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

import pytest

from holdfast.clock import ManualClock
from tests.conformance.database import empty
from tests.integrations.grounds import KINDS, Ground
from tests.nats import lasting_nats_server

Places: TypeAlias = tuple[str, str, str]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.store import Store
    from tests.postgres import Server


@pytest.fixture(scope="module")
def database(pg_server: Server) -> Iterator[str]:
    """The address of a database."""
    url = pg_server.create_database()
    yield url
    pg_server.drop_database(url)


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


@pytest.fixture
def clock() -> ManualClock:
    """A clock that starts now, since other projects compare deadlines with the machine's clock."""
    return ManualClock(start=int(time.time() * 1000))


@pytest.fixture(params=KINDS)
def kind_and_places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """What a ground is made from: its kind, where its rows are kept, and its NATS server if it has one."""
    kind: str = request.param
    if kind == "postgresql":
        return kind, request.getfixturevalue("database"), ""
    storage = str(tmp_path_factory.mktemp("ground") / "store.db")
    return kind, storage, request.getfixturevalue("bus") if kind in ("nats", "http") else ""


@pytest.fixture
async def ground(kind_and_places: Places, clock: ManualClock) -> AsyncIterator[Ground]:
    """Storage that several stores can be opened on, one after the other or, but for SQLite, at once."""
    kind, storage, bus = kind_and_places
    if kind == "postgresql":
        await empty(storage)
    async with Ground(kind, storage, bus, clock) as made:
        yield made


@pytest.fixture
async def store(ground: Ground) -> AsyncIterator[Store]:
    """An open store."""
    async with ground.open() as opened:
        yield opened
