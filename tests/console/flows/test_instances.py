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
    """What needs a person names the instance and what is wrong with it; the list shows all."""
    late = Announcement(id="late", host="box-2", pid=7, version="1.0.0", lag=75.0)
    service.instances.hear(late)
    page = (await look("/")).page
    await expect(page.locator(".matters")).to_contain_text(
        "the instance on box-2 (process 7) removes expired entries 75 s late"
    )
    await expect(page.get_by_role("row", name="box-2")).to_contain_text("lags")
    await expect(page.get_by_role("row", name="this one")).to_contain_text("ok")
    service.instances.hear(msgspec.structs.replace(late, leaving=True))
