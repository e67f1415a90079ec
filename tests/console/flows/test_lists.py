"""Lists in a browser: filters in the address, the keyboard alone, and many keys with few rows drawn."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from playwright.async_api import expect

import holdfast
from tests.browser import NARROW

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.conftest import Look
    from tests.edges.http.ground import Served


async def fill(service: Served, plugin: str, *keys: str) -> None:
    """Write entries."""
    items = [{"key": key, "value": 1} for key in keys]
    for start in range(0, len(items), 1_000):
        await service.store.kv(plugin).set_many(items[start : start + 1_000])


async def test_keys_open_the_filter_and_rows(service: Served, look: Look) -> None:
    """`/` goes to the filter, which is in the address; `j`, `k` and Enter open a row; `?` helps."""
    await fill(service, "keyboard", "user:alice", "user:bob", "user:carol", "other")
    page = (await look("/ui/kv/keyboard")).page
    await page.keyboard.press("/")
    await page.keyboard.type("USER")
    await page.wait_for_url("**/ui/kv/keyboard?filter=USER")
    await expect(page.locator("a[data-row]")).to_have_count(3)
    await page.keyboard.press("Escape")
    for key in "jjk?":
        await page.keyboard.press(key)
    await expect(page.get_by_role("dialog")).to_contain_text("Next, previous row")
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("user:bob")
    await page.go_back()
    await expect(page.get_by_label("Filter keys")).to_have_value("USER")
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await expect(page.locator("h1")).to_have_text("Overview")
    await page.keyboard.press("/")
    await page.wait_for_url("**/ui/kv")
    await expect(page.get_by_label("Filter")).to_be_focused()


async def test_a_narrow_list_has_values_too(service: Served, look: Look) -> None:
    """In a narrow window a value is below its key, in rows that do not overlap, and a click opens one."""
    await service.store.kv("narrow").set_many(
        [
            {"key": f"k{number:02}", "value": f"text of {number}", "semantics": {"purpose": "note"}}
            for number in range(40)
        ]
    )
    page = (await look("/ui/kv/narrow", size=NARROW)).page
    key, text, below = (page.get_by_text(one, exact=True) for one in ("k01", '"text of 1"', "k02"))
    tops: list[float] = [
        await one.evaluate("(shown) => shown.getBoundingClientRect().top") for one in (key, text, below)
    ]
    assert tops == sorted(set(tops))
    await key.click()
    await expect(page.locator("div.value")).to_contain_text("text of 1")


async def test_deleting_below_a_prefix(service: Served, look: Look) -> None:
    """The count comes first, and nothing is deleted until the prefix is typed."""
    await fill(service, "prefix", *(f"old:{number:04}" for number in range(1_200)), "new:1")
    page = (await look("/ui/kv/prefix?prefix=old:")).page
    await page.get_by_role("button", name="Delete below old:").click()
    button = page.get_by_role("button", name="Delete 1,200 keys")
    await expect(button).to_be_disabled()
    await page.get_by_label("Type the prefix").fill("old")
    await expect(button).to_be_disabled()
    await page.get_by_label("Type the prefix").fill("old:")
    await button.click()
    await expect(page.locator("main")).to_contain_text("There are no keys here")
    assert (await service.store.kv("prefix").list()).keys == ["new:1"]


async def test_a_new_entry_must_be_json_and_not_exist(service: Served, look: Look) -> None:
    """An entry is made only where there is none, and only of JSON."""
    await fill(service, "fresh", "taken")
    page = (await look("/ui/kv/fresh")).page
    await page.get_by_role("button", name="New entry").click()
    await page.get_by_label("Key", exact=True).fill("taken")
    await page.get_by_label("Value as JSON").fill("{oops")
    await expect(page.locator("#value-problem")).to_contain_text("This is not JSON")
    await page.get_by_label("Value as JSON").fill('{"a": 1}')
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("There is an entry with this key already")
    await page.get_by_label("Key", exact=True).fill("a/../b c")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("a/../b c")
    entry = await service.store.kv("fresh").get("a/../b c")
    assert entry is not None
    assert entry.value == {"a": 1}


async def test_the_list_of_keys_shows_its_age_and_follows_changes(service: Served, look: Look) -> None:
    """A list says when it was read and how many keys a prefix has, and shows what is written meanwhile."""
    await fill(service, "fresh-list", "user:a", "user:b", "other")
    page = (await look("/ui/kv/fresh-list?prefix=user:")).page
    await expect(page.locator("main")).to_contain_text("2 shown of 2 below user:")
    await expect(page.locator(".age")).to_contain_text("read")
    await service.store.kv("fresh-list").set("user:c", 1)
    await expect(page.get_by_role("link", name="user:c")).to_be_visible()
    await expect(page.locator("main")).to_contain_text("3 shown of 3 below user:")
    await page.get_by_label("Choose user:a").check()
    await service.store.kv("fresh-list").set("user:d", 1)
    await expect(page.locator(".age")).to_contain_text("changed since it was read")
    await expect(page.get_by_label("Choose user:a")).to_be_checked()
    await page.get_by_role("button", name="Refresh").click()
    await expect(page.get_by_role("link", name="user:d")).to_be_visible()


async def test_many_keys_below_a_prefix_are_counted_on_demand(service: Served, look: Look) -> None:
    """A branch that is counted in part says so, and is counted whole when a person asks."""
    await fill(service, "counted", *(f"big:{half}:{number}" for half in "ab" for number in range(2_600)))
    page = (await look("/ui/kv/counted?prefix=big:")).page
    await expect(page.locator(".age")).to_contain_text("+ below big:")
    await page.get_by_role("button", name="Count").click()
    await expect(page.locator(".age")).to_contain_text("of 5,200 below big:")


async def test_the_head_of_a_namespace(service: Served, look: Look, tmp_path: Path) -> None:
    """The head has size, quota, policy and audit, and exports a file that `holdfast import` reads."""
    await fill(service, "headed", "b", "a")
    await service.store.kv("headed").set("long", {"id": 12345678901234567890, "x": 0.1234567890123456789})
    await service.store.set_policy("kv/headed", {"quota_keys": 4})
    page = (await look("/ui/kv/headed")).page
    head = page.get_by_role("region", name="About kv/headed")
    await expect(head).to_contain_text("75 % of 4 keys")
    await expect(head).to_contain_text("1 rule")
    await head.get_by_role("button", name="Export").click()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    file = await (await download.value).path()
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "import", str(file), "--url", str(tmp_path / "copy.db"))
    )
    assert await ran.wait() == 0
    async with holdfast.open(tmp_path / "copy.db") as copy:
        entry = await copy.kv("headed").get("long")
        assert entry == await service.store.kv("headed").get("long")
        assert (await copy.policy("kv/headed")).quota_keys == 4
    await page.get_by_role("link", name="Live").last.click()
    await page.wait_for_url("**/ui/live?namespace=kv%2Fheaded")


async def test_an_audited_namespace_is_not_exported_by_a_page(service: Served, look: Look) -> None:
    """Where a look at a value needs a reason, the page offers the command alone, and the way to the audit."""
    await fill(service, "guarded", "a")
    await service.store.set_policy("kv/guarded", {"audit": True})
    page = (await look("/ui/kv/guarded")).page
    await page.get_by_role("button", name="Export").click()
    await expect(page.get_by_role("dialog")).to_contain_text("holdfast export --plugin guarded")
    await expect(page.get_by_role("button", name="Download")).to_have_count(0)
    await page.keyboard.press("Escape")
    await page.get_by_role("region", name="About kv/guarded").get_by_role("link", name="on").click()
    await expect(page.locator("h1")).to_have_text("Audit of kv/guarded")
