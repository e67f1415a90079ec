"""Entries in a browser: hidden until revealed, and edits that never overwrite what was not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.console.conftest import Look
    from tests.edges.http.ground import Served

ALICE = {"name": "Alice", "city": "Basel", "tags": ["a", "b"], "note": "x" * 60}


async def reveal(page: Page) -> None:
    """Reveal the value as a person would."""
    await page.get_by_label("Why do you need to see it?").fill("OPS-12")
    await page.get_by_role("button", name="Reveal").click()
    await expect(page.get_by_role("button", name="Hide")).to_be_visible()


async def edit(page: Page, old: str, new: str) -> None:
    """Open the editor, and replace a part of the text."""
    await page.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Value as JSON")
    await field.fill((await field.input_value()).replace(old, new))


async def test_a_value_is_hidden_until_it_is_revealed(service: Served, look: Look) -> None:
    """The value is nowhere in the page before; after, it can be searched, folded and hidden again."""
    await service.store.kv("masked").set("user", ALICE)
    window = await look("/ui/kv/masked/user")
    page = window.page
    assert "Basel" not in await page.content()
    await reveal(page)
    await expect(page.locator(".json")).to_contain_text("Basel")
    assert "OPS-12" not in page.url
    await page.get_by_label("Search in the value").fill("basel")
    await expect(page.locator(".hit")).to_have_text('"Basel"')
    await page.get_by_role("button", name="fold tags").click(force=True)
    await page.get_by_role("button", name="Hide").click()
    assert "Basel" not in await page.content()


async def test_two_people_edit_one_entry(service: Served, look: Look) -> None:
    """The second to write sees what the first changed, beside the own text, and chooses."""
    kv = service.store.kv("conflict")
    await kv.set("user", ALICE)
    first, second = await look("/ui/kv/conflict/user"), await look("/ui/kv/conflict/user")
    for window in (first, second):
        await reveal(window.page)
    await edit(first.page, "Basel", "Bern")
    await edit(second.page, "Alice", "Alison")
    await first.page.get_by_role("button", name="Write over version 1").click()
    await expect(first.page.get_by_role("dialog")).to_have_count(0)
    await second.page.get_by_role("button", name="Write over version 1").click()
    told = second.page.locator(".conflict")
    await expect(told).to_contain_text("Version 2 was written by console:edit")
    await expect(told.get_by_label("What they changed")).to_contain_text('"city": "Bern"')
    await expect(told.get_by_label("Theirs to yours").locator(".came").first).to_contain_text("Alison")
    entry = await kv.get("user")
    assert entry is not None
    assert entry.value == ALICE | {"city": "Bern"}
    await second.page.get_by_role("button", name="Go on from theirs").click()
    field = second.page.get_by_label("Value as JSON")
    await field.fill((await field.input_value()).replace("Alice", "Alison"))
    await second.page.get_by_role("button", name="Write over version 2").click()
    await expect(second.page.get_by_role("dialog")).to_have_count(0)
    entry = await kv.get("user")
    assert entry is not None
    assert (entry.value, entry.version) == (ALICE | {"city": "Bern", "name": "Alison"}, 3)


async def test_mine_and_theirs(service: Served, look: Look) -> None:
    """One may keep theirs, or write one's own over the version that was shown, and over no other."""
    kv = service.store.kv("choice")
    await kv.set("n", 1)
    page = (await look("/ui/kv/choice/n")).page
    await reveal(page)
    await edit(page, "1", "10")
    await kv.set("n", 2)
    await page.get_by_role("button", name="Write over version 1").click()
    await page.get_by_role("button", name="Keep theirs").click()
    await edit(page, "", "20")
    await kv.set("n", 3)
    await page.get_by_role("button", name="Write over version 2").click()
    await kv.set("n", 4)
    await page.get_by_role("button", name="Write mine over version 3").click()
    await expect(page.locator(".conflict")).to_contain_text("Version 4 was written")
    await page.get_by_role("button", name="Write mine over version 4").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    entry = await kv.get("n")
    assert entry is not None
    assert (entry.value, entry.version) == (20, 5)


async def test_long_numbers_survive_an_edit(service: Served, look: Look) -> None:
    """A number that scripts would round is shown and written back as it is stored."""
    kv = service.store.kv("exact")
    await kv.set("n", {"id": 12345678901234567890, "x": 1})
    page = (await look("/ui/kv/exact/n")).page
    await reveal(page)
    await expect(page.locator(".json")).to_contain_text("12345678901234567890")
    await edit(page, '"x": 1', '"x": 2')
    await page.get_by_role("button", name="Write over version 1").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    entry = await kv.get("n")
    assert entry is not None
    assert entry.value == {"id": 12345678901234567890, "x": 2}


async def test_expiry_delete_and_restore(service: Served, look: Look) -> None:
    """A deadline counts down, and a deleted entry can be restored from its own page."""
    await service.store.set_policy("kv/steps", {"trash": True})
    kv = service.store.kv("steps")
    await kv.set("a", "text", semantics={"purpose": "config", "producer": "ci"})
    page = (await look("/ui/kv/steps/a")).page
    await expect(page.locator(".facts")).to_contain_text("config")
    await page.get_by_role("button", name="Expiry").click()
    await page.get_by_role("button", name="Set", exact=True).click()
    await expect(page.locator(".facts")).to_contain_text("in 59 min")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Delete version 2").click()
    await expect(page.locator("main")).to_contain_text("There is no entry with this key")
    await page.get_by_role("button", name="Restore").click()
    await page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    await expect(page.locator(".facts")).to_contain_text("Version")
    entry = await kv.get("a")
    assert entry is not None
    assert (entry.value, entry.semantics.purpose if entry.semantics else None) == ("text", "config")


async def test_copy_as(service: Served, look: Look) -> None:
    """The request is shown for the command line, Python, curl and NATS, with the key quoted."""
    await service.store.kv("copies").set("it's", 1)
    page = (await look("/ui/kv/copies/it's")).page
    await page.get_by_role("button", name="Copy as…").click()
    ways = page.locator(".ways")
    await expect(ways).to_contain_text("holdfast get 'it'\\''s' --plugin copies")
    await expect(ways).to_contain_text('store.kv("copies").get("it\'s")')
    await expect(ways).to_contain_text(f"{service.url}/v1/kv/copies:get")
    await expect(ways).to_contain_text("nats request db.kv.copies.get")
