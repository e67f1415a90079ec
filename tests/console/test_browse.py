"""Browsing: lists and trees of keys that stay bounded, and never a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.edges.console import keys as key_pages
from tests.console.visiting import log_in, page, refused

if TYPE_CHECKING:
    from tests.edges.http.ground import Served


async def fill(here: Served, *keys: str, plugin: str = "trivia") -> None:
    """Write entries in one batch."""
    items = [{"key": key, "value": f"secret of {key}"} for key in keys]
    for start in range(0, len(items), 1_000):
        await here.store.kv(plugin).set_many(items[start : start + 1_000])


async def test_namespaces_of_operators_and_tokens(closed: Served) -> None:
    """An operator sees all namespaces; a token sees its own."""
    await fill(closed, "a")
    await fill(closed, "a", plugin="other")
    operator = (await closed.store.tokens().create(operator=True)).token
    found = await page(closed, "/ui/kv", Authorization=f"Bearer {operator}")
    assert [one["namespace"] for one in found["namespaces"]] == ["kv/other", "kv/trivia"]
    assert found["namespaces"][1]["href"] == "/ui/kv/trivia"
    own = (await closed.store.tokens().create(plugin="trivia")).token
    found = await page(closed, "/ui/kv", Authorization=f"Bearer {own}")
    assert [one["namespace"] for one in found["namespaces"]] == ["kv/trivia", "table/trivia", "blob/trivia"]


async def test_namespaces_say_what_is_audited_and_nearly_full(closed: Served) -> None:
    """The list of all namespaces has the audit and the nearest quota of each, whoever looks."""
    for name, policy in (("audited", {"audit": True}), ("full", {"quota_keys": 1}), ("plain", {})):
        await fill(closed, "a", plugin=name)
        await closed.store.set_policy(f"kv/{name}", policy)
    operator = (await closed.store.tokens().create(operator=True)).token
    found = await page(closed, "/ui/kv", Authorization=f"Bearer {operator}")
    shown = [(one["audit"], one["quota"] and one["quota"]["share"]) for one in found["namespaces"]]
    assert shown == [(True, None), (False, 1.0), (False, None)]
    own = (await closed.store.tokens().create(plugin="full")).token
    found = await page(closed, "/ui/kv", Authorization=f"Bearer {own}")
    assert [one["quota"] and one["quota"]["of"] for one in found["namespaces"]] == ["keys", None, None]
    assert [one["changed_at"] is None for one in found["namespaces"]] == [False, True, True]
    tables = await page(closed, "/ui/tables", Authorization=f"Bearer {own}")
    assert [(one["plugin"], one["changed_at"]) for one in tables["plugins"]] == [("full", None)]
    blind = (await closed.store.tokens().create(plugin="full", verbs=["get"])).token
    found = await page(closed, "/ui/kv", Authorization=f"Bearer {blind}")
    assert found["namespaces"][0] == {"namespace": "kv/full", "href": "/ui/kv/full"}


async def test_a_list_has_no_values_where_a_look_needs_a_reason(here: Served) -> None:
    """Rows have what one needs to choose: size, version, writer, times and purpose, and no value."""
    await here.store.set_policy("kv/trivia", {"audit": True})
    kv = here.store.kv("trivia")
    await kv.set("a", {"secret": 1}, ttl=60, writer="alice", semantics={"purpose": "config"})
    found = await page(here, "/ui/kv/trivia")
    [row] = found["rows"]
    assert (row["name"], row["size"], row["version"], row["last_writer"]) == ("a", 12, 1, "alice")
    assert (row["purpose"], row["expires_at"] is not None) == ("config", True)
    assert found["held"]["keys"] == 1
    assert "secret" not in str(found)


async def test_a_list_shows_the_beginning_of_values_where_nothing_is_audited(here: Served) -> None:
    """Rows have up to a hundred bytes of each value, whatever the order or the filter."""
    kv = here.store.kv("trivia")
    await kv.set("a", {"open": 1})
    await kv.set("b", "é" * 400)
    for query in ("", "?filter=b", "?sort=size"):
        texts = {row["name"]: row["text"] for row in (await page(here, f"/ui/kv/trivia{query}"))["rows"]}
        assert texts["b"] == '"' + "é" * 49 + "…", query
        assert texts.get("a", '{"open":1}') == '{"open":1}', query


async def test_pages_follow_each_other(here: Served) -> None:
    """A cursor goes on where the page before ended; all keys come, each once."""
    await fill(here, *(f"k{number:04}" for number in range(450)))
    seen, cursor = [], ""
    for _ in range(3):
        found = await page(here, f"/ui/kv/trivia?cursor={cursor}")
        seen += [row["key"] for row in found["rows"]]
        cursor = found["cursor"] or ""
    assert seen == [f"k{number:04}" for number in range(450)]
    assert cursor == ""


async def test_a_tree_by_separators(here: Served) -> None:
    """Keys form a tree at `:`, `/` and `.`, with counts; a prefix shows the level below it."""
    await fill(here, "game:1:score", "game:1:name", "game:2:score", "conf/a.b", "conf/a.c", "plain")
    top = (await page(here, "/ui/kv/trivia"))["tree"]
    assert [(one["name"], one["count"]) for one in top["branches"]] == [("conf/", 2), ("game:", 3)]
    assert (top["leaves"], top["whole"]) == (1, True)
    below = await page(here, "/ui/kv/trivia?prefix=game:")
    assert [(one["prefix"], one["count"]) for one in below["tree"]["branches"]] == [
        ("game:1:", 2),
        ("game:2:", 1),
    ]
    assert [row["key"] for row in below["rows"]] == ["game:1:name", "game:1:score", "game:2:score"]


async def test_a_large_branch_is_skipped_and_says_so(here: Served) -> None:
    """A tree of many keys reads few of them: a large branch has a lower bound, and later ones are found."""
    await fill(here, *(f"big:{number:05}" for number in range(3_000)), "small:1", "small:2", "\U0010fffd:1")
    tree = (await page(here, "/ui/kv/trivia"))["tree"]
    big, small, last = tree["branches"]
    assert (big["name"], big["more"], 2_000 <= big["count"] < 3_000) == ("big:", True, True)
    assert (small["name"], small["count"], small["more"]) == ("small:", 2, False)
    assert (last["name"], tree["whole"]) == ("\U0010fffd:", True)


async def test_a_count_is_exact(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting goes on until all keys of a prefix are counted, a bounded number in each request."""
    monkeypatch.setattr(key_pages, "COUNTED_STEPS", 1)
    await fill(here, *(f"a:{number:05}" for number in range(2_500)), "b:1")
    total, cursor = 0, ""
    for _ in range(3):
        part = await page(here, f"/ui/kv/trivia?prefix=a:&count=1&cursor={cursor}")
        total += part["count"]
        cursor = part["cursor"] or ""
    assert (total, cursor) == (2_500, "")


async def test_a_filter_looks_through_a_bounded_number_of_keys(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter finds parts of keys in any case; if it does not reach the end it says where it stopped."""
    await fill(here, *(f"k{number:05}" for number in range(1_500)), "zebra:One")
    found = await page(here, "/ui/kv/trivia?filter=ZEBRA")
    assert [row["key"] for row in found["rows"]] == ["zebra:One"]
    assert (found["cursor"], found["looked"]) == (None, 1_501)
    monkeypatch.setattr(key_pages, "FILTERED_STEPS", 1)
    part = await page(here, "/ui/kv/trivia?filter=zebra")
    assert (part["rows"], part["looked"]) == ([], 1_000)
    rest = await page(here, f"/ui/kv/trivia?filter=zebra&cursor={part['cursor']}")
    assert [row["key"] for row in rest["rows"]] == ["zebra:One"]
    some = await page(here, "/ui/kv/trivia?filter=k&limit=3")
    more = await page(here, f"/ui/kv/trivia?filter=k&limit=3&cursor={some['cursor']}")
    keys = [row["key"] for row in some["rows"] + more["rows"]]
    assert keys == [f"k{number:05}" for number in range(6)]


async def test_sorting_by_size_age_and_deadline(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list can be sorted by size, age or deadline; if there are too many keys, it says so."""
    kv = here.store.kv("trivia")
    await kv.set("b", "x" * 50, ttl=500)
    await kv.set("a", 1, ttl=100)
    await kv.set("c", "x")
    orders = {"size": "bca", "deadline": "abc", "age": "bac", "key": "abc"}
    for sort, order in orders.items():
        found = await page(here, f"/ui/kv/trivia?sort={sort}")
        assert "".join(row["key"] for row in found["rows"]) == order, sort
    assert (await refused(here, "/ui/kv/trivia?sort=color"))[0] == 400
    monkeypatch.setattr(key_pages, "SORTED_STEPS", 1)
    monkeypatch.setattr(key_pages, "STEP", 2)
    found = await page(here, "/ui/kv/trivia?sort=size")
    assert (found["partial"], found["looked"], len(found["rows"])) == (True, 2, 2)


async def test_a_project_shows_keys_without_their_root(here: Served) -> None:
    """Keys of a tenant's project are shown as their own part, and the whole key is there too."""
    web = here.store.semantic("acme", "web")
    await web.set("conf/a", 1, semantics={"purpose": "config", "producer": "ci"}, writer="bot:deploy")
    found = await page(here, "/ui/semantic/acme/web")
    [row] = found["rows"]
    assert (row["name"], row["key"]) == ("conf/a", "tenant/acme/project/web/conf/a")
    assert (row["purpose"], row["producer"]) == ("config", "ci")
    assert found["tree"]["branches"][0]["prefix"] == "conf/"
    assert (await page(here, "/ui/semantic/acme/web?prefix=conf/"))["rows"] == found["rows"]
    assert (await page(here, "/ui/semantic/acme/web?purpose=cache"))["rows"] == []


async def test_a_token_browses_only_what_it_may(closed: Served) -> None:
    """The list of another plugin is refused, and the page says what may be done in one's own."""
    made = await closed.store.tokens().create(plugin="trivia", verbs=["list"])
    await log_in(closed, token=made.token)
    await fill(closed, "a")
    found = await page(closed, "/ui/kv/trivia")
    assert (found["may"], found["held"]) == (["list"], None)
    assert (await refused(closed, "/ui/kv/other"))[0] == 403
    assert (await refused(closed, "/ui/kv/trivia/a"))[0] == 403
    assert (await refused(closed, "/ui/kv/BAD"))[1]["code"] == "INVALID_PLUGIN_NAME"
