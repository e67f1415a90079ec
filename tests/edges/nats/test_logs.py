"""What the log tells of the service's work, and that a value is never in it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import ManualClock
from holdfast.edges.intake import request_log
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from tests.edges.nats.ground import Caller, Running, calling, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "the-cat-is-called-Mittens"


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Every verb, done and refused, with the secret wherever a value can be."""
    item = {"key": "k", "value": {"name": SECRET}}
    return [
        ("set", item),
        ("set", item | {"expected_version": 0}),
        ("set", item | {"ttl": 0}),
        ("set", {"key": "", "value": SECRET}),
        ("set", {"key": "big", "value": SECRET * 5_000}),
        ("set", item | {"request_id": "once"}),
        ("set", item | {"request_id": "once", "ttl": 5}),
        ("set", item | {"fence": {"lock": "l", "token": 1}}),
        ("set", item | {"deadline": 1}),
        ("set", item | {"colour": SECRET}),
        ("get", {"key": "k"}),
        ("get_many", {"keys": ["k", ""]}),
        ("list", {"values": True}),
        ("incr", {"key": "k"}),
        ("set_ttl", {"key": "k", "ttl_seconds": 60}),
        ("remove_ttl", {"key": "k", "expected_version": 99}),
        ("set_many", {"items": [item, item | {"expected_version": 0}, {"value": SECRET}]}),
        ("batch", {"checks": [{"key": "k", "version": 0}], "writes": [item]}),
        ("batch", {"writes": [item, {"key": "k", "value": SECRET, "incr": 1}]}),
        ("changes", {}),
        ("history", {"key": "k"}),
        ("delete", {"key": "k", "expected_version": 1}),
        ("restore", {"key": "k"}),
        ("nonsense", item),
    ]


async def test_values_are_never_logged(
    nats_server: NatsServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is asked in whichever dialect, and however it ends, at DEBUG too: no value is in the log."""
    caplog.set_level(logging.DEBUG)
    settings = Settings(slow_seconds=0, slow_walk_seconds=0)
    async with (
        serving(nats_server.url, clock=clock, settings=settings),
        calling(nats_server.url) as caller,
    ):
        for verb, fields in requests():
            await caller.ask(f"db.kv.trivia.{verb}", fields)
            await caller.ask(f"db.kv.{verb}", fields | {"plugin_name": "payload"})
            await caller.ask(f"db.semantic.acme.web.{'put' if verb == 'set' else verb}", fields)
            await caller.send(f"db.kv.Trivia.{verb}", fields)
        await caller.ask("db.kv.trivia.set", f'{{"key":"k","value":"{SECRET}"'.encode())
        await caller.client.publish("db.kv.trivia.set", SECRET.encode(), reply="db.kv.other.set")
        await caller.ask("db.admin.sweep")
    assert len(caplog.records) > 100
    for record in caplog.records:
        whole = f"{record.getMessage()} {record.exc_text} {vars(record)}"
        assert SECRET not in whole, record.getMessage()


async def test_one_line_for_each_operation_at_debug(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG an operation has its plugin, verb, key, size, latency and whether it hit."""
    caplog.set_level(logging.DEBUG, logger="holdfast.service")
    await caller.ask("db.kv.trivia.get", {"key": "k"})
    [line] = [record for record in caplog.records if record.levelno == logging.DEBUG]
    told = vars(line)
    assert (told["plugin"], told["operation"], told["key"], told["hit"]) == ("trivia", "get", "k", False)
    assert told["size"] == len(b'{"key": "k"}')
    assert told["latency_ms"] >= 0


async def test_levels_of_errors(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are WARNING, INVALID_JSON is ERROR, and a conflict is told once, with its request id."""
    asked: list[tuple[dict[str, Any] | bytes, str, int]] = [
        ({"key": "", "value": 1}, "VALIDATION_ERROR", logging.WARNING),
        ({}, "MISSING_FIELD", logging.WARNING),
        (b"{", "INVALID_JSON", logging.ERROR),
    ]
    for fields, code, level in asked:
        caplog.clear()
        await caller.ask("db.kv.trivia.set", fields)
        [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert (line.levelno, code in line.getMessage()) == (level, True)
        assert "trivia" in line.getMessage()
    caplog.clear()
    await caller.ask(
        "db.kv.trivia.set", {"key": "k", "value": 1, "expected_version": 5, "request_id": "r-77"}
    )
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (line.levelno, "r-77" in line.getMessage()) == (logging.WARNING, True)


async def test_a_semantic_write_is_told_at_info(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A write of the semantic family is an INFO line with directive, key, purpose, request id and version."""
    caplog.set_level(logging.INFO)
    fields = {
        "key": "jobs/a",
        "value": 1,
        "lastWriter": "bot:nightly",
        "requestId": "r-9",
        "semantics": {"purpose": "lock"},
    }
    await caller.ask("db.semantic.acme.web.put", fields)
    [line] = [record.getMessage() for record in caplog.records if record.name == "holdfast.writes"]
    for part in (
        "directive=nightly",
        "key=tenant/acme/project/web/jobs/a",
        "purpose=lock",
        "request_id=r-9",
        "version=1",
    ):
        assert part in line


async def test_a_log_line_leaves_out_what_the_entry_lacks(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """The line of a set has its ttl, and nothing that the entry does not have; no line says None."""
    caplog.set_level(logging.INFO)
    await caller.ask("db.semantic.acme.web.put", {"key": "a", "value": 1, "ttlSeconds": 90})
    await caller.ask("db.semantic.acme.web.put", {"key": "b", "value": 1})
    await caller.ask("db.semantic.acme.web.batch", {"writes": [{"key": "c", "value": 1, "ttlSeconds": 60}]})
    first, second, third = [record for record in caplog.records if record.name == "holdfast.writes"]
    assert [vars(line).get("ttl") for line in (first, second, third)] == [90, None, 60]
    assert "ttl=90" in first.getMessage()
    for line in (first, second, third):
        assert "None" not in line.getMessage()


async def test_a_refusal_is_logged_in_the_callers_spelling(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names fields as the caller spells them: in camelCase for a project, else in snake_case."""
    caplog.set_level(logging.WARNING)
    await caller.ask("db.semantic.acme.web.put", {"key": "a", "value": 1, "expectedVersion": "x"})
    await caller.ask("db.kv.trivia.set", {"key": "a", "value": 1, "expected_version": "x"})
    semantic, plain = [record for record in caplog.records if record.name == "holdfast.service"]
    assert (vars(semantic)["field"], vars(plain)["field"]) == ("expectedVersion", "expected_version")
    assert "VALIDATION_ERROR expectedVersion must be" in semantic.getMessage()
    assert "VALIDATION_ERROR expected_version must be" in plain.getMessage()


async def test_slow_operations_are_told_and_counted(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """From its bound on an operation is slow: a WARNING, and a mark for who counts; walks have their own."""
    settings = Settings(slow_seconds=0, slow_walk_seconds=3_600)
    async with serving(nats_server.url, settings=settings) as running, calling(nats_server.url) as caller:
        await caller.ask("db.kv.trivia.get", {"key": "k"})
        await caller.ask("db.kv.trivia.list")
        assert [(one.verb, one.slow) for one in running.recorder.operations] == [
            ("get", True),
            ("list", False),
        ]
    slow = [record.getMessage() for record in caplog.records if "slow" in record.getMessage()]
    assert len(slow) == 1
    assert "get of trivia" in slow[0]


async def test_every_operation_is_counted_once(running: Running, caller: Caller) -> None:
    """Who counts is told of each request once: dialect, owner, namespace, verb and code."""
    await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1})
    await caller.ask("db.kv.get", {"key": "k", "plugin_name": "trivia"})
    await caller.ask("db.semantic.acme.web.put", {"key": "a", "value": 1, "expectedVersion": 3})
    await caller.ask("db.kv.trivia.some.\u202enonsense\x1b", {})
    told = [
        (one.dialect, one.owner, one.namespace, one.verb, one.code) for one in running.recorder.operations
    ]
    assert told == [
        ("plugin", "trivia", "kv/trivia", "set", None),
        ("payload", "trivia", "kv/trivia", "get", None),
        ("semantic", "acme/web", "semantic/acme/web", "set", "VERSION_CONFLICT"),
        ("plugin", "trivia", "kv/trivia", "unknown", "INVALID_SUBJECT"),
    ]


async def test_a_caller_cannot_write_into_the_log(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """Control characters of a subject never reach a log line as they are."""
    for subject in ("db.kv.trivia.ge\x1b[31mt\x0b", "db.kv.tri\x1bvia.get", "db.semantic.a\x1b.b.get"):
        await caller.ask(subject, {"key": "k"})
        await caller.client.publish(subject, b"{}", reply="db.kv.x.set")
    await caller.ask("db.kv.trivia.get", {"key": "k"})
    assert len(caplog.records) >= 6
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.fixture
async def patient(nats_server: NatsServer, clock: ManualClock) -> AsyncIterator[tuple[Running, Caller]]:
    """A service to which nothing is slow, however busy this machine is, and somebody who asks it."""
    settings = Settings(slow_seconds=3_600, slow_walk_seconds=3_600)
    async with (
        serving(nats_server.url, clock=clock, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        yield running, caller


async def test_a_flood_does_not_flood_the_log(
    patient: tuple[Running, Caller], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is counted, and 20 lines a second of one plugin and kind are written, then how many were left out.

    What another plugin is refused meanwhile is told.
    """
    now = 100.0
    running, caller = patient
    monkeypatch.setattr(request_log, "seams", SimpleNamespace(monotonic=lambda: now))
    await caller.ask_all([("db.kv.flood.set", {"key": ""})] * 300)
    await caller.ask("db.kv.quiet.set", {"key": ""})
    await caller.ask("db.kv.flood.get", {"key": ""})
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if line.startswith("set of flood was refused")]) == 20
    assert len([line for line in lines if "quiet" in line or "get of flood" in line]) == 2
    assert len(running.recorder.operations) == 302
    now = 101.0
    caplog.clear()
    await caller.ask("db.kv.quiet.set", {"key": ""})
    assert (
        caplog.records[0].getMessage() == "dropped 280 more log lines in one second, 280 of them about flood"
    )
    assert "set of quiet" in caplog.records[1].getMessage()


def test_the_lines_of_a_flood_are_spread_over_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first lines, those of a flood follow one by one, so that they are never many in a row."""
    now = 99.5
    monkeypatch.setattr(request_log, "seams", SimpleNamespace(monotonic=lambda: now))
    lines = request_log._Lines()
    written = []
    for _ in range(40):
        now += 0.125
        written.append(sum(lines.may_be_written("flood", "set", "TIMEOUT", most=16) for _ in range(100)))
    assert written == [16, *[2] * 39]
    assert lines._free_at == {("flood", "set", "TIMEOUT"): now + 1}
    now += 2
    assert lines.may_be_written("quiet", "set", "TIMEOUT")
    assert len(lines._free_at) == 1


async def test_requests_that_are_too_many_fill_a_few_lines(
    nats_server: NatsServer,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is refused because a plugin asks too much is logged five times a second, whatever the verbs."""
    monkeypatch.setattr(request_log, "seams", SimpleNamespace(monotonic=lambda: 100.0))
    settings = Settings(slow_seconds=3_600, slow_walk_seconds=3_600, rate=1)
    asked = [(f"db.kv.flood.{verb}", {"key": "k", "value": 1}) for verb in ("get", "set", "incr", "delete")]
    async with (
        serving(nats_server.url, clock=clock, settings=settings),
        calling(nats_server.url) as caller,
    ):
        await caller.ask_all(asked * 50)
    refused = [line for line in (record.getMessage() for record in caplog.records) if "RATE_LIMITED" in line]
    assert len(refused) == 5


async def test_the_log_is_bounded_whoever_fills_it(
    patient: tuple[Running, Caller], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ever new names, 500 lines a second are written and no more."""
    running, caller = patient
    monkeypatch.setattr(request_log, "seams", SimpleNamespace(monotonic=lambda: 100.0))
    await caller.ask_all([(f"db.kv.p{number}.set", {"key": ""}) for number in range(600)])
    assert len([record for record in caplog.records if "was refused" in record.getMessage()]) == 500
    assert len(running.recorder.operations) == 600
