"""Fixtures with a real browser.

One browser serves all tests of a process, and each window has cookies and a cache of its own. A window
serves one test after the other, and begins each without cookies, stored data and a way back: only files that
never change are still in its cache. A test in which a page made a mistake fails, whatever it asserts. The
harness itself is `tests.browser`.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
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


class Windows:
    """The windows of a browser, of which each is used by one test after the other.

    Args:
        browser: The browser.
        stack: Closes the windows in the end.
    """

    def __init__(self, browser: Browser, stack: contextlib.AsyncExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self._free: dict[str, list[Window]] = defaultdict(list)

    async def take(self, url: str, **options: Any) -> tuple[str, Window]:
        """Return a window on the service at a URL, and what is to be said when it is given back."""
        kind = repr(sorted(options.items()))
        if self._free[kind]:
            found = self._free[kind].pop()
            found.turn_to(url)
        else:
            found = await self._stack.enter_async_context(harness.window(self._browser, url, **options))
        return kind, found

    async def give_back(self, kind: str, window: Window) -> None:
        """Let another test have a window."""
        if not window.page.is_closed():
            await window.empty()
            self._free[kind].append(window)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def windows(browser: Browser) -> AsyncIterator[Windows]:
    """The windows of this process."""
    async with contextlib.AsyncExitStack() as stack:
        yield Windows(browser, stack)


@pytest_asyncio.fixture(loop_scope="session")
async def open_window(windows: Windows) -> AsyncIterator[OpenWindow]:
    """Opens windows on the service at a URL. At the end of the test none of them may have a fault."""
    taken: list[tuple[str, Window]] = []

    async def start(url: str, **options: Any) -> Window:
        taken.append(await windows.take(url, **options))
        return taken[-1][1]

    yield start
    faults = [fault for _, one in taken for fault in one.faults]
    for one in taken:
        await windows.give_back(*one)
    assert not faults, "\n".join(faults)
