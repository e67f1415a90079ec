"""What one connection sends takes effect in the order in which it was sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.edges.nats.server import NatsServer
from holdfast.engine import LATER, Later
from holdfast.rows import Address, Row
from tests.edges.nats.ground import Caller, Gated, calling, serving

pytestmark = pytest.mark.unmeasured


class Locked(Gated):
    """An engine whose storage is locked by somebody else, and read by those who wait."""

    def glance(self, addresses: Sequence[Address], now: int) -> Later:  # type: ignore[override]
        """Not now."""
        return LATER

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """When the gate is open."""
        await self.gate.wait()
        return super().glance(addresses, now)


TIMES = 1_000
KEYS = ("a", "b", "c")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def asking(
    request: pytest.FixtureRequest, nats_server: NatsServer, tmp_path: Path
) -> AsyncIterator[Caller]:
    """A caller of a service on each engine."""
    storage = "memory://" if request.param == "memory" else str(tmp_path / "store.db")
    if request.param == "postgresql":
        storage = request.getfixturevalue("pg_url")
    async with serving(nats_server.url, storage=storage), calling(nats_server.url) as caller:
        yield caller


class Model:
    """What the keys must hold, in a plain dictionary, and what each request must be answered."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def write(self, seed: random.Random, number: int) -> tuple[str, dict[str, Any]]:
        """A writing verb and its fields, done here too."""
        key = seed.choice(KEYS)
        verb = seed.choice(["set", "set", "incr", "delete", "batch", "set_many", "delete_many"])
        fields: dict[str, Any] = {"key": key}
        match verb:
            case "set":
                self.values[key] = fields["value"] = number
            case "incr":
                self.values[key] = self.values.get(key, 0) + 1
            case "delete":
                self.values.pop(key, None)
            case "batch":
                fields = {"writes": [{"key": "a", "value": number}, {"key": "b", "delete": True}]}
                self.values["a"] = number
                self.values.pop("b", None)
            case "set_many":
                fields = {"items": [{"key": "b", "value": number}, {"key": "c", "value": number}]}
                self.values |= {"b": number, "c": number}
            case _:
                fields = {"keys": ["a", "c"]}
                self.values.pop("a", None)
                self.values.pop("c", None)
        return verb, fields

    def read(self, seed: random.Random) -> tuple[str, dict[str, Any], Any]:
        """A reading verb, its fields, and what it must show."""
        key = seed.choice(KEYS)
        match seed.choice(["get", "get", "get", "get_many", "list", "get_ttl"]):
            case "get":
                return "get", {"key": key}, self.values.get(key)
            case "get_many":
                return "get_many", {"keys": list(KEYS)}, [self.values.get(one) for one in KEYS]
            case "list":
                return "list", {}, sorted(self.values)
            case _:
                return "get_ttl", {"key": key}, None if key in self.values else 0


def seen(verb: str, reply: dict[str, Any]) -> Any:
    """What a reading verb has shown."""
    match verb:
        case "get":
            return reply.get("value")
        case "get_many":
            return [member.get("value") for member in reply["results"]]
        case "list":
            return reply["keys"]
        case _:
            return reply["ttl"]


async def test_a_get_sees_the_set_published_before_it(caller: Caller) -> None:
    """A read sees what was published just before it without waiting: a thousand times, by every verb."""
    model, seed = Model(), random.Random(5)
    for number in range(TIMES):
        verb, fields = model.write(seed, number)
        await caller.send(f"db.kv.trivia.{verb}", fields)
        verb, fields, expected = model.read(seed)
        reply = await caller.ask(f"db.kv.trivia.{verb}", fields)
        assert seen(verb, reply) == expected, (number, verb, fields)


async def test_nothing_overtakes_in_a_pipeline(asking: Caller) -> None:
    """In a pipeline each read sees every earlier write and no later one, on every engine."""
    model, seed = Model(), random.Random(7)
    expected: list[tuple[str, Any]] = []
    begun = []
    for number in range(TIMES):
        if seed.random() < 0.5:
            verb, fields = model.write(seed, number)
            await asking.send(f"db.kv.trivia.{verb}", fields | {"deadline_ms": 60_000})
        else:
            verb, fields, shows = model.read(seed)
            expected.append((verb, shows))
            begun.append(await asking.begin(f"db.kv.trivia.{verb}", fields | {"deadline_ms": 60_000}))
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*begun)
    for number, ((verb, shows), answer) in enumerate(zip(expected, answers, strict=True)):
        assert seen(verb, answer.fields) == shows, (number, verb)


async def test_gets_between_sets_see_each_its_own(asking: Caller) -> None:
    """A get that stands between two sets of its key sees the first, never the second."""
    begun = []
    for number in range(200):
        await asking.send("db.kv.trivia.set", {"key": "k", "value": number, "deadline_ms": 60_000})
        begun.append(await asking.begin("db.kv.trivia.get", {"key": "k", "deadline_ms": 60_000}))
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*begun)
    assert [answer.fields["value"] for answer in answers] == list(range(200))


async def test_versions_follow_the_order_of_sending(caller: Caller) -> None:
    """Writes of one connection get versions in the order in which they were sent."""
    requests = [("db.kv.trivia.set", {"key": f"k{number % 7}", "value": number}) for number in range(TIMES)]
    answers = await caller.ask_all(
        [(subject, fields | {"deadline_ms": 60_000}) for subject, fields in requests]
    )
    assert [answer.fields["version"] for answer in answers] == list(range(1, TIMES + 1))


async def test_gets_wait_for_a_locked_storage(nats_server: NatsServer) -> None:
    """While the storage is locked, a get waits for it and is answered, and the service serves others."""
    engine = Locked()
    async with serving(nats_server.url, engine=engine), calling(nats_server.url) as caller:
        await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1})
        engine.gate.clear()
        begun = [await caller.begin("db.kv.trivia.get", {"key": key}) for key in ("k", "none")]
        assert (await caller.ask("db.kv.trivia.get", {"key": ""}))["error_code"] == "VALIDATION_ERROR"
        engine.gate.set()
        found, none = await asyncio.gather(*begun)
    assert (found.fields["value"], none.fields["exists"]) == (1, False)


async def test_no_get_of_a_locked_storage_sees_a_later_set(nats_server: NatsServer) -> None:
    """A get that has to wait for the storage is answered before a set that was sent after it."""
    async with serving(nats_server.url, engine=Locked()), calling(nats_server.url) as caller:
        await caller.ask("db.kv.trivia.set", {"key": "k", "value": "before"})
        pairs = [
            ("db.kv.trivia.get", {"key": "k"}),
            ("db.kv.trivia.set", {"key": "k", "value": "after"}),
        ]
        got, stored = await caller.ask_all(pairs)
        assert stored.fields["success"] is True
        assert got.fields.get("value") == "before"
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["value"] == "after"
