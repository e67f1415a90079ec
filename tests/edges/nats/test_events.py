"""Events: each change is told after its commit, under its namespace, as a record of the journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

import holdfast
from holdfast.clock import ManualClock, SystemClock
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from tests.edges.nats.ground import PATIENCE, START, Caller, Gated, Running, calling, serving, until


class Ear:
    """Hears everything below a subject."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Msg] = asyncio.Queue()

    async def listen(self, caller: Caller, subject: str) -> None:
        """Hear from now on."""
        await caller.client.subscribe(subject, cb=self._heard.put)
        await caller.client.flush()

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The subject and the fields of the next message."""
        async with asyncio.timeout(PATIENCE):
            message = await self._heard.get()
        return message.subject, json.loads(message.data)

    def nothing_more(self) -> bool:
        """Whether all that came has been taken."""
        return self._heard.empty()


@pytest.fixture
async def ear(caller: Caller) -> AsyncIterator[Ear]:
    """Hears every event of every prefix."""
    ear = Ear()
    await ear.listen(caller, "*.event.>")
    await ear.listen(caller, "rosey.db.event.>")
    yield ear
    await caller.ask("db.kv.last.set", {"key": "the last", "value": 1})
    assert (await ear.next())[1]["key"] == "the last"
    assert ear.nothing_more()


async def test_each_change_is_told_as_its_record(
    running: Running, caller: Caller, ear: Ear, clock: ManualClock
) -> None:
    """set, deleted, restored and expired each have their subject and the record that changes shows."""
    await caller.ask(
        "db.kv.trivia.set",
        {"key": "k", "value": "secret", "request_id": "r1", "semantics": {"purpose": "config"}},
    )
    assert await ear.next() == (
        "db.event.kv.trivia.set",
        {
            "op": "set",
            "key": "k",
            "version": 1,
            "at": START,
            "last_writer": "trivia",
            "request_id": "r1",
            "purpose": "config",
        },
    )
    await caller.ask("db.kv.trivia.delete", {"key": "k"})
    await caller.ask("db.kv.trivia.restore", {"key": "k", "ttl": 1})
    clock.advance(2)
    await running.store.sweep()
    told = [await ear.next() for _ in range(3)]
    assert [subject.rpartition(".")[2] for subject, _ in told] == ["deleted", "restored", "expired"]
    assert told[2][1]["lag_ms"] == 1_000
    journal = (await caller.ask("db.kv.trivia.changes", {"since": 1}))["changes"]
    assert [record for _, record in told] == journal


async def test_the_semantic_family_is_told_in_its_dialect(caller: Caller, ear: Ear) -> None:
    """Events of a tenant's project show full keys and camelCase."""
    await caller.ask(
        "db.semantic.acme.web.put", {"key": "jobs/a", "value": 1, "requestId": "r1", "lastWriter": "bot:7"}
    )
    assert await ear.next() == (
        "db.event.semantic.acme.web.set",
        {
            "op": "set",
            "key": "tenant/acme/project/web/jobs/a",
            "version": 1,
            "at": START,
            "lastWriter": "bot:7",
            "requestId": "r1",
            "purpose": None,
        },
    )


async def test_events_have_the_first_prefix_alone(caller: Caller, ear: Ear) -> None:
    """However a write was asked for, its event is told once, under the first prefix."""
    await caller.ask("rosey.db.kv.trivia.set", {"key": "a", "value": 1})
    await caller.ask("db.kv.set", {"key": "b", "value": 1, "plugin_name": "trivia"})
    assert [(await ear.next())[0] for _ in range(2)] == ["db.event.kv.trivia.set"] * 2


async def test_one_event_for_each_change_in_order(caller: Caller, ear: Ear) -> None:
    """A batch and a pipeline tell of each change once, in the order of their versions."""
    await caller.ask(
        "db.kv.trivia.batch",
        {"writes": [{"key": "a", "value": 1}, {"key": "n", "incr": 1}, {"key": "a", "delete": True}]},
    )
    await caller.ask_all([("db.kv.trivia.incr", {"key": "n"})] * 50)
    told = [await ear.next() for _ in range(53)]
    assert [record["version"] for _, record in told] == list(range(1, 54))
    assert [record["op"] for _, record in told[:3]] == ["set", "set", "deleted"]


async def test_no_event_without_a_change(caller: Caller, ear: Ear) -> None:
    """Refusals, reads, deletes that find nothing and replayed requests make no event."""
    await caller.ask("db.kv.trivia.incr", {"key": "n", "request_id": "once"})
    assert (await ear.next())[1]["version"] == 1
    for verb, fields in (
        ("incr", {"key": "n", "request_id": "once"}),
        ("set", {"key": "n", "value": 1, "expected_version": 9}),
        ("set", {"key": "", "value": 1}),
        ("delete", {"key": "none"}),
        ("get", {"key": "n"}),
        ("list", {}),
    ):
        await caller.ask(f"db.kv.trivia.{verb}", fields)


async def test_an_event_comes_after_the_commit(nats_server: NatsServer) -> None:
    """Nothing is told of a write that is not done."""
    engine = Gated()
    async with serving(nats_server.url, engine=engine) as running, calling(nats_server.url) as caller:
        ear = Ear()
        await ear.listen(caller, "db.event.>")
        engine.gate.clear()
        begun = await caller.begin("db.kv.trivia.set", {"key": "k", "value": 1})
        await until(lambda: running.service.requests.under_way == 1)
        await caller.client.flush()
        assert ear.nothing_more()
        engine.gate.set()
        assert (await ear.next())[1]["key"] == "k"
        async with asyncio.timeout(PATIENCE):
            assert (await begun).fields["success"] is True


async def test_the_process_own_writes_make_events(running: Running, caller: Caller, ear: Ear) -> None:
    """A write that did not come over NATS makes an event as well."""
    await running.store.kv("trivia").set("k", 1)
    subject, record = await ear.next()
    assert (subject, record["last_writer"]) == ("db.event.kv.trivia.set", "embedded")


async def test_writes_of_another_process_make_events(nats_server: NatsServer, tmp_path: Path) -> None:
    """Changes by the service and by another store on its file are told once each, in order."""
    file = str(tmp_path / "state.db")
    async with (
        serving(nats_server.url, storage=file, clock=SystemClock()),
        calling(nats_server.url) as caller,
        holdfast.open(file) as other,
    ):
        ear = Ear()
        await ear.listen(caller, "db.event.>")
        for _ in range(20):
            await other.kv("trivia").incr("n")
            await caller.ask("db.kv.trivia.incr", {"key": "n"})
        assert [(await ear.next())[1]["version"] for _ in range(40)] == list(range(1, 41))
        assert ear.nothing_more()


async def test_events_can_be_turned_off(nats_server: NatsServer) -> None:
    """Without events nothing is published but replies."""
    async with (
        serving(nats_server.url, settings=Settings(events=False)),
        calling(nats_server.url) as caller,
    ):
        ear = Ear()
        await ear.listen(caller, "db.event.>")
        for _ in range(3):
            await caller.ask("db.kv.trivia.incr", {"key": "n"})
        await caller.client.flush()
        assert ear.nothing_more()
