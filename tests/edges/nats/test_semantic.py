"""The semantic family as a caller meets it who has nothing but the plain NATS library.

Requests and replies are compared as they travel, in camelCase; no client of ours is between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import nats
import pytest

from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from tests.edges.nats.ground import PATIENCE, START, Running

ROOT = "tenant/acme/project/web/"
LATER = "2023-11-14T22:14:20Z"
"""A minute after a manual clock begins."""

Ask: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def ask(nats_server: NatsServer, running: Running) -> AsyncIterator[Ask]:
    """Asks for a verb of a project, acme's web if no other is named."""
    client = await nats.connect(nats_server.url)

    async def ask(verb: str, *, owner: str = "acme.web", **fields: Any) -> dict[str, Any]:
        subject = f"db.semantic.{owner}.{verb}"
        message = await client.request(subject, json.dumps(fields).encode(), timeout=PATIENCE)
        reply: dict[str, Any] = json.loads(message.data)
        return reply

    yield ask
    await client.close()


async def test_the_envelope_comes_back_as_it_was_given(ask: Ask, clock: ManualClock) -> None:
    """put keeps the whole envelope; updatedAt and version are the service's, whatever a caller claims."""
    semantics = {"purpose": "cursor", "producer": "bot", "consumerHints": ["a", "b"], "ttlSeconds": 60}
    given = {"lastWriter": "bot:sync", "requestId": "r 1", "specRef": "adr-7", "semantics": semantics}
    claimed = {"updatedAt": "1999-01-01T00:00:00Z", "version": 99, "createdAt": "1999-01-01T00:00:00Z"}
    done = await ask("put", key="docs/delta", value={"snake_name": {"camelName": 1}}, **given, **claimed)
    assert done == {"success": True, "version": 1, "expiresAt": LATER}
    shown = {
        "success": True,
        "exists": True,
        "value": {"snake_name": {"camelName": 1}},
        "version": 1,
        "expiresAt": LATER,
        "createdAt": START,
        "updatedAt": START,
        **given,
    }
    assert await ask("get", key="docs/delta") == shown
    clock.advance(1)
    await ask("put", key="docs/delta", value=2)
    after = await ask("get", key="docs/delta")
    assert (after["updatedAt"], after["createdAt"], after["version"]) == ("2023-11-14T22:13:21Z", START, 2)
    assert (after["expiresAt"], after["lastWriter"]) == (None, "acme/web")
    assert not {"semantics", "specRef"} & set(after)
    assert after["requestId"]


async def test_ways_to_say_a_deadline(ask: Ask) -> None:
    """ttl, ttlSeconds and semantics.ttlSeconds are one thing; given twice they must agree."""
    ways: list[dict[str, Any]] = [{"ttl": 60}, {"ttlSeconds": 60}, {"semantics": {"ttlSeconds": 60}}]
    for number, given in enumerate(ways):
        assert (await ask("put", key=f"k{number}", value=1, **given))["expiresAt"] == LATER
    await ask("put", key="both", value=1, ttlSeconds=60, semantics={"ttlSeconds": 60})
    assert (await ask("get_ttl", key="both"))["ttl"] == 60
    assert (await ask("put", key="both", value=2, keepTtl=True))["expiresAt"] == LATER
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ttl": 60, "ttlSeconds": 61}, "ttl"),
        ({"ttlSeconds": 60, "semantics": {"ttlSeconds": 61}}, "ttl"),
        ({"ttlSeconds": 0}, "ttlSeconds"),
        ({"semantics": {"ttlSeconds": 1.5}}, "semantics.ttlSeconds"),
    ]
    for given, field in wrong:
        reply = await ask("put", key="no", value=1, **given)
        assert (reply["errorCode"], reply["field"]) == ("validation_error", field), given
    assert (await ask("get", key="no"))["exists"] is False


async def test_a_lost_race_shows_what_won(ask: Ask) -> None:
    """A version_conflict carries the current version, value, lastWriter, purpose and expiresAt."""
    winner = {"lastWriter": "bot:a", "semantics": {"purpose": "checkpoint"}, "ttlSeconds": 60}
    await ask("put", key="cp", value={"at_row": 7}, **winner)
    calls: dict[str, dict[str, Any]] = {
        "put": {"value": 1},
        "delete": {},
        "incr": {},
        "set_ttl": {"ttlSeconds": 5},
        "touch": {"ttlSeconds": 5},
        "remove_ttl": {},
        "restore": {},
    }
    for verb, fields in calls.items():
        lost = await ask(verb, key="cp", expectedVersion=5, **fields)
        assert (lost["success"], lost["errorCode"], lost["retryable"]) == (False, "version_conflict", False)
        current = lost["current"]
        assert (current["version"], current["value"], current["key"]) == (1, {"at_row": 7}, f"{ROOT}cp")
        assert (current["lastWriter"], current["purpose"]) == ("bot:a", "checkpoint")
        assert (current["expiresAt"], current["updatedAt"]) == (LATER, START)
    gone = await ask("delete", key="none", expectedVersion=5)
    assert (gone["errorCode"], gone["current"]) == ("version_conflict", None)
    assert (await ask("get", key="cp"))["version"] == 1


async def test_a_batch_tells_of_every_check_that_failed(ask: Ask) -> None:
    """The conflicts of a batch are one for each failed check, with full key and current entry, or null."""
    for key in ("a", "b"):
        await ask("put", key=key, value=key, lastWriter=f"bot:{key}", semantics={"purpose": "config"})
    checks = [{"key": "a", "version": 9}, {"key": "b", "version": 2}, {"key": f"{ROOT}c", "version": 3}]
    lost = await ask("batch", checks=checks, writes=[{"key": "a", "value": 1}])
    assert lost["errorCode"] == "version_conflict"
    told = [(one["key"], one["expectedVersion"]) for one in lost["conflicts"]]
    assert told == [(f"{ROOT}a", 9), (f"{ROOT}c", 3)]
    current = lost["conflicts"][0]["current"]
    assert (current["value"], current["version"], current["lastWriter"]) == ("a", 1, "bot:a")
    assert (current["purpose"], current["expiresAt"]) == ("config", None)
    assert lost["conflicts"][1]["current"] is None
    assert (await ask("get", key="a"))["value"] == "a"


async def test_a_reused_request_id(ask: Ask) -> None:
    """The same requestId replays the first answer; with other content it is a conflict that says why.

    What was refused, as by a fence, has changed nothing.
    """
    first = await ask("incr", key="n", by=2, requestId="once")
    assert await ask("incr", key="n", by=2, requestId="once") == first
    fenced = await ask("incr", key="n", fence={"lock": "nobody", "token": 1})
    assert (fenced["errorCode"], fenced["retryable"]) == ("fenced", False)
    stale = await ask("incr", key="n", by=3, requestId="once")
    assert (stale["errorCode"], stale["reason"]) == ("version_conflict", "request_id_reused")
    assert (await ask("get", key="n"))["value"] == 2


async def test_every_verb_speaks_camel_case(ask: Ask, clock: ManualClock) -> None:
    """No reply of any verb has a name with an underscore in it, beside what is the caller's own."""
    semantics = {"purpose": "config", "consumerHints": ["x"]}
    item = {"key": "a", "value": 1, "ttlSeconds": 1, "expectedVersion": 0, "semantics": semantics}
    replies = {
        "set_many": await ask("set_many", items=[item, {"key": "b", "value": 2}, {"key": "B", "value": 1}]),
        "get_many": await ask("get_many", keys=["a", "none", "tenant/x"]),
        "list": await ask("list", values=True),
        "incr": await ask("incr", key="b"),
        "get_ttl": await ask("get_ttl", key="a"),
        "set_ttl": await ask("set_ttl", key="b", ttlSeconds=5),
        "remove_ttl": await ask("remove_ttl", key="b"),
        "stats": await ask("stats"),
        "put": await ask("put", key="c", value=1, envelope=True),
    }
    clock.advance(1)
    replies["set"] = await ask("set", key="a", value="over an expired one")
    replies["delete"] = await ask("delete", key="a")
    replies["delete_many"] = await ask("delete_many", keys=["b"])
    replies["restore"] = await ask("restore", key="a")
    replies["batch"] = await ask("batch", writes=[{"key": "b", "value": 1, "ttlSeconds": 5}])
    replies["changes"] = await ask("changes")
    replies["history"] = await ask("history", key="a")
    for verb, reply in replies.items():
        assert reply["success"] is True, verb
        assert not [name for name in _names(reply) if "_" in name], verb
    expired = next(one for one in replies["changes"]["changes"] if one["op"] == "expired")
    assert (expired["key"], expired["expiredVersion"], expired["purpose"]) == (f"{ROOT}a", 1, "config")
    assert expired["lagMs"] == 0
    assert [one.get("errorCode") for one in replies["set_many"]["results"]] == [
        None,
        None,
        "validation_error",
    ]
    foreign = replies["get_many"]["results"][2]
    assert (foreign["errorCode"], foreign["field"]) == ("validation_error", "key")
    assert replies["put"]["key"] == f"{ROOT}c"


async def test_refusals_name_the_field_as_it_was_sent(ask: Ask) -> None:
    """An error names the wrong field in the caller's spelling, nested ones by their path."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"lastWriter": ""}, "lastWriter"),
        ({"requestId": "r" * 201}, "requestId"),
        ({"specRef": "s" * 501}, "specRef"),
        ({"expectedVersion": "1"}, "expectedVersion"),
        ({"semantics": {"purpose": "Not"}}, "semantics.purpose"),
        ({"semantics": {"producer": ""}}, "semantics.producer"),
        ({"semantics": {"consumerHints": ["x"] * 17}}, "semantics.consumerHints"),
        ({"fence": {"lock": "", "token": 1}}, "fence.lock"),
        ({"deadlineMs": -1}, "deadlineMs"),
    ]
    for given, field in wrong:
        reply = await ask("put", key="k", value=1, **given)
        assert (reply["errorCode"], reply["field"]) == ("validation_error", field), given
    missing = await ask("put", key="k")
    assert (missing["errorCode"], missing["field"]) == ("missing_field", "value")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("Docs/a", "component 1 after 'tenant/acme/project/web/' is 'Docs'"),
        ("docs//a", "component 2 after 'tenant/acme/project/web/' is ''"),
        (f"{ROOT}docs/a b", "component 2 after 'tenant/acme/project/web/' is 'a b'"),
        ("docs/" + "x" * 200, "205 characters; at most 128"),
        ("docs/" + "x" * 110, "characters in full; at most 128"),
    ],
)
async def test_a_wrong_name_is_a_field_error(ask: Ask, key: str, words: str) -> None:
    """A key that breaks the naming rule is refused with the field key and the component that is wrong."""
    reply = await ask("put", key=key, value=1)
    assert (reply["errorCode"], reply["field"]) == ("validation_error", "key")
    assert words in reply["message"]


async def test_lists_by_envelope(ask: Ask) -> None:
    """list takes purpose, producer, lastWriter, specRef and expiresBefore, and pages as ever."""
    await ask("put", key="a", value=1, semantics={"purpose": "lock", "producer": "p"}, ttlSeconds=60)
    await ask("put", key="b", value=1, semantics={"purpose": "lock"}, lastWriter="bot:x", specRef="s")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({"purpose": "lock"}, ["a", "b"]),
        ({"producer": "p"}, ["a"]),
        ({"lastWriter": "bot:x"}, ["b"]),
        ({"specRef": "s"}, ["b"]),
        ({"expiresBefore": "2023-11-14T22:14:21Z"}, ["a"]),
        ({"expiresBefore": "2023-11-15T00:14:20+02:00"}, []),
    ]
    for given, keys in wanted:
        assert (await ask("list", **given))["keys"] == [ROOT + key for key in keys], given
    page = await ask("list", purpose="lock", limit=1)
    assert (page["count"], page["truncated"]) == (1, True)
    rest = await ask("list", purpose="lock", cursor=page["cursor"])
    assert (rest["keys"], rest["truncated"], rest["cursor"]) == ([f"{ROOT}b"], False, None)
    for field in ("purpose", "producer", "lastWriter", "specRef", "expiresBefore"):
        reply = await ask("list", **{field: 5})
        assert (reply["errorCode"], reply["field"]) == ("validation_error", field)


async def test_success_and_conflict_are_logged_with_fields(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """A write is an INFO record and a conflict a WARNING, with fields that tell them apart, not values."""
    caplog.set_level(logging.INFO, logger="holdfast.writes")
    given = {"lastWriter": "bot:nightly", "semantics": {"purpose": "checkpoint"}}
    await ask("put", key="cp", value="a secret", requestId="r-1", **given)
    await ask("put", key="cp", value="a secret", requestId="r-2", expectedVersion=7, **given)
    done, lost = (vars(record) for record in caplog.records if record.name == "holdfast.writes")
    told = ("directive", "key", "purpose", "request_id", "version", "namespace", "operation")
    assert done["levelname"] == "INFO"
    assert [done[name] for name in told] == [
        *("nightly", f"{ROOT}cp", "checkpoint", "r-1", 1),
        *("semantic/acme/web", "set"),
    ]
    assert (lost["levelname"], lost["request_id"], lost["key"]) == ("WARNING", "r-2", f"{ROOT}cp")
    assert (lost["directive"], lost["version"], lost["operation"]) == ("nightly", 1, "set")
    assert "a secret" not in f"{done} {lost}"


def _names(content: Any) -> list[str]:
    """All names of a reply but those within values."""
    if isinstance(content, list):
        return [name for member in content for name in _names(member)]
    if not isinstance(content, dict):
        return []
    return [*content, *(name for key, field in content.items() if key != "value" for name in _names(field))]
