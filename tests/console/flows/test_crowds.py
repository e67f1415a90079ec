"""Many keys in a browser: a list stays smooth, whatever a namespace holds.

`./dev soak console` does this with 1,000,000 keys, and prints how long pages took and what the list weighs.
"""

from __future__ import annotations

import os
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from playwright.async_api import expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.console.conftest import Look
    from tests.edges.http.ground import Served

KEYS: Final = int(os.environ.get("HOLDFAST_CONSOLE_KEYS", "1500"))
SCROLLS: Final = 100
MOST_ROWS: Final = 80
"""Number of rows in the document, at most, in a window of this height."""


async def fill(service: Served) -> None:
    """Write the keys, in ten branches, and one in a branch of its own."""
    kv = service.store.kv("many")
    for start in range(0, KEYS, 1_000):
        numbers = range(start, min(start + 1_000, KEYS))
        await kv.set_many([{"key": f"{number % 10}:{number:07}", "value": number} for number in numbers])
    await kv.set("last:1", 1)


async def asked(service: Served, path: str) -> float:
    """Return the milliseconds that the service needs for a page."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        answer = await service.client.get(path, headers={"Accept": "application/json"})
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.text
    return median(taken)


async def heap(page: Page) -> float:
    """Return the megabytes that the scripts of a page hold."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    await session.send("Performance.enable")
    told = await session.send("Performance.getMetrics")
    held: float = next(one["value"] for one in told["metrics"] if one["name"] == "JSHeapUsedSize")
    return held / 1_000_000


async def test_a_long_list_draws_few_rows(service: Served, look: Look) -> None:
    """Pages load as one scrolls, few rows are drawn, and every branch and key can be reached at once."""
    await fill(service)
    page = (await look("/ui/kv/many")).page
    rows, total = page.locator("a[data-row]"), f"{KEYS + 1:,}"
    await expect(page.locator(".tree li")).to_have_count(11)
    await expect(page.get_by_text(f"200 shown of {total}")).to_be_visible()
    before = await heap(page)
    for _ in range(SCROLLS):
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert await rows.count() < MOST_ROWS
        if await page.get_by_text(f"{total} shown of {total}").count():
            break
        await page.wait_for_timeout(50)
    await expect(page.get_by_text(f"200 shown of {total}", exact=True)).to_have_count(0)
    shown = await page.get_by_text(f"shown of {total}").inner_text()
    print(f"{shown}: {before:.1f} MB of heap before the scrolls, {await heap(page):.1f} MB after")
    await page.locator(".tree").get_by_role("link", name="last:").click()
    await expect(rows).to_have_count(1)
    assert page.url.endswith("prefix=last%3A")
    await page.goto(f"{service.url}/ui/kv/many?prefix=9:&filter=9:0000009")
    await expect(rows).to_have_count(1)
    for query in ("", "?prefix=9:", "?prefix=9:&sort=size", "?filter=0999999", "?sort=age"):
        print(f"{await asked(service, '/ui/kv/many' + query):6.0f} ms for /ui/kv/many{query}")
