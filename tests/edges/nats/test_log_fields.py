"""The fields of log lines: programs that read the log find keys, ids and codes by name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.keyring import Keyring
from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from holdfast.registry import engine_for
from tests.edges.nats.ground import Caller, calling, serving


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[dict[str, Any]]:
    """The service's lines of a level, as their fields."""
    found = [record for record in caplog.records if record.levelno == level]
    return [vars(record) for record in found if record.name == "holdfast.service"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def stored(
    request: pytest.FixtureRequest, nats_server: NatsServer, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Caller]:
    """Somebody who asks a service on each of the engines."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("pg_url")
    else:
        url = "memory://" if request.param == "memory" else str(tmp_path / "state.db")
    engine = engine_for(url, Keyring([b"a secret of tests"]))
    async with (
        serving(nats_server.url, engine=engine, clock=clock),
        calling(nats_server.url) as caller,
    ):
        yield caller


WRITES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("set", {"key": "game:1", "value": 1}, ["game:1"]),
    ("incr", {"key": "game:1"}, ["game:1"]),
    ("delete", {"key": "game:1"}, ["game:1"]),
    ("batch", {"writes": [{"key": "a", "value": 1}, {"key": "b", "incr": 1}]}, ["a", "b"]),
    ("set_many", {"items": [{"key": "a", "value": 1}, {"key": "b", "value": 1}]}, ["a", "b"]),
    ("delete_many", {"keys": ["a", "b"]}, ["a", "b"]),
]


@pytest.mark.parametrize(("verb", "fields", "keys"), WRITES, ids=[verb for verb, *_ in WRITES])
async def test_lines_of_writes_have_the_key(
    nats_server: NatsServer,
    caplog: pytest.LogCaptureFixture,
    verb: str,
    fields: dict[str, Any],
    keys: list[str],
) -> None:
    """The DEBUG line of a write and the WARNING of a slow one name its key, or the keys and their number."""
    caplog.set_level(logging.DEBUG, logger="holdfast.service")
    async with (
        serving(nats_server.url, settings=Settings(slow_seconds=0)),
        calling(nats_server.url) as caller,
    ):
        answer = await caller.ask(f"db.kv.trivia.{verb}", fields | {"request_id": "r-1"})
    assert answer["success"]
    for level in (logging.DEBUG, logging.WARNING):
        [line] = lines(caplog, level)
        assert (line["plugin"], line["verb"], line["key"]) == ("trivia", verb, keys[0])
        assert line["request_id"] == "r-1"
        if len(keys) > 1:
            assert (line["keys"], line["count"]) == (keys, 2)


async def test_a_key_of_a_project_is_logged_in_full(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A relative key of the semantic dialect is logged as it is stored."""
    caplog.set_level(logging.DEBUG, logger="holdfast.service")
    for key in ("jobs/a", "tenant/acme/project/web/jobs/a"):
        await caller.ask("db.semantic.acme.web.put", {"key": key, "value": 1})
    assert [line["key"] for line in lines(caplog, logging.DEBUG)] == ["tenant/acme/project/web/jobs/a"] * 2


async def test_the_ttl_of_a_set_is_logged(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A set is logged with its ttl in whichever way it was given, and with null if the key never expires."""
    caplog.set_level(logging.DEBUG, logger="holdfast.service")
    for ttl in ({"ttl": 5}, {"ttl_seconds": 6}, {"semantics": {"purpose": "lock", "ttl_seconds": 7}}, {}):
        await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1} | ttl)
    assert [line["ttl"] for line in lines(caplog, logging.DEBUG)] == [5, 6, 7, None]


async def test_refusals_have_fields(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is logged with plugin, verb, code, key, field and request id, also if JSON ends early."""
    refused: list[tuple[dict[str, Any] | bytes, tuple[Any, ...]]] = [
        ({"key": "k", "value": 1, "ttl": 0, "request_id": "r-1"}, ("VALIDATION_ERROR", "k", "ttl", "r-1")),
        ({"key": "k"}, ("MISSING_FIELD", "k", "value", None)),
        ({"key": 5, "value": 1}, ("VALIDATION_ERROR", "", "key", None)),
        (b'{"key": "k"', ("INVALID_JSON", "", None, None)),
    ]
    for fields, told in refused:
        caplog.clear()
        await caller.ask("db.kv.trivia.set", fields)
        [line] = lines(caplog, logging.ERROR if told[0] == "INVALID_JSON" else logging.WARNING)
        assert (line["plugin"], line["verb"]) == ("trivia", "set")
        assert tuple(line[name] for name in ("code", "key", "field", "request_id")) == told


async def test_conflicts_have_fields(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A lost race is logged once, with the same fields as any other refusal."""
    await caller.ask(
        "db.kv.trivia.set_ttl", {"key": "k", "ttl_seconds": 9, "expected_version": 5, "request_id": "r-7"}
    )
    [line] = [vars(record) for record in caplog.records if record.levelno == logging.WARNING]
    names = ("plugin", "verb", "code", "key", "request_id")
    assert tuple(line[name] for name in names) == ("trivia", "set_ttl", "VERSION_CONFLICT", "k", "r-7")


async def test_a_replayed_request_is_no_second_set(stored: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A request that comes again is marked as replayed in both logs, and is not logged as another set."""
    caplog.set_level(logging.DEBUG)
    fields = {"key": "jobs/a", "value": 1, "requestId": "r-1"}
    for _ in range(2):
        await stored.ask("db.semantic.acme.web.put", fields)
    assert [(line["verb"], line["replayed"]) for line in lines(caplog, logging.DEBUG)] == [
        ("set", False),
        ("set", True),
    ]
    written = [record for record in caplog.records if record.name == "holdfast.writes"]
    assert [vars(record)["replayed"] for record in written] == [False, True]
    assert [record.getMessage().split()[:2] for record in written] == [
        ["set", "directive=acme/web"],
        ["replayed", "set"],
    ]


@pytest.mark.parametrize("noticed_by", ["look", "write"])
async def test_an_expired_semantic_entry_has_one_line(
    clock: ManualClock, stored: Caller, caplog: pytest.LogCaptureFixture, noticed_by: str
) -> None:
    """Each expired entry with semantics is one INFO line with key, purpose, last writer and lag."""
    key = "tenant/acme/project/web/jobs/a"
    await stored.ask(
        "db.semantic.acme.web.put",
        {"key": key, "value": 1, "ttl": 5, "lastWriter": "bot:nightly", "semantics": {"purpose": "lock"}},
    )
    await stored.ask("db.kv.plain.set", {"key": "k", "value": 1, "ttl": 5})
    clock.advance(5.25)
    caplog.set_level(logging.INFO)
    if noticed_by == "write":
        await stored.ask("db.semantic.acme.web.put", {"key": key, "value": 2})
    await stored.ask("db.admin.sweep")
    [line] = [vars(record) for record in caplog.records if "expired" in record.getMessage().split()]
    assert (line["levelname"], line["key"], line["purpose"]) == ("INFO", key, "lock")
    assert (line["last_writer"], line["lag_ms"]) == ("bot:nightly", 250)
