"""The work of operators in the console, click by click."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser import AXE, NARROW
from tests.console import sample

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.console.browsing.ground import Console
    from tests.console.conftest import Enter


async def _reveal(page: Page, what: str, why: str) -> None:
    """Reveal what a page hides where an audit records it."""
    await page.get_by_role("button", name=f"Reveal the {what}").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("The audit records your name and your reason.")
    await dialog.get_by_label("Why do you need to see it?").fill(why)
    await dialog.get_by_role("button", name="Reveal", exact=True).click()


async def _letter(console: Console, key: str) -> None:
    """Leave a dead letter in a namespace of its own."""
    request = {"key": key, "value": "late", "request_id": f"id-{key}", "writer": "game"}
    fields = {"verb": "set", "request": request, "error_code": "BUSY", "message": "full", "attempts": 3}
    await console.call("/v1/kv/post:escalate", fields)


async def test_the_values_of_a_dead_letter_are_revealed(console: Console, enter: Enter) -> None:
    """A letter hides its values until a person says why, and the audit then has who looked."""
    await console.store.set_policy("kv/post", {"audit": True})
    await _letter(console, "hidden")
    page = await (await enter()).open("/ui/inbox?namespace=kv/post")
    await page.get_by_role("button", name="Look").click()
    shown = page.get_by_role("dialog").locator("pre")
    await expect(shown).to_contain_text('"key": "hidden"')
    await expect(shown).not_to_contain_text('"value"')
    await page.get_by_label("Why do you need to see them?").fill("OPS-7")
    await page.get_by_role("button", name="Reveal the values").click()
    await expect(shown).to_contain_text('"value"')
    records = (await console.store.audit("kv/post").log(op="revealed")).records
    assert [(one.key, one.spec_ref) for one in records] == [("hidden", "OPS-7")]
    letters = console.store.letters("kv/post")
    for letter in (await letters.list()).letters:
        await letters.drop(letter.number)


async def test_a_dead_letter_is_retried_or_dropped(console: Console, enter: Enter) -> None:
    """A retry does the write, a drop asks first, and both take the letter away."""
    await _letter(console, "again")
    await _letter(console, "never")
    page = await (await enter()).open("/ui/inbox?namespace=kv%2Fpost")
    await page.get_by_role("row", name=re.compile("again")).get_by_role("button", name="Retry").click()
    await page.get_by_role("row", name=re.compile("again")).wait_for(state="detached")
    row = page.get_by_role("row", name=re.compile("never"))
    await row.get_by_role("button", name="Look").click()
    assert "late" not in await page.get_by_role("dialog").inner_text()
    await page.keyboard.press("Escape")
    await row.get_by_role("button", name="Drop").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    await page.get_by_text("There are no dead letters.").wait_for()
    assert (await console.store.letters("kv/post").list()).letters == []
    entry = await console.store.kv("post").get("again")
    assert entry is not None
    assert entry.value == "late"
    assert await console.store.kv("post").get("never") is None


async def test_an_entry_comes_back_from_the_trash(console: Console, enter: Enter) -> None:
    """Restore puts an entry back with one click."""
    kv = console.store.kv("bin")
    await console.store.set_policy("kv/bin", {"trash": True})
    await kv.set("lost", {"found": True})
    await kv.delete("lost")
    page = await (await enter()).open("/ui/inbox?namespace=kv%2Fbin")
    await page.get_by_role("tab", name="Trash 1").click()
    assert page.url.endswith("&tab=trash")
    await page.get_by_role("button", name="Restore").click()
    await page.get_by_text("Nothing was removed that can be restored.").wait_for()
    entry = await kv.get("lost")
    assert entry is not None
    assert entry.value == {"found": True}


async def test_locks_show_who_waits(console: Console, enter: Enter) -> None:
    """A lock shows its holder, its waiters and when its lease ends."""
    async with sample.locked(console.store):
        page = await (await enter()).open("/ui/inbox?namespace=kv%2Ftrivia&tab=locks")
        row = await page.get_by_role("row", name="lock/import/questions").inner_text()
    assert "importer-1" in row
    assert "in " in row


async def test_the_audit_is_verified_to_its_anchor(console: Console, enter: Enter) -> None:
    """Verify ends with the anchor, which names the last record and its signature."""
    page = await (await enter()).open("/ui/audit?namespace=semantic%2Facme%2Fsearch")
    await page.get_by_role("button", name="Verify all records").click()
    await page.get_by_text("The audit is whole").first.wait_for()
    anchor = await page.locator(".anchor code").inner_text()
    verdict = await console.store.audit("semantic/acme/search").verify()
    assert anchor == verdict.head
    await page.get_by_label("Writer").fill("indexer:run")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile("writer=indexer"))
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name=re.compile("More about record")).click()
    await expect(page.get_by_text("Signed by")).to_have_count(1)


async def test_the_trace_of_a_request_is_shown(
    console: Console, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow request and a record of the audit name the trace that they belong to."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    await console.store.set_policy("kv/traced", {"audit": True})
    assert console.service.api.service is not None
    monkeypatch.setattr(console.service.api.service.request_log, "_slow", 0.0)
    headers = {"Authorization": f"Bearer {console.token}", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    await console.service.client.put("/v1/kv/traced/a", json=1, headers=headers)
    window = await enter()
    page = await window.open("/ui/inbox?namespace=kv%2Ftraced&tab=slow")
    await expect(page.get_by_role("cell", name=trace)).to_be_visible()
    await console.store.kv("traced").set("b", 1)
    page = await window.open("/ui/audit?namespace=kv%2Ftraced")
    await expect(page.get_by_role("button", name=re.compile("More about record"))).to_have_count(3)
    await page.get_by_label("Trace").fill(trace)
    await page.get_by_role("button", name="Filter").click()
    await page.wait_for_url(re.compile(f"trace_id={trace}"))
    only = page.get_by_role("button", name=re.compile("More about record"))
    await expect(only).to_have_count(1)
    await only.click()
    await expect(page.get_by_text(trace)).to_be_visible()


async def test_long_numbers_are_shown_as_they_are_stored(console: Console, enter: Enter) -> None:
    """The key of an item and the values of a dead letter keep all digits, and the item's link leads to it."""
    long = 2**53 + 1
    tables = console.store.tables("digits")
    await tables.create_table("long", partition_key=("id", "number"))
    await tables.put_item("long", {"id": long, "name": "exact"})
    page = await (await enter()).open("/ui/tables/digits/long")
    await page.get_by_role("link", name=str(long)).click()
    await expect(page.locator("pre.json")).to_contain_text('"name": "exact"')
    await expect(page.locator("dl.facts")).to_contain_text(str(long))
    request = {"key": "digits", "value": long, "request_id": "id-digits", "writer": "game"}
    fields = {"verb": "set", "request": request, "error_code": "BUSY", "message": "full", "attempts": 3}
    await console.call("/v1/kv/digits:escalate", fields)
    page = await (await enter()).open("/ui/inbox?namespace=kv/digits")
    await page.get_by_role("button", name="Look").click()
    await page.get_by_role("button", name="Reveal the values").click()
    await expect(page.get_by_role("dialog").locator("pre")).to_contain_text(f'"value": {long}')


async def test_items_of_a_table(console: Console, enter: Enter) -> None:
    """Items are found through an index; where a look is audited, one is shown whole after a reveal."""
    await console.store.set_policy("table/arcade", {"audit": True})
    page = await (await enter()).open("/ui/tables")
    await page.get_by_role("link", name="arcade").click()
    await page.get_by_role("link", name="scores").click()
    await page.get_by_label("Index").select_option("by_player")
    await page.get_by_text("Give the value to look up in the index.").wait_for()
    await page.get_by_label("Value in the index").fill("grace")
    await page.get_by_role("button", name="Filter").click()
    await page.wait_for_url(re.compile("value=grace"))
    await expect(page.locator("tbody tr")).to_have_count(2)
    assert "NO" not in await page.locator("tbody").inner_text()
    await page.get_by_role("link", name="asteroids").click()
    await _reveal(page, "item", "ticket 6")
    await expect(page.locator("pre.json")).to_contain_text('"country": "NO"')
    await expect(page.get_by_label("What version").first).to_contain_text('"country": "NO"')
    assert "why=" not in page.url
    await console.store.set_policy("table/arcade", {})
    await page.go_back()
    await expect(page.locator("tbody tr").first).to_contain_text('"NO"')


async def test_a_blob_is_looked_at_and_downloaded(console: Console, enter: Enter) -> None:
    """An image is drawn at once, a text after a reveal that is audited, and bytes can be downloaded."""
    window = await enter()
    page = await window.open("/ui/blobs/media/logo.png")
    await expect(page.locator("img.preview")).to_have_js_property("naturalWidth", 8)
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    assert (await (await download.value).path()).read_bytes() == sample.PIXEL
    await console.store.set_policy("blob/media", {"audit": True})
    await window.open("/ui/blobs/media/reports/2026-11.csv")
    await _reveal(page, "content", "ticket 7")
    await page.get_by_text("day,visits").wait_for()
    await console.store.set_policy("blob/media", {})


async def test_a_policy_is_tried_and_set(console: Console, enter: Enter) -> None:
    """The form says what it would refuse before it is set, and an illegal one can't be set."""
    await console.store.kv("quiz").set("endless", 1)
    page = await (await enter()).open("/ui/policies/kv/quiz")
    await page.get_by_label("Keys").fill("0")
    await page.get_by_role("button", name="Try it").click()
    await page.get_by_text("more keys than the quota allows").wait_for()
    await page.get_by_role("button", name="Start again").click()
    await expect(page.get_by_label("Keys")).to_have_value("")
    await page.get_by_label("TTL required").select_option("true")
    await page.get_by_label("Longest TTL").fill("5")
    await page.get_by_label("Shortest TTL").fill("60")
    await page.get_by_role("button", name="Try it").click()
    await page.get_by_text("ttl_min at most ttl_max").wait_for()
    await page.get_by_role("button", name="Save").click()
    await page.locator(".problem", has_text="VALIDATION_ERROR").wait_for()
    await page.get_by_label("Longest TTL").fill("1h30m")
    await page.get_by_role("button", name="Try it").click()
    await page.get_by_text("entries have no deadline").wait_for()
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("The policy was saved").wait_for()
    policy = await console.store.policy("kv/quiz")
    assert (policy.ttl_required, policy.ttl_min, policy.ttl_max) == (True, 60, 5_400)


async def test_a_token_is_made_used_and_revoked(console: Console, enter: Enter) -> None:
    """A new token has a name, is shown once, only reads, says when it was used, and stops when revoked."""
    page = await (await enter()).open("/ui/tokens")
    await page.get_by_label("Name").fill("nightly <b>import</b>")
    await page.get_by_label("Plugin").fill("weather")
    await page.get_by_label("Valid for").fill("soon")
    await expect(page.get_by_role("button", name="Create token")).to_be_disabled()
    await page.get_by_label("Valid for").fill("12h")
    await page.get_by_role("button", name="Create token").click()
    token = await page.locator("code.secret").inner_text()
    found = await console.store.tokens().find(token)
    assert found is not None
    assert (found.plugin, found.name) == ("weather", "nightly <b>import</b>")
    assert found.verbs is not None
    assert {"get", "reveal", "get_item", "list"} <= set(found.verbs)
    headers = {"Authorization": f"Bearer {token}"}
    for verb in ("set", "delete", "put_item", "delete_prefix", "set_ttl", "escalate", "rescue"):
        assert verb not in found.verbs
    answer = await console.service.client.get("/v1/kv/weather/station/oslo", headers=headers)
    assert answer.status_code == 200
    answer = await console.service.client.put("/v1/kv/weather/no", content=b"1", headers=headers)
    assert answer.status_code == 403
    await page.get_by_role("button", name="Done").click()
    await expect(page.locator("code.secret")).to_have_count(0)
    assert token not in await page.content()
    row = page.get_by_role("row", name=re.compile(found.id))
    while "never" in await row.inner_text():  # until the use is noted
        await page.reload()
        await row.wait_for()
    await expect(row).to_contain_text("read only")
    await page.get_by_role("button", name=f"Revoke {found.id}").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await row.wait_for(state="detached")
    assert await console.store.tokens().find(token) is None


async def test_pages_work_by_keyboard_alone(enter: Enter) -> None:
    """`j` and `k` go through rows, Enter opens one, `/` goes to the filter and `?` explains all this."""
    window = await enter()
    page = await window.open("/ui/tables/arcade/scores")
    for key in ("j", "j", "k"):
        await page.keyboard.press(key)
    assert await page.evaluate("document.activeElement.dataset.row") is not None
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="History").wait_for()
    await page.go_back()
    await page.wait_for_selector("[data-filter]")
    await window.drawn()
    await page.keyboard.press("/")
    await expect(page.locator("[data-filter]")).to_be_focused()
    await page.keyboard.type("breakout")
    await page.keyboard.press("Enter")
    await expect(page.locator("tbody tr")).to_have_count(5)
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_operators_pages_fit_a_telephone(enter: Enter) -> None:
    """At 390 pixels rows become cards, and the buttons in them can be reached without scrolling sideways."""
    window = await enter(size=NARROW)
    page = await window.open("/ui/tokens")
    box = await page.get_by_role("button", name=re.compile("^Revoke")).first.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW[0]


async def test_settings_are_filtered(enter: Enter) -> None:
    """Words and a switch find settings, each with its source."""
    page = await (await enter()).open("/ui/settings")
    await page.get_by_label("only those that were set").check()
    await page.wait_for_url("**/ui/settings?given=1")
    await expect(page.locator("tbody tr")).to_have_count(1)
    assert "HOLDFAST_SLOW_MS" in await page.locator("tbody").inner_text()
    await page.get_by_label("Filter").fill("no such words")
    await page.get_by_text("No setting matches.").wait_for()
    assert page.url.endswith("/ui/settings?given=1&filter=no+such+words")


async def test_a_page_that_is_not_allowed_keeps_the_frame(console: Console, enter: Enter) -> None:
    """A 403 has the rail of the visitor's own pages, says who asks, and leads to the login."""
    made = await console.store.tokens().create(plugin="weather")
    window = await enter(made.token)
    page = await window.open("/ui/kv/trivia")
    await expect(page.locator("h1")).to_have_text("Not allowed")
    await expect(page.get_by_role("alert")).to_contain_text("You are here as weather")
    await expect(page.get_by_role("navigation").get_by_role("link", name="Tokens")).to_have_count(0)
    await expect(page.locator(".visitor")).to_contain_text("weather")
    assert not AXE.exists() or await window.obstacles() == []
    window.faults.clear()  # the browser reports the 403
    await page.get_by_role("link", name="Log in with another token").click()
    await expect(page.get_by_label("Token")).to_be_focused()
