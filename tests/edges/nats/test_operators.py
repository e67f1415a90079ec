"""The operators' verbs about policies and the audit, as they look on the wire."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast
from holdfast import rules
from holdfast.operators import store_stats
from holdfast.wire.replies import stats_fields
from tests.edges.nats.ground import START

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.edges.nats.server import NatsServer
    from tests.edges.nats.ground import Caller, Running

WEB = {"namespace": "semantic/acme/web"}


async def test_a_policy_says_who_set_it(caller: Caller, running: Running) -> None:
    """Every field of a policy can be set and read; the audit names the operator, or whom the request says."""
    policy: dict[str, object] = {"audit": True, "ttl_default": 60, "ttl_min": 1, "ttl_max": 100}
    policy |= {"trash": True, "trash_retention": 9, "journal_retention": 9, "audit_retention": 9}
    policy |= {"quota_keys": 9, "quota_bytes": 9_000, "max_value_bytes": 90_000, "rate_limit": 9}
    policy |= {"reveal": "never", "ttl_required": True}
    of = {"namespace": "kv/trivia"}
    assert await caller.ask("db.admin.set_policy", {**of, "policy": policy}) == {
        "success": True,
        "policy": policy,
    }
    assert (await caller.ask("db.admin.policy", of))["policy"] == policy
    told = {"last_writer": "ops:ticket-7", "request_id": "r7", "spec_ref": "doc"}
    await caller.ask("db.admin.set_policy", {**of, "policy": {"audit": True}, **told})
    first, second = (await caller.ask("db.admin.audit", of))["records"]
    assert (first["op"], first["key"], first["writer"]) == ("policy", "", "operator")
    assert {"last_writer": second["writer"]} | {
        name: second[name] for name in ("request_id", "spec_ref")
    } == told
    assert second["before"] == first["after"]
    assert running.recorder.unknown == {}


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"nothing": 1}, "policy.nothing"),
        ({"audit": 1}, "audit"),
        ({"rate_limit": 0}, "rate_limit"),
        ([], "policy"),
    ],
)
async def test_a_wrong_policy_is_refused(caller: Caller, policy: Any, field: str) -> None:
    """The field that is wrong is named, and the policy stays as it was."""
    reply = await caller.ask("db.admin.set_policy", {"namespace": "kv/p", "policy": policy})
    assert (reply["success"], reply["error_code"], reply["field"]) == (False, "VALIDATION_ERROR", field)


async def test_the_audit(caller: Caller, running: Running) -> None:
    """Records are shown with all their fields, found by any of them, and verified where the key is."""
    key = "tenant/acme/project/web/k"
    put = {"key": "k", "value": 1, "lastWriter": "a:d", "requestId": "r1", "specRef": "doc"}
    await caller.ask("db.semantic.acme.web.put", put | {"semantics": {"purpose": "config"}})
    await caller.ask("db.semantic.acme.web.delete", {"key": "k"})
    reply = await caller.ask("db.admin.audit", WEB)
    assert (reply["success"], reply["count"], reply["next"]) == (True, 2, None)
    one, two = reply["records"]
    hashed = {name: one.pop(name) for name in ("after", "signature", "signed_by")}
    assert one == {
        "number": 1,
        "at": START,
        "writer": "a:d",
        "principal": "open:acme/web",
        "form": 2,
        "op": "set",
        "key": key,
        "version_before": None,
        "version": 1,
        "purpose": "config",
        "request_id": "r1",
        "spec_ref": "doc",
        "before": None,
        "previous": "",
    }
    assert (two["before"], two["previous"]) == (hashed["after"], hashed["signature"])
    filters: dict[str, Any] = {
        "prefix": key,
        "last_writer": "a:d",
        "op": "set",
        "purpose": "config",
        "request_id": "r1",
    }
    filters |= {"since": START, "until": "2023-11-14T22:13:21Z", "after": 0, "limit": 10}
    found = await caller.ask("db.admin.audit", WEB | filters)
    assert [record["number"] for record in found["records"]] == [1]
    assert (await caller.ask("db.admin.audit", WEB | filters | {"until": START}))["records"] == []
    assert await caller.ask("db.admin.audit_verify", WEB) == {
        "success": True,
        "number": 2,
        "signature": two["signature"],
        "floor": 0,
        "complete": True,
        "broken_at": None,
        "reason": None,
    }
    wrong = await caller.ask("db.admin.audit_verify", WEB | {"after": 1, "anchor": "feed"})
    assert (wrong["broken_at"], "does not follow" in wrong["reason"]) == (2, True)
    assert running.recorder.unknown == {}


@pytest.mark.parametrize(
    ("verb", "fields", "field"),
    [
        ("audit", {}, "namespace"),
        ("audit", {"namespace": "elsewhere"}, "namespace"),
        ("audit", WEB | {"limit": 0}, "limit"),
        ("audit", WEB | {"since": 5}, "since"),
        ("audit", WEB | {"until": "soon"}, "until"),
        ("audit", WEB | {"op": 5}, "op"),
        ("audit_verify", WEB | {"after": "x"}, "after"),
        ("audit_verify", WEB | {"anchor": 5}, "anchor"),
    ],
)
async def test_a_wrong_question_is_refused(
    caller: Caller, verb: str, fields: dict[str, Any], field: str
) -> None:
    """What can't be meant is refused by name."""
    reply = await caller.ask(f"db.admin.{verb}", fields)
    assert (reply["success"], reply["field"]) == (False, field)


async def test_a_page_of_the_audit_fits_a_reply(caller: Caller, running: Running) -> None:
    """However many records are asked for, a page has at most 512 KB, and the next goes on from there."""
    kv = running.store.semantic("acme", "web")
    writes = [{"key": f"k{number:04}", "value": number} for number in range(1_000)]
    await kv.batch(writes=writes, spec_ref="d" * 500, writer="w" * 200)
    pages: list[list[int]] = []
    after: int | None = 0
    while after is not None:
        reply = await caller.ask("db.admin.audit", WEB | {"limit": 10_000, "after": after})
        assert len(json.dumps(reply, separators=(",", ":"))) <= rules.MAX_TRANSFER_BYTES + 200
        pages.append([record["number"] for record in reply["records"]])
        after = reply["next"]
    assert len(pages) == 3
    assert [number for page in pages for number in page] == list(range(1, 1_001))


async def test_a_rate_is_kept_at_this_door(caller: Caller, clock: ManualClock) -> None:
    """A plugin past its rate is told when to come back, in its dialect; operators and others go on."""
    for namespace in ("kv/trivia", "semantic/acme/web"):
        await caller.ask("db.admin.set_policy", {"namespace": namespace, "policy": {"rate_limit": 2}})
    key = {"key": "k"}
    verbs: dict[str, dict[str, Any]] = {"set": key | {"value": 1}, "get": key, "changes": {}, "history": key}
    for verb, fields in verbs.items():
        for _ in range(2):
            assert (await caller.ask(f"db.kv.trivia.{verb}", fields))["success"], verb
        [refused] = await caller.ask_all([(f"db.kv.trivia.{verb}", fields)])
        reply = refused.fields
        assert (reply["error_code"], reply["retryable"], reply["retry_after"]) == ("RATE_LIMITED", True, 0.5)
        assert refused.headers["Holdfast-Error-Code"] == "RATE_LIMITED"
        assert (await caller.ask("db.kv.other.get", {"key": "k"}))["success"]
        assert (await caller.ask("db.admin.stats", {"namespace": "kv/trivia"}))["success"]
        clock.advance(1)
    subject = "db.semantic.acme.web.get"
    replies = [await caller.ask(subject, {"key": "k"}) for _ in range(3)]
    assert [reply["success"] for reply in replies] == [True, True, False]
    assert (replies[2]["errorCode"], replies[2]["retryAfter"]) == ("rate_limited", 0.5)


async def test_a_loaded_version_leaves_room_for_writes(caller: Caller, running: Running) -> None:
    """Nobody can use up the versions of a namespace with one `load`."""
    await caller.ask("db.kv.trivia.set", {"key": "a", "value": 1})
    entry = {"key": "a", "value": 2, "version": 2**63 - 1, "created_at": START, "updated_at": START}
    entry |= {
        "expires_at": None,
        "last_writer": "me",
        "semantics": None,
        "request_id": None,
        "spec_ref": None,
    }
    load = {"namespace": "kv/trivia", "entries": [entry], "keep_versions": True}
    reply = await caller.ask("db.admin.load", load)
    assert (reply["success"], reply["error_code"], reply["field"]) == (False, "VALIDATION_ERROR", "version")
    assert (await caller.ask("db.kv.trivia.set", {"key": "a", "value": 3}))["version"] == 2
    entry["version"] = 2**62
    assert await caller.ask("db.admin.load", load) == {"success": True, "written": 1}
    assert (await caller.ask("db.kv.trivia.set", {"key": "a", "value": 4}))["version"] == 2**62 + 1


async def test_namespaces_come_in_pages(caller: Caller, running: Running) -> None:
    """However many namespaces there are, a reply fits; the pages together have each once, by name."""
    names = sorted(f"kv/{number:03}{'x' * 97}" for number in range(5))
    for name in names:
        await running.store.kv(name.removeprefix("kv/")).set("k", 1)
    first = await caller.ask("db.admin.namespaces", {"limit": 2})
    assert ([one["namespace"] for one in first["namespaces"]], first["count"]) == (names[:2], 2)
    assert (first["truncated"], first["namespaces"][0]["keys"]) == (True, 1)
    second = await caller.ask("db.admin.namespaces", {"limit": 2, "cursor": first["cursor"]})
    last = await caller.ask("db.admin.namespaces", {"limit": 2, "cursor": second["cursor"]})
    assert [one["namespace"] for one in second["namespaces"] + last["namespaces"]] == names[2:]
    assert (last["count"], last["truncated"], last["cursor"]) == (1, False, None)
    whole = await caller.ask("db.admin.namespaces")
    assert (whole["count"], whole["cursor"]) == (5, None)
    assert running.recorder.unknown == {}


@pytest.mark.parametrize(
    ("field", "wrong"), [("limit", 0), ("limit", 10_001), ("cursor", "?"), ("cursor", 5)]
)
async def test_a_wrong_page_of_namespaces_is_refused(caller: Caller, field: str, wrong: Any) -> None:
    """A limit or cursor that can't be meant is refused by its name, as `list` does."""
    reply = await caller.ask("db.admin.namespaces", {field: wrong})
    assert (reply["success"], reply["error_code"], reply["field"]) == (False, "VALIDATION_ERROR", field)


async def test_a_client_sees_all_namespaces(
    running: Running, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`store.namespaces()` of a program beyond the bus has them all, however small a page is."""
    monkeypatch.setattr(store_stats, "STATS_BYTES", rules.MAX_TRANSFER_BYTES // 2)
    for number in range(5):
        await running.store.kv(f"p{number}").set("k", 1)
    async with holdfast.open(nats_server.url) as store:
        assert await store.namespaces() == await running.store.namespaces()


def test_a_full_page_of_namespaces_fits_a_reply() -> None:
    """The longest names with the greatest numbers fit the reply that the largest page is sent in."""
    most = rules.MAX_TRANSFER_BYTES // store_stats.STATS_BYTES
    tenant, project = "t" * 63, "p" * 59
    stats = holdfast.Stats(
        namespace=f"semantic/{tenant}/{project}9999",
        keys=2**63 - 1,
        bytes=2**63 - 1,
        version=2**63 - 1,
        changed_at=datetime.max.replace(tzinfo=UTC),
        kept_bytes=2**63 - 1,
        parts=holdfast.Parts(**dict.fromkeys(holdfast.Parts.__struct_fields__, 2**63 - 1)),
    )
    assert len(msgspec.json.encode(stats_fields(stats))) * most <= rules.MAX_TRANSFER_BYTES
