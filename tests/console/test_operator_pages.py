"""The pages of operators as JSON: what they show, what they hide, and to whom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.console.door import PAGES
from holdfast.edges.console.operators import POLICY_FIELDS
from holdfast.model import Policy
from tests.browser import ROOT
from tests.console import sample
from tests.console.visiting import log_in, page, refused

if TYPE_CHECKING:
    from tests.edges.http.ground import Served

SECRET = "wvyxqz-secret"


def bearer(token: str) -> dict[str, str]:
    """The header of a caller with a token."""
    return {"Authorization": f"Bearer {token}"}


async def _post(here: Served, path: str, fields: dict[str, Any]) -> None:
    answer = await here.client.post(path, json=fields)
    assert answer.status_code == 200, answer.text


async def test_the_inbox_gathers_what_waits(here: Served) -> None:
    """Dead letters, locks, entries that expire soon and the trash are in one page, without any value."""
    kv = here.store.kv("trivia")
    await here.store.set_policy("kv/trivia", {"trash": True})
    await kv.set("soon", SECRET, ttl=60, semantics={"purpose": "cache"})
    await kv.set("later", SECRET, ttl=86_400)
    await kv.set("gone", SECRET)
    await kv.delete("gone", writer="cleaner")
    request = {"key": "lost", "value": SECRET, "request_id": "r1", "writer": "game"}
    fields = {"verb": "set", "request": request, "error_code": "BUSY", "message": "full", "attempts": 3}
    await _post(here, "/v1/kv/trivia:escalate", fields)
    async with sample.locked(here.store) as lock:
        found = await page(here, "/ui/inbox")
        token = lock.token
    [letter] = found["letters"]["rows"]
    assert (letter["key"], letter["error_code"], letter["hidden"]) == ("lost", "BUSY", ["value"])
    [held] = found["locks"]["rows"]
    assert (held["name"], held["holder"], held["token"]) == ("import/questions", "importer-1", token)
    assert held["waiters"] == 1
    assert [one["key"] for one in found["expiring"]["rows"]] == ["soon"]
    assert [(one["key"], one["by"]) for one in found["trash"]["rows"]] == [("gone", "cleaner")]
    assert SECRET not in str(found)


async def test_the_inbox_of_one_namespace(here: Served) -> None:
    """A namespace in the address limits every part, and the time says what expires soon."""
    await here.store.kv("one").set("a", 1, ttl=7_000)
    await here.store.kv("two").set("b", 1, ttl=7_000)
    assert (await page(here, "/ui/inbox"))["expiring"]["rows"] == []
    found = await page(here, "/ui/inbox?namespace=kv/two&within=7200")
    assert [one["key"] for one in found["expiring"]["rows"]] == ["b"]
    status, problem = await refused(here, "/ui/inbox?within=soon")
    assert (status, problem["field"]) == (400, "within")


async def test_the_audit_is_filtered(here: Served) -> None:
    """Records are found by key, writer and operation, newest first, page by page, and hold no value."""
    kv = here.store.kv("books")
    await here.store.set_policy("kv/books", {"audit": True})
    await kv.set("a:1", SECRET, writer="ann")
    await kv.set("b:1", SECRET, writer="ben")
    await kv.delete("a:1", writer="ben")
    every = await page(here, "/ui/audit")
    assert every["namespace"] == "kv/books"
    by_ben = await page(here, "/ui/audit?namespace=kv/books&writer=ben")
    assert [one["key"] for one in by_ben["records"]] == ["a:1", "b:1"]
    deleted = await page(here, "/ui/audit?namespace=kv/books&op=deleted&prefix=a")
    assert [one["op"] for one in deleted["records"]] == ["deleted"]
    numbers = [one["number"] for one in every["records"]]
    assert numbers == sorted(numbers, reverse=True)
    older = await page(here, f"/ui/audit?after={numbers[0]}")
    assert [one["number"] for one in older["records"]] == numbers[1:]
    assert SECRET not in str(every)
    assert (await refused(here, "/ui/audit?after=x"))[1]["field"] == "after"


async def test_without_an_audited_namespace_the_audit_is_empty(here: Served) -> None:
    """Without an audited namespace the page is empty."""
    found = await page(here, "/ui/audit")
    assert (found["namespace"], found["records"]) == (None, [])


async def _arcade(here: Served) -> None:
    tables = here.store.tables("arcade")
    await tables.create_table("scores", partition_key=("game", "string"), sort_key=("score", "number"))
    await tables.create_index("scores", "by_player", key=("player", "string"))
    for score, player in ((10, "ada"), (20, "ben")):
        await tables.put_item("scores", {"game": "chess", "score": score, "player": player, "note": SECRET})
    await tables.put_item("scores", {"game": "go", "score": 5, "player": "ada", "note": None})


async def test_items_are_masked(here: Served) -> None:
    """Where a look needs a reason, a table's page shows keys, and of other attributes the type and size."""
    await here.store.set_policy("table/arcade", {"audit": True})
    await _arcade(here)
    assert [one["plugin"] for one in (await page(here, "/ui/tables"))["plugins"]] == ["arcade"]
    assert [one["table"] for one in (await page(here, "/ui/tables/arcade"))["tables"]] == ["scores"]
    found = await page(here, "/ui/tables/arcade/scores")
    assert [one["key"] for one in found["items"]] == [
        {"game": "chess", "score": 10},
        {"game": "chess", "score": 20},
        {"game": "go", "score": 5},
    ]
    assert found["items"][0]["attributes"]["note"] == {"kind": "text", "bytes": len(SECRET) + 2}
    assert found["items"][2]["attributes"]["note"]["kind"] == "null"
    assert SECRET not in str(found)


async def test_items_are_shown_where_nothing_is_audited(here: Served) -> None:
    """A table's page shows the beginning of each attribute, and the page of an item all of it."""
    await _arcade(here)
    await here.store.tables("arcade").put_item("scores", {"game": "go", "score": 6, "note": "é" * 99})
    found = await page(here, "/ui/tables/arcade/scores")
    notes = [one["attributes"]["note"].get("text") for one in found["items"]]
    assert notes == [f'"{SECRET}"', f'"{SECRET}"', "null", '"' + "é" * 39 + "…"]
    item = await page(here, "/ui/tables/arcade/scores/item?partition=chess&sort=10")
    assert (item["revealed"], item["item"]["value"]["note"]) == (True, SECRET)


@pytest.mark.parametrize(
    ("query", "scores"),
    [
        ("partition=go", [5]),
        ("index=by_player&value=ada", [10, 5]),
        ('filter={"player":{"eq":"ben"}}', [20]),
        ("index=by_player", []),
        ("partition=chess&limit=1", [10]),
    ],
)
async def test_items_are_selected_by_the_query(here: Served, query: str, scores: list[int]) -> None:
    """A partition, an index, a condition and a limit choose the items."""
    await _arcade(here)
    found = await page(here, f"/ui/tables/arcade/scores?{query}")
    assert [one["key"]["score"] for one in found["items"]] == scores
    if "limit" in query:
        rest = await page(here, f"/ui/tables/arcade/scores?{query}&cursor={found['cursor']}")
        assert [one["key"]["score"] for one in rest["items"]] == [20]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("index=none&value=1", "index"),
        ("filter=[1]", "filter"),
        ("filter={", "filter"),
    ],
)
async def test_an_invalid_query_of_items_names_its_parameter(here: Served, query: str, field: str) -> None:
    """A question that has no meaning is refused and names the parameter."""
    await _arcade(here)
    status, problem = await refused(here, f"/ui/tables/arcade/scores?{query}")
    assert (status, problem["field"]) == (400, field)


async def test_an_item_is_revealed_with_a_reason(here: Served) -> None:
    """An item is masked until a reason is given, which the audit records; a policy may forbid it."""
    await _arcade(here)
    await here.store.set_policy("table/arcade", {"audit": True})
    path = "/ui/tables/arcade/scores/item?partition=chess&sort=10"
    masked = await page(here, path)
    assert masked["revealed"] is False
    assert SECRET not in str(masked)
    assert (await refused(here, f"{path}&reveal=1"))[1]["field"] == "why"
    shown = await page(here, f"{path}&reveal=1&why=support")
    assert shown["item"]["value"]["note"] == SECRET
    [record] = (await page(here, "/ui/audit?namespace=table/arcade&op=revealed"))["records"]
    assert ("chess" in record["key"], record["spec_ref"]) == (True, "support")
    await here.store.set_policy("table/arcade", {"reveal": "never"})
    assert (await refused(here, f"{path}&reveal=1&why=support"))[0] == 403
    await here.store.set_policy("table/arcade", {"reveal": "open"})
    assert (await page(here, f"{path}&reveal=1"))["item"]["value"]["note"] == SECRET


async def test_the_history_of_an_item(here: Served) -> None:
    """Changes of an item are listed, newest first; what they changed is shown as the item itself is."""
    await _arcade(here)
    await here.store.set_policy("table/arcade", {"audit": True})
    tables = here.store.tables("arcade")
    await tables.put_item("scores", {"game": "chess", "score": 10, "note": "new"}, writer="zoe")
    path = "/ui/tables/arcade/scores/item?partition=chess&sort=10"
    masked = await page(here, path)
    assert [one["op"] for one in masked["history"]] == ["set", "set"]
    assert masked["history"][0]["last_writer"] == "zoe"
    assert SECRET not in str(masked)
    shown = await page(here, f"{path}&reveal=1&why=support")
    last, first = shown["history"]
    assert (SECRET in last["old"], SECRET in last["new"]) == (True, False)
    assert (first["old"], SECRET in first["new"]) == (None, True)


async def test_the_history_of_an_item_without_images(closed: Served) -> None:
    """A table that keeps no images has a history without them, and a token may not allow it at all."""
    tables = closed.store.tables("arcade")
    await tables.create_table("bare", partition_key=("id", "string"), stream="keys")
    await tables.put_item("bare", {"id": "a", "note": SECRET})
    made = await closed.store.tokens().create(operator=True)
    await log_in(closed, token=made.token)
    path = "/ui/tables/arcade/bare/item?partition=a"
    [change] = (await page(closed, f"{path}&reveal=1&why=support"))["history"]
    assert "new" not in change
    few = await closed.store.tokens().create(plugin="arcade", verbs=["describe_table", "get_item"])
    await log_in(closed, token=few.token)
    assert (await page(closed, path))["history"] is None


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 400, "partition"),
        ("?partition=chess&sort=ten", 400, "score"),
        ("?partition=x&sort=1", 404, "partition"),
    ],
)
async def test_an_item_that_is_not_there(here: Served, query: str, status: int, field: str) -> None:
    """A key that is missing, of the wrong type or unknown is refused and says which."""
    await _arcade(here)
    found, problem = await refused(here, f"/ui/tables/arcade/scores/item{query}")
    assert (found, problem["field"]) == (status, field)


async def test_blobs_are_described(here: Served) -> None:
    """A list and a page describe blobs; a preview is offered after a reveal, and only of harmless types."""
    await here.store.set_policy("blob/media", {"audit": True})
    blobs = here.store.blobs("media")
    await blobs.put("a/logo.png", sample.PIXEL, content_type="image/png", metadata={"by": "ann"})
    await blobs.put("a/page.html", b"<p>", content_type="text/html; charset=utf-8")
    await blobs.put("b/data", b"\0")
    assert [one["plugin"] for one in (await page(here, "/ui/blobs"))["plugins"]] == ["media"]
    found = await page(here, "/ui/blobs/media?prefix=a/")
    assert [one["name"] for one in found["blobs"]] == ["a/logo.png", "a/page.html"]
    first = await page(here, "/ui/blobs/media?limit=1")
    assert [one["name"] for one in first["blobs"]] == ["a/logo.png"]
    assert first["cursor"] is not None
    masked = await page(here, "/ui/blobs/media/a/logo.png")
    assert (masked["blob"]["size"], masked["blob"]["metadata"]) == (len(sample.PIXEL), {"by": "ann"})
    assert "preview" not in masked
    for name, preview in (("a/logo.png", "image"), ("a/page.html", "text"), ("b/data", None)):
        shown = await page(here, f"/ui/blobs/media/{name}?reveal=1&why=look")
        assert shown["preview"] == preview
    await here.store.set_policy("blob/media", {})
    unasked = await page(here, "/ui/blobs/media/a/logo.png")
    assert (unasked["revealed"], unasked["preview"]) == (True, "image")
    assert (await refused(here, "/ui/blobs/media/none"))[0] == 404


async def test_a_reveal_of_a_blob_is_audited(here: Served) -> None:
    """The audit of a namespace of blobs has who looked and why, and the policy may refuse it."""
    await here.store.set_policy("blob/media", {"audit": True})
    await here.store.blobs("media").put("a", b"1")
    path = "/ui/blobs/media/a?reveal=1"
    assert (await refused(here, path))[1]["field"] == "why"
    assert (await page(here, f"{path}&why=OPS-3"))["revealed"] is True
    [record] = (await page(here, "/ui/audit?namespace=blob/media&op=revealed"))["records"]
    assert (record["key"], record["spec_ref"]) == ("a", "OPS-3")
    await here.store.set_policy("blob/media", {"reveal": "never"})
    assert (await refused(here, f"{path}&why=OPS-3"))[0] == 403


def test_every_field_of_a_policy_is_in_the_form() -> None:
    """The form has all fields of a policy."""
    fields = {name for group in POLICY_FIELDS.values() for name in group}
    assert fields == set(Policy.__struct_fields__)


async def test_a_policy_is_tried_before_it_is_set(here: Served) -> None:
    """The page counts what a policy would refuse of what is stored today, and changes nothing."""
    kv = here.store.kv("trivia")
    await kv.set("short", 1, ttl=10)
    await kv.set("long", 1, ttl=10_000)
    await kv.set("endless", "x" * 100)
    query = "try=1&quota_keys=2&quota_bytes=1&ttl_required=true&ttl_min=60&ttl_max=3600"
    found = await page(here, f"/ui/policies/kv/trivia?{query}")
    trial = found["trial"]
    findings = {one["field"]: (one["count"], one["examples"]) for one in trial["findings"]}
    assert findings.pop("quota_bytes")[0] > 0
    assert findings == {
        "quota_keys": (1, []),
        "ttl_required": (1, ["endless"]),
        "ttl_min": (1, ["short"]),
        "ttl_max": (1, ["long"]),
    }
    assert (trial["looked"], trial["complete"]) == (3, True)
    assert (await here.store.policy("kv/trivia")) == Policy()


async def test_a_large_value_would_be_refused(here: Served) -> None:
    """A trial measures values as the rule does."""
    await here.store.set_policy("kv/trivia", {"max_value_bytes": 200_000})
    await here.store.kv("trivia").set("large", "x" * 100_000)
    for asked in ("max_value_bytes=65536&trash=false", "trash=false"):
        found = await page(here, f"/ui/policies/kv/trivia?try=1&{asked}")
        [finding] = found["trial"]["findings"]
        assert (finding["field"], finding["examples"]) == ("max_value_bytes", ["large"])
    found = await page(here, "/ui/policies/kv/trivia?try=1&max_value_bytes=65536&trash=false")
    assert found["trial"]["policy"] == {"max_value_bytes": 65_536, "trash": False}


@pytest.mark.parametrize(
    ("query", "field"),
    [("quota_keys=many", "quota_keys"), ("trash=perhaps", "trash"), ("ttl_min=9&ttl_max=3", "ttl_min")],
)
async def test_an_illegal_policy_is_explained(here: Served, query: str, field: str) -> None:
    """A policy that could not be set is explained in the page."""
    await here.store.kv("trivia").set("a", 1)
    found = await page(here, f"/ui/policies/kv/trivia?try=1&{query}")
    assert found["trial"]["field"] == field


async def test_policies_lists_every_namespace(here: Served) -> None:
    """The list has every namespace, with what its policy asks for."""
    await here.store.kv("trivia").set("a", 1)
    await here.store.set_policy("kv/trivia", {"quota_keys": 9})
    found = await page(here, "/ui/policies")
    assert {"namespace": "kv/trivia", "keys": 1, "policy": {"quota_keys": 9}} in found["namespaces"]


async def test_tokens_without_their_secrets(here: Served) -> None:
    """The page lists valid tokens and the verbs that a new one may be for, and no secret."""
    made = await here.store.tokens().create(plugin="trivia", verbs=["get"])
    found = await page(here, "/ui/tokens")
    assert [(one["id"], one["plugin"], one["verbs"]) for one in found["tokens"]] == [
        (made.about.id, "trivia", ["get"])
    ]
    assert {"get", "get_item", "reveal"} <= set(found["readers"]["plugin"])
    assert "set" not in found["readers"]["plugin"]
    # Operators that only read neither change anything nor take the whole store with them.
    assert {"rescue", "sweep", "set_policy", "token_create"}.isdisjoint(found["readers"]["operator"])
    assert made.token.rpartition("_")[2] not in str(found)


@pytest.mark.parametrize(
    "path", ["/ui/audit", "/ui/tokens", "/ui/settings", "/ui/policies/kv/other", "/ui/tables/b"]
)
async def test_pages_that_a_plugin_does_not_see(closed: Served, path: str) -> None:
    """A plugin's token sees nothing of operators' pages or of other plugins."""
    made = await closed.store.tokens().create(plugin="a")
    status, problem = await refused(closed, path, **bearer(made.token))
    assert (status, problem["code"]) == (403, "PERMISSION_DENIED")


async def test_a_plugin_sees_its_own_tables_and_blobs(closed: Served) -> None:
    """A plugin's token lists the namespaces of that plugin alone."""
    for plugin in ("a", "b"):
        await closed.store.blobs(plugin).put("x", b"1")
        await closed.store.tables(plugin).create_table("t", partition_key=("id", "string"))
    made = await closed.store.tokens().create(plugin="a")
    for path in ("/ui/tables", "/ui/blobs"):
        found = await page(closed, path, **bearer(made.token))
        assert [one["plugin"] for one in found["plugins"]] == ["a"]


async def test_a_part_that_a_token_does_not_allow(closed: Served) -> None:
    """An operator's token for few verbs sees the parts of the inbox that it allows; the others say why."""
    await closed.store.kv("trivia").set("a", 1, ttl=60)
    made = await closed.store.tokens().create(operator=True, verbs=["namespaces", "list"])
    found = await page(closed, "/ui/inbox", **bearer(made.token))
    assert [one["key"] for one in found["expiring"]["rows"]] == ["a"]
    assert "slowlog" in found["slow"]["refused"]


async def test_settings_say_where_they_came_from(here: Served) -> None:
    """Every setting has its value, its purpose and its source."""
    found = {one["setting"]: one for one in (await page(here, "/ui/settings"))["settings"]}
    assert (found["slow_ms"]["value"], found["slow_ms"]["source"]) == (50, "HOLDFAST_SLOW_MS")
    assert found["http_port"]["source"] == "default"
    assert found["http_port"]["help"]


async def test_an_audited_namespace_that_is_nearly_full(here: Served) -> None:
    """The overview warns at 80 % of a quota, which does not count the audit."""
    policy = {"audit": True, "journal_retention": 3_600}
    await here.store.set_policy("kv/full", policy)
    await here.store.kv("full").set("key", "x" * 400)
    held = (await page(here, "/"))["namespaces"][0]["kept_bytes"]
    await here.store.set_policy("kv/full", policy | {"quota_bytes": held})
    [matter] = [one for one in (await page(here, "/"))["attention"] if one["kind"] == "quota"]
    assert (matter["severity"], "100 %" in matter["text"]) == ("critical", True)


async def test_every_list_is_filtered_by_its_address(here: Served) -> None:
    """The JSON of a list has what the filter in its address leaves, as the page does."""
    await _arcade(here)
    for plugin in ("trivia", "other"):
        await here.store.kv(plugin).set("a", 1)
        await here.store.blobs(plugin).put("x", b"1")
        await here.store.tokens().create(plugin=plugin)
    await here.store.set_policy("kv/other", {"quota_keys": 9})
    left = {
        "/ui/kv?filter=KV/TRI": ("namespaces", "namespace", ["kv/trivia"]),
        "/ui/policies?filter=kv/tri": ("namespaces", "namespace", ["kv/trivia"]),
        "/ui/policies?filter=quota": ("namespaces", "namespace", ["kv/other"]),
        "/ui/tokens?filter=oth": ("tokens", "plugin", ["other"]),
        "/ui/tables?filter=cad": ("plugins", "plugin", ["arcade"]),
        "/ui/tables?filter=none": ("plugins", "plugin", []),
        "/ui/tables/arcade?filter=sco": ("tables", "table", ["scores"]),
        "/ui/blobs?filter=tri": ("plugins", "plugin", ["trivia"]),
        "/ui/settings?filter=http_port": ("settings", "setting", ["http_port"]),
        "/ui/settings?given=1": ("settings", "setting", ["slow_ms"]),
    }
    for path, (rows, name, wanted) in left.items():
        assert [one[name] for one in (await page(here, path))[rows]] == wanted, path


def test_the_reference_has_every_page() -> None:
    """The table of addresses in the reference is that of the code."""
    text = (ROOT / "docs" / "reference" / "console.md").read_text()
    listed = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `/")]
    samples = [re.sub(r"\{(\w+)\}", r"\1", address) for address in listed]
    for page_ in PAGES:
        assert sum(bool(page_.pattern.fullmatch(address)) for address in samples) >= 1, page_.name
    assert len(listed) == len(PAGES)
