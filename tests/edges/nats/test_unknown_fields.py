"""A field that a verb does not know: the caller is warned, or refused where that is asked for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import holdfast
from holdfast.edges.calls.unknown import MOST, NAMED
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from holdfast.wire import tables
from tests.edges.calls.script import SCRIPT
from tests.edges.nats.ground import Answer, Caller, Running, calling, serving

HEADER = "Holdfast-Warning"
TABLE = {"table": "t", "partition_key": {"name": "id", "type": "string"}}


async def answered(caller: Caller, subject: str, fields: dict[str, Any]) -> Answer:
    """The reply to a request, with its headers."""
    [answer] = await caller.ask_all([(subject, fields)])
    return answer


async def test_a_mistyped_field_is_warned_of(
    running: Running, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """A call with a mistyped field is done without it; reply, metric and log tell which it was."""
    caplog.set_level(logging.DEBUG, "holdfast.service")
    answer = await answered(caller, "db.kv.trivia.set", {"key": "k", "value": 1, "ttl_second": 5})
    assert answer.fields["success"] is True
    assert answer.headers[HEADER] == "unknown field ttl_second"
    assert running.recorder.unknown == {"trivia": 1}
    [line] = [one for one in caplog.records if "unknown field" in one.getMessage()]
    assert (line.levelname, line.getMessage()) == ("DEBUG", "set of trivia has unknown field ttl_second")


async def test_a_call_without_unknown_fields_is_not_warned(caller: Caller) -> None:
    """A reply has no warning where there is nothing to warn of, nested objects included."""
    fields = {"key": "k", "value": {"colour": 1}, "semantics": {"purpose": "cache"}, "deadline_ms": 9_000}
    assert HEADER not in (await answered(caller, "db.kv.trivia.set", fields)).headers
    assert HEADER not in (await answered(caller, "db.kv.trivia.get", {"key": "k", "ttl": None})).headers


async def test_fields_are_known_by_verb(caller: Caller) -> None:
    """A field of one verb is unknown to another that does not take it."""
    answer = await answered(caller, "db.kv.trivia.get", {"key": "k", "ttl": 5})
    assert answer.headers[HEADER] == "unknown field ttl"
    answer = await answered(caller, "db.kv.trivia.get", {"key": "k", "plugin_name": "trivia"})
    assert answer.headers[HEADER] == "unknown field plugin_name"


@pytest.mark.parametrize(
    ("subject", "fields", "warning"),
    [
        ("db.kv.set", {"plugin_name": "p", "key": "k", "value": 1, "colour": 1}, "unknown field colour"),
        ("db.semantic.a.b.put", {"key": "k", "value": 1, "ttlSecond": 5}, "unknown field ttlSecond"),
        ("db.kv.p.set", {"key": "k", "value": 1, "b": 1, "a": 1}, "unknown fields b, a"),
        ("db.kv.p.get", {"kye": "k"}, "unknown field kye"),
        (
            "db.kv.p.set",
            {"key": "k", "value": 1, "semantics": {"purpose": "cache", "producr": "x"}},
            "unknown field semantics.producr",
        ),
        (
            "db.kv.p.set_many",
            {"items": [{"key": "a", "value": 1}, {"key": "b", "value": 1, "ttl_second": 5}]},
            "unknown field items[1].ttl_second",
        ),
        (
            "db.kv.p.batch",
            {"writes": [{"key": "a", "value": 1, "tll": 5}], "checks": [{"key": "b", "version": 0, "x": 1}]},
            "unknown fields writes[0].tll, checks[0].x",
        ),
        (
            "db.semantic.a.b.set_many",
            {"items": [{"key": "b", "value": 1, "ttlSecond": 5}]},
            "unknown field items[0].ttlSecond",
        ),
        ("db.table.p.create_table", TABLE | {"streem": "both"}, "unknown field streem"),
        ("db.table.p.list_tables", {"table": "t", "timeout": 5}, "unknown fields table, timeout"),
        (
            "db.table.p.transact_write",
            {"table": "t", "writes": [{"put": {"item": {"id": "x", "colour": 1}, "conditon": {}}}]},
            "unknown field writes[0].put.conditon",
        ),
        ("db.admin.sweep", {"namespace": "kv/p"}, "unknown field namespace"),
        (
            "db.kv.p.get",
            {"key": "k", "a\r\nX-Header: 1": 1, "ü": 1},
            r"unknown fields a\r\nX-Header: 1, \xfc",
        ),
    ],
)
async def test_unknown_fields_are_named(
    caller: Caller, subject: str, fields: dict[str, Any], warning: str
) -> None:
    """In every dialect and family, and within members, a warning names the field as its caller spells it."""
    assert (await answered(caller, subject, fields)).headers[HEADER] == warning


async def test_a_refusal_carries_the_warning_too(caller: Caller) -> None:
    """A caller whose mistyped field leaves another one missing sees both."""
    answer = await answered(caller, "db.kv.trivia.set", {"kye": "k", "value": 1})
    assert answer.fields["error_code"] == "MISSING_FIELD"
    assert answer.headers[HEADER] == "unknown field kye"


async def test_many_unknown_fields_stay_bounded(running: Running, caller: Caller) -> None:
    """However many fields are unknown and however long their names, the warning is short."""
    fields = {f"{number:05}" * 100: 1 for number in range(900)}
    answer = await answered(caller, "db.kv.trivia.list", fields)
    assert answer.fields["success"] is True
    assert answer.headers[HEADER].endswith(f" and {MOST - NAMED} more")
    assert len(answer.headers[HEADER]) < 1_000
    assert running.recorder.unknown == {"trivia": MOST}


@pytest.mark.parametrize(
    ("subject", "fields", "message", "field"),
    [
        (
            "db.kv.p.set",
            {"key": "k", "value": 1, "ttl_second": 5},
            "unknown field ttl_second; did you mean ttl_seconds?",
            "ttl_second",
        ),
        (
            "db.semantic.a.b.put",
            {"key": "k", "value": 1, "ttlSecond": 5},
            "unknown field ttlSecond; did you mean ttlSeconds?",
            "ttlSecond",
        ),
        (
            "db.kv.p.get",
            {"key": "k", "zzz": 5},
            "unknown field zzz; known are deadline, deadline_ms, key",
            "zzz",
        ),
        (
            "db.kv.p.set_many",
            {"items": [{"key": "a", "value": 1, "ttl_second": 5}]},
            "unknown field items[0].ttl_second; did you mean ttl_seconds?",
            "items[0].ttl_second",
        ),
        (
            "db.table.p.batch_write_item",
            {"table": "t", "writes": [{"put": {"itm": {}}}]},
            "unknown field writes[0].put.itm; did you mean item?",
            "writes[0].put.itm",
        ),
        (
            "db.admin.stats",
            {"namespace": "kv/p", "name_space": 1},
            "unknown field name_space; did you mean namespace?",
            "name_space",
        ),
    ],
)
async def test_strict_fields_refuse(
    nats_server: NatsServer, subject: str, fields: dict[str, Any], message: str, field: str
) -> None:
    """With `strict_fields` nothing is done, and the error names the field and the nearest known name."""
    async with (
        serving(nats_server.url, settings=Settings(strict_fields=True)) as running,
        calling(nats_server.url) as caller,
    ):
        answer = await answered(caller, subject, fields)
        assert answer.headers["Holdfast-Error-Code"] == "VALIDATION_ERROR"
        assert (answer.fields["message"], answer.fields["field"]) == (message, field)
        assert await running.store.namespaces() == []


async def test_strict_fields_let_known_ones_pass(nats_server: NatsServer) -> None:
    """With `strict_fields` a request with all the fields that its verb has is done."""
    async with (
        serving(nats_server.url, settings=Settings(strict_fields=True)),
        calling(nats_server.url) as caller,
    ):
        for family, verb, fields in SCRIPT:
            subject = f"db.admin.{verb}" if family == "admin" else f"db.{family}.trivia.{verb}"
            assert HEADER not in (await answered(caller, subject, fields)).headers, (family, verb)


async def test_our_client_passes_a_warning_on_once(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python program whose calls have a field unknown to an older service finds one warning in its log."""
    message_of = tables.message_of
    monkeypatch.setattr(tables, "message_of", lambda command: message_of(command) | {"order": "random"})
    async with serving(nats_server.url), holdfast.open(nats_server.url) as store:
        for number in range(3):
            await store.tables("trivia").create_table(f"t{number}", partition_key=("id", "string"))
    told = [one for one in caplog.records if one.name == "holdfast.remote"]
    assert [(one.levelname, one.getMessage()) for one in told] == [
        ("WARNING", "db.table.trivia.create_table: unknown field order")
    ]


async def test_our_client_sends_no_unknown_field(nats_server: NatsServer) -> None:
    """Every call of our client is one that a service with `strict_fields` takes."""
    async with (
        serving(nats_server.url, settings=Settings(strict_fields=True)) as running,
        holdfast.open(nats_server.url) as store,
    ):
        kv = store.kv("trivia")
        await kv.set("a", 1, ttl=60, semantics={"purpose": "cache"}, request_id="r", writer="w", spec_ref="s")
        await kv.incr("n", 2)
        await kv.set_ttl("a", 60)
        await kv.remove_ttl("a")
        await kv.set_many([{"key": "b", "value": 1}])
        await kv.batch(writes=[{"key": "c", "value": 1}, {"key": "b", "delete": True}, {"guard": "l"}])
        await kv.list(values=True, purpose="cache")
        await kv.get_many(["a", "b"])
        await kv.changes()
        await kv.history("a")
        await kv.delete_many(["c"])
        await kv.delete("a")
        async with kv.lock("l"):
            pass
        await store.set_policy("kv/trivia", {"trash": True})
        await store.namespaces()
        await store.trash("kv/trivia")
        await store.load("kv/trivia", [entry async for entry in _entries(kv)], keep_versions=False)
        assert running.recorder.unknown == {}


async def _entries(kv: Any) -> Any:
    for entry in (await kv.list(values=True)).entries:
        yield entry
