"""Subjects of our families are answered, the wrong ones by saying so; all others belong to other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.bus.protocol import Message
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Listener, NatsService, Settings
from tests.edges.nats.ground import Caller, Running, calling, serving
from tests.nats import library_client

if TYPE_CHECKING:
    from nats.aio.msg import Msg

WRONG = [
    "kv.trivia.nonsense",
    "kv.trivia.get.more",
    "table.trivia",
    "blob.trivia",
    "admin.nonsense",
    "admin.a.b",
    "admin.a.b.c.d",
    "event.nonsense",
    "event.kv.trivia",
]
WRONG_SEMANTIC = ["semantic.acme", "semantic.acme.web", "semantic.acme.web.get.more"]
FOREIGN = [
    "stats",
    "kv",
    "kvs.trivia.get",
    "table",
    "blob",
    "semantic",
    "admin",
    "event",
    "user.stats",
    "user.stats.get",
    "row.trivia.insert",
    "schema.x",
    "messages.log.a.b.c",
    "own.x",
    "own.kv.trivia.get",
    "link.0.kv.trivia.get",
    "ready.x",
]
"""Subjects below a prefix that other programs use, or may use."""
PREFIXES = pytest.mark.parametrize("prefix", ["db", "rosey.db"])


@PREFIXES
async def test_wrong_shapes_are_answered(caller: Caller, running: Running, prefix: str) -> None:
    """A subject of the wrong shape or an unknown verb is INVALID_SUBJECT, spelled as its family spells it."""
    answers = await caller.ask_all([(f"{prefix}.{rest}", {"key": "k"}) for rest in WRONG])
    assert {answer.fields["error_code"] for answer in answers} == {"INVALID_SUBJECT"}
    assert {answer.headers["Holdfast-Error-Code"] for answer in answers} == {"INVALID_SUBJECT"}
    answers = await caller.ask_all([(f"{prefix}.{rest}", {"key": "k"}) for rest in WRONG_SEMANTIC])
    assert {answer.fields["errorCode"] for answer in answers} == {"invalid_subject"}
    nested = await caller.ask(f"{prefix}.kv.nonsense", {"plugin_name": "trivia"})
    assert nested["error"]["code"] == "INVALID_SUBJECT"
    assert len(running.recorder.operations) == len(WRONG) + len(WRONG_SEMANTIC) + 1


@PREFIXES
async def test_other_subjects_below_a_prefix_belong_to_others(
    caller: Caller, running: Running, prefix: str
) -> None:
    """Holdfast neither answers nor counts requests to subjects of no family of its own.

    The server says at once that nobody listens there, which it could not if the service were subscribed.
    """
    for rest in FOREIGN:
        with pytest.raises(ConnectionError, match="nobody listens there"):
            await caller.ask(f"{prefix}.{rest}", {"key": "k"})
    assert running.recorder.operations == []


async def test_another_program_answers_at_its_own_subjects(
    caller: Caller, nats_server: NatsServer, running: Running
) -> None:
    """A program with subjects below one of our prefixes gives the only answer there."""
    subjects = ["rosey.db.stats", "rosey.db.user.stats", "db.schema.x"]
    got: list[tuple[str, bytes]] = []

    async def answer(message: Msg) -> None:
        await message.respond(b"mine")

    async def hear(message: Msg) -> None:
        got.append((message.subject, message.data))

    async with library_client(nats_server.url) as bot:
        await bot.subscribe("answers.>", cb=hear)
        for subject in subjects:
            await bot.subscribe(subject, cb=answer)
        await bot.flush()
        for subject in subjects:
            await caller.client.publish(subject, b"{}", reply=f"answers.{subject}")
        await caller.ask("db.kv.trivia.list")  # the service has received, and answered, what came before this
        while len(got) < len(subjects):
            await bot.flush()
        await bot.flush()
    assert sorted(got) == sorted((f"answers.{subject}", b"mine") for subject in subjects)
    assert [one.verb for one in running.recorder.operations] == ["list"]


@PREFIXES
async def test_tables_are_a_family_of_their_own(caller: Caller, running: Running, prefix: str) -> None:
    """At the subjects of tables the verbs of tables answer, and no others."""
    assert await caller.ask(f"{prefix}.table.trivia.list_tables") == {"success": True, "tables": []}
    for verb in ("nonsense", "set", "start_reaper", "get_item.more"):
        reply = await caller.ask(f"{prefix}.table.trivia.{verb}", {"table": "t"})
        assert (reply["error_code"], reply["retryable"]) == ("INVALID_SUBJECT", False)
    assert (await caller.ask(f"{prefix}.table.Trivia.get_item"))["error_code"] == "INVALID_PLUGIN_NAME"
    assert {one.namespace for one in running.recorder.operations} == {"table/trivia", ""}
    assert await running.store.namespaces() == []


async def test_a_payload_dialect_that_is_off_says_so(nats_server: NatsServer) -> None:
    """Where identity may only come from the subject, the payload dialect's subjects have the wrong shape."""
    settings = Settings(payload_dialect=False)
    async with serving(nats_server.url, settings=settings) as running, calling(nats_server.url) as caller:
        reply = await caller.ask("db.kv.set", {"plugin_name": "trivia", "key": "k", "value": 1})
        assert (reply["success"], reply["error"]["code"]) == (False, "INVALID_SUBJECT")
        assert await running.store.namespaces() == []
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["exists"] is False


async def test_the_service_hears_no_event(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it publishes itself, and of what others publish where events are told, nothing comes back."""
    heard: list[str] = []
    take = NatsService._take

    def counting(service: NatsService, listener: Listener, message: Message) -> None:
        heard.append(message.subject)
        take(service, listener, message)

    monkeypatch.setattr(NatsService, "_take", counting)
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:
        await _make_events(caller)
        await running.client.flush()
        assert running.service.events == 40
        assert len(heard) == 42


async def _make_events(caller: Caller) -> None:
    for number in range(20):
        await caller.send("db.kv.trivia.set", {"key": f"k{number}", "value": 1})
        await caller.send("db.semantic.acme.web.put", {"key": f"k{number}", "value": 1})
        await caller.send("db.event.service.unavailable", b"{}")
    await caller.ask("db.kv.trivia.list")
    await caller.ask("db.semantic.acme.web.list")


async def test_order_holds_in_every_family(caller: Caller) -> None:
    """Subjects that share a subscription with wrong ones keep their order: payload dialect and operators."""
    for subject, fields in (
        ("db.kv.incr", {"plugin_name": "trivia", "key": "n", "deadline_ms": 60_000}),
        ("db.semantic.acme.web.incr", {"key": "n", "deadlineMs": 60_000}),
    ):
        answers = await caller.ask_all([(subject, fields)] * 300)
        shown = [answer.fields.get("data", answer.fields)["value"] for answer in answers]
        assert shown == list(range(1, 301))
