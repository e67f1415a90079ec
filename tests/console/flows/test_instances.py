"""Instances in a browser: an operator sees all of them, and first those that lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from playwright.async_api import expect

from holdfast.edges.console.instances import Announcement

if TYPE_CHECKING:
    from tests.console.conftest import Look
    from tests.edges.http.ground import Served


async def test_an_instance_that_lags_is_named(service: Served, look: Look) -> None:
    """The overview names the instance and what is wrong with it, and leads to the list of all."""
    late = Announcement(id="late", host="box-2", pid=7, version="1.0.0", lag=75.0)
    service.instances.hear(late)
    page = (await look("/")).page
    matter = page.locator(".attention li", has_text="the instance on box-2 (process 7)")
    await expect(matter).to_contain_text("removes expired entries 75 s late")
    await matter.get_by_role("button", name="Remove expired entries").click()
    await expect(page.get_by_role("status")).to_contain_text("expired entries were removed")
    await matter.get_by_role("link", name="Show instances").click()
    await expect(page.locator("h1")).to_have_text("Cluster")
    await expect(page.get_by_role("row", name="box-2")).to_contain_text("lags")
    await expect(page.get_by_role("row", name="this one")).to_contain_text("ok")
    service.instances.hear(msgspec.structs.replace(late, leaving=True))
