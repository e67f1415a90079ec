"""The payload and the semantic dialect at the running service: who is asking, and how it is spelled."""

from __future__ import annotations

import pytest

from tests.edges.nats.ground import START, Caller, Running

PREFIXES = pytest.mark.parametrize("prefix", ["db", "rosey.db"])
ROOT = "tenant/acme/project/web/"


@PREFIXES
async def test_payload_dialect(caller: Caller, running: Running, prefix: str) -> None:
    """The plugin is named in the payload, and the reply is success and data."""
    name = {"plugin_name": "trivia"}
    reply = await caller.ask(f"{prefix}.kv.set", {"key": "k", "value": 1, **name})
    assert reply == {"success": True, "data": {"version": 1, "expires_at": None}}
    found = await caller.ask(f"{prefix}.kv.get", {"key": "k", **name})
    assert set(found) == {"success", "data"}
    assert (found["data"]["exists"], found["data"]["value"], found["data"]["last_writer"]) == (
        True,
        1,
        "trivia",
    )
    assert (await caller.ask(f"{prefix}.kv.list", name))["data"]["keys"] == ["k"]
    entry = await running.store.kv("trivia").get("k")
    assert entry is not None
    assert entry.value == 1


async def test_payload_dialect_errors(running: Running, caller: Caller) -> None:
    """An error is success:false and error with code and message, and is counted for whom the caller named."""
    asked = {
        b"{": "INVALID_JSON",
        b'{"key":"k"}': "MISSING_FIELD",
        b'{"key":"k","plugin_name":"../other"}': "INVALID_PLUGIN_NAME",
        b'{"plugin_name":"trivia"}': "MISSING_FIELD",
        b'{"plugin_name":"trivia","key":""}': "VALIDATION_ERROR",
    }
    for payload, code in asked.items():
        reply = await caller.ask("db.kv.get", payload)
        assert set(reply) == {"success", "error"}
        assert (reply["success"], reply["error"]["code"]) == (False, code)
        assert reply["error"]["message"]
    unknown = await caller.ask("db.kv.nonsense", {"plugin_name": "trivia"})
    assert unknown["error"]["code"] == "INVALID_SUBJECT"
    owners = [operation.owner for operation in running.recorder.operations]
    assert owners == ["UNKNOWN"] * 3 + ["trivia"] * 3


async def test_payload_dialect_results(caller: Caller) -> None:
    """Each of several results has the shape of its single verb's reply: success and data, or error."""
    name = {"plugin_name": "trivia"}
    items = [{"key": "k", "value": 1}, {"key": "", "value": 1}]
    done = await caller.ask("db.kv.set_many", {"items": items, **name})
    assert (done["success"], set(done["data"])) == (True, {"results"})
    good, bad = done["data"]["results"]
    assert good == {"success": True, "data": {"version": 1, "expires_at": None}}
    assert bad == await caller.ask("db.kv.set", items[1] | name)
    found = (await caller.ask("db.kv.get_many", {"keys": ["k", "none"], **name}))["data"]["results"]
    assert found == [await caller.ask("db.kv.get", {"key": key, **name}) for key in ("k", "none")]
    gone = (await caller.ask("db.kv.delete_many", {"keys": ["k", ""], **name}))["data"]["results"]
    assert gone[0] == {"success": True, "data": {"deleted": True, "version": 2}}
    assert (gone[1]["success"], gone[1]["error"]["code"]) == (False, "VALIDATION_ERROR")


@PREFIXES
async def test_semantic_dialect(caller: Caller, prefix: str) -> None:
    """put and get in camelCase; the relative key is completed, and the envelope comes back."""
    reply = await caller.ask(
        f"{prefix}.semantic.acme.web.put",
        {
            "key": "jobs/nightly",
            "value": {"snake_name": 1},
            "ttlSeconds": 60,
            "expectedVersion": 0,
            "lastWriter": "bot:7",
            "requestId": "r1",
            "specRef": "spec#2",
            "semantics": {"purpose": "checkpoint", "consumerHints": ["ops"], "ttlSeconds": 60},
        },
    )
    assert reply == {"success": True, "version": 1, "expiresAt": "2023-11-14T22:14:20Z"}
    assert await caller.ask(f"{prefix}.semantic.acme.web.get", {"key": "jobs/nightly"}) == {
        "success": True,
        "exists": True,
        "value": {"snake_name": 1},
        "version": 1,
        "expiresAt": "2023-11-14T22:14:20Z",
        "createdAt": START,
        "updatedAt": START,
        "lastWriter": "bot:7",
        "requestId": "r1",
        "specRef": "spec#2",
        "semantics": {"purpose": "checkpoint", "consumerHints": ["ops"], "ttlSeconds": 60},
    }


async def test_full_and_relative_keys_are_one_key(caller: Caller) -> None:
    """A full key of the own project is the same as the relative one, and replies show full keys."""
    subject = "db.semantic.acme.web"
    await caller.ask(f"{subject}.put", {"key": f"{ROOT}jobs/a", "value": 1})
    assert (await caller.ask(f"{subject}.get", {"key": "jobs/a"}))["value"] == 1
    assert (await caller.ask(f"{subject}.list", {}))["keys"] == [f"{ROOT}jobs/a"]
    for prefix in ("jobs/", f"{ROOT}jobs/", "tenant/acme/"):
        assert (await caller.ask(f"{subject}.list", {"prefix": prefix}))["count"] == 1
    [change] = (await caller.ask(f"{subject}.changes", {}))["changes"]
    assert (change["key"], change["lastWriter"]) == (f"{ROOT}jobs/a", "acme/web")
    valued = await caller.ask(f"{subject}.list", {"values": True})
    assert valued["entries"][0]["key"] == f"{ROOT}jobs/a"


async def test_a_foreign_key_is_refused_with_the_same_words(caller: Caller) -> None:
    """A key of another tenant or project is a validation_error, word for word, whether it exists or not."""
    await caller.ask("db.semantic.globex.web.put", {"key": "there", "value": "secret"})
    there, absent = "tenant/globex/project/web/there", "tenant/globex/project/web/absent"
    asked = {
        "get": {},
        "put": {"value": 1},
        "delete": {},
        "incr": {},
        "exists": {},
        "get_ttl": {},
        "set_ttl": {"ttlSeconds": 5},
        "touch": {"ttlSeconds": 5},
        "remove_ttl": {},
        "history": {},
        "restore": {},
    }
    for verb, fields in asked.items():
        replies = [
            await caller.ask(f"db.semantic.acme.web.{verb}", {"key": k, **fields}) for k in (there, absent)
        ]
        assert replies[0] == replies[1]
        assert (replies[0]["success"], replies[0]["errorCode"]) == (False, "validation_error")
        assert replies[0]["field"] == "key"
        assert "globex" not in str(replies[0])
    listed = await caller.ask("db.semantic.acme.web.list", {"prefix": "tenant/globex/"})
    assert (listed["errorCode"], listed["field"]) == ("validation_error", "prefix")
    assert (await caller.ask("db.semantic.globex.web.get", {"key": "there"}))["value"] == "secret"


async def test_semantic_errors_are_lower_case(caller: Caller) -> None:
    """Codes are lower-case under errorCode, also of a conflict, of members and of a bad tenant."""
    subject = "db.semantic.acme.web"
    await caller.ask(
        f"{subject}.put", {"key": "a", "value": {"camelName": 1}, "semantics": {"purpose": "lock"}}
    )
    lost = await caller.ask(f"{subject}.put", {"key": "a", "value": 2, "expectedVersion": 9})
    assert (lost["errorCode"], lost["retryable"]) == ("version_conflict", False)
    assert lost["current"]["key"] == f"{ROOT}a"
    assert lost["current"]["value"] == {"camelName": 1}
    assert (lost["current"]["lastWriter"], lost["current"]["purpose"]) == ("acme/web", "lock")
    several = await caller.ask(
        f"{subject}.set_many", {"items": [{"key": "a", "value": 1, "expectedVersion": 9}, {}]}
    )
    assert [one["errorCode"] for one in several["results"]] == ["version_conflict", "missing_field"]
    tenant = await caller.ask("db.semantic.Acme.web.get", {"key": "a"})
    assert (tenant["errorCode"], tenant["field"]) == ("validation_error", "tenant")
    assert (await caller.ask(f"{subject}.nonsense", {}))["errorCode"] == "invalid_subject"
    assert (await caller.ask(f"{subject}.put", b"{"))["errorCode"] == "invalid_json"


async def test_semantic_batch_and_fence(caller: Caller) -> None:
    """Checks, writes and fences speak camelCase all the way down, and conflicts show full keys."""
    subject = "db.semantic.acme.web"
    token = (await caller.ask(f"{subject}.batch", {"writes": [{"guard": "lock"}]}))["versions"][0]
    writes = [
        {"key": "a", "value": 1, "ttlSeconds": 60, "semantics": {"consumerHints": ["x"]}},
        {"key": "n", "incr": 2},
    ]
    fence = {"lock": "lock", "token": token}
    done = await caller.ask(
        f"{subject}.batch", {"checks": [{"key": "a", "version": 0}], "writes": writes, "fence": fence}
    )
    assert done == {"success": True, "versions": [2, 3]}
    entry = await caller.ask(f"{subject}.get", {"key": "a"})
    assert entry["expiresAt"] == "2023-11-14T22:14:20Z"
    assert entry["semantics"] == {"consumerHints": ["x"]}
    lost = await caller.ask(f"{subject}.batch", {"checks": [{"key": "a", "version": 0}], "writes": writes})
    assert [(one["key"], one["expectedVersion"]) for one in lost["conflicts"]] == [(f"{ROOT}a", 0)]


async def test_projects_do_not_see_each_other(caller: Caller) -> None:
    """The same relative key of two projects and of two tenants are three keys."""
    for number, owner in enumerate(["acme.web", "acme.app", "globex.web"]):
        await caller.ask(f"db.semantic.{owner}.put", {"key": "k", "value": number})
    for number, owner in enumerate(["acme.web", "acme.app", "globex.web"]):
        assert (await caller.ask(f"db.semantic.{owner}.get", {"key": "k"}))["value"] == number
        assert (await caller.ask(f"db.semantic.{owner}.list", {}))["count"] == 1


async def test_operators_verbs(caller: Caller) -> None:
    """The admin dialect is flat snake_case: namespaces, stats, sweep, ready, trash."""
    await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1})
    listed = await caller.ask("db.admin.namespaces")
    assert [one["namespace"] for one in listed["namespaces"]] == ["kv/trivia"]
    stats = await caller.ask("db.admin.stats", {"namespace": "kv/trivia"})
    assert (stats["keys"], stats["version"], stats["changed_at"]) == (1, 1, START)
    assert await caller.ask("db.admin.sweep") == {"success": True, "removed": 0}
    assert await caller.ask("db.admin.ready") == {"success": True, "ready": True}
    assert (await caller.ask("db.admin.nonsense"))["error_code"] == "INVALID_SUBJECT"
    await caller.ask("db.semantic.acme.web.put", {"key": "a", "value": "gone"})
    await caller.ask("db.semantic.acme.web.delete", {"key": "a", "lastWriter": "ops:tidy"})
    asked = {"namespace": "semantic/acme/web", "prefix": "a"}
    trash = await caller.ask("db.admin.trash", asked)
    shown = {"key": f"{ROOT}a", "op": "deleted", "at": START, "by": "ops:tidy", "version": 1, "purpose": None}
    shown |= {"expires_at": None, "purged_at": "2023-11-21T22:13:20Z"}
    assert trash == {"success": True, "entries": [shown], "count": 1, "truncated": False, "cursor": None}
    for policy, value in (({}, "gone"), ({"reveal": "never"}, "***"), ({"reveal": "audited"}, "***")):
        await caller.ask("db.admin.set_policy", {"namespace": asked["namespace"], "policy": policy})
        valued = await caller.ask("db.admin.trash", asked | {"values": True})
        assert valued["entries"] == [shown | {"value": value}]
    for wrong, field in (
        ({"values": 1}, "values"),
        ({"prefix": "tenant/x/"}, "prefix"),
        ({"limit": 0}, "limit"),
    ):
        refused = await caller.ask("db.admin.trash", asked | wrong)
        assert (refused["error_code"], refused["field"]) == ("VALIDATION_ERROR", field)
    foreign = await caller.ask("db.admin.stats", {"namespace": "kv/../x"})
    assert (foreign["error_code"], foreign["field"]) == ("VALIDATION_ERROR", "namespace")
