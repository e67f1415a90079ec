"""The slow log of a service: what it keeps, how much, and how it is handed out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.nats.service import Settings
from holdfast.wire import dialects, payload
from tests.edges.nats.ground import START, Caller, calling, serving

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer

EVERYTHING = Settings(slow_seconds=0.0, slow_walk_seconds=0.0, slow_kept=3)
"""Every request counts as slow, and three are kept."""
SLOWLOG = "db.admin.slowlog"


def told(page: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Who asked for what, about which key."""
    return [(one["plugin"], one["verb"], one["key"]) for one in page["requests"]]


async def test_the_slow_log_keeps_no_value(nats_server: NatsServer) -> None:
    """Time, plugin, verb, key, milliseconds, error code and request id are kept, and never a value."""
    async with serving(nats_server.url, settings=EVERYTHING), calling(nats_server.url) as caller:
        secret = {"key": "k", "value": "a-secret-value", "request_id": "r1"}
        await caller.ask("db.kv.trivia.set", secret)
        await caller.ask("db.semantic.acme.web.delete", {"key": "jobs/1", "expectedVersion": 7})
        await caller.ask("db.table.trivia.describe_table", {"table": "none"})
        page = await caller.ask(SLOWLOG)
    newest, conflict, first = page["requests"]
    assert (page["count"], page["next"], page["slow"]) == (3, None, 3)
    assert first.pop("milliseconds") > 0
    assert first == {
        "number": 1,
        "at": START,
        "plugin": "trivia",
        "verb": "set",
        "key": "k",
        "error_code": None,
        "request_id": "r1",
        "trace_id": None,
    }
    full = "tenant/acme/project/web/jobs/1"
    assert (conflict["plugin"], conflict["key"], conflict["error_code"]) == (
        "acme/web",
        full,
        "VERSION_CONFLICT",
    )
    assert (newest["key"], newest["error_code"]) == ("none", "TABLE_NOT_FOUND")
    assert "a-secret-value" not in str(page)


async def test_a_long_request_is_not_decoded_for_the_log(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log keeps of a long request is the same, without decoding its value a second time."""
    read: list[int] = []
    fields_of = payload.fields_of

    def noted(data: bytes) -> dict[str, Any]:
        read.append(len(data))
        return fields_of(data)

    monkeypatch.setattr(dialects, "fields_of", noted)
    items = [{"key": f"k{number}", "value": "x" * 20} for number in range(500)]
    async with serving(nats_server.url, settings=EVERYTHING), calling(nats_server.url) as caller:
        await caller.ask("db.kv.trivia.set", {"request_id": "r1", "key": "k", "value": "x" * 60_000})
        await caller.ask("db.kv.trivia.set_many", {"items": items, "request_id": "r2"})
        await caller.ask("db.kv.trivia.set", b"[" * 20_000)
        page = await caller.ask(SLOWLOG)
    broken, many, single = page["requests"]
    assert (single["key"], single["request_id"]) == ("k", "r1")
    assert (many["key"], many["request_id"]) == ("k0", "r2")
    assert (broken["key"], broken["request_id"]) == ("", None)
    # Only the one that is no JSON: the others are decoded as the messages of their verbs, and that once.
    assert len([size for size in read if size > 10_000]) == 1


async def test_the_last_ones_in_pages(nats_server: NatsServer) -> None:
    """The log is bounded, the newest come first, and `next` leads to what is older."""
    async with serving(nats_server.url, settings=EVERYTHING), calling(nats_server.url) as caller:
        for number in range(5):
            await caller.ask("db.kv.trivia.set", {"key": f"k{number}", "value": number})
        first = await caller.ask(SLOWLOG, {"limit": 2})
        assert told(first) == [("trivia", "set", "k4"), ("trivia", "set", "k3")]
        rest = await caller.ask(SLOWLOG, {"limit": 2, "before": first["next"]})
        # The first page was slow too, and has taken the place of the oldest.
        assert (told(rest), rest["next"]) == ([], None)
        everything = await caller.ask(SLOWLOG)
        assert told(everything)[-1] == ("trivia", "set", "k4")
        assert everything["slow"] == 7
        for wrong in ({"limit": 0}, {"before": 0}, {"before": "x"}):
            assert (await caller.ask(SLOWLOG, wrong))["error_code"] == "VALIDATION_ERROR"


async def test_a_quick_request_is_not_in_the_slow_log(caller: Caller) -> None:
    """A request below the threshold is neither kept nor counted."""
    await caller.ask("db.kv.trivia.set", {"key": "k", "value": 1})
    page = await caller.ask(SLOWLOG)
    assert (page["requests"], page["slow"]) == ([], 0)


async def test_a_flood_does_not_fill_it(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one plugin and verb no more are kept in a second than lines are logged; all are counted."""
    monkeypatch.setattr("holdfast.edges.intake.request_log.seams", SimpleNamespace(monotonic=lambda: 7.0))
    settings = Settings(slow_seconds=0.0, slow_walk_seconds=0.0)
    async with serving(nats_server.url, settings=settings), calling(nats_server.url) as caller:
        await caller.ask("db.kv.quote-db.get", {"key": "q"})
        await caller.ask_all([("db.kv.trivia.get", {"key": f"k{number}"}) for number in range(90)])
        page = await caller.ask(SLOWLOG)
    assert (page["count"], page["slow"]) == (6, 91)
    assert ("quote-db", "get", "q") in told(page)


async def test_each_instance_has_its_own(nats_server: NatsServer) -> None:
    """Of several instances the one that is meant answers, however often the server chooses another."""
    settings = Settings(slow_seconds=0.0, slow_walk_seconds=0.0)
    async with (
        serving(nats_server.url, settings=settings),
        serving(nats_server.url, settings=settings),
        holdfast.open(nats_server.url) as store,
        asyncio.timeout(60),
    ):
        seen: set[str] = set()
        while len(seen) < 2:
            seen.add((await store.slowlog()).instance)
        for instance in [*seen] * 5:
            assert (await store.slowlog(instance=instance)).instance == instance
        with pytest.raises(holdfast.Unavailable, match="no instance 'none'"):
            await store.slowlog(instance="none")


async def test_a_store_without_a_service_has_none() -> None:
    """A file is told apart from a service, with the cure."""
    async with holdfast.open("memory://") as store:
        with pytest.raises(holdfast.Unsupported, match="only a running service has a slow log"):
            await store.slowlog()
