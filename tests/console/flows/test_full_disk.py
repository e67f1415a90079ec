"""A full disk in a browser: a write says so, the overview too, and deleting makes room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

import holdfast
from tests.disks import fill, mounted
from tests.edges.http.ground import served
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser_fixtures import OpenWindow

LARGE = "x" * 60_000


async def test_a_full_disk_is_named_on_the_overview(tmp_path: Path, open_window: OpenWindow) -> None:
    """The refused write keeps what was typed, the overview names the disk, and both end with room."""
    with mounted(tmp_path / "disk") as disk:
        async with nats_server() as bus, served(disk / "state.db", bus.url) as here:
            await here.store.kv("full").set("old", 1)
            page = await (await open_window(here.url)).open("/ui/kv/full")
            filler = disk / "filler"
            fill(filler)
            await _use_up(here.store)
            await page.get_by_role("button", name="New entry").click()
            await page.get_by_label("Key", exact=True).fill("new")
            await page.get_by_label("Value as JSON").fill(f'"{LARGE}"')
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("alert")).to_contain_text("is full: make room to write again")
            await expect(page.get_by_role("alert")).to_contain_text("STORAGE_FULL")
            await expect(page.get_by_label("Key", exact=True)).to_have_value("new")
            seen = await (await open_window(here.url)).open("/")
            full = seen.locator(".attention li", has_text="is full: make room to write again")
            await expect(full.locator(".tag")).to_have_text("critical")
            await full.get_by_role("button", name="Remove expired entries").click()
            await expect(seen.get_by_role("status")).to_have_text("0 expired entries were removed")
            await seen.goto(f"{here.url}/ui/kv/full/old")
            await seen.get_by_role("button", name="Delete").click()
            await seen.get_by_role("button", name="Delete version 1").click()
            await expect(seen.locator("main")).to_contain_text("There is no entry with this key")
            filler.unlink()
            await page.get_by_role("button", name="Save").click()
            await expect(page.locator("h1")).to_have_text("new")
            await seen.goto(f"{here.url}/")
            await expect(seen.locator("main")).to_contain_text("Nothing needs attention.")


async def _use_up(store: holdfast.Store) -> None:
    """Write until the disk has no room for a large value."""
    for number in range(100):
        try:
            await store.kv("full").set(f"filler:{number}", LARGE)
        except holdfast.StorageFull:
            return
