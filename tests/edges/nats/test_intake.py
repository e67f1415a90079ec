"""The queues of a scheduler hold exactly as much as its limits say."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.edges.intake.requests import Request
from holdfast.edges.intake.service import Limits, RequestScheduler
from holdfast.wire.subjects import route


def asked(owner: str, size: int = 1) -> Request:
    """A request of a plugin."""
    return Request(
        queue=owner,
        route=route(f"db.kv.{owner}.get", "db"),
        payload=b"x" * size,
        received=0,
        began=0.0,
        endpoint=cast("Any", None),
    )


async def begun(scheduler: RequestScheduler, requests: list[Request]) -> list[bool]:
    """Which of some requests are taken that come in one turn; all that were are begun after it."""
    taken = [scheduler.take(request) for request in requests]
    while scheduler.waiting:  # noqa: ASYNC110 - every turn of the loop is one of the scheduler's
        await asyncio.sleep(0)
    return taken


async def test_a_line_holds_so_many_requests() -> None:
    """A plugin's line is full with so many, another's is not; what was begun makes room."""
    scheduler = RequestScheduler(lambda request: False, lambda: None, Limits(waiting=3))
    for _ in range(2):
        assert await begun(scheduler, [asked("a")] * 4 + [asked("b")]) == [True, True, True, False, True]


async def test_a_line_holds_so_many_bytes() -> None:
    """The same holds for bytes, of one plugin and of all."""
    scheduler = RequestScheduler(
        lambda request: False, lambda: None, Limits(waiting_bytes=10, all_waiting_bytes=15)
    )
    for _ in range(2):
        requests = [asked("a", 6), asked("a", 5), asked("a", 4), asked("b", 6), asked("b", 5)]
        assert await begun(scheduler, requests) == [True, False, True, False, True]
