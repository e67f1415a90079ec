"""Every verb in the plugin dialect: what is asked for, and exactly what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clock import ManualClock
from tests.edges.nats.ground import START, Caller

PREFIXES = pytest.mark.parametrize("prefix", ["db", "rosey.db"])


class Trivia:
    """The plugin whose verbs are tried."""

    def __init__(self, caller: Caller, prefix: str = "db") -> None:
        self._caller = caller
        self._prefix = prefix

    async def __call__(self, verb: str, **fields: Any) -> dict[str, Any]:
        return await self._caller.ask(f"{self._prefix}.kv.trivia.{verb}", fields)


@pytest.fixture
def ask(caller: Caller) -> Trivia:
    """Ask as the plugin."""
    return Trivia(caller)


def shown(value: Any, version: int, **more: Any) -> dict[str, Any]:
    """What a get shows of an entry that was written once, with the request id r1."""
    return {
        "exists": True,
        "value": value,
        "version": version,
        "expires_at": None,
        "created_at": START,
        "updated_at": START,
        "last_writer": "trivia",
        "request_id": "r1",
    } | more


@PREFIXES
async def test_set_and_get(caller: Caller, prefix: str) -> None:
    """set answers version and expires_at; get answers the value and its envelope, under every prefix."""
    ask = Trivia(caller, prefix)
    assert await ask("set", key="k", value={"turn": "alice"}, request_id="r1") == {
        "success": True,
        "version": 1,
        "expires_at": None,
    }
    assert await ask("get", key="k") == {"success": True} | shown({"turn": "alice"}, 1)


async def test_get_of_nothing(ask: Trivia) -> None:
    """A missing key is exists:false, and no value."""
    assert await ask("get", key="k") == {"success": True, "exists": False}


@pytest.mark.parametrize("field", ["ttl", "ttl_seconds"])
async def test_set_with_a_deadline(ask: Trivia, clock: ManualClock, field: str) -> None:
    """ttl and ttl_seconds set the deadline; at it the entry is gone."""
    reply = await ask("set", key="k", value=1, **{field: 60})
    assert reply == {"success": True, "version": 1, "expires_at": "2023-11-14T22:14:20Z"}
    assert (await ask("get", key="k"))["expires_at"] == "2023-11-14T22:14:20Z"
    assert await ask("get_ttl", key="k") == {"success": True, "ttl": 60}
    clock.advance(60)
    assert await ask("get", key="k") == {"success": True, "exists": False}
    assert await ask("get_ttl", key="k") == {"success": True, "ttl": 0}


async def test_keep_ttl(ask: Trivia, clock: ManualClock) -> None:
    """keep_ttl keeps the deadline that is there; a set without it takes it away."""
    await ask("set", key="k", value=1, ttl=60)
    clock.advance(1)
    kept = await ask("set", key="k", value=2, keep_ttl=True)
    assert kept["expires_at"] == "2023-11-14T22:14:20Z"
    assert (await ask("set", key="k", value=3))["expires_at"] is None


async def test_the_whole_envelope(ask: Trivia) -> None:
    """Semantics, last_writer, request_id and spec_ref come back from get as they were given."""
    semantics = {"purpose": "checkpoint", "producer": "p", "consumer_hints": ["a"], "ttl_seconds": 60}
    await ask(
        "set", key="k", value=[], semantics=semantics, last_writer="bot:7", request_id="r1", spec_ref="spec#2"
    )
    envelope = {"semantics": semantics, "last_writer": "bot:7", "spec_ref": "spec#2"}
    deadline = {"expires_at": "2023-11-14T22:14:20Z"}
    assert await ask("get", key="k") == {"success": True} | shown([], 1, **envelope, **deadline)


async def test_a_write_shows_its_entry_to_who_asks_for_it(ask: Trivia) -> None:
    """With `envelope` the reply is all that a get would show; a bare one does not send the value back."""
    whole = await ask("set", key="k", value={"large": 1}, envelope=True)
    seen = await ask("get", key="k")
    assert whole == seen | {"key": "k"}
    bare = await ask("set", key="k", value={"large": 1}, envelope="bare")
    seen = await ask("get", key="k")
    del seen["value"]
    assert bare == seen | {"key": "k"}
    assert set(await ask("set", key="k", value=1, envelope="other")) == {"success", "version", "expires_at"}


async def test_expected_version(ask: Trivia) -> None:
    """A failed check answers VERSION_CONFLICT with what is there, and writes nothing."""
    await ask("set", key="k", value={"n": 1}, request_id="r1")
    reply = await ask("set", key="k", value={"n": 2}, expected_version=0)
    assert (reply["success"], reply["error_code"], reply["retryable"]) == (False, "VERSION_CONFLICT", False)
    current = reply["current"]
    assert (current["version"], current["value"], current["last_writer"]) == (1, {"n": 1}, "trivia")
    assert (current["purpose"], current["expires_at"]) == (None, None)
    assert (await ask("set", key="k", value={"n": 2}, expected_version=1))["version"] == 2
    missing = await ask("delete", key="other", expected_version=3)
    assert (missing["error_code"], missing["current"]) == ("VERSION_CONFLICT", None)


async def test_delete(ask: Trivia) -> None:
    """delete answers whether there was something, and its version when there was."""
    await ask("set", key="k", value=1)
    assert await ask("delete", key="k") == {"success": True, "deleted": True, "version": 2}
    assert await ask("delete", key="k") == {"success": True, "deleted": False}


async def test_list(ask: Trivia) -> None:
    """list answers keys, count, truncated and a cursor that is null at the end."""
    for key in ("a:1", "a:2", "a:3", "b:1"):
        await ask("set", key=key, value=key, request_id="r1" if key == "a:3" else None)
    first = await ask("list", prefix="a:", limit=2)
    assert (first["keys"], first["count"], first["truncated"]) == (["a:1", "a:2"], 2, True)
    assert isinstance(first["cursor"], str)
    rest = await ask("list", prefix="a:", limit=2, cursor=first["cursor"])
    assert rest == {"success": True, "keys": ["a:3"], "count": 1, "truncated": False, "cursor": None}
    assert (await ask("list"))["keys"] == ["a:1", "a:2", "a:3", "b:1"]
    valued = await ask("list", prefix="a:3", values=True)
    assert valued["entries"] == [{"key": "a:3"} | shown("a:3", 3)]
    assert await ask("list", prefix="none") == {
        "success": True,
        "keys": [],
        "count": 0,
        "truncated": False,
        "cursor": None,
    }


async def test_incr(ask: Trivia) -> None:
    """incr answers the value beside version and expires_at; a missing key starts from 0."""
    assert await ask("incr", key="n", ttl=60) == {
        "success": True,
        "value": 1,
        "version": 1,
        "expires_at": "2023-11-14T22:14:20Z",
    }
    assert (await ask("incr", key="n", by=-2.5))["value"] == -1.5
    await ask("set", key="text", value="x")
    assert (await ask("incr", key="text"))["error_code"] == "VALIDATION_ERROR"


async def test_set_ttl_and_remove_ttl(ask: Trivia) -> None:
    """set_ttl and remove_ttl answer version and expires_at, and KEY_NOT_FOUND for what is gone."""
    await ask("set", key="k", value=1)
    assert await ask("get_ttl", key="k") == {"success": True, "ttl": None}
    assert await ask("set_ttl", key="k", ttl_seconds=60) == {
        "success": True,
        "version": 2,
        "expires_at": "2023-11-14T22:14:20Z",
    }
    assert await ask("remove_ttl", key="k") == {"success": True, "version": 3, "expires_at": None}
    for verb, fields in (("set_ttl", {"ttl_seconds": 60}), ("remove_ttl", {})):
        reply = await ask(verb, key="gone", **fields)
        assert (reply["success"], reply["error_code"]) == (False, "KEY_NOT_FOUND")
    assert (await ask("set_ttl", key="k"))["error_code"] == "MISSING_FIELD"


async def test_exists_and_touch(ask: Trivia) -> None:
    """exists answers whether the key is there; touch answers as set_ttl, or `touched: false` for nothing."""
    assert await ask("exists", key="k") == {"success": True, "exists": False}
    assert await ask("touch", key="k", ttl_seconds=60) == {"success": True, "touched": False}
    await ask("set", key="k", value=None)
    assert await ask("exists", key="k") == {"success": True, "exists": True}
    assert await ask("touch", key="k", ttl_seconds=60) == {
        "success": True,
        "touched": True,
        "version": 2,
        "expires_at": "2023-11-14T22:14:20Z",
    }
    assert (await ask("touch", key="k", ttl=60, envelope=True))["value"] is None
    assert (await ask("touch", key="k"))["error_code"] == "MISSING_FIELD"
    assert (await ask("touch", key="k", ttl_seconds=0))["field"] == "ttl_seconds"


async def test_incr_of_what_must_exist(ask: Trivia) -> None:
    """With only_if_exists, an incr of a missing key is KEY_NOT_FOUND; anything but a boolean is refused."""
    refused = await ask("incr", key="n", only_if_exists=True)
    assert (refused["error_code"], refused["field"]) == ("KEY_NOT_FOUND", "key")
    assert (await ask("incr", key="n"))["value"] == 1
    assert (await ask("incr", key="n", only_if_exists=True))["value"] == 2
    assert (await ask("incr", key="n", only_if_exists="yes"))["field"] == "only_if_exists"


async def test_several_at_once(ask: Trivia) -> None:
    """get_many, set_many and delete_many answer results by position, each as its single verb does."""
    items = [{"key": "a", "value": 1}, {"key": "", "value": 2}, {"key": "b", "value": 3, "ttl": 60}]
    put = await ask("set_many", items=items, request_id="r1")
    assert [member["success"] for member in put["results"]] == [True, False, True]
    assert put["results"][0] == {"success": True, "version": 1, "expires_at": None}
    assert (put["results"][1]["error_code"], put["results"][1]["field"]) == ("VALIDATION_ERROR", "key")
    assert put["results"][2] == {"success": True, "version": 2, "expires_at": "2023-11-14T22:14:20Z"}
    got = await ask("get_many", keys=["b", "none", "a", ""])
    deadline = {"expires_at": "2023-11-14T22:14:20Z"}
    assert got["results"][:3] == [
        {"success": True} | shown(3, 2, **deadline),
        {"success": True, "exists": False},
        {"success": True} | shown(1, 1),
    ]
    assert got["results"][3]["error_code"] == "VALIDATION_ERROR"
    gone = await ask("delete_many", keys=["a", "none"])
    assert gone == {
        "success": True,
        "results": [{"success": True, "deleted": True, "version": 3}, {"success": True, "deleted": False}],
    }
    assert await ask("get_many", keys=[]) == {"success": True, "results": []}
    assert await ask("set_many", items=[]) == {"success": True, "results": []}


async def test_batch(ask: Trivia) -> None:
    """A batch answers versions by position; a conflict lists every failed check with its current entry."""
    await ask("set", key="a", value=1)
    await ask("set", key="b", value=2)
    writes = [{"key": "a", "value": 5}, {"key": "b", "delete": True}, {"key": "n", "incr": 2}]
    checks = [{"key": "a", "version": 1}, {"key": "n", "version": 0}]
    assert await ask("batch", checks=checks, writes=writes) == {"success": True, "versions": [3, 4, 5]}
    reply = await ask("batch", checks=[*checks, {"key": "b", "version": 2}], writes=writes)
    assert reply["error_code"] == "VERSION_CONFLICT"
    found = [(one["key"], one["expected_version"], one["current"]) for one in reply["conflicts"]]
    assert [(key, expected, entry and entry["version"]) for key, expected, entry in found] == [
        ("a", 1, 3),
        ("n", 0, 5),
        ("b", 2, None),
    ]


async def test_changes_and_history(ask: Trivia, clock: ManualClock) -> None:
    """changes and history show records without values; next goes on; lag_ms is there for what expired."""
    await ask("set", key="k", value="secret", ttl=1, request_id="r1", semantics={"purpose": "lock"})
    clock.advance(2)
    await ask("set", key="k", value=2, request_id="r2")
    page = await ask("changes")
    ops = [(change["op"], change["version"], change.get("lag_ms")) for change in page["changes"]]
    assert ops == [("set", 1, None), ("expired", 2, 1_000), ("set", 3, None)]
    assert (page["next"], page["gap"]) == (3, False)
    assert page["changes"][0] == {
        "op": "set",
        "key": "k",
        "version": 1,
        "at": START,
        "last_writer": "trivia",
        "request_id": "r1",
        "purpose": "lock",
    }
    assert (await ask("changes", since=2, prefix="k", limit=1))["changes"] == [page["changes"][2]]
    assert (await ask("history", key="k"))["changes"] == page["changes"][::-1]
    assert "secret" not in str(page)
    beyond = await ask("changes", since=99)
    assert (beyond["gap"], beyond["oldest"]) == (True, 1)


async def test_restore(ask: Trivia) -> None:
    """restore brings back what was deleted with semantics; a live key is a conflict, a lost one not found."""
    await ask("set", key="k", value="v", semantics={"purpose": "config"})
    await ask("delete", key="k")
    assert await ask("restore", key="k") == {"success": True, "version": 3, "expires_at": None}
    assert (await ask("restore", key="k"))["error_code"] == "VERSION_CONFLICT"
    assert (await ask("restore", key="never"))["error_code"] == "KEY_NOT_FOUND"


async def test_a_request_id_replays_its_first_success(ask: Trivia) -> None:
    """The same request sent again has one effect; with other content it is a conflict that says why."""
    first = await ask("incr", key="n", request_id="once")
    assert await ask("incr", key="n", request_id="once") == first
    assert (await ask("get", key="n"))["value"] == 1
    other = await ask("incr", key="n", by=2, request_id="once")
    assert (other["error_code"], other["reason"]) == ("VERSION_CONFLICT", "request_id_reused")


async def test_a_fence_refuses_the_last_holder(ask: Trivia) -> None:
    """A write behind a fence is FENCED once somebody else has taken the lock."""
    first = (await ask("batch", writes=[{"guard": "l"}]))["versions"][0]
    assert (await ask("set", key="k", value=1, fence={"lock": "l", "token": first}))["success"] is True
    await ask("batch", writes=[{"guard": "l"}])
    refused = await ask("set", key="k", value=2, fence={"lock": "l", "token": first})
    assert (refused["success"], refused["error_code"]) == (False, "FENCED")


async def test_every_reveal_is_answered_anew(caller: Caller) -> None:
    """A reveal is a read: sent again with the same request id, it shows the entry as it is by then."""
    asked = {"key": "a", "why": "OPS-1", "request_id": "r"}
    for value in (1, 2):
        await caller.ask("db.kv.trivia.set", {"key": "a", "value": value})
        answer = await caller.ask("db.kv.trivia.reveal", asked)
        assert (answer["success"], answer["value"]) == (True, value)
