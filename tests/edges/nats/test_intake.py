"""How much may wait in the lines of an intake: exactly as much as its limits say."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.edges.intake.lines import Intake, Limits, Request
from holdfast.wire.subjects import route


def asked(owner: str, size: int = 1) -> Request:
    """A request of a plugin."""
    return Request(
        line=owner,
        route=route(f"db.kv.{owner}.get", "db"),
        reply="",
        payload=b"x" * size,
        received=0,
        began=0.0,
        endpoint=cast("Any", None),
        client=cast("Any", None),
    )


async def begun(intake: Intake, requests: list[Request]) -> list[bool]:
    """Which of some requests are taken that come in one turn; all that were are begun after it."""
    taken = [intake.take(request) for request in requests]
    while intake.waiting:  # noqa: ASYNC110 - every turn of the loop is one of the intake's
        await asyncio.sleep(0)
    return taken


async def test_a_line_holds_so_many_requests() -> None:
    """A plugin's line is full with so many, another's is not; what was begun makes room."""
    intake = Intake(lambda request: False, lambda: None, Limits(waiting=3))
    for _ in range(2):
        assert await begun(intake, [asked("a")] * 4 + [asked("b")]) == [True, True, True, False, True]


async def test_a_line_holds_so_many_bytes() -> None:
    """The same holds for bytes, of one plugin and of all."""
    intake = Intake(lambda request: False, lambda: None, Limits(waiting_bytes=10, all_waiting_bytes=15))
    for _ in range(2):
        requests = [asked("a", 6), asked("a", 5), asked("a", 4), asked("b", 6), asked("b", 5)]
        assert await begun(intake, requests) == [True, False, True, False, True]
