"""What the whole suite shares: the PostgreSQL that tests run against.

What can't be started fails the tests that asked for it, with the reason; nothing here skips a test.
"""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.postgres import Server, new_home, postgres_server, shared_server
from tests.postgres_stores import Stores

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytest_plugins = [
    "tests.browser_fixtures",
    "tests.http_fixtures",
    "tests.interrupts",
    "tests.nats_fixtures",
    "tests.patience",
]

hypothesis.settings.register_profile("holdfast", deadline=None)  # a busy machine is not a failure
hypothesis.settings.load_profile("holdfast")

_HOME_VARIABLE = "HOLDFAST_TEST_PG_HOME"
_RESOURCES = pytest.StashKey[contextlib.ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of the server in the process that starts the workers, since it outlives them all.

    The workers inherit the variable; the first that wants the server starts it there.
    """
    if _HOME_VARIABLE not in os.environ:
        resources = config.stash[_RESOURCES] = contextlib.ExitStack()
        os.environ[_HOME_VARIABLE] = str(resources.enter_context(new_home()))
        resources.callback(os.environ.pop, _HOME_VARIABLE)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server and remove its folder, in the process that chose it."""
    if _RESOURCES in config.stash:
        config.stash[_RESOURCES].close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage meanwhile, nor later in what was collected: a worker saves two of 20 seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def pg_server() -> Server:
    """The PostgreSQL that all tests of a run share; it can't be restarted."""
    return shared_server(Path(os.environ[_HOME_VARIABLE]))


@pytest.fixture(scope="session")
def pg_dsn(pg_server: Server) -> str:
    """The address of the administrator's database."""
    return pg_server.dsn


@pytest.fixture
def pg_url(pg_server: Server) -> Iterator[str]:
    """The address of an empty database that is this test's alone."""
    url = pg_server.create_database()
    yield url
    pg_server.drop_database(url)


@pytest.fixture(scope="session")
def pg_stores(pg_server: Server) -> Stores:
    """The databases that hold an empty store."""
    return Stores(pg_server)


@pytest.fixture
def pg_store_url(pg_stores: Stores) -> Iterator[str]:
    """The address of a database with an empty store that is this test's alone: the tables are there."""
    url = pg_stores.take()
    yield url
    pg_stores.give_back(url)


@pytest.fixture
def pg_alone() -> Iterator[Server]:
    """A PostgreSQL that is this test's alone, to be stopped and restarted at will."""
    with postgres_server(alone=True) as server:
        yield server
