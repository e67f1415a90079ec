"""Lines, rates and deadlines: nobody starves another, nothing piles up, and nothing is done too late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.edges.intake.requests import Request
from holdfast.edges.intake.service import Limits, RequestScheduler
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import Settings
from holdfast.pace import COMPANY_SECONDS, IN_COMPANY, OWN_STARTED
from holdfast.pipeline.rates import Bucket
from tests.edges.nats.ground import PATIENCE, Caller, Gated, Running, calling, serving, until

FLOOD = 1_000
SETTINGS = Settings(limits=Limits(waiting=FLOOD, under_way=16))


def flood(subject: str, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """A thousand requests that may take their time."""
    return [(subject, {"key": f"k{number}", "deadline_ms": 60_000, **fields}) for number in range(FLOOD)]


@pytest.fixture
def engine() -> Gated:
    """An engine that can be stopped."""
    return Gated()


@pytest.fixture
async def running(nats_server: NatsServer, engine: Gated, clock: ManualClock) -> AsyncIterator[Running]:
    """A service on an engine that can be stopped; a plugin may have 16 requests under way."""
    async with serving(nats_server.url, engine=engine, clock=clock, settings=SETTINGS) as running:
        yield running


async def begin(caller: Caller, requests: list[tuple[str, dict[str, Any]]]) -> list[asyncio.Future[Any]]:
    """Send requests and return when the server has taken them."""
    begun = [await caller.begin(subject, fields) for subject, fields in requests]
    await caller.client.flush()
    return begun


async def test_not_all_writes_share_one_commit(running: Running, engine: Gated, caller: Caller) -> None:
    """However many plugins write at once, a commit serves 64 of them, and the next ones the others."""
    engine.gate.clear()
    begun = await begin(caller, [(f"db.kv.p{n}.set", {"key": "k", "value": n}) for n in range(200)])
    await until(lambda: running.service.requests.under_way == 200)
    engine.gate.set()
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*begun)
    assert all(answer.fields["success"] for answer in answers)
    assert max(engine.groups) == 64
    assert engine.executed == 200


async def test_a_flood_of_writes_leaves_others_their_turn(
    running: Running, engine: Gated, caller: Caller
) -> None:
    """A set that comes after a thousand of another plugin is answered among the first of them."""
    engine.gate.clear()
    begun = await begin(caller, flood("db.kv.flood.set", value=1))
    await until(lambda: running.service.requests.waiting == FLOOD - 16)
    quiet = await caller.begin("db.kv.quiet.set", {"key": "k", "value": 1})
    await caller.client.flush()
    await until(lambda: running.service.requests.under_way == 17)
    engine.gate.set()
    async with asyncio.timeout(PATIENCE):
        answer, *_ = await asyncio.gather(quiet, *begun)
    assert answer.fields["success"] is True
    assert answer.position <= 17


async def test_a_flood_of_walks_leaves_others_their_gets(
    running: Running, engine: Gated, caller: Caller
) -> None:
    """A get is answered while a thousand listings of another plugin wait."""
    engine.gate.clear()
    begun = await begin(caller, flood("db.kv.flood.list"))
    await until(lambda: running.service.requests.waiting == FLOOD - 16)
    assert (await caller.ask("db.kv.quiet.get", {"key": "k"}))["exists"] is False
    assert not any(answer.done() for answer in begun)
    engine.gate.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*begun)


async def test_a_turn_is_short_for_each_plugin() -> None:
    """In one round of the loop few of a busy plugin's requests are begun, and those of others among them."""
    begun: list[str] = []

    def begin(request: Request) -> bool:
        begun.append(request.queue)
        return False

    scheduler = RequestScheduler(begin, lambda: None, Limits())
    nothing: Any = None
    for line in ["busy"] * 100 + ["quiet"] * 3:
        assert scheduler.take(Request(line, nothing, b"", 0, 0.0, nothing))
    await asyncio.sleep(0)
    assert begun == ["busy", "quiet"] * 3 + ["busy"] * (OWN_STARTED - 3)
    await scheduler.drained()
    assert len(begun) == 103


async def test_a_large_request_takes_up_the_next_turns_of_its_plugin() -> None:
    """Beside others, a plugin rests after a request that took long to decode, and they do not wait for it."""
    begun: list[tuple[int, str]] = []
    turn = 0

    def begin(request: Request) -> bool:
        begun.append((turn, request.queue))
        return False

    scheduler = RequestScheduler(begin, lambda: None, Limits())
    nothing: Any = None
    for line, size in (("busy", 48 * 1_024), ("busy", 10), ("quiet", 10)):
        assert scheduler.take(Request(line, nothing, b"x" * size, 0, 0.0, nothing))
    while scheduler.waiting:
        await asyncio.sleep(0)
        turn += 1
    assert begun == [(0, "busy"), (0, "quiet"), (3, "busy")]


async def test_large_requests_count_by_their_size() -> None:
    """Of requests that take long to decode and to do fewer are begun in a turn, and fewer are under way."""
    begun: list[Request] = []

    def begin(request: Request) -> bool:
        begun.append(request)
        return True

    scheduler = RequestScheduler(begin, lambda: None, Limits(under_way=20))
    nothing: Any = None
    for size in (30_000, 1_000_000, 100, 30_000):
        assert scheduler.take(Request("busy", nothing, b"x" * size, 0, 0.0, nothing))
    await asyncio.sleep(0)
    assert [len(request.payload) for request in begun] == [30_000, 1_000_000]
    await asyncio.sleep(0)
    assert len(begun) == 2  # the large one is alone
    scheduler.done(begun[1])
    for _ in range(1_000_000 // 8_192 // OWN_STARTED):  # it takes up the next turns, too
        assert len(begun) == 2
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [len(request.payload) for request in begun[2:]] == [100, 30_000]
    for request in (begun[0], *begun[2:]):
        scheduler.done(request)
    await scheduler.drained()


async def test_few_requests_of_a_plugin_are_under_way_while_others_ask_too() -> None:
    """Alone, a plugin has as much under way as it may; in company, little, so that nobody waits for it."""
    under_way: list[Request] = []

    def begin(request: Request) -> bool:
        under_way.append(request)
        return True

    async def asked(line: str, count: int, at: float) -> int:
        for _ in range(count):
            assert scheduler.take(Request(line, nothing, b"", 0, at, nothing))
        for _ in range(100):
            await asyncio.sleep(0)
        return sum(request.queue == line for request in under_way)

    scheduler = RequestScheduler(begin, lambda: None, Limits(under_way=50))
    nothing: Any = None
    assert await asked("busy", 60, 0.0) == 50
    assert await asked("quiet", 1, 1.0) == 1
    assert await asked("other", 60, 1.1) == IN_COMPANY
    for request in under_way:
        scheduler.done(request)
    under_way.clear()
    assert await asked("other", 10, 1.1 + COMPANY_SECONDS) > IN_COMPANY


async def test_a_flood_in_the_payload_dialect_is_that_of_the_plugin_it_names(
    running: Running, engine: Gated, caller: Caller
) -> None:
    """Who speaks through the payload has the line of the plugin that is named, not one for all."""
    engine.gate.clear()
    begun = await begin(caller, flood("db.kv.set", value=1, plugin_name="flood"))
    await until(lambda: running.service.requests.waiting == FLOOD - 16)
    quiet = await caller.begin("db.kv.set", {"key": "k", "value": 1, "plugin_name": "quiet"})
    await caller.client.flush()
    await until(lambda: running.service.requests.under_way == 17)
    engine.gate.set()
    async with asyncio.timeout(PATIENCE):
        answer, *_ = await asyncio.gather(quiet, *begun)
    assert answer.position <= 17


async def test_a_full_line_answers_busy(nats_server: NatsServer, engine: Gated, caplog: Any) -> None:
    """What does not fit a line is BUSY with retry_after and not executed; what fits is answered."""
    settings = Settings(limits=Limits(waiting=10, under_way=5))
    async with (
        serving(nats_server.url, engine=engine, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        engine.gate.clear()
        begun = await begin(caller, flood("db.kv.trivia.set", value=1)[:30])
        await until(lambda: sum(answer.done() for answer in begun) >= 15)
        refused = [answer.result().fields for answer in begun if answer.done()]
        assert {(one["error_code"], one["retryable"]) for one in refused} == {("BUSY", True)}
        assert all(one["retry_after"] > 0 and "trivia" in one["message"] for one in refused)
        assert (await caller.ask("db.kv.other.get", {"key": "k"}))["exists"] is False
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*begun)
        assert 10 <= sum(answer.fields["success"] for answer in answers) == engine.executed <= 15
        assert running.service.requests.waiting == 0


@pytest.mark.parametrize("limits", [Limits(waiting_bytes=500), Limits(all_waiting_bytes=500)])
async def test_a_line_is_bounded_in_bytes_too(nats_server: NatsServer, limits: Limits) -> None:
    """A payload that does not fit is BUSY, and leaves nothing behind that stopping would wait for."""
    async with (
        serving(nats_server.url, settings=Settings(limits=limits)) as running,
        calling(nats_server.url) as caller,
    ):
        reply = await caller.ask("db.kv.trivia.set", {"key": "k", "value": "x" * 600})
        assert (reply["error_code"], reply["retry_after"]) == ("BUSY", 0.1)
        assert (await caller.ask("db.kv.trivia.set", {"key": "k", "value": "x"}))["success"] is True
        assert running.service.requests.waiting == 0


async def test_a_line_that_was_left_is_forgotten(running: Running, caller: Caller) -> None:
    """A service that has seen many plugins waits for none of them when it stops."""
    await caller.ask_all([(f"db.kv.p{number}.get", {"key": "k"}) for number in range(300)])
    async with asyncio.timeout(PATIENCE):
        await running.service.stop()


async def test_a_request_that_waited_too_long_is_not_executed(
    running: Running, engine: Gated, caller: Caller, clock: ManualClock
) -> None:
    """The deadline is a second from receipt, or deadline_ms; past it the answer is TIMEOUT, unexecuted."""
    engine.gate.clear()
    first = await begin(caller, flood("db.kv.trivia.set", value=1)[:16])
    usual = await caller.begin("db.kv.trivia.set", {"key": "usual", "value": 1})
    patient = await caller.begin("db.kv.trivia.set", {"key": "patient", "value": 1, "deadline_ms": 5_000})
    hasty = await caller.begin("db.kv.trivia.set", {"key": "hasty", "value": 1, "deadline_ms": 0})
    read = await caller.begin("db.kv.trivia.get", {"key": "usual"})
    await caller.client.flush()
    await until(lambda: running.service.requests.waiting == 4)
    clock.advance(1.5)
    engine.gate.set()
    async with asyncio.timeout(PATIENCE):
        replies = await asyncio.gather(usual, patient, hasty, read, *first)
    codes = [reply.fields.get("error_code") for reply in replies[:4]]
    assert codes == ["TIMEOUT", None, "TIMEOUT", "TIMEOUT"]
    assert replies[0].fields["retryable"] is True
    assert engine.executed == 17
    assert (await caller.ask("db.kv.trivia.get", {"key": "usual"}))["exists"] is False


async def test_an_absolute_deadline(
    running: Running, caller: Caller, engine: Gated, clock: ManualClock
) -> None:
    """`deadline` is in milliseconds of the service's clock, which replies tell; at it there is still time."""
    [told] = await caller.ask_all([("db.kv.trivia.get", {"key": "k"})])
    now = int(told.headers["Holdfast-Time"])
    late = await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1, "deadline": now - 1})
    assert (late["error_code"], engine.executed) == ("TIMEOUT", 0)
    assert (await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1, "deadline": now}))[
        "success"
    ] is True
    clock.advance(60)
    both = {"key": "k", "value": 2, "deadline": now, "deadline_ms": 60_000}
    assert (await caller.ask("db.kv.trivia.set", both))["error_code"] == "TIMEOUT"
    semantic = {"key": "k", "value": 2, "deadline": now}
    assert (await caller.ask("db.semantic.a.b.put", semantic))["errorCode"] == "timeout"
    assert engine.executed == 1


async def test_a_rate_limit_is_each_plugins_own(nats_server: NatsServer, caplog: Any) -> None:
    """Over its rate a plugin is RATE_LIMITED with retry_after; others, and operators, are not."""
    async with (
        serving(nats_server.url, settings=Settings(rate=10)) as running,
        calling(nats_server.url) as caller,
    ):
        asked = [("db.kv.trivia.set", {"key": f"k{number}", "value": 1}) for number in range(30)]
        replies = [answer.fields for answer in await caller.ask_all(asked)]
        limited = [reply for reply in replies if not reply["success"]]
        assert 10 <= len(replies) - len(limited) < 15
        assert {(one["error_code"], one["retryable"]) for one in limited} == {("RATE_LIMITED", True)}
        assert all(0 < one["retry_after"] <= 0.1 for one in limited)
        assert len((await running.store.kv("trivia").list()).keys) == len(replies) - len(limited)
        assert (await caller.ask("db.kv.other.get", {"key": "k"}))["success"] is True
        through = {"key": "k", "plugin_name": "trivia"}
        answers = await caller.ask_all([("db.kv.get", through)] * 30)
        assert "RATE_LIMITED" in {answer.fields.get("error", {}).get("code") for answer in answers}
        told = [one for one in running.recorder.operations if one.dialect == "payload" and one.code]
        assert {(one.owner, one.namespace) for one in told} == {("trivia", "kv/trivia")}
        assert "set of trivia was refused: RATE_LIMITED" in caplog.text
        admin = await caller.ask_all([("db.admin.ready", {})] * 15)
        assert all(answer.fields["success"] for answer in admin)


@pytest.mark.parametrize("rate", [0.5, 1, 10, 2_000, 10_000, 100_000])
def test_a_bucket_holds_a_seconds_worth(rate: float) -> None:
    """However high the rate, what is over it is refused, and a second later as much again is let through."""
    bucket, now = Bucket(rate, 0.0), 0.0
    burst = max(int(rate), 1)
    for _ in range(2):
        assert all(bucket.take(now) == 0 for _ in range(burst))
        wait = bucket.take(now)
        assert 0 < wait <= max(1 / rate, 0.001)
        now += max(1.0, 1 / rate)


def test_a_bucket_keeps_its_rate_over_time() -> None:
    """Asked at any pace, it lets through what the rate allows and no more."""
    seed, bucket, now, through = random.Random(1), Bucket(3_000, 0.0), 0.0, 0
    while now < 10:
        through += bucket.take(now) == 0
        now += seed.random() / 10_000
    assert 30_000 <= through <= 33_001
