"""What only a client can meet: nobody there, no answer, no connection, no permission, another clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

import holdfast
from holdfast import seams
from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from holdfast.errors import (
    HoldfastError,
    OutcomeUnknown,
    PermissionDenied,
    Timeout,
    Unavailable,
    ValueTooLarge,
)
from holdfast.model import Policy
from holdfast.testing.exact import refusal
from tests.edges.nats.ground import PATIENCE, Gated, serving, until
from tests.nats import Wire, library_client
from tests.nats_fixtures import StartServer

PERMISSIONS = """
accounts {
  HF { users = [
    { user: service, password: s }
    { user: trivia, password: t, permissions: {
        publish: { allow: ["db.kv.trivia.>"] }
        subscribe: { allow: ["_INBOX.trivia.>"] } } }
  ] }
}
"""

Answering = Callable[[Msg], Awaitable[None]]


@contextlib.asynccontextmanager
async def instead_of_a_service(url: str, answer: Answering) -> AsyncIterator[None]:
    """Somebody who takes every request, for the length of a block."""
    async with library_client(url) as client:
        await client.subscribe("db.>", cb=answer)
        await client.flush()
        yield


async def silence(message: Msg) -> None:
    """Answer nothing."""


def as_user(server: NatsServer, login: str, options: str = "") -> str:
    """The address of a server for a user."""
    return server.url.replace("nats://", f"nats://{login}@") + options


async def test_without_a_service_a_call_fails_at_once(nats_server: NatsServer) -> None:
    """The server says that nobody listens: UNAVAILABLE, for reads and writes, long before the timeout."""
    async with holdfast.open(f"{nats_server.url}?timeout=600") as store:
        kv = store.kv("trivia")
        async with asyncio.timeout(PATIENCE):
            for call in (kv.set("k", 1), kv.get("k"), kv.list(), kv.delete_many(["k"]), store.ready()):
                with refusal(Unavailable, says="no Holdfast service answers"):
                    await call


async def test_without_a_reply_a_write_is_unknown_and_a_read_unavailable(nats_server: NatsServer) -> None:
    """A client that gives up can't know whether a write was done; a read it may simply repeat."""
    async with (
        instead_of_a_service(nats_server.url, silence),
        holdfast.open(f"{nats_server.url}?timeout=0.2") as store,
    ):
        kv, semantic = store.kv("trivia"), store.semantic("acme", "web")
        writes: list[Any] = [
            kv.set("k", 1),
            kv.delete("k"),
            kv.incr("k"),
            kv.set_ttl("k", 5),
            kv.touch("k", 5),
            kv.remove_ttl("k"),
            kv.restore("k"),
            kv.set_many([{"key": "k", "value": 1}]),
            kv.delete_many(["k"]),
            kv.batch(writes=[{"key": "k", "value": 1}]),
            semantic.set("k", 1),
            store.set_policy("kv/trivia", {}),
        ]
        reads: list[Any] = [
            kv.get("k"),
            kv.exists("k"),
            kv.get_ttl("k"),
            kv.list(),
            kv.changes(),
            kv.history("k"),
            store.namespaces(),
        ]
        reads += [kv.get_many(["a", "b"]), store.stats("kv/trivia"), semantic.get("k")]
        ends = await asyncio.gather(*writes, *reads, return_exceptions=True)
    assert [type(end) for end in ends] == [OutcomeUnknown] * len(writes) + [Unavailable] * len(reads)
    assert all("0.2 s" in str(end) for end in ends)


async def test_a_request_that_failed_without_a_connection_is_never_sent(nats_server: NatsServer) -> None:
    """A request on a dead connection fails, and the server that comes back never sees it."""
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    async with holdfast.open(f"{nats_server.url}?timeout=0.5") as store:
        kv = store.kv("trivia")
        with refusal(Unavailable):
            await kv.set("before", 1)
        nats_server.process.kill()
        await nats_server.process.wait()
        ends = await asyncio.gather(
            *(kv.set(f"at once {number}", 1) for number in range(20)), return_exceptions=True
        )
        assert {type(end) for end in ends} <= {Unavailable, OutcomeUnknown}
        with refusal(Unavailable, says="no connection"):
            await kv.set("later", 1)
        await nats_server.start()
        async with instead_of_a_service(nats_server.url, hear):
            async with asyncio.timeout(60):
                while not heard:
                    with contextlib.suppress(HoldfastError):
                        await kv.get("probe")
                    await asyncio.sleep(0.01)
        assert all(json.loads(data)["key"] == "probe" for data in heard)


async def test_a_refused_subject_is_permission_denied(nats_server_with: StartServer) -> None:
    """What the server does not let a user send is PERMISSION_DENIED with the subject."""
    server = await nats_server_with(PERMISSIONS)
    async with (
        serving(server.url, user="service", password="s"),
        holdfast.open(as_user(server, "trivia:t", "?inbox=_INBOX.trivia&timeout=600")) as store,
    ):
        assert (await store.kv("trivia").set("k", 1)).version == 1
        async with asyncio.timeout(PATIENCE):
            for call, subject in (
                (store.kv("other").set("k", 1), "db.kv.other.set"),
                (store.kv("other").get("k"), "db.kv.other.get"),
                (store.semantic("acme", "web").get("k"), "db.semantic.acme.web.get"),
                (store.namespaces(), "db.admin.namespaces"),
            ):
                with refusal(PermissionDenied, says=subject):
                    await call
            many = [store.kv("other").set(f"k{number}", 1) for number in range(20)]
            ends = await asyncio.gather(*many, return_exceptions=True)
            assert {type(end) for end in ends} == {PermissionDenied}
        assert await store.kv("trivia").incr("n") is not None


@pytest.mark.parametrize("answers", [1, 2])
async def test_a_service_that_starts_and_dies_within_a_call_denies_nothing(
    nats_server: NatsServer, answers: int
) -> None:
    """A service that is heard once or twice, and not right before and after the request, is unavailable."""
    async with library_client(nats_server.url) as client, holdfast.open(nats_server.url) as store:

        async def answer(message: Msg) -> None:
            await message.respond(b'{"success": true, "ready": true}')

        await client.subscribe("db.ready", cb=answer, max_msgs=answers)
        await client.flush()
        async with asyncio.timeout(PATIENCE):
            with refusal(Unavailable, says="no Holdfast service answers at db.kv.trivia.get"):
                await store.kv("trivia").get("k")


async def test_a_wrong_inbox_is_permission_denied(nats_server_with: StartServer) -> None:
    """A user who may not listen where replies would come is told to name the inbox in the URL."""
    server = await nats_server_with(PERMISSIONS)
    async with (
        serving(server.url, user="service", password="s") as running,
        holdfast.open(as_user(server, "trivia:t", "?timeout=600")) as store,
    ):
        async with asyncio.timeout(PATIENCE):
            for _ in range(2):
                with refusal(PermissionDenied, says="?inbox="):
                    await store.kv("trivia").set("k", 1)
        assert await running.store.namespaces() == []


async def test_a_watch_without_events_still_sees_changes(nats_server_with: StartServer) -> None:
    """Where a user may not hear events a watch looks for itself, and misses nothing."""
    server = await nats_server_with(PERMISSIONS)
    async with (
        serving(server.url, user="service", password="s"),
        holdfast.open(as_user(server, "trivia:t", "?inbox=_INBOX.trivia")) as store,
    ):
        kv = store.kv("trivia")
        changes = kv.watch(since=0)
        for number in range(2):
            await kv.set("k", number)
            async with asyncio.timeout(PATIENCE):
                assert (await anext(changes)).version == number + 1
        await changes.aclose()  # type: ignore[attr-defined]


async def test_a_jump_of_the_service_clock_is_a_timeout_and_a_retry_succeeds(nats_server: NatsServer) -> None:
    """When the service's clock leaps ahead the answer is TIMEOUT, unexecuted, and one retry succeeds."""
    clock, engine = ManualClock(), Gated()
    async with (
        serving(nats_server.url, engine=engine, clock=clock) as running,
        holdfast.open(nats_server.url) as store,
    ):
        kv = store.kv("trivia")
        await kv.incr("n")
        clock.advance(7_200)
        assert (await kv.incr("n")).value == 2
        assert (await kv.incr("n")).value == 3
        codes = [operation.code for operation in running.recorder.operations]
        assert codes == [None, "TIMEOUT", None, None]
        assert engine.executed == 3


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_deadlines_ignore_jumps_of_the_client_clock(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Deadlines are in the service's time: what happens to the client's wall clock does not move them."""
    clock, wall = ManualClock(), time.time
    deadlines: list[int] = []

    async def note(message: Msg) -> None:
        deadlines.append(json.loads(message.data)["deadline"])

    async with (
        serving(nats_server.url, clock=clock) as running,
        library_client(nats_server.url) as spy,
        holdfast.open(f"{nats_server.url}?timeout=600") as store,
    ):
        kv = store.kv("trivia")
        await kv.set("k", 0)
        await kv.get("k")
        await spy.subscribe("db.kv.trivia.set", cb=note)
        await spy.flush()
        before = store.now()
        monkeypatch.setattr(seams, "wall", lambda: wall() + jump)
        for number in range(5):
            await kv.set("k", number)
        await kv.get("k")
        await until(lambda: len(deadlines) == 5)
        codes = [operation.code for operation in running.recorder.operations]
    assert codes == [None] * 8
    assert all(abs(deadline - clock.now() - 600_000) < 60_000 for deadline in deadlines)
    assert abs(store.now() - before) < 60_000


async def test_a_client_with_a_fast_clock_uses_the_time_of_the_service(nats_server: NatsServer) -> None:
    """A client goes by the service's time from its first reply on, also if its own clock is far ahead."""
    clock = ManualClock()
    async with serving(nats_server.url, clock=clock), holdfast.open(nats_server.url) as store:
        kv = store.kv("trivia")
        await kv.set("k", 1, ttl=60)
        await kv.get("k")
        assert abs(store.now() - clock.now()) < 60_000


async def test_a_second_timeout_of_the_service_is_reported(nats_server: NatsServer) -> None:
    """A service that answers TIMEOUT twice is believed: TIMEOUT, which is safe to retry."""
    asked = 0

    async def late(message: Msg) -> None:
        nonlocal asked
        asked += 1
        await message.respond(b'{"success":false,"error_code":"TIMEOUT","message":"late","retryable":true}')

    async with instead_of_a_service(nats_server.url, late), holdfast.open(nats_server.url) as store:
        with refusal(Timeout, says="late"):
            await store.kv("trivia").set("k", 1)
    assert asked == 2


async def test_a_request_over_max_payload_is_value_too_large_and_not_sent(
    nats_server_with: StartServer,
) -> None:
    """What the server would not let pass is VALUE_TOO_LARGE before it is sent; the connection lives on."""
    server = await nats_server_with("max_payload: 16384")
    async with serving(server.url), holdfast.open(server.url) as store:
        with refusal(ValueTooLarge, says="more than the NATS server accepts"):
            await store.kv("trivia").set("k", "x" * 20_000)
        assert (await store.kv("trivia").set("k", "x")).version == 1


async def test_closing_waits_for_calls_under_way(nats_server: NatsServer) -> None:
    """A store that is closed while calls are under way ends when they have."""
    engine = Gated()
    async with serving(nats_server.url, engine=engine) as running:
        store = holdfast.open(nats_server.url)
        await store.start()
        engine.gate.clear()
        calls = [asyncio.create_task(store.kv("trivia").set(f"k{number}", 1)) for number in range(10)]
        await until(lambda: running.service.requests.under_way == 10)
        closing = asyncio.create_task(store.aclose())
        with refusal(Unavailable, says="not open"):
            await asyncio.sleep(0)
            await store.kv("trivia").get("k")
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            await closing
            assert {entry.version for entry in await asyncio.gather(*calls)} == set(range(1, 11))


async def test_unreadable_messages_stop_no_watch_and_no_call(nats_server: NatsServer) -> None:
    """Bytes that no client would send, where a watch listens, are dropped; watch and calls go on."""
    async with (
        serving(nats_server.url),
        holdfast.open(nats_server.url) as store,
        Wire.open(nats_server.url) as wire,
    ):
        kv = store.kv("trivia")
        changes = kv.watch(since=0)
        await kv.set("k", 1)
        assert (await anext(changes)).version == 1
        for subject in (
            b"db.event.kv.trivia.\xff",
            b"db.event.kv.trivia.a\x0bb",
            b"db.event.kv.trivia.a\x0c1",
        ):
            wire.publish(subject, b"", b"{}")
        wire.send(b"HPUB db.event.kv.trivia.x 16 18", b"NATS/1.0 \xff\xff\xff\r\n\r\n{}\r\n")
        wire.send(b"HPUB db.event.kv.trivia.x 8 10", b"NATS/1.0{}\r\n")
        await wire.settle()
        await kv.set("k", 2)
        async with asyncio.timeout(PATIENCE):
            assert (await anext(changes)).version == 2
        await changes.aclose()  # type: ignore[attr-defined]


async def test_a_policy_is_set_through_the_service(nats_server: NatsServer) -> None:
    """An operator's client puts a namespace under a policy, and it applies at the service."""
    async with serving(nats_server.url) as running, holdfast.open(nats_server.url) as store:
        policy = Policy(quota_keys=1)
        assert await store.set_policy("kv/trivia", policy) == policy
        assert await running.store.policy("kv/trivia") == policy
