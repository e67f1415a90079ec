"""Writes in a browser: items and blobs by the version that was seen, and many rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from tests.browser import AXE

if TYPE_CHECKING:
    from playwright.async_api import Page

    from holdfast.handles.blobs import Blobs
    from holdfast.handles.tables import Tables
    from tests.console.conftest import Look
    from tests.edges.http.ground import Served

ITEM = "/ui/tables/{plugin}/scores/item?partition=chess&sort=7"
LONG = 2**53 + 1


async def scores(service: Served, plugin: str, **item: Any) -> Tables:
    """Make a table with one item."""
    tables = service.store.tables(plugin)
    await tables.create_table(
        "scores", partition_key=("game", "string"), sort_key=("at", "number"), ttl_attribute="until"
    )
    await tables.put_item("scores", {"game": "chess", "at": 7, **item}, writer="game")
    return tables


async def change(page: Page, old: str, new: str, label: str = "Item as JSON") -> None:
    """Replace a part of the text that is edited."""
    field = page.get_by_label(label)
    await field.fill((await field.input_value()).replace(old, new))


async def closed(page: Page) -> None:
    """Wait until no dialog is open."""
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_an_item_is_created_edited_and_deleted(service: Served, look: Look) -> None:
    """An item is made where there is none, keeps long numbers when it is edited, and is deleted."""
    tables = await scores(service, "items", points=LONG)
    window = await look("/ui/tables/items/scores")
    page = window.page
    await page.get_by_role("button", name="New item").click()
    assert not AXE.exists() or await window.obstacles(within="dialog[open]") == []
    await page.get_by_label("Item as JSON").fill('{"game": "chess"}')
    await expect(page.locator("#value-problem")).to_contain_text("at is part of the key, and is missing")
    await page.get_by_label("Item as JSON").fill('{"game": "chess", "at": 7, "points": 1}')
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("There is an item with this key already")
    await page.get_by_label("Item as JSON").fill('{"game": "chess", "at": 8, "points": 1}')
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("chess · 8")
    await page.goto(service.url + ITEM.format(plugin="items"))
    await page.get_by_role("button", name="Edit").click()
    await change(page, '"at": 7', '"at": 9')
    await expect(page.locator("#value-problem")).to_contain_text("at is part of the key")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await change(page, '"at": 9', '"at": 7, "level": 3')
    await page.get_by_role("button", name="Save").click()
    await closed(page)
    item = await tables.get_item("scores", "chess", 7)
    assert item is not None
    assert item.value == {"game": "chess", "at": 7, "level": 3, "points": LONG}
    await expect(page.locator("tbody").last).to_contain_text("console:edit")
    await expect(page.locator(".facts")).to_contain_text("Writerconsole:edit")
    await expect(page.locator(".facts")).to_contain_text("Stored size59 B")
    await page.get_by_role("button", name="Expiry").click()
    await page.get_by_label("After").fill("soon")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await page.get_by_label("After").fill("1d")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".facts")).to_contain_text("in 23 h")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator("h1")).to_have_text("scores")
    assert await tables.get_item("scores", "chess", 7) is None


async def test_the_second_editor_of_an_item_is_told(service: Served, look: Look) -> None:
    """Who saves an item that another has changed sees that change, and overwrites nothing unseen."""
    tables = await scores(service, "rivals", points=1)
    page = (await look(ITEM.format(plugin="rivals"))).page
    await page.get_by_role("button", name="Edit").click()
    await change(page, '"points": 1', '"points": 10')
    await tables.put_item("scores", {"game": "chess", "at": 7, "points": 2, "by": "them"}, writer="rival")
    await page.get_by_role("button", name="Save").click()
    told = page.locator(".conflict")
    await expect(told).to_contain_text("was written by rival")
    await expect(told.get_by_label("What they changed")).to_contain_text('"by": "them"')
    item = await tables.get_item("scores", "chess", 7)
    assert item is not None
    assert item.value["points"] == 2
    await page.get_by_role("button", name="Continue from theirs").click()
    await change(page, '"points": 2', '"points": 10')
    await page.get_by_role("button", name="Save").click()
    await closed(page)
    item = await tables.get_item("scores", "chess", 7)
    assert item is not None
    assert item.value == {"game": "chess", "at": 7, "points": 10, "by": "them"}
    await page.get_by_role("button", name="Delete").click()
    await tables.put_item("scores", {"game": "chess", "at": 7, "points": 11})
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("alert")).to_contain_text("Press again to act on that version")
    assert await tables.get_item("scores", "chess", 7) is not None


async def test_an_edit_reveals_no_item_of_an_audited_table(service: Served, look: Look) -> None:
    """Where a look needs a reason, an edit without one starts empty, and a conflict keeps theirs hidden."""
    tables = await scores(service, "sealed", points="sealed-secret")
    await service.store.set_policy("table/sealed", {"audit": True})
    page = (await look(ITEM.format(plugin="sealed"))).page
    await page.get_by_role("button", name="Edit").click()
    await expect(page.get_by_role("dialog")).to_contain_text("What you save replaces all of it")
    await page.get_by_label("Item as JSON").fill('{"game": "chess", "at": 7, "mine": true}')
    await tables.put_item("scores", {"game": "chess", "at": 7, "points": "sealed-too"})
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".conflict")).to_contain_text("Their value stays hidden")
    assert "sealed-" not in await page.content()
    assert (await service.store.audit("table/sealed").log(op="revealed")).records == []


async def content(blobs: Blobs, name: str) -> bytes:
    """The bytes of a blob."""
    reader = await blobs.get(name)
    assert reader is not None
    return await reader.read()


def a_file(name: str, text: bytes, kind: str = "text/plain") -> Any:
    """A file to choose in a form."""
    return {"name": name, "mimeType": kind, "buffer": text}


async def test_a_blob_is_uploaded_replaced_and_deleted(service: Served, look: Look) -> None:
    """A file becomes a blob of its name and type, is replaced by version, downloaded, and deleted."""
    blobs = service.store.blobs("files")
    await blobs.put("notes/old.txt", b"old", writer="robot")
    window = await look("/ui/blobs/files?prefix=notes/")
    page = window.page
    await page.get_by_role("button", name="Upload").click()
    assert not AXE.exists() or await window.obstacles(within="dialog[open]") == []
    await page.get_by_label("File", exact=True).set_input_files(a_file("old.txt", b"mine"))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("was written by robot")
    assert await content(blobs, "notes/old.txt") == b"old"
    await page.get_by_label("Name", exact=True).fill("notes/../up")
    await expect(page.get_by_role("dialog")).to_contain_text("has no address")
    await page.get_by_label("Name", exact=True).fill("notes/né w.txt")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("notes/né w.txt")
    assert await content(blobs, "notes/né w.txt") == b"mine"
    blob = await blobs.head("notes/né w.txt")
    assert blob is not None
    assert (blob.content_type, blob.last_writer) == ("text/plain", "console:edit")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    assert (await (await download.value).path()).read_bytes() == b"mine"
    await page.get_by_role("button", name="Replace").click()
    await page.get_by_label("File", exact=True).set_input_files(
        a_file("other.bin", b"x" * 600_000, "application/zip")
    )
    await blobs.put("notes/né w.txt", b"theirs", writer="robot")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("was written by robot, with 6 B")
    await page.get_by_role("button", name="Replace version").click()
    await closed(page)
    assert await content(blobs, "notes/né w.txt") == b"x" * 600_000
    await expect(page.locator(".facts")).to_contain_text("application/zip")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator("h1")).to_have_text("Blobs of files")
    assert [one.name for one in (await blobs.list()).blobs] == ["notes/old.txt"]


async def give_up(service: Served, plugin: str, *keys: str, **request: Any) -> None:
    """Leave dead letters."""
    for key in keys:
        fields = {"key": key, "value": 1, "request_id": f"given-up-{plugin}-{key}", **request}
        letter = {"verb": "set", "request": fields, "error_code": "BUSY", "message": "full", "attempts": 3}
        answer = await service.client.post(f"/v1/kv/{plugin}:escalate", json=letter)
        assert answer.status_code == 200, answer.text


async def test_many_letters_are_retried(service: Served, look: Look) -> None:
    """Letters that are chosen are sent again one by one; one that is refused again stays, with the reason."""
    await give_up(service, "retried", "a", "b", "c")
    await give_up(service, "retried", "taken", expected_version=0, last_writer="importer")
    await service.store.kv("retried").set("taken", "before")
    window = await look("/ui/inbox?namespace=kv/retried")
    page = window.page
    await expect(page.get_by_role("tab", name="Dead letters 4")).to_be_visible()
    await expect(page.locator("tbody tr", has_text="taken")).to_contain_text("importer")
    await page.get_by_label("Choose all letters").check()
    await page.get_by_label("Choose c", exact=True).uncheck()
    bar = page.get_by_role("region", name="Chosen rows")
    await expect(bar).to_contain_text("3 chosen")
    await bar.get_by_role("button", name="Retry").click()
    await page.get_by_role("button", name="Retry 3 letters").click()
    await expect(page.get_by_role("alert")).to_contain_text("taken")
    await expect(page.get_by_role("dialog")).to_contain_text("2 of 3 letters are done")
    assert not AXE.exists() or await window.obstacles(within="dialog[open]") == []
    await page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    await expect(page.get_by_role("tab", name="Dead letters 2")).to_be_visible()
    kv = service.store.kv("retried")
    assert (await kv.list()).keys == ["a", "b", "taken"]
    taken = await kv.get("taken")
    assert taken is not None
    assert taken.value == "before"


async def test_many_letters_are_dropped_when_that_is_typed(service: Served, look: Look) -> None:
    """Nothing is dropped until the action and the number of letters are typed."""
    await give_up(service, "dropped", "a", "b", "c")
    page = (await look("/ui/inbox?namespace=kv/dropped")).page
    await page.get_by_label("Choose a", exact=True).check()
    await page.get_by_role("button", name="Choose all").click()
    await page.get_by_role("region", name="Chosen rows").get_by_role("button", name="Drop").click()
    button = page.get_by_role("button", name="Drop 3 letters")
    for wrong in ("", "drop", "drop 2", "delete 3"):
        await page.get_by_label("Type drop 3 to confirm").fill(wrong)
        await expect(button).to_be_disabled()
        await page.keyboard.press("Enter")
    assert len((await service.store.letters("kv/dropped").list()).letters) == 3
    await page.get_by_label("Type drop 3 to confirm").fill("drop 3")
    await button.click()
    await page.get_by_text("There are no dead letters.").wait_for()
    assert (await service.store.letters("kv/dropped").list()).letters == []


async def test_many_keys_are_deleted_if_none_has_changed(service: Served, look: Look) -> None:
    """Chosen keys are deleted by version: one that was written meanwhile stays, and the page says so."""
    kv = service.store.kv("chosen")
    await kv.set_many([{"key": f"k{number}", "value": number} for number in range(30)])
    page = (await look("/ui/kv/chosen")).page
    await page.get_by_label("Choose all keys").check()
    await page.get_by_label("Choose k0", exact=True).uncheck()
    await page.get_by_role("region", name="Chosen rows").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("button", name="Delete 29 keys")).to_be_disabled()
    await kv.set("k7", "new")
    await page.get_by_label("Type delete 29 to confirm").fill("delete 29")
    await page.get_by_role("button", name="Delete 29 keys").click()
    await expect(page.get_by_role("alert")).to_contain_text("k7: changed since this list was read")
    assert sorted((await kv.list()).keys) == ["k0", "k7"]


async def test_many_items_and_blobs_are_deleted(service: Served, look: Look) -> None:
    """Items and blobs are deleted in the same way, once the number is typed."""
    tables = await scores(service, "bulky", points=1)
    await tables.put_item("scores", {"game": "chess", "at": LONG})
    blobs = service.store.blobs("bulky")
    for name in ("a", "b"):
        await blobs.put(name, b"1")
    for path, noun in (("/ui/tables/bulky/scores", "items"), ("/ui/blobs/bulky", "blobs")):
        page = (await look(path)).page
        await page.get_by_label(f"Choose all {noun}").check()
        await page.get_by_role("region", name="Chosen rows").get_by_role("button", name="Delete").click()
        await page.get_by_label("Type delete 2 to confirm").fill("delete 2")
        await page.get_by_role("button", name=f"Delete 2 {noun}").click()
        await closed(page)
    assert (await tables.scan("scores")).items == []
    assert (await blobs.list()).blobs == []
