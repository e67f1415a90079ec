"""The deadline of a request goes with it to its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.commands import Set
from holdfast.errors import Timeout
from tests.edges.nats.ground import Gated, calling, serving, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.edges.nats.server import NatsServer
    from tests.edges.nats.ground import Caller, Running

ITEM = {"table": "events", "partition_key": "a"}
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("db.kv.trivia.set", {"key": "k", "value": 2}),
    ("db.kv.trivia.delete", {"key": "k"}),
    ("db.kv.trivia.incr", {"key": "k"}),
    ("db.kv.trivia.set_ttl", {"key": "k", "ttl_seconds": 5}),
    ("db.kv.trivia.touch", {"key": "k", "ttl_seconds": 5}),
    ("db.kv.trivia.remove_ttl", {"key": "k"}),
    ("db.kv.trivia.restore", {"key": "gone"}),
    ("db.kv.trivia.set_many", {"items": [{"key": "k", "value": 2}]}),
    ("db.kv.trivia.delete_many", {"keys": ["k"]}),
    ("db.kv.trivia.batch", {"writes": [{"key": "k", "value": 2}]}),
    ("db.kv.trivia.set", {"key": "k", "value": 2, "request_id": "r", "last_writer": "me"}),
    (
        "db.kv.trivia.escalate",
        {
            "verb": "set",
            "request": {"key": "k", "value": 2, "request_id": "r", "deadline": "garbage"},
            "error_code": "BUSY",
            "attempts": 1,
        },
    ),
    ("db.semantic.acme.web.put", {"key": "k", "value": 2}),
    ("db.table.trivia.put_item", {"table": "events", "item": {"user": "a"}, "timeout": 99}),
    ("db.table.trivia.update_item", {**ITEM, "set": {"n": 1}}),
    (
        "db.table.trivia.create_index",
        {"table": "events", "index": "i", "index_key": {"name": "n", "type": "string"}},
    ),
    ("db.admin.set_policy", {"namespace": "kv/trivia", "policy": {"ttl_default": 5}}),
    ("db.admin.load", {"namespace": "kv/trivia", "entries": []}),
    ("db.admin.deadletter_retry", {"namespace": "kv/trivia", "number": 4}),
    ("db.admin.deadletter_drop", {"namespace": "kv/trivia", "number": 4}),
]


@pytest.fixture
def clock() -> ManualClock:
    """The service's time."""
    return ManualClock()


@pytest.fixture
def engine() -> Gated:
    """Storage that waits when it is told to."""
    return Gated()


@pytest.fixture
async def running(nats_server: NatsServer, engine: Gated, clock: ManualClock) -> AsyncIterator[Running]:
    """A service with something in it for every verb to work on."""
    async with serving(nats_server.url, engine=engine, clock=clock) as service:
        kv = service.store.kv("trivia")
        await kv.set("k", 1)
        await kv.set("gone", 1, semantics={"purpose": "config"})
        await kv.delete("gone")
        tables = service.store.tables("trivia")
        await tables.create_table("events", partition_key=("user", "string"))
        async with calling(nats_server.url) as caller:
            await caller.ask(*next(write for write in WRITES if write[0].endswith("escalate")))
        yield service


async def _held(engine: Gated, running: Running, caller: Caller) -> Any:
    """Have a request wait in the storage, so that what comes after it waits for its group."""
    engine.gate.clear()
    held = await caller.begin("db.kv.other.set", {"key": "held", "value": 1, "deadline_ms": 60_000})
    await until(lambda: running.service.requests.under_way == 1 and running.store.pipeline.waiting == 0)
    return held


@pytest.mark.parametrize("write", WRITES, ids=lambda write: f"{write[0]}-{len(write[1])}")
async def test_a_write_that_waited_too_long_for_its_group_is_not_done(
    nats_server: NatsServer,
    engine: Gated,
    running: Running,
    clock: ManualClock,
    write: tuple[str, dict[str, Any]],
) -> None:
    """A request that was begun in time and waited past its deadline is answered TIMEOUT; nothing is done."""
    subject, fields = write
    before = [stats.version for stats in await running.store.namespaces()]
    async with calling(nats_server.url) as caller:
        held = await _held(engine, running, caller)
        answer = await caller.begin(subject, {**fields, "deadline_ms": 500})
        await until(lambda: running.service.requests.under_way == 2)
        clock.advance(0.501)
        engine.gate.set()
        await held
        reply = (await answer).fields
    assert reply["success"] is False
    assert str(reply.get("error_code", reply.get("errorCode"))).upper() == "TIMEOUT"
    after = {stats.namespace: stats.version for stats in await running.store.namespaces()}
    assert after.pop("kv/other") == 1
    assert [version for version in after.values() if version] == before


async def test_the_deadline_is_that_of_the_request(
    nats_server: NatsServer, engine: Gated, running: Running, clock: ManualClock
) -> None:
    """One that names a later deadline than the others of its group is done; that of a year from now too."""
    far = 10**30
    async with calling(nats_server.url) as caller:
        held = await _held(engine, running, caller)
        begun = [
            await caller.begin("db.kv.trivia.set", {"key": key, "value": 1, **deadline})
            for key, deadline in {
                "usual": {},
                "short": {"deadline_ms": 1},
                "exact": {"deadline": clock.now() + 3_000},
                "far": {"deadline": far},
                "farther": {"deadline_ms": far},
            }.items()
        ]
        await until(lambda: running.service.requests.under_way == 1 + len(begun))
        clock.advance(3)
        engine.gate.set()
        await held
        codes = [(await answer).fields.get("error_code") for answer in begun]
    assert codes == ["TIMEOUT", "TIMEOUT", None, None, None]


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
async def test_a_deadline_beyond_every_calendar_is_none(
    nats_server: NatsServer, storage: str, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    """A caller who names a deadline that no database can hold is served like one who is in no hurry."""
    url = str(tmp_path / "store.db") if storage == "sqlite" else request.getfixturevalue("pg_url")
    async with serving(nats_server.url, storage=url), calling(nats_server.url) as caller:
        for number in range(3):
            fields = {"key": f"k{number}", "value": 1, "deadline": 10**30}
            assert (await caller.ask("db.kv.trivia.set", fields))["version"] == number + 1


async def test_a_client_may_say_how_long_each_call_may_take(
    nats_server: NatsServer, running: Running, engine: Gated, clock: ManualClock
) -> None:
    """`timeout=` of a call takes the place of the URL's: the caller waits so long, and the service knows."""
    async with holdfast.open(f"{nats_server.url}?timeout=20", clock=clock) as store:
        kv = store.kv("trivia")
        assert (await kv.set("fine", 1, timeout=10)).version
        engine.gate.clear()
        with pytest.raises(holdfast.OutcomeUnknown, match=r"within 0\.2 s"):
            await kv.set("k", 2, timeout=0.2)
        with pytest.raises(holdfast.OutcomeUnknown, match=r"within 0\.2 s"):
            await store.tables("trivia").put_item("events", {"user": "a"}, timeout=0.2)
        with pytest.raises(holdfast.OutcomeUnknown, match=r"within 0\.2 s"):
            await store.set_policy("kv/trivia", {}, timeout=0.2)
        with pytest.raises(holdfast.OutcomeUnknown, match=r"within 0\.2 s"):
            await store.load("kv/trivia", [], keep_versions=False, timeout=0.2)
        engine.gate.set()


@pytest.mark.parametrize("seconds", [1, 2])
async def test_a_call_that_is_too_late_is_not_sent(
    nats_server: NatsServer, running: Running, clock: ManualClock, seconds: int
) -> None:
    """A client with no time left for an answer sends nothing, and says that nothing was done."""
    async with holdfast.open(nats_server.url, clock=clock) as store:
        kv = store.kv("trivia")
        command = kv.verbs.command(Set, key="k", value=5, timeout=1)
        clock.advance(seconds)
        with pytest.raises(Timeout):
            await store.caller.call(command)
        assert len(running.recorder.operations) == 1  # that of the fixture
