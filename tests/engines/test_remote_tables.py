"""Tables of a store behind a service: the same calls, the same answers, and the errors of the way there."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import pytest
from nats.aio.msg import Msg

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from holdfast.errors import (
    ConditionFailed,
    HoldfastError,
    ItemNotFound,
    OutcomeUnknown,
    Unavailable,
    ValidationError,
    VersionConflict,
)
from holdfast.handles.tables import Tables
from holdfast.store import Store
from tests.edges.nats.ground import Running, serving, until
from tests.engines.test_remote import instead_of_a_service, silence

NOW = 1_700_000_000


@pytest.fixture
async def running(nats_server: NatsServer) -> AsyncIterator[Running]:
    """A service on a store that keeps nothing."""
    async with serving(nats_server.url, clock=ManualClock()) as running:
        yield running


@pytest.fixture
async def remote(nats_server: NatsServer, running: Running) -> AsyncIterator[Store]:
    """A store behind that service."""
    async with holdfast.open(nats_server.url) as store:
        yield store


async def told(call: Awaitable[Any]) -> Any:
    """What a call answers, or all that its error carries."""
    try:
        return await call
    except HoldfastError as error:
        return shown(error)


def shown(error: HoldfastError) -> tuple[Any, ...]:
    """All that an error carries."""
    extra = [getattr(error, name, None) for name in ("current", "item", "conflicts", "reason")]
    return type(error), error.message, error.field, *extra


E = TypeVar("E", bound=HoldfastError)


async def refusal(kind: type[E], call: Awaitable[Any]) -> E:
    """The error that refuses a call."""
    with pytest.raises(kind) as caught:
        await call
    return caught.value


async def every_kind(tables: Tables) -> list[Any]:
    """The answers to calls of every verb, also to wrong ones."""
    who: Any = {"writer": "me", "request_id": "r"}
    ten = {"user": "a", "at": 10, "big": -(2**80), "text": "\u2028ü", "expires": NOW + 60}
    writes: list[dict[str, Any]] = [
        {"put": {"item": {"user": "b", "at": 1}, "expected_version": 0}},
        {"put": {"item": {"user": "b", "at": math.nan}}},
        {"put": {"item": {"user": "a", "at": 10}, "expected_version": 1}},
        {"delete": {"partition_key": "a", "sort_key": 10, "condition": {"x": {"exists": True}}}},
        {"nonsense": 1},
        {"delete": {"partition_key": "nobody", "sort_key": 1}},
    ]
    calls: list[Awaitable[Any]] = [
        tables.create_table(
            "t", partition_key=("user", "string"), sort_key=("at", "number"), ttl_attribute="expires"
        ),
        tables.create_table("t", partition_key=("user", "string")),
        tables.create_table("blobs", partition_key=("id", "binary"), stream="keys"),
        tables.list_tables(),
        tables.put_item("t", ten, **who),
        tables.put_item("t", {**ten, "at": 11}, return_values="none"),
        tables.put_item("t", {**ten, "at": 11}, return_values="old"),
        tables.put_item("t", {**ten, "at": math.inf}),
        tables.put_item("t", {**ten, "text": "\ud800"}),
        tables.put_item("t", {**ten, "text": "x" * 500_000}),
        tables.put_item("t", {"user": 5, "at": 1}),
        tables.put_item("t", ten, expected_version=1),
        tables.put_item("t", ten, condition={"text": {"exists": False}}),
        tables.get_item("t", "a", 10),
        tables.get_item("t", "a", 10, projection=["text"]),
        tables.get_item("t", "nobody", 1),
        tables.get_item("nothing", "a"),
        tables.update_item("t", "a", 10, set={"deep": {"x": [1]}}, add={"n": 1.5}, remove=["big"]),
        tables.update_item("t", "a", 10, set={"x": math.nan}),
        tables.update_item("t", "a", 10, set={"n": holdfast.if_not_exists(9)}, return_values="old"),
        tables.query("t", "a", sk={"gte": 10}, filter={"n": {"eq": 1.5}}, reverse=True),
        tables.query("t", "a", limit=1),
        tables.query("t", "a", limit=0),
        tables.scan("t", cursor="nonsense"),
        tables.create_index("t", "by-n", key=("n", "number")),
        tables.query_index("t", "by-n", 1.5),
        tables.query_index("t", "nothing", 1.5),
        tables.check_index("t", "by-n"),
        tables.batch_write_item("t", writes, **who | {"request_id": "r2"}),
        tables.batch_write_item("t", [{"put": {"item": {"user": "b", "at": math.nan}}}]),
        tables.batch_get_item("t", [("b", 1), ("nobody", 1)]),
        tables.transact_write([{"put": {"table": "t", "item": {"user": "c", "at": 1}}}]),
        tables.transact_write([{"put": {"table": "t", "item": {"user": "c", "at": math.nan}}}]),
        tables.transact_write(
            [
                {"check": {"table": "t", "partition_key": "a", "sort_key": 10, "expected_version": 1}},
                {"check": {"table": "t", "partition_key": "x", "sort_key": 1, "expected_version": 1}},
            ]
        ),
        tables.set_ttl("t", "a", 10, 60),
        tables.get_ttl("t", "a", 10),
        tables.remove_ttl("t", "a", 10),
        tables.set_ttl("t", "nobody", 1, 60),
        tables.get_ttl("blobs", b"\x00"),
        tables.sweep_expired_ttl("t"),
        tables.put_item("blobs", {"id": b"\x00\xff"}),
        tables.get_item("blobs", b"\x00\xff"),
        tables.changes("blobs", view="new"),
        tables.delete_item("t", "a", 10, return_values="old"),
        tables.delete_item("t", "a", 10),
        tables.drop_index("t", "by-n"),
        tables.drop_table("blobs"),
        tables.describe_table("t"),
    ]
    return [await told(call) for call in calls]


async def test_tables_behind_a_service_answer_like_embedded_ones(remote: Store) -> None:
    """A store behind a service answers as one of one's own, with the same items and the same errors."""
    async with holdfast.open("memory://", clock=ManualClock(), reap=False) as own:
        here, there = await every_kind(own.tables("trivia")), await every_kind(remote.tables("trivia"))
    for position, (mine, other) in enumerate(zip(here, there, strict=True)):
        assert _plain(other) == _plain(mine), position


def _plain(answer: Any) -> Any:
    """An answer with errors as what they carry, and times as text."""
    if isinstance(answer, list):
        return [_plain(member) for member in answer]
    if isinstance(answer, HoldfastError):
        return shown(answer)
    if isinstance(answer, dict):
        return {name: str(part).replace("+00:00", "Z").replace(" ", "T") for name, part in answer.items()}
    return answer


async def test_errors_over_nats_carry_the_item(remote: Store) -> None:
    """What a caller of one's own store can act on is there over NATS too."""
    tables = remote.tables("trivia")
    await tables.create_table("t", partition_key=("user", "string"), ttl_attribute="expires")
    item = await tables.put_item("t", {"user": "a", "expires": NOW + 60})
    failed = await refusal(ConditionFailed, tables.delete_item("t", "a", condition={"x": {"exists": True}}))
    assert (failed.current, failed.conflicts) == (item, ())
    lost = await refusal(VersionConflict, tables.delete_item("t", "a", expected_version=9))
    assert (lost.item, lost.current) == (item, None)
    check = {"check": {"table": "t", "partition_key": "a", "expected_version": 9}}
    refused = await refusal(ConditionFailed, tables.transact_write([check]))
    assert refused.conflicts == (holdfast.ItemConflict(position=0, current=item),)
    await refusal(ItemNotFound, tables.set_ttl("t", "nobody", None, 60))


async def test_nan_is_refused_before_it_is_sent(remote: Store, running: Running) -> None:
    """NaN does not become null on the way: it is refused here, and the service never sees it."""
    before = len(running.recorder.operations)
    for item in ({"user": "a", "x": math.nan}, {"user": "a", "x": object()}):
        wrong = await refusal(ValidationError, remote.tables("trivia").put_item("t", item))
        assert wrong.field == "item"
    assert len(running.recorder.operations) == before


async def test_without_a_reply_a_write_is_outcome_unknown(nats_server: NatsServer) -> None:
    """A write that is not answered is OutcomeUnknown, a read is Unavailable: nothing depends on it."""
    async with (
        instead_of_a_service(nats_server.url, silence),
        holdfast.open(f"{nats_server.url}?timeout=0.05") as store,
    ):
        tables = store.tables("trivia")
        await refusal(OutcomeUnknown, tables.put_item("t", {"user": "a"}))
        await refusal(OutcomeUnknown, tables.batch_write_item("t", [{"delete": {"partition_key": "a"}}]))
        await refusal(OutcomeUnknown, tables.create_index("t", "i", key=("x", "string")))
        await refusal(Unavailable, tables.get_item("t", "a"))
        await refusal(Unavailable, tables.list_tables())


async def test_without_a_service_nothing_was_written(nats_server: NatsServer) -> None:
    """Where no service listens nothing was written, and the call may be repeated."""
    async with holdfast.open(nats_server.url) as store:
        await refusal(Unavailable, store.tables("trivia").put_item("t", {"user": "a"}))


async def test_a_write_is_sent_once_with_its_deadline(nats_server: NatsServer) -> None:
    """A request carries its deadline and what the caller said of itself, in the plugin dialect."""
    heard: list[tuple[str, dict[str, Any]]] = []

    async def answer(message: Msg) -> None:
        heard.append((message.subject, json.loads(message.data)))
        await message.respond(b'{"success": true, "version": 1, "expires_at": null}')

    async with instead_of_a_service(nats_server.url, answer), holdfast.open(nats_server.url) as store:
        await store.tables("trivia").put_item("t", {"user": "a"}, return_values="none", writer="me")
    [(subject, fields)] = heard
    del fields["deadline"]
    assert subject == "db.table.trivia.put_item"
    assert fields == {"table": "t", "item": {"user": "a"}, "return_values": "none", "last_writer": "me"}


async def test_writes_carry_the_writer_of_the_store(remote: Store, nats_server: NatsServer) -> None:
    """A store that was opened for somebody writes in that name, unless a call names another."""
    async with holdfast.open(nats_server.url, writer="ops") as store:
        tables = store.tables("trivia")
        await tables.create_table("t", partition_key=("user", "string"))
        await tables.put_item("t", {"user": "a"})
        await tables.put_item("t", {"user": "a"}, writer="me")
        await remote.tables("trivia").put_item("t", {"user": "a"})
        told = [change.last_writer for change in (await tables.changes("t")).changes]
    assert told == ["ops", "me", "trivia"]


async def test_a_reaper_works_through_a_service(remote: Store, running: Running) -> None:
    """`start_reaper` on a remote store removes expired items, since it only calls verbs."""
    tables = remote.tables("trivia")
    await tables.create_table("t", partition_key=("user", "string"), ttl_attribute="expires")
    await tables.put_item("t", {"user": "a", "expires": 1})
    reaper = tables.start_reaper(3600)
    await until(lambda: any(one.verb == "sweep_expired_ttl" for one in running.recorder.operations))
    assert (await running.store.stats("table/trivia")).keys == 0
    await reaper.stop()
