"""The limits of bodies and transfers at their very borders."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest

from holdfast.edges.http.blobs import ATTEMPTS, PAUSE, BlobSteps
from holdfast.edges.http.connections import HttpLimits, ReadingTurns
from holdfast.edges.http.requests import place_of
from holdfast.errors import Busy, KeyNotFound, RateLimited
from tests.edges.http.ground import served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.edges.http.ground import Served

MOST = 20_000
CALL = "/v1/kv/trivia:get"


@pytest.fixture
async def narrow(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service that takes small bodies only."""
    async with served(tmp_path / "state.db", bus, limits=HttpLimits(body_bytes=MOST)) as found:
        yield found


def body_of(size: int) -> bytes:
    """A request of so many bytes, which names an absent key."""
    start = b'{"key": "k"'
    return start + b" " * (size - len(start) - 1) + b"}"


async def chunks(body: bytes, size: int = 4_096) -> AsyncIterator[bytes]:
    """A body whose length is not told before it."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize(("size", "status"), [(MOST, 200), (MOST + 1, 413)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_may_be_as_long_as_the_limit(
    narrow: Served, size: int, status: int, chunked: bool
) -> None:
    """A body of exactly so many bytes is read and one more is refused, whether its length is told or not."""
    body = body_of(size)
    response = await narrow.client.post(CALL, content=chunks(body) if chunked else body)
    assert response.status_code == status


async def test_a_body_without_an_end_is_refused_before_its_end(narrow: Served) -> None:
    """A client that goes on sending gets its refusal as soon as the limit is passed."""
    where = urlsplit(narrow.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        head = f"POST {CALL} HTTP/1.1\r\nHost: {where.netloc}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + (b"400\r\n" + b"x" * 1_024 + b"\r\n") * (MOST // 1_024 + 1))
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    finally:
        writer.close()


class Queue:
    """Answers the steps of a transfer, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, *step: Any) -> Any:
        """Answer a step."""
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def steps(queue: Queue) -> BlobSteps:
    """The steps of a transfer."""
    return BlobSteps(place_of("blob", "media"), queue, {})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between steps, which take no time."""
    made: list[float] = []

    async def pause(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return made


async def test_only_a_transfer_that_has_begun_waits_its_turn(pauses: list[float]) -> None:
    """The first step is refused at once, as any request; later ones are taken again when they are told to."""
    queue = Queue(Busy("full"))
    with pytest.raises(Busy):
        await steps(queue).head("b")
    assert (queue.asked, pauses) == (1, [])
    queue = Queue({}, RateLimited("slower", retry_after=0.7), Busy("full"), {"exists": False})
    begun = steps(queue)
    await begun.head("b")
    assert await begun.head("b") == {"exists": False}
    assert (queue.asked, pauses) == (4, [0.7, PAUSE])


async def test_a_step_is_taken_a_bounded_number_of_times(pauses: list[float]) -> None:
    """A plugin that stays busy ends the transfer with that refusal, and another refusal ends it at once."""
    queue = Queue({}, *[Busy("full")] * (ATTEMPTS + 1))
    begun = steps(queue)
    await begun.head("b")
    with pytest.raises(Busy):
        await begun.head("b")
    assert (queue.asked - 1, len(pauses)) == (ATTEMPTS, ATTEMPTS - 1)
    queue = Queue({}, KeyNotFound("gone"), {})
    begun = steps(queue)
    await begun.head("b")
    with pytest.raises(KeyNotFound):
        await begun.head("b")
    assert queue.asked == 2


async def test_connections_that_have_sent_much_take_turns() -> None:
    """Each parses a piece in its turn, none twice before another that waits, and none is forgotten."""
    turns, order = ReadingTurns(), []

    class Sender:
        """A connection with some pieces to parse."""

        def __init__(self, name: str, pieces: int) -> None:
            self.name = name
            self.left = pieces

        def parse_piece(self) -> None:
            """Parse a piece, and wait for the next turn if there are more."""
            order.append(self.name)
            self.left -= 1
            if self.left:
                turns.wait(cast("Any", self))

    for sender in (Sender("a", 3), Sender("b", 1), Sender("c", 2)):
        turns.wait(cast("Any", sender))
    async with asyncio.timeout(60):
        while len(order) < 6:  # noqa: ASYNC110 - they have no event
            await asyncio.sleep(0)
    assert order == ["a", "b", "c", "a", "c", "a"]


@pytest.mark.parametrize(("all_of_them", "of_one"), [(256, 64), (4, 1), (1, 1), (0, 1)])
def test_one_plugin_has_a_quarter_of_the_watches(all_of_them: int, of_one: int) -> None:
    """It has at least one, and can't take those of all others."""
    assert HttpLimits(watches=all_of_them).watches_of_one == of_one
