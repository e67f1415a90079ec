"""A real Chromium for tests and screenshots, driven by Playwright.

Everything about running the browser and looking at a page stands here, and nothing about pytest. A
window records what no page may do: errors of its scripts, refusals of the browser, and requests to other
origins.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, ConsoleMessage, Page, Request

ROOT: Final = Path(__file__).resolve().parents[1]
AXE: Final = ROOT / ".dev" / "tools" / "axe" / "axe.min.js"
NO_BROWSER: Final = "there is no Chromium on this machine: ./dev browser installs it where there is apt-get"
NO_AXE: Final = "axe-core is not on this machine: ./dev browser fetches it where there is npm"
PATIENCE: Final = 60_000.0
"""Milliseconds after which an element that does not appear is a failure, on a busy machine too."""
WIDE: Final = (1280, 800)
NARROW: Final = (390, 844)
"""The sizes of window that the console is made for, in pixels."""
_FRUGAL: Final = ["--js-flags=--no-opt,--no-maglev", "--renderer-process-limit=1"]
"""In the suite no page lives long enough to repay a compiler that optimizes, or a process for each visit. The
campaigns measure a browser as people have it."""
_SWITCHES: Final = [
    *("--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"),
    *([] if "HOLDFAST_SOAK" in os.environ else _FRUGAL),
]
_SEVERE: Final = {"serious", "critical"}


def program() -> str | None:
    """Return the path of Chromium; None if this machine has none."""
    found = (os.environ.get("HOLDFAST_BROWSER"), *map(shutil.which, ("chromium-headless-shell", "chromium")))
    return next(filter(None, found), None)


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser within an `async with` block."""
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program(), args=_SWITCHES)
        try:
            yield browser
        finally:
            await browser.close()


class Window:
    """A window with cookies and a cache of its own, and a record of what its page did wrong.

    Args:
        page: The page of Playwright.
        url: The address of the service, without a path.
        size: The width and height that it has for each test at first.
        theme: The scheme of colours, likewise.
    """

    def __init__(
        self, page: Page, url: str, *, size: tuple[int, int] = WIDE, theme: Literal["light", "dark"] = "light"
    ) -> None:
        self.page = page
        self._look = size, theme
        self.faults: list[str] = []
        self.turn_to(url)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", self._asked)

    def turn_to(self, url: str) -> None:
        """Belong to the service at an address from now on."""
        self.url = url
        self._own = urlsplit(url).netloc

    def _said(self, message: ConsoleMessage) -> None:
        # A refusal by the service is also reported here; what the page makes of it is the test's affair.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        found = urlsplit(request.url)
        if found.scheme not in ("data", "blob") and found.netloc != self._own:
            self.faults.append(f"request to another origin: {request.url}")

    async def open(self, path: str) -> Page:
        """Go to a path of the service, and wait until its page has been drawn."""
        await self.page.goto(self.url + path)
        await self.drawn()
        return self.page

    async def drawn(self) -> None:
        """Wait until the page shows the data it has asked for."""
        await self.page.wait_for_selector("main[aria-busy=false], main.plain")

    async def change_look(self, size: tuple[int, int], theme: Literal["light", "dark"]) -> None:
        """Change the size of the window and the scheme of colours that the person prefers."""
        width, height = size
        await self.page.set_viewport_size({"width": width, "height": height})
        await self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await self.page.evaluate("new Promise(requestAnimationFrame)")

    async def empty(self) -> None:
        """Leave the page, and take away all that it has left but the files that never change."""
        context = self.page.context
        for other in context.pages:
            if other is not self.page:
                await other.close()
        await self.page.goto("about:blank")
        await self.change_look(*self._look)
        await context.clear_cookies()
        session = await context.new_cdp_session(self.page)
        await session.send("Storage.clearDataForOrigin", {"origin": self.url, "storageTypes": "all"})
        await session.send("Page.resetNavigationHistory")
        await session.detach()
        self.page.set_default_timeout(PATIENCE)
        self.faults.clear()

    async def obstacles(self, *, contrast: bool = False, within: str = "html") -> list[str]:
        """Return what axe-core finds that keeps people with disabilities from using the page.

        Args:
            contrast: Whether to look at the contrast of texts alone.
            within: The selector of the part to look at.
        """
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if contrast:
            options["runOnly"] = ["color-contrast"]
        found: dict[str, Any] = await self.page.evaluate(
            "([part, options]) => axe.run(part, options)", [within, options]
        )
        return [
            f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in _SEVERE
        ]


@contextlib.asynccontextmanager
async def window(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = WIDE,
    theme: Literal["light", "dark"] = "light",
    **options: Any,
) -> AsyncIterator[Window]:
    """Open a window within an `async with` block.

    Args:
        browser: The browser.
        url: The address of the service, without a path.
        size: Its width and height in pixels.
        theme: The scheme of colours that the person prefers.
        **options: Other options of the context of Playwright.
    """
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce", **options
    )
    context.set_default_timeout(PATIENCE)
    try:
        yield Window(await context.new_page(), url, size=size, theme=theme)
    finally:
        await context.close()
