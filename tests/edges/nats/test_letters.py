"""Dead letters over NATS: callers escalate into their own namespace, operators deal with what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast import rules
from holdfast.handles.recipes.retry import Retry
from tests.edges.nats.ground import START, serving
from tests.edges.nats.test_events import Ear

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.clock import ManualClock
    from holdfast.edges.nats.server import NatsServer
    from tests.edges.nats.ground import Caller, Running

SET = {"key": "k", "value": {"secret": 1}, "expected_version": 3, "request_id": "r1"}
GIVEN_UP = {
    "verb": "set",
    "request": SET,
    "error_code": "VERSION_CONFLICT",
    "attempts": 7,
    "message": "key 'k' is at version 4",
}


@pytest.fixture
async def ear(caller: Caller) -> AsyncIterator[Ear]:
    """Hears every event."""
    ear = Ear()
    await ear.listen(caller, "db.event.>")
    yield ear
    assert ear.nothing_more()


async def test_a_plugin_escalates(running: Running, caller: Caller, ear: Ear) -> None:
    """The request is kept whole under the plugin's name, and told of with the hash of its value."""
    reply = await caller.ask("db.kv.trivia.escalate", GIVEN_UP | {"request_id": "e1"})
    assert reply == {"success": True, "letter": 1}
    subject, record = await ear.next()
    assert subject == "db.event.kv.trivia.escalated"
    hashed = record.pop("value_hash")
    assert record == {
        "op": "escalated",
        "key": "k",
        "version": 1,
        "at": START,
        "last_writer": "trivia",
        "request_id": "r1",
        "purpose": None,
        "error_code": "VERSION_CONFLICT",
        "attempts": 7,
    }
    assert hashed is None or len(hashed) == 64
    told = (await caller.ask("db.kv.trivia.changes"))["changes"]
    assert told == [record | {"value_hash": hashed}]
    assert "secret" not in str(told)
    kept = await caller.ask("db.admin.deadletters", {"namespace": "kv/trivia"})
    assert kept == {
        "success": True,
        "letters": [
            {
                "number": 1,
                "at": START,
                "key": "k",
                "verb": "set",
                "request": SET | {"last_writer": "trivia", "value": "***"},
                "error_code": "VERSION_CONFLICT",
                "message": "key 'k' is at version 4",
                "attempts": 7,
                "writer": "trivia",
                "request_id": "r1",
            }
        ],
        "count": 1,
        "next": None,
    }


@pytest.mark.parametrize("reveal", [None, "audited", "never", "open"])
async def test_values_are_masked_as_the_policy_says(caller: Caller, reveal: str | None) -> None:
    """Operators see what a letter would write once they say why, never, or at once: as the policy has it."""
    writes = [{"key": "a", "value": {"pin": "secret"}}, {"key": "b", "incr": 2}]
    batch = {"verb": "batch", "request": {"writes": writes, "request_id": "b1"}, "error_code": "BUSY"}
    for fields in (GIVEN_UP, batch | {"attempts": 5}):
        await caller.ask("db.kv.trivia.escalate", fields)
    where = {"namespace": "kv/trivia"}
    await caller.ask("db.admin.set_policy", where | {"policy": {"reveal": reveal}})
    letters = (await caller.ask("db.admin.deadletters", where))["letters"]
    assert ("secret" in str(letters)) == (reveal == "open")
    assert [one["key"] for one in letters[1]["request"]["writes"]] == ["a", "b"]
    assert letters[1]["request"]["writes"][1]["incr"] == 2
    shown = await caller.ask("db.admin.deadletter_reveal", where | {"number": 2, "why": "OPS-1"})
    assert (shown["success"], "secret" in str(shown)) == ((reveal != "never"), reveal != "never")
    empty = await caller.ask("db.admin.deadletter_reveal", where | {"number": 2, "why": "?"})
    needless = reveal in (None, "open")  # the namespace has no audit
    assert (empty["success"], "secret" in str(empty)) == (needless, needless)


async def test_escalating_twice_is_once(caller: Caller, ear: Ear) -> None:
    """An escalation that is sent again under its request id makes no second letter and no second event."""
    for _ in range(2):
        assert (await caller.ask("db.kv.trivia.escalate", GIVEN_UP | {"request_id": "e1"}))["letter"] == 1
    assert len((await caller.ask("db.admin.deadletters", {"namespace": "kv/trivia"}))["letters"]) == 1
    await ear.next()


async def test_the_dialects_escalate(caller: Caller, ear: Ear) -> None:
    """The semantic dialect in camelCase and lower case, the payload dialect for a plugin that it names."""
    request = {"key": "jobs/a", "value": {"snake_case": 1}, "ttlSeconds": 60, "requestId": "r1"}
    fields = {"verb": "put", "request": request, "errorCode": "busy", "attempts": 5}
    reply = await caller.ask("db.semantic.acme.web.escalate", fields)
    assert reply == {"success": True, "letter": 1}
    subject, record = await ear.next()
    assert subject == "db.event.semantic.acme.web.escalated"
    assert (record["errorCode"], record["attempts"], record["requestId"]) == ("busy", 5, "r1")
    assert "valueHash" in record
    told = await caller.ask("db.semantic.acme.web.history", {"key": "jobs/a"})
    assert told["changes"] == [record]
    listed = await caller.ask("db.admin.deadletters", {"namespace": "semantic/acme/web"})
    assert listed["letters"][0]["error_code"] == "BUSY"
    assert listed["letters"][0]["request"] == {
        "key": "tenant/acme/project/web/jobs/a",
        "value": "***",
        "ttl": 60,
        "request_id": "r1",
        "last_writer": "acme/web",
    }
    reply = await caller.ask("db.kv.escalate", GIVEN_UP | {"plugin_name": "quotes"})
    assert reply == {"success": True, "data": {"letter": 1}}
    assert (await ear.next())[0] == "db.event.kv.quotes.escalated"


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"verb": None}, "MISSING_FIELD", "verb"),
        ({"verb": "get"}, "VALIDATION_ERROR", "verb"),
        ({"verb": "escalate"}, "VALIDATION_ERROR", "verb"),
        ({"verb": ["set"]}, "VALIDATION_ERROR", "verb"),
        ({"request": None}, "MISSING_FIELD", "request"),
        ({"request": "set"}, "VALIDATION_ERROR", "request"),
        ({"request": {"key": "k"}}, "MISSING_FIELD", "value"),
        ({"request": {"key": "", "value": 1}}, "VALIDATION_ERROR", "key"),
        ({"request": {"key": "k", "value": 1}}, "MISSING_FIELD", "request.request_id"),
        ({"request": SET | {"value": "x" * 700_000}}, "VALUE_TOO_LARGE", "value"),
        ({"verb": "set_many", "request": {"items": []}}, "VALIDATION_ERROR", "request"),
        ({"error_code": None}, "MISSING_FIELD", "error_code"),
        ({"error_code": "NO_SUCH"}, "VALIDATION_ERROR", "error_code"),
        ({"error_code": 5}, "VALIDATION_ERROR", "error_code"),
        ({"attempts": None}, "MISSING_FIELD", "attempts"),
        ({"attempts": 0}, "VALIDATION_ERROR", "attempts"),
        ({"attempts": True}, "VALIDATION_ERROR", "attempts"),
        ({"message": "x" * 501}, "VALIDATION_ERROR", "message"),
        ({"message": 5}, "VALIDATION_ERROR", "message"),
    ],
)
async def test_a_letter_without_a_possible_call_is_refused(
    caller: Caller, ear: Ear, change: Any, code: str, field: str
) -> None:
    """Only a call that could be made here, with a request id, and a known reason, is kept."""
    reply = await caller.ask("db.kv.trivia.escalate", GIVEN_UP | change)
    assert (reply["success"], reply["error_code"], reply.get("field")) == (False, code, field)
    assert (await caller.ask("db.admin.deadletters", {"namespace": "kv/trivia"}))["letters"] == []


async def test_nobody_escalates_for_others(caller: Caller, ear: Ear) -> None:
    """A letter is about its caller's own keys: another project's are refused, whatever the request names."""
    request = {"key": "tenant/acme/project/other/a", "value": 1, "requestId": "r1"}
    fields = {"verb": "put", "request": request, "errorCode": "BUSY", "attempts": 5}
    reply = await caller.ask("db.semantic.acme.web.escalate", fields)
    assert (reply["errorCode"], reply["field"]) == ("validation_error", "key")
    named = GIVEN_UP | {"plugin_name": "quotes", "namespace": "kv/quotes"}
    await caller.ask("db.kv.trivia.escalate", named | {"request": SET | {"plugin_name": "quotes"}})
    assert (await ear.next())[0] == "db.event.kv.trivia.escalated"
    assert (await caller.ask("db.admin.deadletters", {"namespace": "kv/quotes"}))["letters"] == []


async def test_letters_are_bounded(caller: Caller, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """One letter holds so much, and all of a namespace so much; dropping some makes room again."""
    monkeypatch.setattr(rules, "MAX_LETTERS_BYTES", 1_300)
    for number in (1, 2):
        assert (await caller.ask("db.kv.trivia.escalate", GIVEN_UP))["letter"] == number
        await ear.next()
    assert (await caller.ask("db.kv.trivia.escalate", GIVEN_UP))["error_code"] == "QUOTA_EXCEEDED"
    assert (await caller.ask("db.kv.quotes.escalate", GIVEN_UP))["letter"] == 1
    await ear.next()
    await caller.ask("db.admin.deadletter_drop", {"namespace": "kv/trivia", "number": 1})
    assert (await caller.ask("db.kv.trivia.escalate", GIVEN_UP))["success"] is True
    await ear.next()
    monkeypatch.setattr(rules, "MAX_LETTER_BYTES", 100)
    assert (await caller.ask("db.kv.more.escalate", GIVEN_UP))["error_code"] == "VALUE_TOO_LARGE"


async def test_operators_deal_with_letters(caller: Caller) -> None:
    """They do a letter again, which answers as its verb does, or drop it; what fails stays and says why."""
    where = {"namespace": "kv/trivia"}
    for key in ("a", "b", "c"):
        request = {"key": key, "value": key, "expected_version": 0, "request_id": key}
        await caller.ask("db.kv.trivia.escalate", GIVEN_UP | {"request": request})
    await caller.ask("db.kv.trivia.set", {"key": "b", "value": "theirs"})
    done = await caller.ask("db.admin.deadletter_retry", where | {"number": 1})
    assert done == {"success": True, "reply": {"version": 5, "expires_at": None}}
    found = await caller.ask("db.kv.trivia.get", {"key": "a"})
    assert (found["value"], found["last_writer"], found["request_id"]) == ("a", "trivia", "a")
    failed = await caller.ask("db.admin.deadletter_retry", where | {"number": 2})
    assert (failed["error_code"], failed["current"]["value"]) == ("VERSION_CONFLICT", "theirs")
    assert await caller.ask("db.admin.deadletter_drop", where | {"number": 3}) == {
        "success": True,
        "dropped": True,
    }
    assert (await caller.ask("db.admin.deadletter_drop", where | {"number": 3}))["dropped"] is False
    page = await caller.ask("db.admin.deadletters", where | {"limit": 1})
    assert ([letter["number"] for letter in page["letters"]], page["next"]) == ([2], None)
    assert (await caller.ask("db.admin.deadletters", where | {"after": 2}))["letters"] == []
    for fields, code in (
        ({"number": 1}, "MISSING_FIELD"),
        (where, "MISSING_FIELD"),
        (where | {"number": 0}, "VALIDATION_ERROR"),
        (where | {"number": 1}, "KEY_NOT_FOUND"),
        ({"namespace": "trivia", "number": 1}, "VALIDATION_ERROR"),
    ):
        assert (await caller.ask("db.admin.deadletter_retry", fields))["error_code"] == code, fields


async def test_a_letter_of_several(caller: Caller) -> None:
    """As long as one member of a set_many can't be done its letter stays; what was done is not done again."""
    where = {"namespace": "kv/trivia", "number": 1}
    items = [{"key": "a", "value": 1}, {"key": "b", "value": 2, "expected_version": 0}]
    request = {"items": items, "request_id": "r1"}
    kept = await caller.ask("db.kv.trivia.escalate", GIVEN_UP | {"verb": "set_many", "request": request})
    assert kept["letter"] == 1
    await caller.ask("db.kv.trivia.set", {"key": "b", "value": "theirs"})
    assert (await caller.ask("db.admin.deadletter_retry", where))["error_code"] == "VERSION_CONFLICT"
    first = await caller.ask("db.kv.trivia.get", {"key": "a"})
    assert first["value"] == 1
    await caller.ask("db.kv.trivia.delete", {"key": "b"})
    done = await caller.ask("db.admin.deadletter_retry", where)
    assert [member["success"] for member in done["reply"]["results"]] == [True, True]
    assert done["reply"]["results"][0]["version"] == first["version"]
    assert (await caller.ask("db.admin.deadletter_retry", where))["error_code"] == "KEY_NOT_FOUND"


async def test_a_client_that_gives_up(nats_server: NatsServer, running: Running, clock: ManualClock) -> None:
    """`kv.retry` of a client over NATS keeps its letter with the service, under the service's idea of who."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    async with holdfast.open(nats_server.url) as store:
        kv = store.kv("trivia")
        await kv.set("k", "theirs")
        with pytest.raises(holdfast.Escalated) as caught:
            await Retry(kv, sleep=sleep).set("k", "mine", expected_version=0)
        number = caught.value.letter or 0
        letter = await store.letters("kv/trivia").get(number)
        assert letter is not None
        assert (letter.writer, letter.request["last_writer"]) == ("trivia", "trivia")
        assert letter == await running.store.letters("kv/trivia").get(number, masked=True)
        assert await store.letters("kv/trivia").reveal(number, "OPS-1") == await running.store.letters(
            "kv/trivia"
        ).get(number)
        await kv.delete("k")
        await store.letters("kv/trivia").retry(number)
        entry = await kv.get("k")
        assert entry is not None
        assert (entry.value, entry.request_id) == ("mine", letter.request_id)


async def test_a_service_that_is_gone(nats_server: NatsServer) -> None:
    """Where nobody answers, all attempts fail and the letter can't be kept: that too is `Escalated`."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with serving(nats_server.url), holdfast.open(nats_server.url) as store:
        await store.kv("trivia").set("k", 1)
        await store.ready()
    async with holdfast.open(nats_server.url) as store:
        with pytest.raises(holdfast.Escalated) as caught:
            await Retry(store.kv("trivia"), sleep=sleep, random=lambda: 0.5).set("k", 2)
    assert (caught.value.letter, caught.value.code, caught.value.attempts) == (None, "UNAVAILABLE", 5)
    assert slept == [0.25, 0.5, 1, 2] * 2
