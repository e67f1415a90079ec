"""Searching in a browser: Ctrl-K finds pages, namespaces and keys, by keyboard and with the pointer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browser import AXE, NARROW

if TYPE_CHECKING:
    from tests.console.conftest import Look
    from tests.edges.http.ground import Served

HOSTILE = "find:<img src=x onerror=\"window.owned='img'\">"


async def test_ctrl_k_finds_a_key(service: Served, look: Look) -> None:
    """Typing a part of a key and Enter opens its page; Escape closes the box."""
    kv = service.store.kv("haystack")
    for number in range(30):
        await kv.set(f"straw:{number:02}", number)
    await kv.set("needle/one", "sharp")
    window = await look("/")
    page = window.page
    await page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Search namespaces, keys and pages")
    await expect(box).to_be_focused()
    assert not AXE.exists() or await window.obstacles(within="dialog[open]") == []
    await page.keyboard.type("eedle")
    hit = page.get_by_role("option", name="needle/one")
    await expect(hit).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("needle/one")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await expect(box).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_pages_and_namespaces_are_found(service: Served, look: Look) -> None:
    """The arrows go through the hits, pages first; a narrow window has a button, and a click opens a hit."""
    await service.store.kv("settled").set("a", 1)
    page = (await look("/ui/live", size=NARROW)).page
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("combobox", name="Search namespaces")).to_be_focused()
    await page.keyboard.type("sett")
    box = page.get_by_role("dialog")
    chosen = box.get_by_role("option", selected=True)
    await expect(box.get_by_role("option")).to_have_count(2)
    await expect(chosen).to_contain_text("Settings")
    await page.keyboard.press("ArrowDown")
    await expect(chosen).to_contain_text("kv/settled")
    await page.keyboard.press("ArrowDown")
    await expect(chosen).to_contain_text("Settings")
    await box.get_by_role("option", name="kv/settled").click()
    await expect(page.locator("h1")).to_have_text("kv/settled")


async def test_found_keys_are_shown_as_text(service: Served, look: Look) -> None:
    """A key that holds markup is shown as text, in the box and on the page of the search."""
    await service.store.kv("hostile").set(HOSTILE, HOSTILE)
    page = (await look("/")).page
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Search namespaces")).to_be_focused()
    await page.keyboard.type("find:<img")
    await expect(page.get_by_role("option")).to_contain_text(HOSTILE)
    await page.goto(f"{service.url}/ui/search?q=find")
    await page.get_by_role("link", name=re.compile("^find:<img")).click()
    await expect(page.locator("h1")).to_have_text(HOSTILE)
    assert await page.evaluate("window.owned ?? null") is None
    assert await page.locator("img[src='x']").count() == 0
