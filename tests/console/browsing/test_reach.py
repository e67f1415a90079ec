"""Every page can be used by everyone: light and dark, wide and narrow, by eye or by a screen reader."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from tests.browser import AXE, NARROW, NO_AXE, WIDE
from tests.browser import window as open_window

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from tests.browser import Window
    from tests.console.browsing.ground import Console

PAGES: Final = {
    "overview": "/",
    "namespaces": "/ui/kv",
    "browse": "/ui/kv/trivia",
    "branch": "/ui/kv/trivia?prefix=question:",
    "entry": "/ui/kv/trivia/player:ada",
    "project": "/ui/semantic/acme/search",
    "live": "/ui/live",
    "cluster": "/ui/cluster",
    "search": "/ui/search?q=player",
    "inbox": "/ui/inbox",
    "trash": "/ui/inbox?tab=trash",
    "audit": "/ui/audit",
    "tables": "/ui/tables/arcade",
    "table": "/ui/tables/arcade/scores",
    "item": "/ui/tables/arcade/scores/item?partition=asteroids&sort=4120",
    "blobs": "/ui/blobs/media",
    "blob": "/ui/blobs/media/logo.png",
    "policies": "/ui/policies",
    "policy": "/ui/policies/kv/trivia?try=1&quota_keys=5&ttl_required=true",
    "tokens": "/ui/tokens",
    "settings": "/ui/settings",
    "login": "/ui/login",
}
"""An address of every page."""
WHOLE: Final = bool(os.environ.get("HOLDFAST_SOAK"))
"""Whether all rules are checked, in all looks, and not in the second of two only contrast."""
LOOKS: Final[tuple[dict[str, Any], ...]] = (
    {"size": NARROW, "theme": "dark"},
    *([{"size": NARROW, "theme": "light"}, {"size": WIDE, "theme": "dark"}] if WHOLE else []),
    {"size": WIDE, "theme": "light"},
)
LISTS: Final = frozenset(PAGES) - {"entry", "item", "blob", "policy", "login", "overview", "cluster"}
"""The pages that are lists, which the keyboard goes through."""
DIALOGS: Final = (
    ("/ui/kv/trivia/player:ada", ("Edit", "Expiry", "Copy as…", "Delete")),
    ("/ui/kv/trivia?prefix=question:", ("New entry", "Delete below question:")),
    ("/ui/inbox", ("Look", "Drop")),
    ("/ui/tokens", ("Revoke",)),
    ("/ui/tables/arcade/scores/item?partition=asteroids&sort=4120", ("Edit", "Expiry", "Delete")),
    ("/ui/tables/arcade/scores", ("New item",)),
    ("/ui/blobs/media", ("Upload",)),
    ("/ui/blobs/media/logo.png", ("Reveal the content", "Replace")),
    ("/ui/tables/arcade", ("?",)),
)
"""Pages with the buttons that open a dialog, and the key of the help."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(console: Console, browser: Browser) -> AsyncIterator[Window]:
    """A window that keeps its session and its cache from page to page."""
    async with open_window(browser, console.url) as found:
        yield await console.enter(found)


async def _usable(window: Window, path: str) -> None:
    """Assert that a page can be used in all looks. It is loaded in the first, and stays for the others."""
    if not AXE.exists():
        pytest.skip(NO_AXE)
    for number, look in enumerate(LOOKS):
        await window.change_look(**look)
        if WHOLE or number == 0:
            await window.open(path)
        assert await window.page.get_by_role("alert").count() == 0
        assert await window.obstacles(contrast=number > 0 and not WHOLE) == []
        beside = await window.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert beside <= 0, "the page scrolls sideways"
        assert window.faults == []


async def _goes_through(window: Window) -> None:
    """Assert that `/` goes to a filter, and that `j` and `k` go from row to row."""
    page = window.page
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.hasAttribute('data-filter')")
    await page.evaluate("document.activeElement.blur()")
    for key in "jjk":
        await page.keyboard.press(key)
    first = "document.activeElement === document.querySelector('[data-row]')"
    assert await page.evaluate(first)


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_has_no_obstacle(window: Window, name: str) -> None:
    """axe-core finds nothing serious or critical, no page scrolls sideways, and keys go through lists."""
    await _usable(window, PAGES[name])
    if name in LISTS:
        await _goes_through(window)


async def test_dialogs_have_no_obstacle(console: Console, window: Window) -> None:
    """axe-core finds nothing serious or critical in any dialog, and Escape closes it."""
    if not AXE.exists():
        pytest.skip(NO_AXE)
    await console.store.set_policy("blob/media", {"audit": True})  # then a reveal asks for a reason
    for look in LOOKS if WHOLE else LOOKS[-1:]:
        await window.change_look(**look)
        for path, buttons in DIALOGS:
            page = await window.open(path)
            for name in buttons:
                if name == "?":
                    await page.keyboard.press(name)
                else:
                    await page.get_by_role("button", name=name).first.click()
                await page.locator("dialog[open]").wait_for()
                assert await window.obstacles(within="dialog[open]") == [], name
                await page.keyboard.press("Escape")
                await page.locator("dialog[open]").wait_for(state="detached")
    await console.store.set_policy("blob/media", {})
