"""Tables at the NATS door, with a plain client: every verb answers as the reference page says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from holdfast.clock import ManualClock
from holdfast.edges.calls.tables import VERBS
from tests.edges.nats.ground import START, Caller, Running
from tests.edges.nats.test_events import Ear

Ask: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]

NOW = 1_700_000_000
"""The seconds since 1970 at which a manual clock begins."""


def at_tables(caller: Caller) -> Ask:
    """Asks a verb of the tables of trivia; about the table `events` unless another is named."""

    async def ask(verb: str, /, **fields: Any) -> dict[str, Any]:
        return await caller.ask(f"db.table.trivia.{verb}", {"table": "events"} | fields)

    return ask


async def make_table(ask: Ask) -> dict[str, Any]:
    """The table that most tests are about."""
    return await ask(
        "create_table",
        partition_key={"name": "user", "type": "string"},
        sort_key={"name": "at", "type": "number"},
        ttl_attribute="expires",
    )


@pytest.fixture
async def ask(caller: Caller) -> Ask:
    """Asks about a table that is there."""
    ask = at_tables(caller)
    await make_table(ask)
    return ask


ALICE = {"partition_key": "alice", "sort_key": 7}


async def test_a_table_comes_and_goes(caller: Caller) -> None:
    """A table is made, described, listed and dropped; of the same name there is only one."""
    ask = at_tables(caller)
    described = {
        "success": True,
        "table": "events",
        "partition_key": {"name": "user", "type": "string"},
        "sort_key": {"name": "at", "type": "number"},
        "ttl_attribute": "expires",
        "stream": "both",
        "indexes": [],
        "created_at": START,
    }
    assert await make_table(ask) == described | {"version": 1}
    assert await ask("describe_table") == described
    assert (await make_table(ask))["error_code"] == "TABLE_EXISTS"
    assert await ask("list_tables") == {"success": True, "tables": ["events"]}
    assert await ask("drop_table") == {"success": True, "dropped": True, "version": 2}
    assert (await ask("describe_table"))["error_code"] == "TABLE_NOT_FOUND"
    assert (await ask("put_item", item={"user": "alice", "at": 7}))["error_code"] == "TABLE_NOT_FOUND"


async def test_an_item_is_put_read_changed_and_removed(ask: Ask) -> None:
    """Writes answer the version, and the item where it is asked for; one that is gone is null."""
    item = {"user": "alice", "at": 7, "score": 1, "big": 2**70}
    assert await ask("put_item", item=item) == {"success": True, "version": 2, "expires_at": None}
    assert await ask("get_item", **ALICE) == {
        "success": True,
        "item": item,
        "version": 2,
        "expires_at": None,
    }
    changed = await ask(
        "update_item",
        **ALICE,
        set={"meta": {"tag": "x"}},
        remove=["big"],
        add={"score": 2},
        return_values="new",
    )
    assert (changed["version"], changed["item"]) == (
        3,
        {"user": "alice", "at": 7, "score": 3, "meta": {"tag": "x"}},
    )
    shown = await ask("get_item", **ALICE, projection=["meta.tag"])
    assert shown["item"] == {"meta": {"tag": "x"}}
    gone = await ask("delete_item", **ALICE, return_values="old")
    assert (gone["deleted"], gone["version"], gone["old_version"]) == (True, 4, 3)
    assert await ask("delete_item", **ALICE) == {"success": True, "deleted": False}
    assert await ask("get_item", **ALICE) == {"success": True, "item": None}


async def test_queries_go_page_by_page(ask: Ask) -> None:
    """A page has items, versions, deadlines, a count and a cursor that goes on after it."""
    for at in range(5):
        await ask("put_item", item={"user": "alice", "at": at, "even": at % 2 == 0})
    await ask("put_item", item={"user": "bob", "at": 1})
    page = await ask("query", partition_key="alice", limit=2)
    assert ([item["at"] for item in page["items"]], page["count"], page["truncated"]) == ([0, 1], 2, True)
    assert (page["versions"], page["expires_at"]) == ([2, 3], [None, None])
    rest = await ask("query", partition_key="alice", cursor=page["cursor"])
    assert ([item["at"] for item in rest["items"]], rest["truncated"], rest["cursor"]) == (
        [2, 3, 4],
        False,
        None,
    )
    between = {"sort_key_condition": {"between": [1, 3]}, "reverse": True}
    found = await ask("query", partition_key="alice", **between, filter={"even": {"eq": True}})
    assert [item["at"] for item in found["items"]] == [2]
    assert (await ask("scan", projection=["user"]))["items"][-1] == {"user": "bob"}


async def test_an_index_finds_items_by_another_attribute(ask: Ask) -> None:
    """An index has the items that were there, keeps up with writes, and says whether it is whole."""
    for at, team in enumerate(["red", "blue", "red"]):
        await ask("put_item", item={"user": "alice", "at": at, "team": team})
    made = await ask("create_index", index="by-team", index_key={"name": "team", "type": "string"})
    assert [(index["name"], index["state"]) for index in made["indexes"]] == [("by-team", "ready")]
    await ask("put_item", item={"user": "bob", "at": 9, "team": "red"})
    found = await ask("query_index", index="by-team", key_value="red", limit=2)
    assert ([item["at"] for item in found["items"]], found["truncated"]) == ([0, 2], True)
    checked = await ask("check_index", index="by-team")
    assert checked == {
        "success": True,
        "consistent": True,
        "items": 4,
        "entries": 4,
        "missing": 0,
        "extra": 0,
    }
    assert (await ask("drop_index", index="by-team"))["dropped"] is True
    assert (await ask("query_index", index="by-team", key_value="red"))["error_code"] == "INDEX_NOT_FOUND"


async def test_a_failed_condition_shows_the_item(caller: Caller, ask: Ask) -> None:
    """CONDITION_FAILED and VERSION_CONFLICT carry the item that is there, its version and its deadline."""
    item = {"user": "alice", "at": 7, "expires": NOW + 60}
    await ask("put_item", item=item)
    current = {"item": item, "version": 2, "expires_at": "2023-11-14T22:14:20Z"}
    [failed] = await caller.ask_all(
        [("db.table.trivia.delete_item", {"table": "events", **ALICE, "condition": {"x": {"exists": True}}})]
    )
    assert failed.fields == {
        "success": False,
        "error_code": "CONDITION_FAILED",
        "message": "the item does not meet the condition",
        "field": "condition",
        "retryable": False,
        "current": current,
    }
    assert failed.headers["Holdfast-Error-Code"] == "CONDITION_FAILED"
    assert failed.headers["Nats-Service-Error"] == failed.fields["message"]
    lost = await ask("put_item", item={"user": "alice", "at": 7}, expected_version=1)
    assert (lost["error_code"], lost["current"]) == ("VERSION_CONFLICT", current)
    none = await ask("put_item", item={"user": "bob", "at": 7}, expected_version=1)
    assert (none["error_code"], none["current"]) == ("VERSION_CONFLICT", None)


async def test_a_transaction_lists_all_that_failed(ask: Ask) -> None:
    """All writes happen or none; a refusal names each that did not find what it expects."""
    await ask("put_item", item={"user": "alice", "at": 7})
    writes = [
        {"put": {"item": {"user": "bob", "at": 1}}},
        {"check": {**ALICE, "expected_version": 9}},
        {"delete": {"partition_key": "carl", "sort_key": 1, "condition": {"user": {"exists": True}}}},
    ]
    refused = await ask("transact_write", writes=writes)
    current = {"item": {"user": "alice", "at": 7}, "version": 2, "expires_at": None}
    assert (refused["error_code"], refused["current"]) == ("CONDITION_FAILED", current)
    assert refused["conflicts"] == [
        {"position": 1, "current": current},
        {"position": 2, "current": None},
    ]
    assert (await ask("scan"))["count"] == 1
    assert await ask("transact_write", writes=writes[:1]) == {"success": True, "versions": [3]}


async def test_a_refusal_shows_items_as_far_as_they_fit(ask: Ask) -> None:
    """What failed is told even if the items that are there would not fit into one message."""
    for user in ("a", "b", "c"):
        await ask("put_item", item={"user": user, "at": 7, "text": "x" * 400_000})
    checks = [
        {"check": {"partition_key": user, "sort_key": 7, "expected_version": 9}} for user in ("a", "b", "c")
    ]
    refused = await ask("transact_write", writes=checks)
    assert refused["error_code"] == "CONDITION_FAILED"
    assert "0, 1, 2" in refused["message"]
    conflicts = refused["conflicts"]
    assert [conflict["current"]["version"] for conflict in conflicts] == [2, 3, 4]
    assert ["item" in conflict["current"] for conflict in conflicts] == [True, False, False]
    assert refused["current"]["item"]["user"] == "a"


async def test_writes_are_answered_even_if_their_items_do_not_fit(ask: Ask) -> None:
    """Of several writes each is answered even if the items that they return would not fit."""
    for user in ("a", "b", "c"):
        await ask("put_item", item={"user": user, "at": 7, "text": "x" * 400_000})
    writes: list[dict[str, Any]] = [
        {"delete": {"partition_key": user, "sort_key": 7, "return_values": "old"}} for user in ("a", "b")
    ]
    writes.append({"delete": {"partition_key": "c", "sort_key": 7, "expected_version": 9}})
    done = (await ask("batch_write_item", writes=writes))["results"]
    assert [(one["success"], one.get("version")) for one in done] == [(True, 5), (True, 6), (False, None)]
    assert done[2]["error_code"] == "VERSION_CONFLICT"
    assert not any({"item", "current"} & one.keys() for one in done)


async def test_several_writes_answer_each_for_itself(ask: Ask) -> None:
    """Each result is what the single verb would have answered, a success or an error."""
    await ask("put_item", item={"user": "alice", "at": 7})
    writes = [
        {"put": {"item": {"user": "bob", "at": 1}}},
        {"put": {"item": {"user": "alice", "at": 7}, "expected_version": 0}},
        {"put": {"item": {"user": "alice"}}},
        {"delete": ALICE},
        {"delete": ALICE},
    ]
    done, lost, wrong, gone, missing = (await ask("batch_write_item", writes=writes))["results"]
    assert done == {"success": True, "version": 3, "expires_at": None}
    assert (lost["success"], lost["error_code"], lost["current"]["version"]) == (False, "VERSION_CONFLICT", 2)
    assert (wrong["success"], wrong["error_code"], wrong["field"]) == (False, "VALIDATION_ERROR", "item.at")
    assert gone == {"success": True, "deleted": True, "version": 4}
    assert missing == {"success": True, "deleted": False}
    keys = [{"partition_key": "bob", "sort_key": 1}, ALICE]
    found = await ask("batch_get_item", keys=keys)
    assert (found["items"], found["versions"]) == ([{"user": "bob", "at": 1}, None], [3, None])


async def test_set_ttl_lets_an_item_expire(ask: Ask, clock: ManualClock) -> None:
    """After so many seconds the item is gone; without a ttl attribute or an item it is refused."""
    await ask("put_item", item={"user": "alice", "at": 7})
    moved = await ask("set_ttl", **ALICE, ttl_seconds=60, return_values="new")
    assert (moved["item"]["expires"], moved["expires_at"]) == (NOW + 60, "2023-11-14T22:14:20Z")
    clock.advance(60)
    assert (await ask("get_item", **ALICE))["item"] is None
    assert (await ask("set_ttl", **ALICE, ttl_seconds=60))["error_code"] == "ITEM_NOT_FOUND"
    await ask("create_table", table="plain", partition_key={"name": "user", "type": "string"})
    for verb in ("set_ttl", "remove_ttl", "get_ttl", "sweep_expired_ttl"):
        refused = await ask(verb, table="plain", partition_key="alice", ttl_seconds=60)
        assert refused["error_code"] == "TTL_NOT_CONFIGURED"


async def test_remove_ttl_lets_an_item_live(ask: Ask, clock: ManualClock) -> None:
    """An item whose deadline was taken away outlives it."""
    await ask("put_item", item={"user": "alice", "at": 7, "expires": NOW + 60})
    assert (await ask("remove_ttl", **ALICE))["expires_at"] is None
    clock.advance(1_000_000)
    assert (await ask("get_item", **ALICE))["item"]["expires"] == 0
    bob = {"partition_key": "bob", "sort_key": 7}
    assert (await ask("remove_ttl", **bob))["error_code"] == "ITEM_NOT_FOUND"


async def test_get_ttl_tells_the_seconds_left(ask: Ask, clock: ManualClock) -> None:
    """Whole seconds are told, what was set right after it; null is for ever, and 0 is gone or never there."""
    await ask("put_item", item={"user": "alice", "at": 7, "expires": NOW + 60})
    clock.advance(0.5)
    assert await ask("get_ttl", **ALICE) == {"success": True, "ttl": 59}
    await ask("set_ttl", **ALICE, ttl_seconds=60)
    assert await ask("get_ttl", **ALICE) == {"success": True, "ttl": 60}
    await ask("remove_ttl", **ALICE)
    assert (await ask("get_ttl", **ALICE))["ttl"] is None
    await ask("set_ttl", **ALICE, ttl_seconds=1)
    clock.advance(2)
    assert (await ask("get_ttl", **ALICE))["ttl"] == 0


async def test_a_sweep_removes_a_hundred_at_a_time(ask: Ask, clock: ManualClock) -> None:
    """Of what has expired at most 100 items go in one sweep, and live ones stay."""
    writes = [{"put": {"item": {"user": "alice", "at": at, "expires": NOW + 1}}} for at in range(120)]
    await ask("batch_write_item", writes=[*writes, {"put": {"item": {"user": "bob", "at": 1}}}])
    assert await ask("sweep_expired_ttl") == {"success": True, "removed": 0}
    clock.advance(1)
    assert [(await ask("sweep_expired_ttl"))["removed"] for _ in range(3)] == [100, 20, 0]
    assert (await ask("scan"))["items"] == [{"user": "bob", "at": 1}]


async def test_changes_show_images_on_request(ask: Ask) -> None:
    """A change names the item by its key; what it was and became is shown to who asks."""
    await ask("put_item", item={"user": "alice", "at": 7}, request_id="r1")
    await ask("delete_item", **ALICE)
    told = await ask("changes")
    assert told["changes"][0] == {
        "op": "set",
        "table": "events",
        "partition_key": "alice",
        "sort_key": 7,
        "version": 2,
        "at": START,
        "last_writer": "trivia",
        "request_id": "r1",
    }
    assert (told["next"], told["gap"]) == (3, False)
    [gone] = (await ask("changes", since=2, view="both"))["changes"]
    assert (gone["op"], gone["old"], gone["new"]) == ("deleted", {"user": "alice", "at": 7}, None)


async def test_binary_keys_are_base64(ask: Ask) -> None:
    """On the wire a binary is base64, in requests, items and changes alike."""
    await ask("create_table", table="blobs", partition_key={"name": "id", "type": "binary"})
    await ask("put_item", table="blobs", item={"id": "AP8="})
    assert (await ask("get_item", table="blobs", partition_key="AP8="))["item"] == {"id": "AP8="}
    assert (await ask("changes", table="blobs"))["changes"][0]["partition_key"] == "AP8="
    wrong = await ask("get_item", table="blobs", partition_key="no base64!")
    assert (wrong["error_code"], wrong["field"]) == ("VALIDATION_ERROR", "partition_key")


async def test_the_namespace_of_tables_has_stats(ask: Ask) -> None:
    """What all tables of a plugin hold together is told, as for its keys."""
    await ask("put_item", item={"user": "alice", "at": 7})
    told = await ask("stats")
    assert (told["namespace"], told["keys"], told["version"]) == ("table/trivia", 1, 2)


async def test_every_verb_says_what_is_missing(caller: Caller, running: Running) -> None:
    """A request without what its verb needs is MISSING_FIELD, logged and counted under that verb."""
    needless = {"list_tables", "stats"}
    for verb in sorted(VERBS.keys() - needless):
        assert (await caller.ask(f"rosey.db.table.trivia.{verb}"))["error_code"] == "MISSING_FIELD", verb
    assert {one.verb for one in running.recorder.operations} == VERBS.keys() - needless
    assert running.recorder.unknown == {}


async def test_changes_are_told_as_events(caller: Caller, ask: Ask, clock: ManualClock) -> None:
    """After each commit of a change of an item its keys are told, never the item itself."""
    ear = Ear()
    await ear.listen(caller, "db.event.>")
    await ask("put_item", item={"user": "alice", "at": 7, "secret": "s", "expires": NOW + 1})
    await ask("put_item", item={"user": "bob", "at": 7})
    await ask("delete_item", partition_key="bob", sort_key=7)
    clock.advance(3)
    await ask("sweep_expired_ttl")
    told = [await ear.next() for _ in range(4)]
    assert [subject for subject, _ in told] == [
        f"db.event.table.trivia.{op}" for op in ("set", "set", "deleted", "expired")
    ]
    assert [fields for _, fields in told] == (await ask("changes"))["changes"]
    assert told[3][1] == {
        "op": "expired",
        "table": "events",
        "partition_key": "alice",
        "sort_key": 7,
        "version": 5,
        "at": "2023-11-14T22:13:23Z",
        "last_writer": "trivia",
        "request_id": None,
        "lag_ms": 2000,
        "expired_version": 2,
    }


async def test_a_late_request_is_not_done(caller: Caller, ask: Ask, clock: ManualClock) -> None:
    """Whose deadline has passed is TIMEOUT, and nothing is written."""
    item = {"user": "alice", "at": 7}
    late = await ask("put_item", item=item, deadline=NOW * 1000 - 1)
    assert (late["error_code"], late["retryable"]) == ("TIMEOUT", True)
    assert (await ask("get_item", **ALICE))["item"] is None


async def test_a_rate_counts_each_call_once(running: Running, ask: Ask) -> None:
    """A policy's rate is one of calls: a write counts as much as a read."""
    await running.store.set_policy("table/trivia", {"rate_limit": 4})
    for at in range(2):
        assert (await ask("put_item", item={"user": "alice", "at": at}))["success"] is True
        assert (await ask("get_item", partition_key="alice", sort_key=at))["success"] is True
    assert (await ask("get_item", **ALICE))["error_code"] == "RATE_LIMITED"


async def test_a_request_sent_again_is_done_once(ask: Ask) -> None:
    """The same request id with the same content answers as before; with another it is refused."""
    update = {**ALICE, "add": {"score": 1}, "return_values": "new", "request_id": "r1"}
    first = await ask("update_item", **update)
    assert await ask("update_item", **update) == first
    assert (await ask("get_item", **ALICE))["item"]["score"] == 1
    other = await ask("update_item", **update | {"add": {"score": 2}})
    assert (other["error_code"], other["reason"]) == ("VERSION_CONFLICT", "request_id_reused")
