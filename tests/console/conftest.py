"""Services with the console, and windows of a browser on them.

The tests in `browsing` and `flows` run in the loop of the browser, where a process has one service for
all of them. What they execute is measured by others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import pytest_asyncio

from tests.browser import Window
from tests.console.browsing import ground
from tests.console.browsing.ground import Console
from tests.edges.http.ground import Served, served
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.browser_fixtures import OpenWindow

Enter: TypeAlias = Callable[..., Awaitable[Window]]
Look: TypeAlias = Callable[..., Awaitable[Window]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that have a browser in its loop."""
    for item in items:
        if "console" in item.path.parts and not {"browsing", "flows"}.isdisjoint(item.path.parts):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            item.add_marker("unmeasured")


@pytest.fixture
async def closed(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service where every caller needs a token."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def console(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Console]:
    """A service with a sample store, where every caller needs a token."""
    async with ground.console(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def enter(console: Console, open_window: OpenWindow) -> Enter:
    """Opens windows that are logged in, as the operator or with a token."""

    async def start(token: str | None = None, **options: Any) -> Window:
        return await console.enter(await open_window(console.url, **options), token)

    return start


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A service in open mode on an empty store. Each test has a plugin of its own."""
    async with (
        nats_server() as bus,
        served(tmp_path_factory.mktemp("flows") / "state.db", bus.url) as found,
    ):
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def look(service: Served, open_window: OpenWindow) -> Look:
    """Opens a window at a path of the service in open mode."""

    async def at(path: str, **options: Any) -> Window:
        window = await open_window(service.url, **options)
        await window.open(path)
        return window

    return at
