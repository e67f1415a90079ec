"""Many names: a caller who comes under ever new ones gains nothing, and the service keeps few of them.

The bounds are made small, so that a few hundred names do what a million would.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.intake import request_log, service
from holdfast.edges.intake.service import Limits
from holdfast.edges.nats.service import Settings
from holdfast.engines.postgres import transaction
from holdfast.engines.sqlite import SqliteEngine, cache
from holdfast.pipeline.rates import Bucket, Rates
from holdfast.store import Store
from tests.edges.nats.ground import PATIENCE, Caller, Gated, Running, calling, serving, until

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer

NAMES = 300
FEW = 32


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that keeps few names."""
    monkeypatch.setattr(service, "KNOWN_NAMES", FEW)


async def test_handles_are_bounded(running: Running, caller: Caller) -> None:
    """However many plugins and projects were served, what serves them is kept of a bounded number."""
    await caller.ask("db.kv.first.set", {"key": "k", "value": 7})
    asked = [(f"db.kv.p{number}.get", {"key": "k"}) for number in range(NAMES)]
    asked += [(f"db.semantic.acme.p{number}.get", {"key": "k"}) for number in range(NAMES)]
    for start in range(0, len(asked), 50):
        answers = await caller.ask_all(asked[start : start + 50])
        assert all(answer.fields["success"] for answer in answers)
        assert len(running.service.requests._handles) <= FEW
    assert (await caller.ask("db.kv.first.get", {"key": "k"}))["value"] == 7
    entry = await running.store.kv("first").get("k")
    assert entry is not None
    assert entry.last_writer == "first"


async def test_table_services_of_plugins_are_bounded(running: Running, caller: Caller) -> None:
    """The same for plugins that ask for tables."""
    for start in range(0, NAMES, 50):
        asked = [(f"db.table.p{number}.list_tables", b"{}") for number in range(start, start + 50)]
        assert all(answer.fields["tables"] == [] for answer in await caller.ask_all(asked))
        assert len(running.service.requests._callers.tables) <= FEW


async def test_definitions_of_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin with many tables finds its items, though few definitions are kept in mind."""
    monkeypatch.setattr("holdfast.handles.table_answers.KNOWN_TABLES", 4)
    async with holdfast.open("memory://", reap=False) as store:
        tables = store.tables("p")
        for number in range(20):
            await tables.create_table(f"t{number}", partition_key=("id", "string"))
            await tables.put_item(f"t{number}", {"id": "a", "n": number})
        for number in (*range(20), 3, 3):
            item = await tables.get_item(f"t{number}", "a")
            assert item is not None
            assert item.value["n"] == number


async def test_rates_are_bounded_and_nobody_escapes_one(nats_server: NatsServer) -> None:
    """Under many names a caller is let in as the rate allows; a plugin that used its share up has to wait."""
    async with (
        serving(nats_server.url, settings=Settings(rate=0.01)) as running,
        calling(nats_server.url) as caller,
    ):
        running.service.requests._rates = Rates(lambda: 0, 0.01, most=FEW)
        assert (await caller.ask("db.kv.trivia.get", {"key": "k"}))["success"] is True
        asked = [(f"db.kv.p{number}.get", {"key": "k"}) for number in range(NAMES)]
        answers = [answer.fields for answer in await caller.ask_all(asked)]
        assert sum(answer["success"] for answer in answers) == FEW  # the last of them shared one
        assert len(running.service.requests._rates) <= FEW
        refused = await caller.ask("db.kv.trivia.get", {"key": "k"})
        assert refused["error_code"] == "RATE_LIMITED"


def test_a_bucket_is_forgotten_when_a_new_one_would_be_the_same() -> None:
    """Forgetting changes nothing: with and without a bound, the same requests are let in."""
    apart: dict[str, Bucket] = {}
    bounded = Rates(lambda: 0, 2, most=4)
    now = 0.0
    for step in range(2_000):
        now += 0.13
        name = "often" if step % 3 else f"seldom{step % 30}"
        alone = apart.setdefault(name, Bucket(2, now))
        assert bounded.take(name, now) == alone.take(now)
        assert len(bounded) <= 4


async def test_all_that_wait_are_bounded_in_number(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests without a payload under ever new names are BUSY once too many wait; later all is as before."""
    monkeypatch.setattr(service, "ALL_WAITING", 40)
    engine = Gated()
    limits = Limits(under_way=1, all_under_way=4)
    async with (
        serving(nats_server.url, engine=engine, settings=Settings(limits=limits)) as running,
        calling(nats_server.url) as caller,
    ):
        engine.gate.clear()
        begun = [await caller.begin(f"db.kv.p{number}.list") for number in range(NAMES)]
        await until(lambda: sum(answer.done() for answer in begun) >= NAMES - 44)
        assert 36 <= running.service.requests.waiting <= 40  # four are under way
        refused = [answer.result().fields for answer in begun if answer.done()]
        assert {one["error_code"] for one in refused} == {"BUSY"}
        engine.gate.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*begun)
        assert running.service.requests.waiting == 0
        assert (await caller.ask("db.kv.p0.list"))["success"] is True


async def test_bells_are_put_away(running: Running) -> None:
    """A store keeps nothing of namespaces that nobody watches any more."""
    for number in range(NAMES):
        bell = running.store.pipeline.bell(f"kv/p{number}")
        bell.put_away()
    assert len(running.store.pipeline._bells) == 0


async def test_tasks_that_ended_are_let_go(running: Running) -> None:
    """A store that started and stopped many reapers of tables keeps none of them."""
    before = len(running.store._tasks)
    for _ in range(20):
        reaper = running.store.tables("p").start_reaper(interval=3600)
        await reaper.stop()
    assert len(running.store._tasks) <= before + 1


def test_lines_that_are_left_out_are_counted_for_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many plugins whose refusals are not logged, a bounded number is told apart."""
    monkeypatch.setattr(request_log, "ALL_LINES", 10)
    lines = request_log._Lines()
    written = sum(lines.may_be_written(f"p{number}", "get", "BUSY") for number in range(NAMES))
    assert written <= 20  # ten in each second that this takes
    assert len(lines._left_out) <= 11


def test_marks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of namespaces in PostgreSQL is bounded; a namespace that was forgotten is not known."""
    monkeypatch.setattr(transaction, "MOST_MARKS", FEW)
    found = transaction.Marks()
    for number in range(NAMES):
        found.left(f"kv/p{number}", number)
        found.found(f"kv/p{number}", number + number % 2)
        assert len(found._left) <= FEW
        assert len(found._shared) <= FEW
    assert found.alone(f"kv/p{NAMES - 2}")
    assert not found.alone(f"kv/p{NAMES - 1}")
    assert not found.known("kv/p0")


async def test_heads_of_audits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many namespaces are audited, upkeep remembers of a bounded number which head it has logged."""
    monkeypatch.setattr("holdfast.upkeep.reaper.MOST_HEADS", 4)
    async with holdfast.open("memory://", reap=False) as store:
        for number in range(20):
            await store.semantic("acme", f"p{number}").set("k", 1)
        await store.upkeep()
        assert 0 < len(store._reaper._heads) <= 4


async def test_namespaces_of_a_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes to ever new namespaces of a SQLite file stay right, though few namespaces are kept in mind."""
    monkeypatch.setattr(cache, "MAX_NAMESPACES", 4)
    engine = SqliteEngine(tmp_path / "state.db")
    async with Store(engine, reap=False) as store:
        for version in (1, 2, 3):
            for number in range(20):
                assert (await store.kv(f"p{number}").set("k", 1)).version == version
                assert len(engine._cache._namespaces) <= 4
