"""Writes that a node forwards to the one that writes: rightness when replies are lost and nodes vanish."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import seams, tracing
from holdfast.bus.connection import Connection
from holdfast.commands import Delete, Deleted
from holdfast.decide import Outcome
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.engines.cluster import forwarding
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.engines.cluster.write_queue import shares
from holdfast.errors import OutcomeUnknown, QuotaExceeded, Transient, VersionConflict
from holdfast.model import Policy
from holdfast.origin import Origin
from holdfast.rows import Record
from tests.cluster import Nodes, at_one_place, engine_of, equal, lose_node
from tests.jetstream import lasting_servers, servers_running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.engines.cluster.messages import Logged
    from holdfast.engines.cluster.reports import OperatorCall, OperatorReply
    from holdfast.engines.cluster.shard import Shard
    from holdfast.store import Store
    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream that accepts messages of 64 KB."""
    with lasting_servers(1, max_payload=65_536) as servers:
        yield servers


@pytest.fixture
async def nodes(server: Servers, tmp_path: Path) -> AsyncIterator[Nodes]:
    """The nodes of a new store."""
    async with AsyncExitStack() as stack:
        yield Nodes(server, tmp_path, stack)


def shard_of(store: Store) -> Shard:
    """The only shard of a node."""
    [shard] = engine_of(store)._shards
    return shard


async def test_all_nodes_write_through_the_owner(nodes: Nodes) -> None:
    """While one node writes, all write through it: it stays the owner, and its answers arrive whole."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    entry = await other.kv("trivia").set("key", {"n": 2}, ttl=60)
    assert (entry.version, entry.value, entry.last_writer) == (2, {"n": 2}, "embedded")
    with pytest.raises(VersionConflict) as conflict:
        await other.kv("trivia").set("key", 3, expected_version=1)
    assert conflict.value.current is not None
    assert conflict.value.current.value == {"n": 2}
    assert (await other.kv("trivia").incr("sum", 5)).value == 5
    assert await other.kv("trivia").delete("sum") is True
    assert shard_of(one).lease.leads
    assert not shard_of(other).lease.leads


async def test_an_increment_over_64_bits_is_done_by_the_called_node(nodes: Nodes) -> None:
    """An increment of more than 64 bits can't be forwarded, so the node that was called does it."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    assert (await other.kv("trivia").incr("key", 10**30)).value == 10**30 + 1


async def test_a_quota_holds_for_forwarded_writes(nodes: Nodes) -> None:
    """A forwarded write over a quota is refused as it would be on the node that writes."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.set_policy("kv/trivia", Policy(quota_keys=1))
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    with pytest.raises(QuotaExceeded):
        await other.kv("trivia").set("more", 1)
    assert shard_of(one).lease.leads


async def test_listeners_hear_changes_of_their_own_node_only(nodes: Nodes) -> None:
    """Listeners of a node hear of the changes of its own callers alone, also of those that were forwarded."""
    one, other = await nodes.open(1), await nodes.open(2)
    heard: dict[str, list[str]] = {"one": [], "other": []}
    one.pipeline.listen(lambda records: heard["one"].extend(record.key for record in records))
    other.pipeline.listen(lambda records: heard["other"].extend(record.key for record in records))
    await one.kv("trivia").set("a", 0)
    await at_one_place([one, other])
    await other.kv("trivia").set("b", 1)
    assert heard == {"one": ["a"], "other": ["b"]}


def test_groups_in_one_message_get_their_own_records() -> None:
    """Groups of one namespace get their own records; an expiry that none asked for goes to the first."""
    groups = [
        [Delete(namespace="kv/trivia", key=key, origin=Origin(writer="w", request_id=key))] for key in "ab"
    ]
    journal = [
        Record(namespace="kv/trivia", version=version, op="delete", key=key, at=0, request_id=asked)
        for version, (key, asked) in enumerate([("old", None), ("b", "b"), ("a", "a")])
    ]
    outcome = Outcome(
        results=[Deleted(version=2), Deleted(version=1)], namespaces=[], rows={}, journal=journal, trims={}
    )
    first, second = shares(outcome, groups)
    assert [record.key for record in first.journal] == ["old", "a"]
    assert [record.key for record in second.journal] == ["b"]
    assert (first.results, second.results) == ([Deleted(version=2)], [Deleted(version=1)])


async def test_a_forwarded_write_keeps_its_trace(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes record what they do for a write in one trace, and the audit names it."""
    monkeypatch.setattr(tracing, "spans", None)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    one, other = await nodes.open(1), await nodes.open(2)
    await one.set_policy("kv/trivia", Policy(audit=True))
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    holdfast.record_spans(provider)
    with holdfast.traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
        await other.kv("trivia").set("key", 2)
    spans = {span.context.span_id: span for span in exporter.get_finished_spans() if span.context}
    [commit] = [span for span in spans.values() if span.name == "commit"]
    engines = [span for span in spans.values() if span.name == "engine"]
    assert all(span.parent and spans[span.parent.span_id] is commit for span in engines)
    assert sorted(bool((span.attributes or {})["db.holdfast.forwarded"]) for span in engines) == [False, True]
    [record] = (await one.audit("kv/trivia").log(trace_id="4bf92f3577b34da6a3ce929d0e0e4736")).records
    assert record.key == "key"


async def test_a_node_without_callers_gives_up_the_shard(nodes: Nodes) -> None:
    """A node whose own callers have fallen silent lets the one write that is called."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    shard_of(one).forwarding._own_until = 0.0
    assert (await other.kv("trivia").set("key", 2)).version == 2
    assert shard_of(other).lease.leads


async def test_a_read_without_a_lease_goes_through_the_owner(nodes: Nodes) -> None:
    """A read sees every acknowledged write when no lease runs, and does not take the shard from its owner."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 0)
    await at_one_place([one, other])
    follower = shard_of(other).follower
    take = follower._take

    async def slowly(entry: Logged) -> bool:
        await asyncio.sleep(0.02)
        return await take(entry)

    follower._take = slowly
    for number in range(5):
        shard_of(one).lease._foreign = seams.ticks()  # as if another node wrote, too
        await one.kv("trivia").set("key", number)
        entry = await other.kv("trivia").get("key")
        assert entry is not None
        assert entry.value == number
        assert not shard_of(one).lease.held()
    assert shard_of(one).lease.leads


async def test_a_result_larger_than_a_message_arrives_whole(nodes: Nodes) -> None:
    """The results of a group may take several messages."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", "x" * 40_000)
    await at_one_place([one, other])
    found = await asyncio.gather(
        *(other.kv("trivia").set("key", number, expected_version=7) for number in range(4)),
        return_exceptions=True,
    )
    for conflict in found:
        assert isinstance(conflict, VersionConflict)
        assert conflict.current is not None
        assert len(conflict.current.value) == 40_000
    assert shard_of(one).lease.leads


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sender look often whether the other node still writes."""
    monkeypatch.setattr(forwarding, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "LAST_SECONDS", 0.05)


@pytest.mark.usefixtures("hurried")
async def test_a_forwarded_group_that_got_lost_is_done_by_its_sender(nodes: Nodes) -> None:
    """A forwarded write without a reply is done once the log shows that it was not done."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])
    shard_of(one).forwarding._decided = asyncio.Event().wait  # type: ignore[assignment, method-assign]
    assert (await other.kv("trivia").incr("sum")).value == 2


@pytest.mark.usefixtures("hurried")
async def test_a_group_whose_result_is_lost_is_not_done_twice(nodes: Nodes) -> None:
    """A forwarded write that is in the log, but whose result is lost, has an unknown outcome."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])
    shard_of(one).forwarding._reply = lambda inbox, data: None  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown, match="is in the log"):
        await other.kv("trivia").incr("sum")
    entry = await other.kv("trivia").get("sum")
    assert entry is not None
    assert entry.value == 2


@pytest.mark.usefixtures("hurried")
async def test_a_group_that_comes_late_is_not_done_twice(nodes: Nodes) -> None:
    """A node that was paused does not do what the sender has done itself meanwhile."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])
    held: list[bytes] = []
    decided = shard_of(one).forwarding._decided

    async def paused(data: bytes) -> bytes:
        held.append(data)
        await asyncio.Event().wait()
        return b""

    shard_of(one).forwarding._decided = paused  # type: ignore[method-assign]
    assert (await other.kv("trivia").incr("sum")).value == 2
    shard_of(other).forwarding._own_until = 0.0
    await at_one_place([one, other])
    assert (await one.kv("trivia").incr("sum")).value == 3  # it writes again
    assert shard_of(one).lease.leads
    with pytest.raises(forwarding.Moved):
        await decided(held[0])
    entry = await one.kv("trivia").get("sum")
    assert entry is not None
    assert entry.value == 3


class Served:
    """A node with a service before it, as on one machine of a cluster."""

    def __init__(self, store: Store, connection: Connection, service: NatsService) -> None:
        self.store = store
        self.connection = connection
        self.service = service

    async def lose(self) -> None:
        """End it as a crash would: requests that it has accepted are never answered."""
        await self.connection.close()
        await lose_node(self.store)


async def served(nodes: Nodes, server: Servers, number: int) -> Served:
    """Start a node with a service."""
    store, connection = await nodes.open(number, timeout=2), Connection()
    await connection.reach(f"nats://127.0.0.1:{server.servers[0].port}")
    service = NatsService(store, connection, Settings())
    await service.start()
    return Served(store, connection, service)


async def again(call: Any) -> Any:
    """Repeat a call, with its request id, until it is answered."""
    while True:
        try:
            return await call()
        except (OutcomeUnknown, Transient):
            continue


async def test_requests_to_any_service_lose_nothing_when_the_owner_dies(
    nodes: Nodes, server: Servers
) -> None:
    """Requests reach any of three services while the owner dies: nothing is lost, doubled or stale."""
    machines = [await served(nodes, server, number) for number in range(3)]
    url = f"nats://127.0.0.1:{server.servers[0].port}?timeout=2"
    acknowledged, count = 0, 40
    lost: list[Served] = []
    busy = asyncio.Event()

    async def add(store: Store, caller: int) -> None:
        nonlocal acknowledged
        for number in range(count):
            name = f"r-{caller}-{number}"
            before = acknowledged
            entry = await again(lambda: store.kv("trivia").incr("sum", request_id=name))  # noqa: B023
            acknowledged += 1
            if acknowledged == count:
                busy.set()
            assert entry.value > before
            seen = await again(lambda: store.kv("trivia").get("sum"))
            assert seen.value >= entry.value

    async def kill_the_owner() -> None:
        await busy.wait()
        lost.append(next(one for one in machines if shard_of(one.store).lease.leads))
        await lost[0].lose()

    async with holdfast.open(url) as store:
        await asyncio.gather(kill_the_owner(), *(add(store, caller) for caller in range(3)))
        entry = await store.kv("trivia").get("sum")
    assert entry is not None
    assert entry.value == 3 * count
    left = [one for one in machines if one not in lost]
    await at_one_place([one.store for one in left])
    for one in left:
        await one.service.stop()
        await one.connection.close()
        await one.store.aclose()
    equal(nodes.folder, [str(machines.index(one)) for one in left])


async def test_what_a_node_is_asked_is_done_once_though_it_listens_at_two_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that shuts down gently keeps its connection for a while, beside the one to the next server.

    What others ask of a node are forwarded groups, and what operators have it do.
    """
    monkeypatch.setattr("holdfast.bus.connection.OVERLAP_SECONDS", 60.0)
    async with servers_running(3) as servers, AsyncExitStack() as stack:
        nodes = Nodes(servers, tmp_path, stack)
        one, other = await nodes.open(1), await nodes.open(2)
        await one.kv("trivia").incr("sum")
        await at_one_place([one, other])
        connection, asked = engine_of(one)._connection, list[str]()
        do = engine_of(one).answers._done

        async def done(call: OperatorCall) -> OperatorReply:
            asked.append(call.call)
            return await do(call)

        monkeypatch.setattr(engine_of(one).answers, "_done", done)
        assert connection._session is not None
        port = connection._session.server.port
        [server] = [server for server in servers.servers if server.port == port]
        server.process.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(60):
            while not connection._left:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.002)
        async with ClusterOperator(engine_of(one)._address) as operator:
            assert (await operator.verify(seconds=20)).equal
            await operator.snapshot(seconds=20)
        assert connection._left
        acknowledged = 1
        while connection._left and acknowledged < 20:
            await one.kv("trivia").set("mine", 1)  # it has callers of its own, so others forward to it
            await other.kv("trivia").incr("sum")
            acknowledged += 1
        entry = await other.kv("trivia").get("sum")
        assert entry is not None
        assert (entry.value, asked) == (acknowledged, ["verify", "snapshot"])
