"""Entries in a browser: hidden where a look is recorded, and edits that never overwrite what was not seen."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import nats as nats_client
from playwright.async_api import expect

from tests.browser import AXE

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.console.conftest import Look
    from tests.edges.http.ground import Served

ALICE: Final = {"name": "Alice", "city": "Basel", "tags": ["a", "b"], "note": "x" * 60}


async def reveal(page: Page, why: str) -> None:
    """Reveal the value as a person would."""
    await page.get_by_label("Why do you need to see it?").fill(why)
    await page.get_by_role("button", name="Reveal").click()
    await expect(page.get_by_role("button", name="Hide")).to_be_visible()


async def edit(page: Page, old: str, new: str) -> None:
    """Open the editor, and replace a part of the text."""
    await page.get_by_role("button", name="Edit").click()
    field = page.get_by_label("Value as JSON")
    await field.fill((await field.input_value()).replace(old, new))


async def test_a_value_is_hidden_until_it_is_revealed(service: Served, look: Look) -> None:
    """The value is nowhere in the page before; after, it can be searched, folded and hidden again."""
    await service.store.set_policy("kv/masked", {"audit": True})
    await service.store.kv("masked").set("user", ALICE)
    window = await look("/ui/kv/masked/user")
    page = window.page
    assert "Basel" not in await page.content()
    await expect(page.locator(".masked")).to_contain_text("The audit records your name and your reason.")
    await reveal(page, "OPS-12")
    await expect(page.locator(".json")).to_contain_text("Basel")
    assert "OPS-12" not in page.url
    await page.get_by_label("Search in the value").fill("basel")
    await expect(page.locator(".hit")).to_have_text('"Basel"')
    await page.get_by_role("button", name="fold tags").click(force=True)
    await page.get_by_role("button", name="Hide").click()
    assert "Basel" not in await page.content()


async def test_a_value_is_shown_where_nothing_is_audited(service: Served, look: Look) -> None:
    """The list shows its beginning and the page all of it, with what the next write changes."""
    kv = service.store.kv("plainly")
    await kv.set("user", ALICE)
    page = (await look("/ui/kv/plainly")).page
    await expect(page.get_by_role("list", name="Keys")).to_contain_text('{"name":"Alice","city":"Basel"')
    await page.get_by_role("link", name="user").click()
    await expect(page.locator(".json")).to_contain_text("Basel")
    await expect(page.get_by_role("button", name="Reveal")).to_have_count(0)
    await kv.set("user", ALICE | {"city": "Bern"})
    changed = page.get_by_label("What changed since you looked")
    await expect(changed.locator(".came")).to_contain_text("Bern")
    await expect(page.locator(".json")).not_to_contain_text("Basel")


async def test_a_reason_without_an_audit_goes_to_the_log(service: Served, look: Look) -> None:
    """Where a policy wants a reason and nothing is audited, the page does not claim that an audit has it."""
    await service.store.set_policy("kv/reasons", {"reveal": "audited"})
    await service.store.kv("reasons").set("user", ALICE)
    page = (await look("/ui/kv/reasons/user")).page
    masked = page.locator(".masked")
    await expect(masked).to_contain_text("This namespace has no audit")
    await expect(masked).to_contain_text("written to the service's log alone")
    await reveal(page, "OPS-12")
    await expect(page.locator(".json")).to_contain_text("Basel")


async def test_the_second_editor_sees_what_the_first_changed(service: Served, look: Look) -> None:
    """The second to write sees what the first changed, beside the own text, and chooses."""
    kv = service.store.kv("conflict")
    await kv.set("user", ALICE)
    first, second = await look("/ui/kv/conflict/user"), await look("/ui/kv/conflict/user")
    await edit(first.page, "Basel", "Bern")
    await edit(second.page, "Alice", "Alison")
    await first.page.get_by_role("button", name="Save").click()
    await expect(first.page.get_by_role("dialog")).to_have_count(0)
    await second.page.get_by_role("button", name="Save").click()
    told = second.page.locator(".conflict")
    await expect(told).to_contain_text("Version 2 was written by console:edit")
    await expect(told.get_by_label("What they changed")).to_contain_text('"city": "Bern"')
    await expect(told.get_by_label("Theirs to yours").locator(".came").first).to_contain_text("Alison")
    entry = await kv.get("user")
    assert entry is not None
    assert entry.value == ALICE | {"city": "Bern"}
    assert not AXE.exists() or await second.obstacles(within="dialog[open]") == []
    await second.page.get_by_role("button", name="Continue from theirs").click()
    field = second.page.get_by_label("Value as JSON")
    await field.fill((await field.input_value()).replace("Alice", "Alison"))
    await second.page.get_by_role("button", name="Save").click()
    await expect(second.page.get_by_role("dialog")).to_have_count(0)
    entry = await kv.get("user")
    assert entry is not None
    assert (entry.value, entry.version) == (ALICE | {"city": "Bern", "name": "Alison"}, 3)


async def test_a_conflict_is_resolved_by_keeping_theirs_or_writing_mine(service: Served, look: Look) -> None:
    """One may keep theirs, or write one's own over the version that was shown, and over no other."""
    kv = service.store.kv("choice")
    await kv.set("n", 1)
    page = (await look("/ui/kv/choice/n")).page
    await edit(page, "1", "10")
    await kv.set("n", 2)
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Keep theirs").click()
    await expect(page.locator(".json-number")).to_have_text("2")
    await edit(page, "2", "20")
    await kv.set("n", 3)
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".conflict")).to_contain_text("Version 3 was written")
    await kv.set("n", 4)
    await page.get_by_role("button", name="Save mine over version 3").click()
    await expect(page.locator(".conflict")).to_contain_text("Version 4 was written")
    await page.get_by_role("button", name="Save mine over version 4").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    entry = await kv.get("n")
    assert entry is not None
    assert (entry.value, entry.version) == (20, 5)


async def test_a_conflict_reveals_nothing_by_itself(service: Served, look: Look) -> None:
    """Theirs stays hidden from one who has revealed nothing, and a reveal in a conflict is recorded."""
    await service.store.set_policy("kv/blind", {"audit": True})
    kv = service.store.kv("blind")
    await kv.set("user", 1)
    page = (await look("/ui/kv/blind/user")).page
    await edit(page, "", '"mine"')
    await kv.set("user", "theirs-secret")
    await page.get_by_role("button", name="Save").click()
    told = page.locator(".conflict")
    await expect(told).to_contain_text("Their value stays hidden")
    await expect(told.get_by_label("Yours")).to_have_text('"mine"')
    assert "theirs-secret" not in await page.content()
    await page.get_by_role("button", name="Keep theirs").click()
    await reveal(page, "OPS-12")
    await edit(page, "theirs", "mine")
    await kv.set("user", "theirs-again")
    await page.get_by_role("button", name="Save").click()
    await expect(told).to_contain_text("theirs-again")
    records = (await service.store.audit("kv/blind").log(op="revealed")).records
    assert [one.spec_ref for one in records] == ["OPS-12", "OPS-12"]


async def test_long_numbers_survive_an_edit(service: Served, look: Look) -> None:
    """A number that scripts would round is shown and written back as it is stored."""
    kv = service.store.kv("exact")
    await kv.set("n", {"id": 12345678901234567890, "x": 1})
    page = (await look("/ui/kv/exact/n")).page
    await expect(page.locator(".json")).to_contain_text("12345678901234567890")
    await edit(page, '"x": 1', '"x": 2')
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    entry = await kv.get("n")
    assert entry is not None
    assert entry.value == {"id": 12345678901234567890, "x": 2}
    changed = page.get_by_label("What changed since you looked")
    await expect(changed.locator(".came")).to_have_count(1)
    await expect(changed.locator(".came")).to_contain_text('"x": 2')


async def test_one_vocabulary_for_all_kinds(service: Served, look: Look) -> None:
    """Entries, items and blobs have the same words, times with the zone, and a version that can be copied."""
    kv, tables = service.store.kv("words"), service.store.tables("words")
    await kv.set_many([{"key": f"k{number:04}", "value": 1} for number in range(1_000)])
    await kv.set("k", 1)
    await tables.create_table("t", partition_key=("id", "string"))
    await tables.put_item("t", {"id": "a"})
    await service.store.blobs("words").put("b", b"text", content_type="text/plain")
    window = await look("/ui/kv/words/k", timezone_id="Asia/Kathmandu")
    page = window.page
    await page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    version = page.locator(".facts div", has_text="Version")
    await expect(version).to_have_text("Version1001 Copy")
    await version.get_by_role("button", name="Copy").click()
    assert await page.evaluate("window.copied") == "1001"
    for path in ("/ui/kv/words/k", "/ui/tables/words/t/item?partition=a", "/ui/blobs/words/b"):
        await window.open(path)
        words = await page.locator(".facts dt").all_inner_texts()
        assert {"Version", "Writer", "Updated", "Stored size", "Expires"} <= set(words), path
        assert re.search(
            r"Updated\s*\d{4}-\d\d-\d\d [\d:]{8} UTC\+05:45", await page.locator(".facts").inner_text()
        )
    await window.open("/ui/live?namespace=kv/words")
    await expect(page.get_by_role("columnheader").first).to_have_text("Time (UTC+05:45)")


async def test_expiry_delete_and_restore(service: Served, look: Look) -> None:
    """A deadline counts down, what the trash has is compared, and a deleted entry can be restored."""
    await service.store.set_policy("kv/steps", {"trash": True})
    kv = service.store.kv("steps")
    await kv.set("a", "older")
    await kv.delete("a")
    await kv.set("a", "text", semantics={"purpose": "config", "producer": "ci"})
    page = (await look("/ui/kv/steps/a")).page
    await expect(page.locator(".facts")).to_contain_text("config")
    compared = page.get_by_label("From the trash to now")
    await expect(compared.locator(".gone")).to_contain_text("older")
    await expect(compared.locator(".came")).to_contain_text("text")
    await page.get_by_role("button", name="Expiry").click()
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".facts")).to_contain_text("in 59 min")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Delete version 4").click()
    await expect(page.locator("main")).to_contain_text("There is no entry with this key")
    await page.get_by_role("button", name="Restore").click()
    await page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    await expect(page.locator(".facts")).to_contain_text("Version")
    entry = await kv.get("a")
    assert entry is not None
    assert (entry.value, entry.semantics.purpose if entry.semantics else None) == ("text", "config")


async def test_copied_requests_run_as_they_are(service: Served, look: Look) -> None:
    """The request for the command line, Python, curl and NATS answers as it is, whatever the key."""
    key = '-it\'s "é" $HOME \\'
    await service.store.kv("copies").set(key, "the value")
    page = (await look(f"/ui/kv/copies/{quote(key)}")).page
    await page.get_by_role("button", name="Copy as…").click()
    texts = await page.locator(".ways pre").all_inner_texts()
    cli, python, curl, nats = texts
    for shell in (cli.replace("holdfast", f"{sys.executable} -m holdfast", 1), curl):
        assert "the value" in await output("sh", "-c", shell)
    assert "the value" in await output(sys.executable, "-c", python)
    command, verb, subject, body = shlex.split(nats)
    assert (command, verb) == ("nats", "request")
    connection = await nats_client.connect(service.bus)
    assert b"the value" in (await connection.request(subject, body.encode(), timeout=20)).data
    await connection.close()


async def output(*command: str) -> str:
    """Run a program and return what it prints."""
    ran = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await ran.communicate()
    assert ran.returncode == 0, command
    return said.decode()
