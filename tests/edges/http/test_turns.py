"""Requests that a client sends ahead on one connection: each gets its own answer, in its turn, or none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.http.watches import Watches
from holdfast.errors import Unavailable
from tests.edges.http.test_fast_path import PATIENCE, bodies, connections_made, request, until

if TYPE_CHECKING:
    from tests.edges.http.ground import Served

MANY = 2_000_000


async def connected(here: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the service."""
    return await asyncio.open_connection("127.0.0.1", here.client.base_url.port)


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end of a connection."""
    async with asyncio.timeout(PATIENCE):
        return await reader.read()


def statuses(answers: bytes) -> list[int]:
    """The statuses of some answers."""
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    ("sent_after", "status"),
    [(b"garbage\r\n\r\n", 400), (b"GET /livez HTTP/1.1\r\nX: " + b"a" * 80_000 + b"\r\n\r\n", 431)],
)
@pytest.mark.parametrize("path", ["/v1/kv/trivia/a", "/v1/kv/trivia/a?strange"])
async def test_what_can_not_be_read_is_not_the_answer_to_an_earlier_write(
    here: Served, path: str, sent_after: bytes, status: int
) -> None:
    """A write is answered, whichever way it takes, and only then is refused what followed it."""
    reader, writer = await connected(here)
    writer.write(request("PUT", path, b"1") + sent_after + request("PUT", "/v1/kv/trivia/b", b"1"))
    assert statuses(await all_of(reader)) == [200, status]
    kv = here.store.kv("trivia")
    assert [await kv.get(key) is not None for key in "ab"] == [True, False]
    writer.close()


async def test_a_body_that_can_not_be_read_is_refused_in_its_turn(here: Served) -> None:
    """A body in chunks that are none is refused, also after another request, and nothing of it is stored."""
    broken = request("PUT", "/v1/kv/trivia/b", b"1\r\n1\r\nx\r\n", "Transfer-Encoding: chunked")
    for before in (b"", request("PUT", "/v1/kv/trivia/a", b"1")):
        reader, writer = await connected(here)
        writer.write(before + broken)
        assert statuses(await all_of(reader)) == [200, 400][not before :]
        writer.close()
    assert await here.store.kv("trivia").get("b") is None


async def test_no_request_is_told_to_continue_within_the_answer_to_another(here: Served) -> None:
    """A request that waits for `100 Continue` gets it after the answers to those before it."""
    blob = bytes(MANY)
    await here.client.put("/v1/blob/trivia/b", content=blob)
    reader, writer = await connected(here)
    writer.write(request("GET", "/v1/blob/trivia/b"))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(request("PUT", "/v1/kv/trivia/a", b"1", "Expect: 100-continue")[:-1])
    async with asyncio.timeout(PATIENCE):
        assert await reader.readexactly(MANY) == blob
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(b"1")
    assert [b"version" in body for body in await bodies(reader, 1)] == [True]
    writer.close()


async def test_a_defect_is_not_the_answer_to_an_earlier_request(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expected answers its own request alone, even if another one takes longer."""
    go_on = asyncio.Event()

    async def ready() -> None:
        await go_on.wait()
        raise Unavailable("not now")

    async def fails() -> str:
        go_on.set()
        raise RuntimeError

    monkeypatch.setattr(here.store, "ready", ready)
    monkeypatch.setattr(here.api.guard, "token_of", lambda scope: fails())
    reader, writer = await connected(here)
    writer.write(request("GET", "/readyz") + request("GET", "/v1/kv/trivia/a?strange"))
    assert statuses(await all_of(reader)) == [503, 500]
    writer.close()


async def test_a_watch_ends_with_its_connection_whatever_was_sent_after_it(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch whose client goes is forgotten, also if the client has sent another request behind it."""
    made = connections_made(monkeypatch)
    reader, writer = await connected(here)
    writer.write(request("GET", "/livez") + request("GET", "/v1/kv/trivia?watch"))
    async with asyncio.timeout(PATIENCE):
        await reader.readuntil(b": watching")
    assert made[0].timeout_keep_alive_task is None  # else it would end, as an idle connection does
    writer.write(request("GET", "/livez"))
    await until(lambda: len(made[0]._unanswered) == 2)
    writer.transport.abort()
    await until(lambda: here.api._watches._of == {})


@pytest.mark.parametrize("pieces", [1, 2_000])
async def test_an_offer_of_another_protocol_is_ignored(here: Served, pieces: int) -> None:
    """A client that offers HTTP/2, as some do at first, has its body read, and what it sends afterwards."""
    offer = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAA"]
    body = b"x" * 5_000
    sent = request("PUT", "/v1/blob/trivia/b", body, *offer)
    sent += request("PUT", "/v1/kv/trivia/a", b"1\r\n7\r\n0\r\n\r\n", "Transfer-Encoding: chunked", *offer)
    sent += request("GET", "/v1/kv/trivia/a", b"", *offer) + request("GET", "/v1/blob/trivia/b")
    reader, writer = await connected(here)
    for start in range(0, len(sent), size := len(sent) // pieces):
        writer.write(sent[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)
    answers = await bodies(reader, 4)
    assert (answers[2], answers[3]) == (b"7", body)
    writer.close()


async def test_a_watch_lifts_no_time_limit_before_its_turn(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads no response keeps none for ever by asking for a watch behind it."""
    begun, begin = asyncio.Event(), Watches.stream

    async def stream(watches: Watches, *given: Any, **more: Any) -> None:
        begun.set()
        await begin(watches, *given, **more)

    monkeypatch.setattr(Watches, "stream", stream)
    made = connections_made(monkeypatch)
    await here.client.put("/v1/blob/trivia/b", content=bytes(8 * MANY))
    _, writer = await connected(here)
    writer.write(request("GET", "/v1/blob/trivia/b") + request("GET", "/v1/kv/trivia?watch"))
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(made[-1]._unanswered) == 2
    assert made[-1]._until < float("inf")
    writer.transport.abort()
    await until(lambda: here.api._watches._of == {})
