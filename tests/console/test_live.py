"""Live: changes as they come, without a gap, and only for those who may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.clock import ManualClock
from holdfast.edges.console import keys as key_pages
from tests.console.visiting import log_in, page, refused
from tests.edges.http.ground import served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.http.ground import Served


async def test_every_change_comes_once(here: Served) -> None:
    """An answer goes on where the last one ended, also after a pause, and in all namespaces."""
    await here.store.kv("a").set("k", 1)
    first = await page(here, "/ui/live")
    assert [(one["namespace"], one["key"], one["op"]) for one in first["changes"]] == [("kv/a", "k", "set")]
    for number in range(30):
        await here.store.kv("a").set(f"k{number}", number)
    await here.store.kv("b").set("new", 1, writer="bob")
    await here.store.kv("b").delete("new")
    await here.store.semantic("acme", "web").set("s", 1, semantics={"purpose": "config"})
    second = await page(here, f"/ui/live?since={first['since']}")
    seen = [(one["namespace"], one["key"], one["op"]) for one in second["changes"]]
    assert [key for namespace, key, _ in seen if namespace == "kv/a"] == [
        f"k{number}" for number in range(30)
    ]
    assert ("kv/b", "new", "deleted") in seen
    assert any(namespace == "semantic/acme/web" for namespace, _, _ in seen)
    assert (await page(here, f"/ui/live?since={second['since']}"))["changes"] == []


async def test_a_new_namespace_is_seen_from_its_beginning(here: Served) -> None:
    """All changes of a namespace come that was not there before, in parts if there are many."""
    first = await page(here, "/ui/live")
    await here.store.kv("new").set_many([{"key": f"k{number}", "value": 1} for number in range(700)])
    second = await page(here, f"/ui/live?since={first['since']}")
    third = await page(here, f"/ui/live?since={second['since']}")
    seen = [one["key"] for found in (second, third) for one in found["changes"]]
    assert seen == [f"k{number}" for number in range(700)]
    assert (second["behind"], third["behind"]) == (True, False)


async def test_a_filter_looks_further_back(here: Served) -> None:
    """With a filter, older changes of the chosen namespace are shown too, and the others can be chosen."""
    kv = here.store.kv("a")
    await kv.set("gone", 1)
    await kv.delete("gone")
    await kv.set_many([{"key": f"k{number}", "value": 1} for number in range(60)])
    await here.store.kv("b").set("x", 1)
    found = await page(here, "/ui/live?namespace=kv/a&op=deleted")
    assert [one["key"] for one in found["changes"]] == ["gone"]
    assert found["namespaces"] == ["kv/a", "kv/b"]
    assert len((await page(here, "/ui/live?namespace=kv/a"))["changes"]) == 20


async def test_a_whole_second_is_no_later_than_its_milliseconds(bus: str, tmp_path: Path) -> None:
    """Lists by time are right for a time without a fraction, which is written in fewer characters."""
    clock = ManualClock(1_700_000_000_000)
    async with served(tmp_path / "state.db", bus, clock=clock) as here:
        for key in ("a", "b", "c"):
            await here.store.kv("a").set(key, 1, ttl=60)
            clock.advance(0.004)
        assert [one["key"] for one in (await page(here, "/ui/live"))["changes"]] == ["a", "b", "c"]
        for order in ("age", "deadline"):
            rows = (await page(here, f"/ui/kv/a?sort={order}"))["rows"]
            assert [row["key"] for row in rows] == ["a", "b", "c"], order
        expiring = (await page(here, "/ui/inbox"))["expiring"]["rows"]
        assert [row["key"] for row in expiring] == ["a", "b", "c"]


async def test_live_changes_are_filtered_by_the_address(here: Served) -> None:
    """Changes are filtered by namespace, op, writer and prefix, all in the address."""
    kv = here.store.kv("a")
    await kv.set("x:1", 1, writer="alice")
    await kv.set("y:1", 1, writer="bob")
    await kv.delete("x:1", writer="alice")
    await here.store.kv("b").set("x:1", 1, writer="bob")
    queries = {
        "namespace=kv/b": ["x:1"],
        "op=deleted": ["x:1"],
        "writer=bo": ["y:1", "x:1"],
        "prefix=y": ["y:1"],
        "namespace=kv/a&op=set&writer=alice&prefix=x:": ["x:1"],
        "namespace=kv/nothing": [],
    }
    for query, keys in queries.items():
        found = await page(here, f"/ui/live?{query}")
        assert sorted(one["key"] for one in found["changes"]) == sorted(keys), query


async def test_changes_of_items_and_blobs(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of all tables of a plugin and blobs are followed as keys are: each change once, in order."""
    monkeypatch.setattr(key_pages, "MOST_CHANGES", 3)
    tables = here.store.tables("shop")
    await tables.create_table("orders", partition_key=("customer", "string"), sort_key=("at", "number"))
    await tables.create_table("stock", partition_key=("id", "string"))
    first = await page(here, "/ui/live")
    assert first["changes"] == []
    for number in range(7):
        await tables.put_item("orders", {"customer": "ada", "at": number})
        if number % 3 == 0:
            await tables.put_item("stock", {"id": f"s{number}"})
    await tables.delete_item("stock", "s0")
    await here.store.blobs("shop").put("logo.png", b"x")
    seen: list[tuple[str, str, str]] = []
    since, calls, behind = first["since"], 0, True
    while behind:
        answer = await page(here, f"/ui/live?since={since}")
        since, behind, calls = answer["since"], answer["behind"], calls + 1
        seen += [(one["namespace"], one["key"], one["op"]) for one in answer["changes"]]
    assert calls > 2
    items = [(key, op) for namespace, key, op in seen if namespace == "table/shop"]
    orders = [(f"orders · ada · {number}", "set") for number in range(7)]
    for number in (6, 3, 0):
        orders.insert(number + 1, (f"stock · s{number}", "set"))
    assert items == [*orders, ("stock · s0", "deleted")]
    assert ("blob/shop", "logo.png", "set") in seen
    narrowed = await page(here, "/ui/live?namespace=table/shop&op=deleted&prefix=stock")
    assert [one["key"] for one in narrowed["changes"]] == ["stock · s0"]
    assert {"blob/shop", "table/shop"} <= set(narrowed["namespaces"])
    await tables.drop_table("orders")
    await tables.drop_table("stock")
    assert (await page(here, f"/ui/live?since={since}"))["behind"] is False


async def test_a_gap_is_reported(here: Served) -> None:
    """If the journal does not have what would come next, as after a restored backup, the answer says so."""
    await here.store.kv("a").set("k", 1)
    found = await page(here, "/ui/live?since=kv/a:999")
    assert found["gaps"] == ["kv/a"]
    assert (await page(here, f"/ui/live?since={found['since']}"))["gaps"] == []


@pytest.mark.parametrize(
    "query", ["since=x", "since=kv/a:-1", "since=:1", "namespace=nothing", "namespace=other/a"]
)
async def test_a_wrong_address_is_refused(here: Served, query: str) -> None:
    """An address that has another form is refused with what would be right."""
    status, problem = await refused(here, f"/ui/live?{query}")
    assert (status, problem["code"]) == (400, "VALIDATION_ERROR")


async def test_a_token_sees_its_own_changes(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's token sees its namespace alone, and nothing more once it is revoked."""
    monkeypatch.setattr("holdfast.edges.http.guard.FRESH", 0.0)
    await closed.store.kv("a").set("k", 1)
    await closed.store.kv("b").set("k", 1)
    made = await closed.store.tokens().create(plugin="a")
    await log_in(closed, token=made.token)
    found = await page(closed, "/ui/live")
    assert [one["namespace"] for one in found["changes"]] == ["kv/a"]
    assert (await refused(closed, "/ui/live?namespace=kv/b"))[0] == 403
    assert "kv/b" not in str(await page(closed, "/ui/live?since=kv/b:0"))
    await closed.store.tokens().revoke(made.about.id)
    assert (await refused(closed, f"/ui/live?since={found['since']}"))[0] == 401
