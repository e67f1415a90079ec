"""The overview in a browser: the first run, charts, quotas, and buttons that do what is needed."""

from __future__ import annotations

import asyncio
import shlex
import sys
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browser import AXE, NARROW
from tests.console import sample
from tests.edges.http.ground import served
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Locator

    from tests.browser_fixtures import OpenWindow
    from tests.console.conftest import Look
    from tests.edges.http.ground import Served


async def output(*command: str) -> str:
    """Run a program and return what it prints."""
    ran = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await ran.communicate()
    assert ran.returncode == 0, command
    return said.decode()


async def test_the_first_run(tmp_path: Path, open_window: OpenWindow) -> None:
    """An empty store says what this is and where, and offers an entry; each line to paste stores one."""
    async with nats_server() as bus, served(tmp_path / "state.db", bus.url) as here:
        window = await open_window(here.url)
        page = await window.open("/")
        card = page.locator("section", has=page.get_by_role("heading", name="Nothing is stored yet"))
        await expect(card).to_contain_text("Holdfast keeps keys, tables and blobs")
        for place in (f"{here.url}/v1", f"{here.url}/mcp", bus.url, str(tmp_path / "state.db")):
            await expect(card.locator("dl")).to_contain_text(place)
        assert not AXE.exists() or await window.obstacles() == []
        lines = await card.locator(".paste code").all_inner_texts()
        await card.get_by_role("button", name="New entry").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Plugin").fill("mine")
        await dialog.get_by_label("Key", exact=True).fill("first")
        await dialog.get_by_label("Value as JSON").fill('{"a": 1}')
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.locator("h1")).to_have_text("kv/mine")
        await expect(page.get_by_role("list", name="Keys")).to_contain_text("first")
        kv = here.store.kv("demo")
        shell, curl, python = lines
        for command in (
            (sys.executable, "-m", *shlex.split(shell)),
            shlex.split(curl),
            (sys.executable, "-c", python),
        ):
            await output(*command)
            entry = await kv.get("greeting")
            assert entry is not None, command
            assert entry.value == "hello", command
            await kv.delete("greeting")
        await page.goto(here.url)
        await expect(page.get_by_role("heading", name="Namespaces")).to_be_visible()
        await expect(card).to_have_count(0)


async def test_charts_have_ranges_ticks_and_a_hover(service: Served, look: Look) -> None:
    """Each chart has ticks, a gap stays empty, and the pointer shows the figures of a time in all of them."""
    await service.store.kv("charts").set("a", 1)
    sample.traffic(service.recent, service.store.now())
    page = (await look("/")).page
    latency = page.locator("figure", has_text="Latency")
    await expect(page.locator("figure")).to_have_count(6)
    await expect(latency.locator(".tick")).to_have_text(["10 ms", "5 ms"])
    assert "≤ <" not in await page.locator("main").inner_text()
    commits = page.locator("figure", has_text="Writes per commit").locator(".area")
    assert (await commits.get_attribute("d") or "").count("Z") >= 2, "one area on each side of the pause"
    await hover(latency.locator(".plot"), 0.625)
    await expect(latency.locator("figcaption")).to_contain_text("p50 ≤ 1 ms")
    await expect(latency.locator("figcaption")).to_contain_text("p99 ≤ 6 ms")
    await expect(page.locator(".cursor")).to_have_count(6)
    await hover(latency.locator(".plot"), 0.35)
    await expect(latency.locator("figcaption")).to_contain_text("p50 \u2013")
    await page.mouse.move(0, 0)
    await expect(page.locator(".cursor")).to_have_count(0)
    for name, query in (("Day", "range=day"), ("Week", "range=week")):
        await page.get_by_role("button", name=name).click()
        await expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
        assert query in page.url
    for width, columns in ((1440, 3), (900, 2), (NARROW[0], 2)):
        await page.set_viewport_size({"width": width, "height": 800})
        shape = "getComputedStyle(document.querySelector('.charts')).gridTemplateColumns.split(' ').length"
        assert await page.evaluate(shape) == columns


async def hover(plot: Locator, share: float) -> None:
    """Move the pointer to a share of a plot's width."""
    await plot.scroll_into_view_if_needed()
    box = await plot.bounding_box()
    assert box is not None
    await plot.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


async def test_quotas_are_shown_by_how_near_they_are(service: Served, look: Look) -> None:
    """The nearest of keys and bytes, amber from 80 % on and red at 100 %; a button leads to the policy."""
    for plugin, policy, keys in (
        ("roomy", {"quota_keys": 10, "quota_bytes": 1_000_000}, 5),
        ("near", {"quota_keys": 5}, 4),
        ("brimful", {"quota_keys": 4}, 4),
    ):
        await service.store.set_policy(f"kv/{plugin}", policy)
        for number in range(keys):
            await service.store.kv(plugin).set(f"k{number}", 1)
    page = (await look("/")).page
    for name, text, bar, tone in (
        ("kv/roomy", "50 % of 10 keys", "meter ", "muted"),
        ("kv/near", "80 % of 5 keys", "meter warn", "warn-text"),
        ("kv/brimful", "100 % of 4 keys", "meter bad", "bad-text"),
    ):
        row = page.get_by_role("row", name=name)
        await expect(row).to_contain_text(text)
        await expect(row).not_to_contain_text("no quota")
        assert await row.locator(".meter").get_attribute("class") == bar
        assert await row.get_by_text(text).get_attribute("class") == tone
    matters = page.locator(".attention li")
    first = matters.filter(has_text="kv/brimful uses 100 % of its quota of keys")
    second = matters.filter(has_text="kv/near uses 80 % of its quota of keys")
    await expect(first.locator(".tag")).to_have_text("critical")
    await expect(second.locator(".tag")).to_have_text("warning")
    texts = await matters.all_inner_texts()
    severities = [text.split()[0] for text in texts]
    assert severities == sorted(severities), "the critical ones come first"
    await first.get_by_role("link", name="Change the quota").click()
    await page.get_by_label("Keys", exact=True).fill("40")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).not_to_be_empty()
    await page.goto(service.url)
    await expect(first).to_have_count(0)
    for plugin in ("roomy", "near", "brimful"):
        await service.store.set_policy(f"kv/{plugin}", {})


async def test_dead_letters_are_retried_from_the_overview(service: Served, look: Look) -> None:
    """One button does the requests of all letters again, and says what is refused once more."""
    kv = service.store.kv("letters")
    for number in range(2):
        request = {"key": f"k{number}", "value": number, "request_id": f"id-{number}"}
        fields = {"verb": "set", "request": request, "error_code": "BUSY", "message": "full", "attempts": 3}
        assert (await service.call("/v1/kv/letters:escalate", **fields)).status_code == 200
    page = (await look("/")).page
    matter = page.locator(".attention li", has_text="kv/letters has 2 dead letters")
    await service.store.set_policy("kv/letters", {"quota_keys": 0})
    await matter.get_by_role("button", name="Retry all").click()
    await expect(page.get_by_role("alert")).to_contain_text("2 were refused again")
    await service.store.set_policy("kv/letters", {})
    await matter.get_by_role("button", name="Retry all").click()
    await expect(matter).to_have_count(0)
    assert [entry and entry.value for entry in [await kv.get("k0"), await kv.get("k1")]] == [0, 1]
