"""What callers are told when something is wrong, and what they are never told."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.commands import Command
from holdfast.decide import Outcome
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from holdfast.engine import Scan, Scanned
from holdfast.engines.memory import MemoryEngine
from tests.edges.nats.ground import Caller, Gated, Running, calling, serving
from tests.nats import nats_server as server_with

SECRET = "s3cret-of-the-driver"


class Broken(MemoryEngine):
    """An engine with a defect, whose exceptions hold what nobody must see."""

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Fail."""
        raise RuntimeError(SECRET)

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Fail."""
        raise KeyError(SECRET)


@pytest.mark.parametrize(
    ("subject", "code"),
    [
        ("db.kv.trivia.nonsense", "INVALID_SUBJECT"),
        ("db.kv.trivia.get.more", "INVALID_SUBJECT"),
        ("db.kv.trivia.GET", "INVALID_SUBJECT"),
        ("db.kv.trivia.put", "INVALID_SUBJECT"),
        ("db.kv.trivia.__class__", "INVALID_SUBJECT"),
        ("rosey.db.kv.trivia.nonsense", "INVALID_SUBJECT"),
        ("db.kv.Trivia.get", "INVALID_PLUGIN_NAME"),
        ("rosey.db.kv.tri%via.get", "INVALID_PLUGIN_NAME"),
        (f"db.kv.{'a' * 101}.get", "INVALID_PLUGIN_NAME"),
    ],
)
async def test_subjects_that_lead_nowhere(caller: Caller, running: Running, subject: str, code: str) -> None:
    """An unknown verb is INVALID_SUBJECT, a bad name INVALID_PLUGIN_NAME; both are answered, neither done."""
    reply = await caller.ask(subject, {"key": "k", "value": 1})
    assert (reply["success"], reply["error_code"], reply["retryable"]) == (False, code, False)
    assert await running.store.namespaces() == []


@pytest.mark.parametrize(
    ("subject", "known", "other"),
    [
        ("db.kv.trivia.gett", "get_many", "put_item"),
        ("db.table.trivia.put", "put_item", "incr"),
        ("db.admin.gett", "namespaces", "put_item"),
        ("db.semantic.acme.web.gett", "set", "put_item"),
    ],
)
async def test_a_mistyped_verb_is_told_the_known_ones(
    caller: Caller, subject: str, known: str, other: str
) -> None:
    """The refusal lists the verbs of the family that was called."""
    message = (await caller.ask(subject, {"key": "k"}))["message"]
    verb = subject.rpartition(".")[2]
    assert message.startswith(f"there is no verb '{verb}'; known are ")
    listed = message.partition("known are ")[2].split(", ")
    assert known in listed
    assert other not in listed


async def test_the_headers_of_an_error(caller: Caller) -> None:
    """Every error has the two headers of NATS services; every reply tells the service's time."""
    [done, lost] = await caller.ask_all(
        [("db.kv.trivia.get", {"key": "k"}), ("db.kv.trivia.get", {"key": ""})]
    )
    assert done.headers == {"Holdfast-Time": "1700000000000"}
    assert lost.headers["Holdfast-Time"] == "1700000000000"
    assert lost.headers["Holdfast-Error-Code"] == "VALIDATION_ERROR"
    assert lost.headers["Nats-Service-Error-Code"] == "400"
    assert lost.headers["Nats-Service-Error"] == lost.fields["message"]


async def test_an_odd_message_fits_a_header(caller: Caller) -> None:
    """What a caller sent can't break out of a header: it is one line of ASCII."""
    [lost] = await caller.ask_all([("db.semantic.acme.web.get", {"key": "é\r\nNats-Evil: 1\x1b"})])
    told = {"Nats-Service-Error-Code", "Nats-Service-Error", "Holdfast-Error-Code"}
    assert set(lost.headers) == {"Holdfast-Time", *told}
    text = lost.headers["Nats-Service-Error"]
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    ("payload", "code", "field"),
    [
        (b"", "MISSING_FIELD", "key"),
        (b"[]", "VALIDATION_ERROR", None),
        (b"nonsense", "INVALID_JSON", None),
        (b'{"key":"k"}', "MISSING_FIELD", "value"),
        (b'{"key":"k","value":1,"ttl":0}', "VALIDATION_ERROR", "ttl"),
        (b'{"key":"k","value":1,"ttl":1.0}', "VALIDATION_ERROR", "ttl"),
        (b'{"key":"k","value":1,"ttl":true}', "VALIDATION_ERROR", "ttl"),
        (b'{"key":"k","value":1,"ttl_seconds":"5"}', "VALIDATION_ERROR", "ttl_seconds"),
        (b'{"key":5,"value":1}', "VALIDATION_ERROR", "key"),
        (b'{"key":"a\\u0000","value":1}', "VALIDATION_ERROR", "key"),
        (b'{"key":"\\ud800","value":1}', "VALIDATION_ERROR", "key"),
        (b'{"key":"k","value":1e400}', "VALIDATION_ERROR", "value"),
        (b'{"key":"k","value":1,"expected_version":-1}', "VALIDATION_ERROR", "expected_version"),
        (b'{"key":"k","value":1,"expected_version":"1"}', "VALIDATION_ERROR", "expected_version"),
        (b'{"key":"k","value":1,"request_id":""}', "VALIDATION_ERROR", "request_id"),
        (b'{"key":"k","value":1,"last_writer":"a\\nb"}', "VALIDATION_ERROR", "last_writer"),
        (b'{"key":"k","value":1,"semantics":{"purpose":"Lock"}}', "VALIDATION_ERROR", "semantics.purpose"),
        (b'{"key":"k","value":1,"fence":{"lock":"l"}}', "VALIDATION_ERROR", "fence"),
        (b'{"key":"k","value":1,"deadline":"now"}', "VALIDATION_ERROR", "deadline"),
        (b'{"key":"k","value":1,"deadline_ms":-1}', "VALIDATION_ERROR", "deadline_ms"),
        (b'{"key":"k","value":"' + b"x" * 65_535 + b'"}', "VALUE_TOO_LARGE", "value"),
    ],
)
async def test_a_bad_set_names_its_field(
    caller: Caller, payload: bytes, code: str, field: str | None
) -> None:
    """Each breach has its code and names the field, and nothing is written."""
    reply = await caller.ask("db.kv.trivia.set", payload)
    assert (reply["success"], reply["error_code"], reply.get("field")) == (False, code, field)
    assert (await caller.ask("db.kv.trivia.stats"))["version"] == 0


async def test_a_defect_shows_nothing_of_itself(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL_ERROR never shows an exception's text; the log has it, at ERROR with the traceback."""
    async with serving(nats_server.url, engine=Broken()), calling(nats_server.url) as caller:
        for verb, fields in (("set", {"key": "k", "value": 1}), ("list", {}), ("batch", {"writes": []})):
            [answer] = await caller.ask_all([(f"db.kv.trivia.{verb}", fields)])
            assert answer.fields["error_code"] == "INTERNAL_ERROR"
            assert answer.fields["retryable"] is False
            whole = json.dumps(answer.fields) + str(answer.headers)
            assert SECRET not in whole
            assert "RuntimeError" not in whole
            assert "Traceback" not in whole
    errors = [record for record in caplog.records if record.levelno == logging.ERROR and record.exc_info]
    assert errors
    assert SECRET in caplog.text


async def test_a_stored_value_that_cannot_be_read(nats_server: NatsServer, tmp_path: Path) -> None:
    """A value that somebody broke in the table is DATABASE_ERROR by its key at every verb that shows it."""
    path = tmp_path / "store.db"
    async with serving(nats_server.url, storage=str(path)), calling(nats_server.url) as caller:
        await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1})
        with sqlite3.connect(path) as table:
            table.execute("UPDATE plugin_kv_storage SET value_json = '{broken'")
        table.close()
        for verb, fields in (
            ("get", {"key": "k"}),
            ("list", {"values": True}),
            ("set_ttl", {"key": "k", "ttl_seconds": 5, "envelope": True}),
        ):
            reply = await caller.ask(f"db.kv.trivia.{verb}", fields)
            assert (reply["success"], reply["error_code"], reply["field"]) == (False, "DATABASE_ERROR", "key")
            assert "'k'" in reply["message"]
            assert "broken" not in str(reply)
        [member] = (await caller.ask("db.kv.trivia.get_many", {"keys": ["k"]}))["results"]
        assert member["error_code"] == "DATABASE_ERROR"
        assert (await caller.ask("db.kv.trivia.set", {"key": "k", "value": 2}))["success"] is True
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["value"] == 2


async def test_a_reply_too_large_for_the_server_is_said_so() -> None:
    """A reply that the server would not let pass is VALUE_TOO_LARGE instead of silence, in every dialect."""
    async with (
        server_with("max_payload: 16384") as server,
        serving(server.url) as running,
        calling(server.url) as caller,
    ):
        for number in range(10):
            for subject in ("db.kv.trivia.set", "db.semantic.acme.web.put"):
                assert (await caller.ask(subject, {"key": f"k{number}", "value": "x" * 4_000}))[
                    "success"
                ] is True
        keys = [f"k{number}" for number in range(10)]
        [flat, nested, camel] = await caller.ask_all(
            [
                ("db.kv.trivia.get_many", {"keys": keys}),
                ("db.kv.get_many", {"keys": keys, "plugin_name": "trivia"}),
                ("db.semantic.acme.web.list", {"values": True}),
            ]
        )
        assert flat.fields["error_code"] == "VALUE_TOO_LARGE"
        assert flat.headers["Holdfast-Error-Code"] == "VALUE_TOO_LARGE"
        assert nested.fields["error"]["code"] == "VALUE_TOO_LARGE"
        assert camel.fields["errorCode"] == "value_too_large"
        assert [one.code for one in running.recorder.operations[-3:]] == ["VALUE_TOO_LARGE"] * 3
        assert len((await caller.ask("db.kv.trivia.get_many", {"keys": keys[:2]}))["results"]) == 2


async def test_fire_and_forget(running: Running, caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A message without a reply subject is executed, and its error is logged like any other."""
    await caller.send("db.kv.trivia.set", {"key": "k", "value": 1})
    await caller.send("db.kv.trivia.set", {"key": "", "value": 1})
    await caller.send("db.kv.trivia.set", b"{")
    await caller.send("db.kv.Trivia.set", {"key": "k", "value": 1})
    assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["value"] == 1
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert any(level == "WARNING" and "VALIDATION_ERROR" in text for level, text in logged)
    assert any(level == "ERROR" and "INVALID_JSON" in text for level, text in logged)
    assert any(level == "WARNING" and "db.kv.Trivia.set" in text for level, text in logged)
    codes = [operation.code for operation in running.recorder.operations]
    assert codes.count(None) == 2
    assert {"VALIDATION_ERROR", "INVALID_JSON", "INVALID_PLUGIN_NAME"} <= set(codes)


async def test_a_caller_who_left_disturbs_nobody(nats_server: NatsServer) -> None:
    """A reply for which nobody waits any more is dropped without a trace at the service."""
    engine = Gated()
    async with serving(nats_server.url, engine=engine, settings=Settings()) as running:
        async with calling(nats_server.url) as caller:
            engine.gate.clear()
            for number in range(50):
                await caller.begin("db.kv.trivia.set", {"key": f"k{number}", "value": 1})
            await caller.client.flush()
        async with calling(nats_server.url) as other:
            later = asyncio.ensure_future(other.ask("db.kv.trivia.list"))
            engine.gate.set()
            assert (await later)["count"] == 50
        assert running.service.requests.waiting == 0
