"""The first paint of a page: how little it waits for.

`./dev soak console` also prints how long it took.
"""

from __future__ import annotations

import os
from statistics import median
from typing import TYPE_CHECKING, Final

from tests.browser import window
from tests.console import sample

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.console.conftest import Look
    from tests.edges.http.ground import Served

LOADS: Final = int(os.environ.get("HOLDFAST_CONSOLE_LOADS", "1"))
BLOCKING: Final = """() => performance.getEntriesByType("resource")
    .filter((one) => one.renderBlockingStatus === "blocking")
    .map((one) => one.name.split("/").at(-1)).sort()"""
WEIGHT: Final = """() => ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
    .reduce((sum, one) => sum + one.transferSize, 0)"""
PAINTED: Final = 'performance.getEntriesByName("first-contentful-paint")[0].startTime'
DRAWN: Final = "performance.now()"


async def test_the_first_paint_waits_for_two_files(look: Look, service: Served) -> None:
    """A page is painted when its frame, one stylesheet and one script are there."""
    page = (await look("/")).page
    assert await page.evaluate(BLOCKING) == ["all.css", "first.js"]


async def test_the_first_page_is_light(service: Served, browser: Browser) -> None:
    """The overview with full charts takes less than 70 kB over the wire, data included."""
    sample.traffic(service.recent, service.store.now())
    for number in range(20):
        await service.store.kv(f"weight-{number}").set("a", 1)
    async with window(browser, service.url) as fresh:
        page = await fresh.open("/")
        weight = await page.evaluate(WEIGHT)
    print(f"first page {weight / 1000:.1f} kB over the wire")
    assert 20_000 < weight < 70_000


async def test_the_first_paint_is_quick(service: Served, browser: Browser) -> None:
    """A window that has loaded nothing before paints the frame of the overview, and then its data."""
    await service.store.kv("paint").set("a", 1)
    painted, drawn = [], []
    for _ in range(LOADS):
        async with window(browser, service.url) as fresh:
            page = await fresh.open("/")
            drawn.append(await page.evaluate(DRAWN))
            painted.append(await page.evaluate(PAINTED))
            assert fresh.faults == []
    assert min(painted) > 0
    print(
        f"first paint {median(painted):.0f} ms (of {LOADS}: {min(painted):.0f} to {max(painted):.0f}), ",
        end="",
    )
    print(f"all drawn {median(drawn):.0f} ms")
