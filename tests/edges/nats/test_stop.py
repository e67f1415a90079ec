"""Stopping: nothing that was accepted is lost, and what comes later is told at once that nobody listens."""

from __future__ import annotations

import asyncio
import json

import pytest
from nats.aio.msg import Msg

import holdfast
from holdfast.bus.connection import Subscription
from holdfast.clock import SystemClock
from holdfast.edges.intake import service as intake
from holdfast.edges.intake.service import Limits
from holdfast.edges.nats import service as door
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.errors import Unavailable
from holdfast.pace import ALONE
from tests.edges.nats.ground import PATIENCE, Answer, Gated, calling, serving, until

REQUESTS = 500


async def test_everything_accepted_is_answered(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stop() returns when all that was taken has been executed and answered, and no sooner."""
    monkeypatch.setattr(intake, "ANSWERING", PATIENCE)
    engine = Gated()
    settings = Settings(limits=Limits(under_way=16), deadline_ms=60_000)
    async with (
        serving(nats_server.url, engine=engine, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        engine.gate.clear()
        begun = [
            await caller.begin("db.kv.trivia.set", {"key": f"k{number}", "value": number})
            for number in range(REQUESTS)
        ]
        begun += [await caller.begin(f"db.kv.p{number}.list") for number in range(REQUESTS)]
        await caller.client.flush()
        stopping = asyncio.create_task(running.service.stop())
        await until(lambda: running.service.requests.waiting >= REQUESTS - 16)
        assert not stopping.done()
        assert not any(answer.done() for answer in begun)
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            await stopping
            answers = await asyncio.gather(*begun)
        assert all(answer.fields["success"] for answer in answers)
        assert engine.executed == REQUESTS
        assert (running.service.requests.waiting, running.service.requests.under_way) == (0, 0)


async def test_a_stop_refuses_what_it_can_not_finish_in_time(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of accepted requests holds up the end for a bounded time: the rest is refused, and not done."""
    monkeypatch.setattr(intake, "ANSWERING", 0.05)
    engine = Gated()
    settings = Settings(limits=Limits(under_way=16), deadline_ms=60_000)
    async with (
        serving(nats_server.url, engine=engine, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        engine.gate.clear()
        begun = [
            await caller.begin("db.kv.trivia.set", {"key": f"k{number}", "value": number})
            for number in range(REQUESTS)
        ]
        await caller.client.flush()
        stopping = asyncio.create_task(running.service.stop())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
            assert not stopping.done()
            engine.gate.set()
            await stopping
            answers = await asyncio.gather(*begun)
        done = [answer.fields["success"] for answer in answers]
        assert done == [True] * 16 + [False] * (REQUESTS - 16)
        assert {answer.fields["error_code"] for answer in answers[16:]} == {"UNAVAILABLE"}
        assert (engine.executed, running.service.requests.waiting, running.service.requests.under_way) == (
            16,
            0,
            0,
        )
        assert f"before executing {REQUESTS - 16} requests" in caplog.text


async def test_the_last_change_is_told(nats_server: NatsServer) -> None:
    """Also of the last write before the end there is an event, though who writes alone is answered first."""
    engine = Gated()
    heard: asyncio.Queue[Msg] = asyncio.Queue()
    async with (
        serving(nats_server.url, engine=engine) as running,
        calling(nats_server.url) as caller,
    ):
        await caller.client.subscribe("db.event.>", cb=heard.put)
        await caller.client.flush()
        for number in range(ALONE - 1):
            await caller.ask("db.kv.trivia.set", {"key": "k", "value": number})
        engine.gate.clear()
        last = await caller.begin("db.kv.trivia.set", {"key": "last", "value": 1})
        await until(lambda: running.service.requests.under_way == 1)
        stopping = asyncio.create_task(running.service.stop())
        async with asyncio.timeout(PATIENCE):
            refused = False
            while not refused:  # as long as it has not stopped listening
                asked = await caller.begin("$SRV.INFO")
                await asyncio.wait([asked])
                refused = _refused(asked)
            for _ in range(20):  # each is a way to the server and back, and one of the service's is left
                await caller.client.flush()
            engine.gate.set()
            await stopping
            assert (await last).fields["success"]
            await caller.client.flush()
            told = [json.loads((await heard.get()).data)["key"] for _ in range(ALONE)]
        assert told == [*["k"] * (ALONE - 1), "last"]


async def test_requests_during_a_stop_are_answered(nats_server: NatsServer) -> None:
    """Under a stream of requests each is answered or told that nobody listens: none is met with silence."""
    async with (
        serving(nats_server.url, settings=Settings(deadline_ms=60_000)) as running,
        calling(nats_server.url) as caller,
    ):
        begun: list[asyncio.Future[Answer]] = []

        async def stream() -> None:
            while not begun or begun[-1].cancelled() or not _refused(begun[-1]):
                begun.append(await caller.begin("db.kv.trivia.incr", {"key": "n"}))
                await asyncio.sleep(0)

        streaming = asyncio.create_task(stream())
        await until(lambda: sum(answer.done() for answer in begun) > 50)
        async with asyncio.timeout(PATIENCE):
            await running.service.stop()
            await until(lambda: any(_refused(answer) for answer in begun))
            streaming.cancel()
            ends = await asyncio.gather(*begun, return_exceptions=True)
        answered = [end.fields["value"] for end in ends if isinstance(end, Answer)]
        assert len(answered) + sum(isinstance(end, ConnectionError) for end in ends) == len(begun)
        assert sorted(answered) == list(range(1, len(answered) + 1))
        entry = await running.store.kv("trivia").get("n")
        assert entry is not None
        assert entry.value == len(answered)


def _refused(answer: asyncio.Future[Answer]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is not None


async def test_a_flood_does_not_hold_up_the_end(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection on which more has piled up than can be taken is left: nothing of it is taken later."""
    monkeypatch.setattr(door, "GRACE", 0.05)
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:

        async def never(*subscriptions: Subscription) -> None:
            await asyncio.Event().wait()

        with monkeypatch.context() as flooded:
            flooded.setattr(running.client, "drain", never)
            async with asyncio.timeout(PATIENCE):
                await running.service.stop()
        assert "stopping before reading every request of 1 connections" in caplog.text
        unheard = await caller.begin("db.kv.trivia.set", {"key": "k", "value": 1})
        async with asyncio.timeout(PATIENCE):
            assert isinstance((await asyncio.gather(unheard, return_exceptions=True))[0], ConnectionError)


async def test_stopping_twice_or_without_work(nats_server: NatsServer) -> None:
    """stop() of an idle service returns at once; a second one does no harm."""
    async with serving(nats_server.url) as running:
        async with asyncio.timeout(PATIENCE):
            await running.service.stop()
            await running.service.stop()


async def test_stopping_without_a_server(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service whose NATS server is gone stops all the same, without waiting for requests."""
    monkeypatch.setattr(door, "GRACE", 600.0)
    async with serving(own_nats_server.url, clock=SystemClock()) as running:
        own_nats_server.process.kill()
        await until(lambda: not running.client.is_connected)
        async with asyncio.timeout(PATIENCE):
            await running.service.stop()


async def test_callers_of_a_service_that_stops_are_not_told_that_they_may_not_call_it(
    nats_server: NatsServer,
) -> None:
    """Who calls a service while it stops gets an answer, or hears that no service answers."""

    async def call(key: str) -> None:
        try:
            while True:
                await store.kv("trivia").get(key)
        except Unavailable:
            return

    async with serving(nats_server.url) as running, holdfast.open(nats_server.url) as store:
        await store.kv("trivia").set("k", 1)
        callers = [asyncio.create_task(call(f"k{number}")) for number in range(20)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE):
            await running.service.stop()
            await asyncio.gather(*callers)


async def test_another_instance_takes_over(nats_server: NatsServer) -> None:
    """While one instance stops, callers of the other notice nothing."""
    engine = Gated()
    async with calling(nats_server.url) as caller, serving(nats_server.url, engine=engine) as first:
        second = NatsService(first.store, first.client, Settings(events=False))
        await second.start()
        try:
            asked = [("db.kv.trivia.incr", {"key": "n"})] * 200
            begun = [await caller.begin(subject, fields) for subject, fields in asked]
            await first.service.stop()
            begun += [await caller.begin(subject, fields) for subject, fields in asked]
            async with asyncio.timeout(PATIENCE):
                answers = await asyncio.gather(*begun)
            assert sorted(answer.fields["value"] for answer in answers) == list(range(1, 401))
        finally:
            await second.stop()
