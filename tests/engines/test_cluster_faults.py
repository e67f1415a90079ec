"""Faults between a node and its log: lost answers and deliveries, leases at their limits, forged messages."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from holdfast import seams
from holdfast.bus.protocol import block
from holdfast.decide import Outcome
from holdfast.engine import LATER
from holdfast.engines.cluster import lease, log, messages, servers
from holdfast.engines.cluster import shard as shard_module
from holdfast.engines.cluster.jetstream import WRONG_SEQUENCE, Ack, Fault
from holdfast.engines.cluster.lease import LEASE_MS
from holdfast.engines.cluster.messages import LogPlace
from holdfast.engines.cluster.servers import require_version
from holdfast.engines.cluster.shard import ASK_SECONDS
from holdfast.engines.cluster.write_queue import no_time
from holdfast.errors import DatabaseError, OutcomeUnknown, Unavailable, Unsupported
from holdfast.rows import KV, Address, Namespace, Record, Row, Run
from tests.cluster import Nodes, at_one_place, engine_of, tables
from tests.jetstream import lasting_servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.engines.cluster.messages import Logged
    from holdfast.engines.cluster.shard import Shard
    from holdfast.store import Store
    from tests.jetstream import Servers


@pytest.fixture(scope="module")
def server() -> Iterator[Servers]:
    """A server with JetStream."""
    with lasting_servers(1) as servers:
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


def lose_answers(store: Store, monkeypatch: pytest.MonkeyPatch, *, count: int) -> list[float]:
    """Have the answers to the next messages of a node lost. Returns the times at which they were sent."""
    jetstream, sent = engine_of(store)._jetstream, []
    publish = jetstream.publish

    async def lossy(*given: Any, **more: Any) -> Any:
        sent.append(seams.ticks())
        answer = await publish(*given, **more)
        if len(sent) <= count:
            raise TimeoutError
        return answer

    monkeypatch.setattr(jetstream, "publish", lossy)
    return sent


async def test_a_write_whose_answer_is_lost_is_done_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was stored without an answer is found in the log, not decided a second time."""
    store = await nodes.open(1)
    await store.kv("trivia").incr("sum")
    sent = lose_answers(store, monkeypatch, count=1)
    entry = await store.kv("trivia").incr("sum")
    assert (entry.value, entry.version) == (2, 2)
    assert len(sent) >= 1


async def test_a_lease_counts_from_the_first_attempt(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is sent twice grants no more time than one that is sent once."""
    store = await nodes.open(1)
    lease = shard_of(store).lease
    sent = lose_answers(store, monkeypatch, count=1)
    await store.kv("trivia").set("key", 1)
    assert lease._until <= sent[0] + LEASE_MS / 1000


async def test_no_other_node_writes_while_a_lease_runs(nodes: Nodes) -> None:
    """A node whose lease runs may answer from its file, so the others wait, even if it does not hear them."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    lease = shard_of(one).lease
    assert lease.held()
    shard_of(one).lease.leads = False  # it does not hear that another node wants to write
    await other.kv("trivia").set("key", 2)
    assert not lease.held()


async def test_a_lease_that_is_renewed_keeps_other_nodes_off(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that only renews a lease writes nothing, and grants as much time as any other."""
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    shard_of(other).lease._keep_off = 0.0  # the first lease is over
    await shard_of(one).queue.take((), no_time, force=True)
    await at_one_place([one, other])
    assert shard_of(other).lease.wait > 30


async def test_a_read_that_outlasts_the_lease_asks_for_the_end_of_the_log(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that was read while the lease ended may be an old one, so the node asks how far the log is."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, address = shard_of(store), Address("trivia", KV, "key")
    file = shard.replica.file
    assert engine_of(store).glance([address], 0) is not LATER
    look = file.glance

    def slow(addresses: Any, now: int) -> Any:
        found = look(addresses, now)
        shard.lease.give_up()
        return found

    monkeypatch.setattr(file, "glance", slow)
    assert engine_of(store).glance([address], 0) is LATER


async def test_a_server_that_lost_the_log_is_asked_to_let_another_one_lead(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that refuses all messages, since it lacks earlier ones, does not stop the cluster for good."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    jetstream = engine_of(store)._jetstream
    asked: list[str] = []
    publish, api = jetstream.publish, jetstream.api

    async def forgetful(subject: str, parts: Any, *, seconds: float) -> Any:
        if asked:
            return await publish(subject, parts, seconds=seconds)
        return Ack(error=Fault(WRONG_SEQUENCE, "wrong last sequence: 0"))

    async def noted(call: str, body: Any = None, *, seconds: float) -> Any:
        if "STEPDOWN" in call:
            asked.append(call)
        return await api(call, body, seconds=seconds)

    monkeypatch.setattr(log, "LAGS_SECONDS", 0.2)
    monkeypatch.setattr(jetstream, "publish", forgetful)
    monkeypatch.setattr(jetstream, "api", noted)
    assert (await store.kv("trivia").set("key", 2)).version == 2
    assert asked == [f"STREAM.LEADER.STEPDOWN.{engine_of(store)._address.stream}"]
    assert "has 0 as its last message, and this node has" in caplog.text


@pytest.mark.parametrize("saving", [False, True])
async def test_a_message_is_not_shown_before_its_writer_shows_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, saving: bool
) -> None:
    """A reader that has a message before its writer knows of it does not show it before the writer does.

    The file may show it before the node has taken note that it is saved.
    """
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    stopped = SimpleNamespace(ticks=partial(float, seams.ticks()))
    monkeypatch.setattr(lease, "seams", stopped)  # the lease does not end
    writer, reader = shard_of(one), shard_of(other)
    await reader.replica.reach(writer.replica.at.seq)
    writer_goes_on, saved, reader_goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    apply, save = writer.replica.apply, reader.replica.file.save

    async def held_up(*given: Any, **named: Any) -> None:
        await writer_goes_on.wait()
        await apply(*given, **named)

    async def noted_late(*given: Any, **named: Any) -> None:
        await save(*given, **named)
        saved.set()
        if saving:
            await reader_goes_on.wait()

    monkeypatch.setattr(writer.replica, "apply", held_up)
    monkeypatch.setattr(reader.replica.file, "save", noted_late)
    write = asyncio.create_task(one.kv("trivia").set("key", 2))
    try:
        await saved.wait()
        get = asyncio.create_task(other.kv("trivia").get("key"))
        await asyncio.wait([get], timeout=3 * ASK_SECONDS)
        assert not get.done()
        [old] = cast("list[Row]", engine_of(one).glance([Address("trivia", KV, "key")], 0))
        assert old.version == 1
    finally:
        writer_goes_on.set()
        reader_goes_on.set()
    assert await get == await write


async def test_a_new_node_waits_for_the_lease_in_the_last_message(nodes: Nodes) -> None:
    """The last message of the log keeps a new node off as well, although it was sent before that started."""
    one = await nodes.open(1)
    await one.kv("trivia").set("key", 1)
    lease = shard_of(one).lease
    shard_of(one).lease.leads = False
    other = await nodes.open(2)
    await other.kv("trivia").set("key", 2)
    assert not lease.held()


async def test_a_node_that_hands_over_its_lease_stops_answering_from_its_file(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the moment at which a message is sent that lets others write, its sender has no lease."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    shard, jetstream, held = shard_of(one), engine_of(one)._jetstream, []
    publish = jetstream.publish

    async def watched(subject: str, parts: Any, *, seconds: float) -> Any:
        if parts[0][0]["Hf-Lease"] == "0":
            held.append(shard.lease.held())
        return await publish(subject, parts, seconds=seconds)

    monkeypatch.setattr(jetstream, "publish", watched)
    shard.forwarding._own_until = 0.0  # it does not take the write of the other
    await other.kv("trivia").set("key", 2)
    assert held == [False]


async def test_a_message_without_a_lease_ends_the_lease_before_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message without a lease ends the one of the message before it, also if that is answered only then.

    The log may bring a message to its writer before the acknowledgement comes. Whatever the node sends next
    follows that message.
    """
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, jetstream, held = shard_of(store), engine_of(store)._jetstream, []
    stopped = SimpleNamespace(ticks=partial(float, seams.ticks()))
    monkeypatch.setattr(lease, "seams", stopped)  # the lease does not end
    assert shard.lease.held()
    publish, acknowledged = jetstream.publish, asyncio.Event()

    async def answered_late(subject: str, parts: Any, *, seconds: float) -> Any:
        if parts[0][0]["Hf-Lease"] == "0":
            held.append(shard.lease.held())
        answer = await publish(subject, parts, seconds=seconds)
        await acknowledged.wait()
        return answer

    monkeypatch.setattr(jetstream, "publish", answered_late)
    before = shard.replica.at.seq
    put = asyncio.create_task(shard.put())
    await shard.replica.reach(before + 1)
    assert not put.done()
    shard._handover.release()  # another node wants to write
    for _ in range(20):
        await asyncio.sleep(0)
    acknowledged.set()
    await put
    await shard.queue.close()
    assert shard.replica.at.seq == before + 2
    assert held == [False]
    assert not shard.lease.held()


async def test_a_node_that_must_not_serve_gets_no_lease(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is acknowledged after its node was told to stop serving does not let it answer again."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, jetstream = shard_of(store), engine_of(store)._jetstream
    publish = jetstream.publish

    async def told_meanwhile(*given: Any, **named: Any) -> Any:
        answer = await publish(*given, **named)
        shard.suspend(Unavailable("its clock is wrong"))
        return answer

    monkeypatch.setattr(jetstream, "publish", told_meanwhile)
    await shard.put()
    assert not shard.lease.held()
    assert engine_of(store).glance([Address("kv/trivia", KV, "key")], 0) is LATER


async def test_a_delivery_that_is_lost_is_fetched_again(nodes: Nodes) -> None:
    """A replica that finds a gap reads the log again from where it is."""
    one, other = await nodes.open(1), await nodes.open(2)
    follower = shard_of(other).follower
    lost: list[LogPlace] = []
    take = follower._take

    async def leaky(entry: Logged) -> bool:
        if not lost:
            lost.append(entry.place)
            return True
        return await take(entry)

    follower._take = leaky
    await one.kv("trivia").set("a", 1)
    await one.kv("trivia").set("b", 2)
    await at_one_place([one, other])
    assert (await other.kv("trivia").list()).keys == ["a", "b"]
    assert len(lost) == 1


async def _forge(store: Store, payload: bytes, *, previous: str | None = None) -> str:
    """Append a message that no node wrote, on top of the last one. Returns its place."""
    engine, shard = engine_of(store), shard_of(store)
    base = shard.replica.at
    head = {
        "Nats-Expected-Last-Subject-Sequence": str(base.seq),
        "Nats-Msg-Id": "forged",
        "Hf-Prev": base.id if previous is None else previous,
    }
    subject = engine._address.subject("log", 0)
    reply = await engine._requests.ask(subject, payload, seconds=5, head=block(head))
    return f"{msgspec.json.decode(reply.data)['seq']} (forged)"


async def _refusal(store: Store) -> DatabaseError | Unavailable:
    """The error with which a node stops."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.kv("trivia").list()
            except (DatabaseError, Unavailable) as error:
                return error
            await asyncio.sleep(0.02)


async def test_a_message_with_another_predecessor_stops_the_node(nodes: Nodes) -> None:
    """A message that does not name the last one as its predecessor is not applied, and nothing after it."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    kept = shard_of(store).replica.at
    before = tables(nodes.folder / "1" / "shard-0.db")
    forged = await _forge(store, b"", previous="another")
    error = await _refusal(store)
    assert isinstance(error, DatabaseError)
    assert str(kept) in error.message
    assert forged in error.message
    with pytest.raises(DatabaseError):
        await store.kv("trivia").set("key", 2)
    with pytest.raises(DatabaseError):
        await store.ready()
    assert tables(nodes.folder / "1" / "shard-0.db") == before


async def test_a_message_of_a_newer_version_is_not_applied_in_part(nodes: Nodes) -> None:
    """A node that can't read the log says that it must be upgraded, and serves nothing old meanwhile."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    await _forge(store, msgspec.msgpack.encode([messages.FORMAT + 1, [], [], [], {}, []]))
    error = await _refusal(store)
    assert isinstance(error, Unavailable)
    assert "upgrade" in error.message


async def test_a_delivery_does_not_confirm_the_next_message(nodes: Nodes) -> None:
    """The delivery of a message that was answered tells nothing about the next one of the same node."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    replica = shard_of(store).replica
    replica.expect("next", Outcome(results=[], namespaces=[], rows={}, journal=[], trims={}), ())
    replica._delivered = replica.at  # the delivery of the message before, which came late
    assert replica.stored("next") is None
    replica._delivered = LogPlace(replica.at.seq + 1, "next")
    assert replica.stored("next") == replica._delivered


async def test_a_write_without_an_answer_is_outcome_unknown(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that gets no answer in time may be done; the one after it is refused for certain."""
    store = await nodes.open(1, timeout=1)
    await store.kv("trivia").set("key", 1)

    async def silent(*given: Any, **more: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr(engine_of(store)._jetstream, "publish", silent)
    with pytest.raises(OutcomeUnknown):
        await store.kv("trivia").set("key", 2)
    with pytest.raises(Unavailable):
        await store.kv("trivia").set("key", 3)
    with pytest.raises(Unavailable):
        await store.kv("trivia").get("key")
    monkeypatch.undo()
    await store.kv("trivia").set("key", 4)


def test_rows_records_and_counters_survive_the_log() -> None:
    """Rows, records and counters arrive as they were decided; a field that is added needs a new format."""
    row = Row(
        value="1", size=1, version=2, created_at=3, updated_at=4, expires_at=5, last_writer="w", data=b"d"
    )
    record = Record(namespace="n", version=2, op="set", key="k", at=4, detail="{}")
    outcome = Outcome(
        results=[],
        namespaces=[Namespace(name="n", revision=2, keys=1)],
        rows={Address("n", KV, "k"): row, Address("n", "trash", b"\x00k"): None},
        journal=[record],
        trims={"n": 1},
        runs=[Run(namespace="n", first=3, count=4, at=5, until=6)],
    )
    found = messages.decode_body(messages.encode_outcome(outcome))
    assert found.outcome() == outcome
    assert {type(row) for row in found.outcome().rows.values()} == {Row, type(None)}
    fields = [len(kind.__struct_fields__) for kind in (Row, Namespace, Record, Run)]
    assert (messages.FORMAT, fields) == (1, [11, 17, 11, 5])
    assert messages.decode_body(b"").outcome().empty
    for damaged in (b"\xff", messages.encode_outcome(outcome)[:-1]):
        with pytest.raises(messages.Unreadable):
            messages.decode_body(damaged)


@pytest.mark.parametrize("version", ["2.14.9", "2.9", "1.0.0", ""])
def test_a_server_before_2_15_is_refused(version: str) -> None:
    """Servers before 2.15 wait for the disk too often to be used, and the message says which is needed."""
    with pytest.raises(Unsupported, match=r"2\.15 or newer; the one at host1:4222 is"):
        require_version(version, "host1:4222")
    for enough in ("2.15.0", "2.15.1-beta", "3.0.0"):
        require_version(enough, "host1:4222")


async def test_a_silent_server_with_tls_counts_as_reachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server without TLS that does not greet is missing; one with TLS waits for the handshake."""
    monkeypatch.setattr(servers, "LOOK_SECONDS", 0.1)
    callers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: callers.append(writer), "127.0.0.1", 0)
    async with silent:
        where = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        assert await servers.missing([f"nats://{where}", f"tls://{where}"]) == [where]
        for caller in callers:
            caller.close()
            await caller.wait_closed()


@pytest.mark.parametrize("part", ["_confirmed", "_reached"])
async def test_reads_without_a_connection_do_not_block_the_loop(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A node that has lost NATS while another one holds the lease serves everything else meanwhile.

    A question that can't be sent fails at once. The reader asks again later, and not before other tasks ran.
    """
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    shard.lease.see(0, 60_000, wrote=False)  # another node may answer from its file
    asked, in_a_row = 0, 0

    def unsent(*_: Any, **__: Any) -> bool:
        nonlocal asked, in_a_row
        asked, in_a_row = asked + 1, in_a_row + 1
        if in_a_row > 10:
            raise AssertionError("the reader asks in a loop, and no other task gets a turn")
        return False

    async def others() -> None:
        nonlocal in_a_row
        while True:
            await asyncio.sleep(0)
            in_a_row = 0

    monkeypatch.setattr(engine_of(store)._connection, "send", unsent)
    monkeypatch.setattr(shard_module, "FOLLOW_SECONDS", 0.5)
    running = asyncio.create_task(others())
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            await (shard.reads._confirmed() if part == "_confirmed" else shard.reads._reached(10**6))
    finally:
        running.cancel()
        shard.lease.make_way()
    assert 1 <= asked <= 0.5 / shard_module.READ_PAUSE_SECONDS + 2
