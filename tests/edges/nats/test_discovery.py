"""What NATS tools ask every service: PING, INFO and STATS, in the shapes that they expect."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from nats.aio.msg import Msg

from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from tests.edges.nats.ground import PATIENCE, Caller, Running, calling, serving

SUBJECTS = {
    f"{prefix}.{pattern}"
    for prefix in ("db", "rosey.db")
    for pattern in ("kv.*.>", "kv.*", "table.*.>", "blob.*.>", "semantic.*.*.>", "admin.*")
}


async def ask(caller: Caller, subject: str) -> dict[str, Any]:
    """The answer of one service."""
    answer: dict[str, Any] = await caller.ask(subject)
    return answer


@pytest.mark.parametrize("tail", ["", ".holdfast"])
async def test_ping(caller: Caller, tail: str) -> None:
    """PING answers name, id, version and metadata under its type, for all services and for ours by name."""
    answer = await ask(caller, f"$SRV.PING{tail}")
    assert answer["type"] == "io.nats.micro.v1.ping_response"
    assert set(answer) == {"type", "name", "id", "version", "metadata"}
    assert (answer["name"], answer["metadata"]) == ("holdfast", {})
    assert answer["version"].count(".") == 2
    assert (await ask(caller, f"$SRV.PING.holdfast.{answer['id']}"))["id"] == answer["id"]


async def test_info(caller: Caller) -> None:
    """INFO describes every endpoint with its name, subject and queue group."""
    answer = await ask(caller, "$SRV.INFO.holdfast")
    assert answer["type"] == "io.nats.micro.v1.info_response"
    assert set(answer) == {"type", "name", "id", "version", "metadata", "description", "endpoints"}
    assert {one["subject"] for one in answer["endpoints"]} == SUBJECTS
    for endpoint in answer["endpoints"]:
        assert set(endpoint) == {"name", "subject", "queue_group", "metadata"}
        assert endpoint["queue_group"] == "holdfast"


async def test_stats(caller: Caller) -> None:
    """STATS counts requests, errors and time for each endpoint, and names the last error."""
    for key in ("a", "b", ""):
        await caller.ask("db.kv.trivia.get", {"key": key})
    await caller.ask("rosey.db.semantic.acme.web.get", {"key": "k"})
    answer = await ask(caller, "$SRV.STATS")
    assert answer["type"] == "io.nats.micro.v1.stats_response"
    assert set(answer) == {"type", "name", "id", "version", "metadata", "started", "endpoints"}
    started = datetime.fromisoformat(answer["started"])
    assert started.utcoffset() == timedelta(0)
    by_subject = {one["subject"]: one for one in answer["endpoints"]}
    assert set(by_subject) == SUBJECTS
    busy = by_subject["db.kv.*.>"]
    assert (busy["num_requests"], busy["num_errors"], busy["last_error"]) == (3, 1, "VALIDATION_ERROR")
    assert busy["processing_time"] > 0
    assert busy["average_processing_time"] == busy["processing_time"] // 3
    assert by_subject["rosey.db.semantic.*.*.>"]["num_requests"] == 1
    idle = by_subject["rosey.db.kv.*.>"]
    assert (idle["num_requests"], idle["num_errors"], idle["last_error"]) == (0, 0, "")


async def test_info_shows_what_is_served(nats_server: NatsServer) -> None:
    """Other prefixes, and a payload dialect that is off, show in INFO."""
    settings = Settings(prefixes=("store",), payload_dialect=False)
    async with serving(nats_server.url, settings=settings), calling(nats_server.url) as caller:
        subjects = {one["subject"] for one in (await ask(caller, "$SRV.INFO"))["endpoints"]}
        patterns = ("kv.*.>", "table.*.>", "blob.*.>", "semantic.*.*.>", "admin.*")
        assert subjects == {f"store.{pattern}" for pattern in patterns}
        assert (await caller.ask("store.kv.trivia.get", {"key": "k"}))["exists"] is False
        with pytest.raises(ConnectionError):
            await caller.ask("db.kv.trivia.get", {"key": "k"})


async def test_every_instance_introduces_itself(
    nats_server: NatsServer, running: Running, caller: Caller
) -> None:
    """A question to all is answered by each instance, under ids that differ; each answers alone by its id."""
    async with serving(nats_server.url):
        answers: asyncio.Queue[Msg] = asyncio.Queue()
        await caller.client.subscribe("answers", cb=answers.put)
        await caller.client.publish("$SRV.PING.holdfast", b"", reply="answers")
        async with asyncio.timeout(PATIENCE):
            ids = {json.loads((await answers.get()).data)["id"] for _ in range(2)}
        assert len(ids) == 2
        asked = Counter([(await ask(caller, f"$SRV.PING.holdfast.{one}"))["id"] for one in ids])
        assert asked == dict.fromkeys(ids, 1)
