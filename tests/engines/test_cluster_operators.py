"""What operators do with a cluster: look at it, compare its replicas, make snapshots, and trim the log."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.engines.cluster import log, operators, reports, snapshots
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.jetstream import ApiRefusal, Fault, JetStream
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.engines.cluster.snapshots import Snapshots
from holdfast.errors import DatabaseError, Unavailable, ValidationError
from holdfast.testing import AUDIT_KEY
from tests.cluster import Nodes, at_one_place, engine_of, equal, lose_node
from tests.jetstream import lasting_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

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


@pytest.fixture
async def operator(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClusterOperator]:
    """An operator of that store, who does not wait long for answers."""
    monkeypatch.setattr(reports, "ANSWER_SECONDS", 0.6)
    async with ClusterOperator(cluster_address(nodes.url(0, timeout=2))) as operator:
        yield operator


@pytest.fixture
def close_trimming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no more of the log than is needed."""

    async def trim(*given: Any, needed: int) -> int:
        return await log.trim(*given, needed=needed, margin=2)

    monkeypatch.setattr(snapshots, "trim", trim)


async def _fill(store: Store, count: int) -> None:
    for number in range(count):
        await store.kv("trivia").set(f"key-{number}", number)


async def test_the_status_names_nodes_owners_and_the_log(nodes: Nodes, operator: ClusterOperator) -> None:
    """An operator sees every node with its place in the log, the owner of each shard, and no trouble."""
    with pytest.raises(ValidationError, match="keep no store"):
        await operator.status()
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    found = await operator.status()
    assert found.troubles == []
    assert (found.log.shards, found.log.messages > 0, found.log.first) == (1, True, 1)
    assert len(found.nodes) == 2
    assert {shard.seq for node in found.nodes for shard in node.report.shards} == {found.log.last}
    assert [shard.leads for node in found.nodes for shard in node.report.shards].count(True) == 1
    assert all(abs(node.offset_ms) < 1000 for node in found.nodes)
    for store in (one, other):
        await store.aclose()
    assert (await operator.status()).troubles == ["no node answers"]
    with pytest.raises(Unavailable, match="no node of"):
        await operator.verify(seconds=5)


async def test_a_node_that_died_is_named_with_its_host(nodes: Nodes, operator: ClusterOperator) -> None:
    """A node that dies is gone until it is back; one that was stopped properly is not missed.

    A node that starts afterwards learns of it from the others.
    """
    one, other, third = [await nodes.open(number) for number in range(3)]
    dead = engine_of(other).answers.report()
    await one.kv("trivia").set("key", 1)
    await third.aclose()
    assert (await operator.status()).troubles == []
    await lose_node(other)
    told = f"the node on {dead.host} (process {dead.pid}) is gone"
    found = await operator.status()
    assert [trouble.partition(":")[0] for trouble in found.troubles] == [told]
    assert [gone.node for gone in found.gone_nodes] == [dead.node]
    again = await nodes.open(2)
    await engine_of(again).answers.compare_clocks()
    await one.aclose()
    found = await operator.status()
    assert [trouble.partition(":")[0] for trouble in found.troubles] == [told]
    await nodes.open(1)
    assert (await operator.status()).troubles == []


async def test_a_node_counts_its_peers_and_names_wrong_clocks(
    nodes: Nodes, operator: ClusterOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of a node count the nodes that answer, and say if the clock of one of them is wrong."""
    monkeypatch.setattr(operators, "WATCH_SECONDS", 0.05)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    async with asyncio.timeout(60):
        while engine_of(one).figures().nodes < 2:  # noqa: ASYNC110 - a node tells no one when it has asked
            await asyncio.sleep(0.05)
    found = engine_of(one).figures()
    assert (found.stopped, found.leads, found.behind) == ({0: False}, {0: True}, {0: 0})
    assert found.skew < 1
    right = engine_of(other).answers.report
    late = msgspec.structs.replace(right(), time=right().time - 5_000)
    monkeypatch.setattr(engine_of(other).answers, "report", lambda: late)
    [told] = (await operator.status()).troubles
    assert "differ by more than a second" in told
    async with asyncio.timeout(60):
        while engine_of(one).figures().skew < 4:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.05)
    engine_of(one)._shards[0]._halt(DatabaseError("it differs"))
    assert engine_of(one).figures().stopped == {0: True}
    assert any("it differs" in trouble for trouble in (await operator.status()).troubles)
    compared = await operator.verify(seconds=10)
    assert (compared.equal, len(compared.stopped)) == (False, 1)


async def test_a_node_whose_clock_is_wrong_does_not_serve(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three nodes, the one whose clock differs from the others refuses calls, says why, and comes back."""
    monkeypatch.setattr(reports, "ANSWER_SECONDS", 0.3)
    stores = [await nodes.open(number) for number in range(3)]
    await stores[0].kv("trivia").set("key", 1)
    wrong = engine_of(stores[0]).answers
    right = wrong.report
    monkeypatch.setattr(wrong, "report", lambda: msgspec.structs.replace(right(), time=right().time - 5_000))
    for store in stores:
        await engine_of(store).answers.compare_clocks()
    for call in (stores[0].kv("trivia").set("key", 2), stores[0].kv("trivia").get("key")):
        with pytest.raises(Unavailable, match=r"its clock is 5\.\d s behind those of the other nodes"):
            await call
    assert wrong.figures().stopped == {0: True}
    assert (await stores[1].kv("trivia").set("key", 2, expected_version=1)).version == 2
    monkeypatch.setattr(wrong, "report", right)
    await wrong.compare_clocks()
    entry = await stores[0].kv("trivia").get("key")
    assert entry is not None
    assert entry.value == 2


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("lead", [600, -600])
async def test_a_node_opened_with_a_wrong_clock_takes_its_time_once_that_is_mended(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, lead: int, others: int
) -> None:
    """Nothing is answered or kept by the wrong time, so that entries end as everywhere, also after a kill."""
    monkeypatch.setattr(reports, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(operators, "WATCH_SECONDS", 0.1)
    wall = {"wrong": float(lead)}
    report = operators.NodeAnswers.report

    def told(self: operators.NodeAnswers) -> reports.NodeReport:
        said = report(self)
        off = wall["wrong"] if self._address.data.name == "2" else 0.0
        return msgspec.structs.replace(said, time=said.time + int(off * 1000))

    monkeypatch.setattr(operators.NodeAnswers, "report", told)
    right = [await nodes.open(number) for number in range(others)]
    await right[0].kv("trivia").set("key", 1, ttl=300)
    folder = nodes.folder / "2"
    options: dict[str, Any] = {"reap": False, "audit_key": AUDIT_KEY}
    clock = SystemClock(wall=lambda: time.time() + wall["wrong"])
    async with holdfast.open(nodes.url(2), clock=clock, **options) as store:
        for call in (store.kv("trivia").set("key", 2), store.kv("trivia").get("key"), store.ready()):
            with pytest.raises(
                Unavailable, match=r"its clock is \d+\.\d s (ahead of|behind) those of the other"
            ):
                await call
        shutil.copytree(folder, nodes.folder / "killed")
        wall["wrong"] = 0.0
        async with asyncio.timeout(30):
            while store.pipeline.timekeeper.sure is False:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.02)
        entry = await store.kv("trivia").get("key")
        assert entry is not None
        assert abs(store.now() - right[0].now()) < 2_000
        assert (await store.kv("trivia").set("key", 2)).version == 2
        assert await right[-1].kv("trivia").get("key") is not None
    shutil.rmtree(folder)
    shutil.move(nodes.folder / "killed", folder)
    async with holdfast.open(nodes.url(2), **options) as again:
        assert abs(again.now() - right[0].now()) < 2_000


async def test_replicas_are_compared_after_the_same_message_under_load(
    nodes: Nodes, operator: ClusterOperator
) -> None:
    """All replicas are hashed right after the same message, although writes go on."""
    stores = [await nodes.open(number, shards=2) for number in range(3)]

    async def write(store: Store) -> None:
        for number in range(1_000):
            await store.kv(f"plugin-{number % 3}").incr("sum")

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(store)) for store in stores[:2]]
        for _ in range(3):
            found = await operator.verify(seconds=20)
            assert found.equal, found
            assert len(found.contents) == 6
            assert len({(one.shard, one.seq) for one in found.contents}) == 2
        for writer in writers:
            writer.cancel()


async def test_a_comparison_finds_a_changed_replica(nodes: Nodes, operator: ClusterOperator) -> None:
    """A row that differs on one node makes the comparison fail, and so does a node that does not answer."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    await other.aclose()
    with sqlite3.connect(nodes.folder / "2" / "shard-0.db") as connection:
        connection.execute("UPDATE plugin_kv_storage SET value_json = '2'")
    connection.close()
    again = await nodes.open(2)
    for _ in range(60):  # on a busy machine a node may answer too late to be counted
        found = await operator.verify(seconds=20)
        if len(found.contents) == 2:
            break
    assert (found.equal, found.differing, found.silent) == (False, [0], [])
    engine_of(again)._shards[0].replica._inspect = _nothing
    found = await operator.verify(seconds=0.5)
    assert (found.equal, len(found.silent)) == (False, 1)


async def test_a_comparison_names_a_node_that_does_not_answer(
    nodes: Nodes, operator: ClusterOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that follows the log but does not answer makes it fail; one that has left does not."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    silent = engine_of(other).answers
    for subscription in list(engine_of(other)._connection._subscriptions.values()):
        if ".node." in subscription.subject:
            subscription.cancel()
    engine_of(other)._shards[0].replica._inspect = _nothing
    found = await operator.verify(seconds=1)
    where = f"{silent.report().host} (process {silent.report().pid})"
    assert (found.equal, found.silent, found.differing) == (False, [where], [])
    await other.aclose()
    assert (await operator.verify(seconds=10)).equal


async def _nothing(*given: Any) -> None:
    """Answer nothing."""


@pytest.mark.usefixtures("close_trimming")
async def test_a_new_node_begins_with_the_newest_snapshot(nodes: Nodes, operator: ClusterOperator) -> None:
    """The log is trimmed behind two snapshots; a node without a replica gets the newer one and follows."""
    one = await nodes.open(1)
    await one.blobs("trivia").put("big", b"x" * 300_000)
    await _fill(one, 20)
    left = nodes.folder / "1" / ".shard-0.db.copy.1"
    left.write_text("half of a copy")
    assert (await operator.snapshot(seconds=20)).trimmed > 0
    assert not left.exists(), "what a killed process has left takes up room for ever"
    await _fill(one, 20)
    done = await operator.snapshot(seconds=20)
    assert [note.shard for note in done.snapshots] == [0]
    status = await operator.status()
    assert status.log.first > 1
    assert len(status.snapshots) == 2
    await _fill(one, 5)
    other = await nodes.open(2)
    entry = await other.kv("trivia").get("key-19")
    assert entry is not None
    await other.kv("trivia").set("key-20", 20)
    assert (await operator.verify(seconds=20)).equal
    await other.aclose()
    await one.aclose()
    equal(nodes.folder, ["1", "2"])


@pytest.mark.usefixtures("close_trimming")
async def test_a_returning_node_behind_the_trimmed_log_takes_a_snapshot(
    nodes: Nodes, operator: ClusterOperator
) -> None:
    """A replica that is too old for the log is replaced by a snapshot when its node returns, and is kept."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("old", 1)
    await at_one_place([one, other])
    await lose_node(other)
    for _ in range(3):
        await _fill(one, 10)
        await operator.snapshot(seconds=20)
    again = await nodes.open(2)
    assert await again.kv("trivia").get("key-9") is not None
    assert (await operator.verify(seconds=20)).equal
    assert (nodes.folder / "2" / "shard-0.db.replaced").exists()


@pytest.mark.usefixtures("close_trimming")
async def test_a_running_node_behind_the_trimmed_log_takes_a_snapshot(
    nodes: Nodes, operator: ClusterOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running node that finds the log trimmed past it fetches a snapshot without being started again.

    It does so also if the servers are electing a leader meanwhile (10008), or do not answer at first.
    """
    monkeypatch.setattr("holdfast.engines.cluster.log.LACKING_SECONDS", 0.2)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("old", 1)
    await at_one_place([one, other])
    engine = engine_of(other)
    shard = engine._shards[0]
    shard._following.cancel()  # type: ignore[union-attr]
    await asyncio.gather(shard._following, return_exceptions=True)  # type: ignore[arg-type]
    await engine.answers.close()
    for subscription in list(engine._connection._subscriptions.values()):
        if ".node." in subscription.subject:
            subscription.cancel()
    for _ in range(3):
        await _fill(one, 10)
        await operator.snapshot(seconds=20)
    api, refusals = JetStream.api, [ApiRefusal(Fault(10008)), TimeoutError(), ApiRefusal(Fault(10008))]

    async def electing(self: JetStream, call: str, *given: Any, seconds: float) -> Any:
        if "MSG.GET" in call and refusals:
            raise refusals.pop()
        return await api(self, call, *given, seconds=seconds)

    monkeypatch.setattr(JetStream, "api", electing)
    monkeypatch.setattr("holdfast.engines.cluster.shard.RETRY_SECONDS", 0.1)
    shard._following = asyncio.create_task(shard._follow())
    await at_one_place([one, other])
    assert refusals == []
    async with asyncio.timeout(60):
        while shard._halted is not None:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)
    assert await other.kv("trivia").get("key-9") is not None


async def test_a_node_far_behind_takes_a_snapshot_instead_of_many_messages(
    nodes: Nodes, operator: ClusterOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many messages are not applied one by one if a snapshot has them."""
    one = await nodes.open(1)
    await _fill(one, 10)
    await operator.snapshot(seconds=20)
    taken: list[Path] = []
    replace = snapshots.replace_file

    def note(path: Path, new: Path) -> None:
        taken.append(path)
        replace(path, new)

    monkeypatch.setattr(snapshots, "replace_file", note)
    await nodes.open(2)
    assert taken == []
    monkeypatch.setattr(snapshots, "FAR", 5)
    await nodes.open(3)
    assert [path.parent.name for path in taken] == ["3"]


async def test_a_damaged_snapshot_is_refused(
    nodes: Nodes, operator: ClusterOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not what was stored is never installed."""
    one = await nodes.open(1)
    await _fill(one, 10)
    await operator.snapshot(seconds=20)
    monkeypatch.setattr(snapshots, "FAR", 5)
    notes = Snapshots.notes

    async def forged(self: Snapshots, shard: int) -> Any:
        return [msgspec.structs.replace(note, sha256="0" * 64) for note in await notes(self, shard)]

    monkeypatch.setattr(Snapshots, "notes", forged)
    with pytest.raises(DatabaseError, match="is damaged"):
        await nodes.open(2)
    assert not (nodes.folder / "2" / "shard-0.db").exists()


async def test_snapshots_are_made_as_the_log_grows(
    nodes: Nodes, operator: ClusterOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that holds the lease makes a snapshot after so many messages."""
    monkeypatch.setattr(snapshots, "LOOK_SECONDS", 0.05)
    one = await nodes.open(1, snapshot_every=5)
    await _fill(one, 10)
    async with asyncio.timeout(60):
        while not (await operator.status()).snapshots:
            await one.kv("trivia").get("key-1")  # keeps the lease


async def test_a_start_removes_the_limit_of_an_unfinished_trim(
    nodes: Nodes, operator: ClusterOperator
) -> None:
    """A node that died while it trimmed the log leaves a limit, which the next start removes."""
    one = await nodes.open(1)
    await _fill(one, 5)
    jetstream, stream = engine_of(one)._jetstream, f"HF_{nodes.name}"
    told = await jetstream.api(f"STREAM.INFO.{stream}", seconds=5)
    await jetstream.api(f"STREAM.UPDATE.{stream}", {**told["config"], log.LIMIT: 100}, seconds=5)
    await one.aclose()
    shutil.rmtree(nodes.folder / "1")
    again = await nodes.open(1)
    told = await engine_of(again)._jetstream.api(f"STREAM.INFO.{stream}", seconds=5)
    assert told["config"][log.LIMIT] == -1


async def test_a_snapshot_without_a_connection_can_be_made_later(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A node that has lost NATS says that no snapshot was stored, so that it goes on making them."""
    engine = engine_of(await nodes.open(1))
    (tmp_path / "copy").write_bytes(b"rows")
    monkeypatch.setattr(engine._connection, "send", lambda *_, **__: False)
    with pytest.raises(Unavailable, match="could not be stored: there is no connection"):
        await engine._snapshots.store(tmp_path / "copy", shard=0, seq=1, node="n")
