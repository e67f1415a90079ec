"""Visits in a browser: logging in and out, links, live changes, restarts, and all sizes of window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browser import NARROW
from tests.edges.http.ground import served
from tests.nats import nats_server
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser_fixtures import OpenWindow
    from tests.console.conftest import Look
    from tests.edges.http.ground import Served


async def test_log_in_with_a_token_and_out(tmp_path: Path, open_window: OpenWindow) -> None:
    """A closed service asks for a token, then shows the page; a revoked token and a used link do not."""
    async with nats_server() as bus, served(tmp_path / "state.db", bus.url, open_mode=False) as here:
        await here.store.kv("a").set("k", 1)
        made = await here.store.tokens().create(operator=True)
        window = await open_window(here.url)
        page = window.page
        await page.goto(f"{here.url}/ui/kv/a/k")
        await page.get_by_label("Token").fill("nonsense")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("the token is not valid")
        await page.get_by_label("Token").fill(made.token)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator("h1")).to_have_text("k")
        assert await page.evaluate("document.cookie") == ""
        await here.store.tokens().revoke(made.about.id)
        await page.goto(f"{here.url}/ui/live")
        await expect(page.get_by_label("Token")).to_be_visible()

        once = here.sessions.link()
        await page.goto(f"{here.url}/ui/login?once={once}")
        await page.get_by_role("button", name="Open the console").click()
        await expect(page.locator("h1")).to_have_text("Overview")
        stolen = (await open_window(here.url)).page
        await stolen.goto(f"{here.url}/ui/login?once={once}")
        await stolen.wait_for_url("**/ui/login")
        await stolen.get_by_role("button", name="Open the console").click()
        await expect(stolen.get_by_role("alert")).to_contain_text("used before")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_live_page_pauses_and_outlives_a_restart(tmp_path: Path, open_window: OpenWindow) -> None:
    """Changes appear as they come; none is missed while the page is paused or the service restarts."""
    port = free_port()
    async with nats_server() as bus:
        async with served(tmp_path / "state.db", bus.url, port=port) as here:
            kv = here.store.kv("a")
            await kv.set("first", 1)
            window = await open_window(here.url)
            page = await window.open("/ui/live")
            await expect(page.get_by_role("link", name="first")).to_be_visible()
            await kv.set("second", 1)
            await expect(page.get_by_role("link", name="second")).to_be_visible()
            await page.get_by_role("button", name="Pause").click()
            # In a namespace that the page has not seen before, nothing is skipped either.
            for number in range(30):
                await here.store.kv("b").set(f"paused-{number}", 1)
            await page.get_by_role("button", name="Resume").click()
            await expect(page.get_by_role("link", name="paused-")).to_have_count(30)
        await expect(page.locator("main")).to_contain_text("can't be reached")
        async with served(tmp_path / "state.db", bus.url, port=port) as here:
            await here.store.kv("a").set("after", 1)
            await expect(page.get_by_role("link", name="after")).to_be_visible()
            await expect(page.locator("main")).not_to_contain_text("can't be reached")
            await expect(page.locator("tbody tr")).to_have_count(33)


async def test_the_menu_at_390_pixels(look: Look) -> None:
    """In a narrow window the pages are behind a menu."""
    page = (await look("/", size=NARROW)).page
    await expect(page.get_by_role("link", name="Live")).to_be_hidden()
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("link", name="Live").click()
    await expect(page.locator("h1")).to_have_text("Live")
    await expect(page.get_by_role("link", name="Tokens")).to_be_hidden()


async def test_the_colours_are_remembered(service: Served, look: Look) -> None:
    """A person chooses dark or light once."""
    window = await look("/")
    await window.page.get_by_role("button", name="System").click()
    await window.page.get_by_role("button", name="Light").click()
    await window.open("/ui/live")
    assert await window.page.evaluate("document.documentElement.dataset.theme") == "dark"
    await expect(window.page.get_by_role("button", name="Dark")).to_be_visible()


async def test_the_overview_says_what_needs_a_person(service: Served, look: Look) -> None:
    """A namespace near its quota is named, and leads to its page."""
    await service.store.set_policy("kv/full", {"quota_keys": 2})
    await service.store.kv("full").set_many([{"key": "a", "value": 1}, {"key": "b", "value": 1}])
    page = (await look("/")).page
    await expect(page.locator(".chart")).to_have_count(6)
    await page.get_by_role("link", name="kv/full uses 100 % of its quota of keys").click()
    await expect(page.locator("h1")).to_have_text("kv/full")


async def test_a_press_on_a_change_filters_by_it(service: Served, look: Look) -> None:
    """A press on the namespace, writer or kind of a change shows only such, and the rate is counted."""
    kv = service.store.kv("pressed")
    await kv.set("one", 1, writer="ann")
    await kv.set("two", 1, writer="ben")
    page = (await look("/ui/live")).page
    await page.get_by_role("button", name="kv/pressed").first.click()
    await page.wait_for_url("**/ui/live?namespace=kv%2Fpressed")
    await page.get_by_role("button", name="ann", exact=True).click()
    await expect(page.get_by_role("link", name="two")).to_have_count(0)
    await expect(page.get_by_label("Writer contains")).to_have_value("ann")
    await kv.delete("one", writer="ann")
    await page.get_by_role("button", name="deleted", exact=True).click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Show all").click()
    await expect(page.get_by_role("link", name="two")).to_be_visible()
    await expect(page.locator(".rate rect")).to_have_count(0)
    await kv.set("three", 1)
    await expect(page.locator(".rate rect")).to_have_count(1)


async def test_the_live_changes_of_tables(service: Served, look: Look) -> None:
    """The head of a plugin's tables leads to their changes, and a change of an item to the item."""
    tables = service.store.tables("lively")
    await tables.create_table("stock", partition_key=("id", "string"), sort_key=("at", "number"))
    page = (await look("/ui/tables/lively")).page
    await page.get_by_role("link", name="Live", exact=True).last.click()
    await expect(page.get_by_label("Namespace")).to_have_value("table/lively")
    await tables.put_item("stock", {"id": "a/b?", "at": 2**53 + 1})
    await page.get_by_role("link", name=f"stock · a/b? · {2**53 + 1}").click()
    await expect(page.locator("h1")).to_have_text(f"a/b? · {2**53 + 1}")


async def test_a_page_that_is_not_there_keeps_the_frame(service: Served, look: Look) -> None:
    """A 404 has the rail, the visitor and a way back, and shows nothing of the page before."""
    await service.store.kv("framed").set("here", 1)
    window = await look("/ui/blobs/framed/none")
    page = window.page
    window.faults.clear()  # the browser reports the 404
    await expect(page.locator("h1")).to_have_text("Not found")
    await expect(page.locator(".visitor")).to_contain_text("open mode")
    await expect(page.get_by_role("alert")).to_contain_text("there is no such blob")
    await page.get_by_role("link", name="Browse").click()
    await page.get_by_role("link", name="kv/framed").click()
    await expect(page.get_by_role("link", name="here", exact=True)).to_be_visible()
    await page.evaluate("history.pushState(null, '', '/ui/nowhere/else')")
    await page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    await expect(page.get_by_role("alert")).to_contain_text("the console has no such page")
    await expect(page.get_by_role("link", name="here", exact=True)).to_have_count(0)
    window.faults.clear()
    await page.get_by_role("link", name="Overview").first.click()
    await expect(page.locator("h1")).to_have_text("Overview")
