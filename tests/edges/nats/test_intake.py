"""The queues of a scheduler hold exactly as much as its limits say."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.edges.intake.requests import Request
from holdfast.edges.intake.service import Limits, RequestScheduler
from holdfast.errors import DatabaseError
from holdfast.wire.replies import row_fields
from holdfast.wire.subjects import route
from tests.edges.nats.ground import calling, serving

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from holdfast.rows import Row
    from tests.edges.nats.ground import Caller


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


async def test_an_entry_that_can_not_be_shown_stops_no_request(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A get of an entry to which SQL has given an impossible time is refused; all other requests go on."""
    storage = str(tmp_path / "store.db")
    async with serving(nats_server.url, storage=storage) as running, calling(nats_server.url) as caller:
        for key in "ab":
            await running.store.kv("p").set(key, 1)
        with sqlite3.connect(storage) as file:
            file.execute("UPDATE plugin_kv_storage SET expires_at = 9000000000000000000 WHERE key = 'a'")
        file.close()
        assert await told_of_gets(caller) == ["DATABASE_ERROR", True, "DATABASE_ERROR", False, False, False]
        with pytest.raises(DatabaseError, match="a stored time, 9000000000000000000 ms after 1970"):
            await running.store.kv("p").get("a")


async def test_a_defect_in_a_reply_stops_no_request(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If showing an entry fails in a way that nobody foresaw, that request alone gets an error."""

    def failing(key: str, row: Row | None) -> dict[str, Any]:
        if key == "a":
            raise RuntimeError("a defect")
        return row_fields(key, row)

    monkeypatch.setattr("holdfast.edges.intake.service.row_fields", failing)
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:
        await running.store.kv("p").set("b", 1)
        assert await told_of_gets(caller) == [
            *("INTERNAL_ERROR", True, "INTERNAL_ERROR"),
            *("INTERNAL_ERROR", False, "INTERNAL_ERROR"),
        ]


async def told_of_gets(caller: Caller) -> list[Any]:
    """What the gets of three keys of two plugins are told: a code of an error, or whether there is one."""
    answers = await caller.ask_all(
        [(f"db.kv.{plugin}.get", {"key": key}) for plugin in ("p", "q") for key in "aba"]
    )
    return [answer.fields.get("error_code", answer.fields.get("exists")) for answer in answers]
