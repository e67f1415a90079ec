"""Fixtures with a real browser.

Law: one browser serves all tests of a process, and each window has cookies and a cache of its own. A test in
which a page made a mistake fails, whatever it asserts. The harness itself is `tests.browser`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import pytest_asyncio

from tests import browser as harness
from tests.browser import Window

if TYPE_CHECKING:
    from playwright.async_api import Browser

OpenWindow: TypeAlias = Callable[..., Awaitable[Window]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of this process; the tests that want it are skipped where there is none."""
    if harness.program() is None:
        pytest.skip(harness.NO_BROWSER)
    async with harness.chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def open_window(browser: Browser) -> AsyncIterator[OpenWindow]:
    """Opens windows on the service at a URL. At the end of the test none of them may have a fault."""
    opened: list[Window] = []
    async with contextlib.AsyncExitStack() as stack:

        async def start(url: str, **options: Any) -> Window:
            found = await stack.enter_async_context(harness.window(browser, url, **options))
            opened.append(found)
            return found

        yield start
        faults = [fault for one in opened for fault in one.faults]
    assert not faults, "\n".join(faults)
