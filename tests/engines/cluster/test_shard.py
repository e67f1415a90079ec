"""A shard: what is decided again, what is not, and when a node may answer at all."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import rules, seams
from holdfast.commands import Get, Set
from holdfast.engine import LATER
from holdfast.engine.raw import UNFINISHED
from holdfast.engines.cluster import forwarding, log, snapshots
from holdfast.engines.cluster import shard as shard_module
from holdfast.engines.cluster.lease import ShardLease
from holdfast.engines.cluster.messages import ForwardedName, LogPlace
from holdfast.engines.cluster.replica import LogGap
from holdfast.engines.cluster.write_queue import NOTHING
from holdfast.engines.sqlite.writer import Writer
from holdfast.errors import (
    DatabaseError,
    InternalError,
    OutcomeUnknown,
    StorageFull,
    TooExpensive,
    Unavailable,
    VersionConflict,
)
from holdfast.rows import KV, Address
from tests.cluster import at_one_place, engine_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engines.cluster.shard import Shard
    from holdfast.store import Store
    from tests.cluster import Nodes


def shard_of(store: Store) -> Shard:
    """The only shard of a node."""
    [shard] = engine_of(store)._shards
    return shard


async def value_of(store: Store, key: str) -> Any:
    """What a node answers for a key."""
    entry = await store.kv("trivia").get(key)
    return None if entry is None else entry.value


async def stop_following(shard: Shard) -> None:
    """Have a node hear nothing of the log."""
    assert shard._following is not None
    shard._following.cancel()
    await asyncio.gather(shard._following, return_exceptions=True)
    shard._following = None  # one that is cancelled is begun anew


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it looks at tells nobody
            await asyncio.sleep(0.01)


def follow_past_a_gap(shard: Shard, monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> None:
    """Have a node follow a log that was trimmed past its replica, which it finds so many times."""
    run, missing = shard.follower.run, [True] * times

    async def trimmed() -> None:
        if missing:
            missing.pop()
            raise LogGap("the log was trimmed")
        await run()

    monkeypatch.setattr(shard.follower, "run", trimmed)
    shard._following = asyncio.create_task(shard._follow())


def fail_to_open(shard: Shard, monkeypatch: pytest.MonkeyPatch, errors: list[Exception]) -> None:
    """Have the file of a shard fail with each of these errors in turn when it is opened again."""
    new = shard.replica._new_file

    def new_file() -> Any:
        file = new()
        ready = file.ready

        async def failing() -> None:
            await ready()
            if errors:
                raise errors.pop(0)

        monkeypatch.setattr(file, "ready", failing)
        return file

    monkeypatch.setattr(shard.replica, "_new_file", new_file)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a sender look often whether the other node still writes."""
    monkeypatch.setattr(forwarding, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "LAST_SECONDS", 0.05)


@pytest.mark.usefixtures("hurried")
async def test_a_forwarded_group_that_lost_its_place_is_left_to_its_sender(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that finds another message in the place of a forwarded group does not decide the group again.

    Its sender, which got no reply, has stored a message there and has written the group itself.
    """
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])
    jetstream, sent, go_on = engine_of(one)._jetstream, asyncio.Event(), asyncio.Event()
    publish = jetstream.publish

    async def held_up(subject: str, parts: Any, *, seconds: float) -> Any:
        if "Hf-Forwarded" in parts[0][0] and not go_on.is_set():
            sent.set()
            await go_on.wait()
        return await publish(subject, parts, seconds=seconds)

    monkeypatch.setattr(jetstream, "publish", held_up)
    adding = asyncio.create_task(other.kv("trivia").incr("sum"))
    await sent.wait()
    lease = shard_of(other).lease
    lease._foreign = lease._keep_off = 0.0  # as if the other node had been silent for long
    assert (await adding).value == 2
    go_on.set()
    await asyncio.gather(*shard_of(one).forwarding._tasks)
    await at_one_place([one, other])
    assert await value_of(one, "sum") == 2


@pytest.mark.usefixtures("hurried")
async def test_a_forwarded_group_that_came_with_a_snapshot_is_not_done_twice(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose replica was replaced has not seen the messages in between, which may hold its group."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").incr("sum")
    await at_one_place([one, other])
    shard, writer, writes = shard_of(other), shard_of(one), True
    monkeypatch.setattr(ShardLease, "shared", property(lambda lease: writes))
    await stop_following(shard)
    writer.forwarding._reply = lambda inbox, data: None  # type: ignore[method-assign]
    adding = asyncio.create_task(other.kv("trivia").incr("sum"))
    await writer.replica.reach(writer.replica.at.seq + 1)
    await one.kv("trivia").set("later", 1)
    await engine_of(one).answers._maker.make([writer])
    monkeypatch.setattr(snapshots, "FAR", 0)
    assert await shard._renewed(LogGap("the log was trimmed"))
    shard._following = asyncio.create_task(shard._follow())
    await one.kv("trivia").set("later", 2)
    await at_one_place([one, other])
    writes = False
    with pytest.raises(OutcomeUnknown, match="the write is in the log"):
        await adding
    assert await value_of(other, "sum") == 2


async def test_a_replica_that_was_replaced_takes_no_group_from_before(nodes: Nodes) -> None:
    """A group may have been written by its sender in the part of the log that a node has skipped."""
    shard = shard_of(await nodes.open(1))
    shard.forwarding.skipped(7)
    with pytest.raises(forwarding.Moved):
        shard.forwarding.require([ForwardedName("a", 7), ForwardedName("b", 6)])
    shard.forwarding.skipped(3)
    with pytest.raises(forwarding.Moved):
        shard.forwarding.require([ForwardedName("b", 6)])
    shard.forwarding.require([ForwardedName("a", 7)])


async def test_a_forwarded_group_is_never_stored_in_halves(nodes: Nodes) -> None:
    """If its second half failed, its sender would do the whole again, the half that is stored too."""
    store = await nodes.open(1)
    shard, verbs = shard_of(store), store.kv("trivia").verbs
    commands = [verbs.command(Set, key=f"key-{number}", value="x" * 40_000) for number in range(2)]
    with pytest.raises(forwarding.Moved):
        await shard._commit(commands, store.now, False, [ForwardedName("a", shard.replica.at.seq)])
    assert (await store.kv("trivia").list()).keys == []
    await shard._commit(commands, store.now, False)
    assert (await store.kv("trivia").list()).keys == ["key-0", "key-1"]


@pytest.mark.parametrize("how", ["suspended", "halted"])
async def test_a_node_that_does_not_serve_shows_nothing(nodes: Nodes, how: str) -> None:
    """A node whose clock or log is wrong answers nothing from its file, although its lease still ran."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, address = shard_of(store), Address("kv/trivia", KV, "key")
    assert shard.reads.glance([address], 0) is not LATER
    if how == "suspended":
        shard.suspend(Unavailable("its clock is wrong"))
    else:
        shard._halt(DatabaseError("its log is wrong"))
    assert shard.reads.glance([address], 0) is LATER
    with pytest.raises((Unavailable, DatabaseError), match="is wrong"):
        await store.kv("trivia").get("key")


async def test_a_node_that_could_not_save_the_log_is_unavailable(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests to a node whose file has failed in the middle of a commit are refused as UNAVAILABLE."""
    one, other = await nodes.open(1), await nodes.open(2)
    shard = shard_of(other)

    async def fail(*_: object, **__: object) -> None:
        raise OutcomeUnknown("the commit failed half way")

    monkeypatch.setattr(shard.replica.file, "save", fail)
    await one.kv("trivia").set("key", 1)
    assert shard._following is not None
    await shard._following
    for call in (other.kv("trivia").get("key"), other.kv("trivia").set("key", 2)):
        with pytest.raises(Unavailable, match="restart it: the commit failed half way"):
            await call
    assert await value_of(one, "key") == 1


async def test_a_node_that_starts_again_waits_for_the_lease_of_the_last_writer(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a node whose file has the whole log keeps off until the lease of its last message has ended."""
    one, other = await nodes.open(1), await nodes.open(2)
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    await other.aclose()
    again = await nodes.open(2)
    assert shard_of(again).replica.at == shard_of(one).replica.at
    assert shard_of(again).lease.wait > 30


async def test_a_node_whose_replica_is_replaced_answers_nothing_meanwhile(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the old file shows may be older than what others have acknowledged, lease or not."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, held = shard_of(store), []
    await stop_following(shard)

    async def install() -> bool:
        held.append(shard.lease.held())
        with pytest.raises(Unavailable, match="is fetching a snapshot"):
            shard.require()
        return True

    monkeypatch.setattr(shard.replica, "_install", install)
    assert shard.lease.held()
    assert await shard._renewed(LogGap("the log was trimmed"))
    assert held == [False]


async def test_a_snapshot_that_can_not_be_written_is_fetched_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose disk is full while it fetches a snapshot says so, and goes on once there is room."""
    monkeypatch.setattr(shard_module, "RETRY_SECONDS", 0.02)
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, room = shard_of(store), asyncio.Event()
    await stop_following(shard)
    install = shard.replica._install

    async def full() -> bool:
        if room.is_set():
            return await install()
        raise OSError(errno.ENOSPC, "No space left on device", "shard-0.db.fetched")

    monkeypatch.setattr(shard.replica, "_install", full)
    follow_past_a_gap(shard, monkeypatch)
    await until(lambda: shard._halted is not None and "no space" in shard._halted.message)
    with pytest.raises(Unavailable, match=r"needs a snapshot of shard 0 of .*: no space left on device"):
        await value_of(store, "key")
    room.set()
    await until(lambda: shard._halted is None)
    assert await value_of(store, "key") == 1


@pytest.mark.parametrize("newer", [False, True])
async def test_a_replica_that_could_not_be_opened_again_is_opened_later(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, newer: bool
) -> None:
    """A node whose file can't be opened for a while goes on from it, be it the old one or a snapshot."""
    monkeypatch.setattr(shard_module, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(snapshots, "FAR", 0)
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    shard = shard_of(other)
    await stop_following(shard)
    place = shard.replica.at.seq
    await one.kv("trivia").set("key", 2)
    if newer:
        [note], _ = await engine_of(one).answers._maker.make([shard_of(one)])
        place = note.seq
    errors = [OSError(errno.EMFILE, "Too many open files"), Unavailable("its volume is gone")]
    skipped: list[int] = []
    fail_to_open(shard, monkeypatch, errors)
    monkeypatch.setattr(shard.forwarding, "skipped", skipped.append)
    follow_past_a_gap(shard, monkeypatch)
    await until(lambda: not errors and shard._halted is None)
    await at_one_place([one, other])
    async with asyncio.timeout(20):
        assert await value_of(other, "key") == 2
        await other.kv("trivia").set("key", 3)
    assert shard._halted is None
    assert skipped == [place]


async def test_a_message_for_a_closed_file_is_fetched_later(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that was under way when the file could not be opened again does not wait for ever."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    await stop_following(shard)
    at = shard.replica.at
    fail_to_open(shard, monkeypatch, [OSError(errno.EMFILE, "Too many open files")])
    with pytest.raises((Unavailable, OSError), match=r"(?i)too many open files"):
        await shard.replica.renew()
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match="is not open"):
            await shard.replica.apply(LogPlace(at.seq + 1, "next"), NOTHING)
    assert await shard.replica.reopen()
    assert (shard.replica.at, await shard.replica.reopen()) == (at, False)
    shard._following = asyncio.create_task(shard._follow())


async def test_a_defect_while_a_snapshot_is_fetched_is_reported(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that can't go on says that it has failed, instead of fetching a snapshot for ever."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    await stop_following(shard)

    async def broken() -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(shard.replica, "_install", broken)
    follow_past_a_gap(shard, monkeypatch)
    assert shard._following is not None
    async with asyncio.timeout(20):
        await shard._following
    with pytest.raises(InternalError, match="failed to fetch a snapshot"):
        await value_of(store, "key")


async def test_a_refusal_is_true_of_the_latest_state(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that was refused on rows which have changed meanwhile is decided again."""
    monkeypatch.setattr("holdfast.engines.cluster.shard.LEASE_MS", 60_000)
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    decide, decided = shard.replica.file.decide, []

    async def while_another_message_comes(commands: Any, now: Any) -> Any:
        outcome = await decide(commands, now)
        decided.append(outcome.results)
        if len(decided) == 1:
            await shard.put()  # as one that was sent without a decision
        return outcome

    monkeypatch.setattr(shard.replica.file, "decide", while_another_message_comes)
    with pytest.raises(VersionConflict):
        await store.kv("trivia").set("key", 2, expected_version=7)
    assert len(decided) == 2


def deliver_late(shard: Shard) -> asyncio.Event:
    """Have a node receive nothing of the log until an event is set."""
    take, go_on = shard.follower._take, asyncio.Event()

    async def late(entry: Any) -> bool:
        await go_on.wait()
        return await take(entry)

    shard.follower._take = late
    return go_on


async def test_a_store_that_was_opened_again_refuses_no_write(nodes: Nodes) -> None:
    """A node that has not heard yet that a store accepts writes again makes sure before it refuses one."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await engine_of(one).close_to_writes("for a moment", instead_of=None)
    await at_one_place([one, other])
    with pytest.raises(Unavailable, match="accepts no writes: for a moment"):
        await other.kv("trivia").set("key", 0)
    await at_one_place([one, other])
    go_on, shard = deliver_late(shard_of(other)), shard_of(other)
    await engine_of(one).close_to_writes(None, instead_of="for a moment")
    await one.kv("trivia").set("key", 2)
    shard.lease._foreign = shard.lease._keep_off = 0.0  # as if the other node had been silent for long
    shard.lease.give_up()
    asyncio.get_running_loop().call_later(0.3, go_on.set)
    assert (await other.kv("trivia").set("key", 3)).version > 2
    assert await value_of(one, "key") == 3


async def test_what_would_not_cost_too_much_any_more_is_done(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is refused for its cost on the rows that there are, not on those that a late node knows."""
    monkeypatch.setattr(rules, "MAX_LOADED_BYTES", 30_000)
    one, other = await nodes.open(1), await nodes.open(2)
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        await one.kv("trivia").set(key, "x" * 3000)
    await at_one_place([one, other])
    shard, adding = shard_of(other), [{"key": key, "incr": 1} for key in keys]
    lease = shard.lease
    lease._foreign = lease._keep_off = 0.0  # as if the other node had been silent for long
    with pytest.raises(TooExpensive):
        await other.kv("trivia").batch(checks=[], writes=adding)
    await at_one_place([one, other])
    go_on = deliver_late(shard)
    for key in keys:
        await one.kv("trivia").set(key, 1)
    lease._foreign = lease._keep_off = 0.0
    lease.give_up()
    asyncio.get_running_loop().call_later(0.3, go_on.set)
    await other.kv("trivia").batch(checks=[], writes=adding)
    assert [await value_of(other, key) for key in keys] == [2] * len(keys)


@pytest.mark.parametrize("error", [DatabaseError("it is broken"), StorageFull("it is full")])
async def test_an_error_of_the_file_is_no_refusal(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A node whose file fails says so at once, and writes nothing to the log to make sure of it."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(shard.replica.file, "decide", fail)
    shard.lease.give_up()
    at = shard.replica.at
    with pytest.raises(type(error), match="it is"):
        await shard.queue.take([Get(namespace="kv/trivia", key="key")], lambda: 0)
    assert shard.replica.at == at


async def test_an_error_on_rows_that_were_changing_is_no_answer(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may fail a decision because the log is changing it. The group is decided again."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, failed = shard_of(store), False
    decide = shard.replica.file.decide

    async def fail_once(commands: Any, now: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            await shard.put()  # a message that was sent without a decision
            raise DatabaseError("the file was changing")
        return await decide(commands, now)

    monkeypatch.setattr(shard.replica.file, "decide", fail_once)
    assert (await store.kv("trivia").incr("key")).value == 2
    assert failed


async def test_a_write_that_could_not_be_saved_is_fetched_from_the_log(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller is told that it may be there, the node answers nothing old, and follows the log at once."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    apply, restarts = shard.replica.apply, []
    restart = shard.follower.restart

    async def full(*given: Any, **named: Any) -> None:
        raise StorageFull("the disk is full")

    def noted() -> None:
        restarts.append(shard.lease.held())
        monkeypatch.setattr(shard.replica, "apply", apply)
        restart()

    monkeypatch.setattr(shard.replica, "apply", full)
    monkeypatch.setattr(shard.follower, "restart", noted)
    take = shard.follower._take

    async def not_brought(entry: Any) -> bool:
        return bool(restarts) and await take(entry)

    shard.follower._take = not_brought
    with pytest.raises(OutcomeUnknown, match="the disk is full"):
        await store.kv("trivia").set("key", 2)
    assert restarts == [False]
    async with asyncio.timeout(60):
        assert await value_of(store, "key") == 2


async def test_a_read_that_outlasts_the_lease_is_repeated(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a slow look into the file found may be old by the time it ends, so the node makes sure first."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, looks = shard_of(store), []

    async def look() -> int:
        looks.append(shard.replica.at.seq)
        if len(looks) == 1:
            shard.lease.give_up()
        return len(looks)

    shard.lease.grant(seams.ticks(), milliseconds=60_000)
    assert await shard.reads.fresh(look) == 2
    assert len(looks) == 2


async def test_a_node_goes_on_after_its_program_has_cancelled_all_its_tasks(nodes: Nodes) -> None:
    """Tasks that follow the log or ask for others are begun anew, and no reader gets their cancellation."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    asked = asyncio.create_task(value_of(other, "key"))
    while shard_of(other).reads._queued is None:  # noqa: ASYNC110 - it tells no one
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert asked.cancelled()
    async with asyncio.timeout(30):
        assert await value_of(other, "key") == 1
        await one.kv("trivia").set("key", 2)
        assert await value_of(other, "key") == 2
        await other.kv("trivia").set("key", 3)
        assert await value_of(one, "key") == 3


async def test_a_message_whose_save_was_cancelled_is_applied_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on with a save whose task a program has cancelled. What follows is decided after it."""
    at_work, goes_on, attempt = threading.Event(), threading.Event(), Writer._attempt
    store = await nodes.open(1)
    kv, shard = store.kv("trivia"), shard_of(store)
    await kv.incr("sum")

    def wait(writer: Writer, *given: Any, **more: Any) -> Any:
        at_work.set()
        assert goes_on.wait(60)
        return attempt(writer, *given, **more)

    with monkeypatch.context() as slow:
        slow.setattr(Writer, "_attempt", wait)
        asyncio.get_running_loop().create_task(kv.incr("sum"))
        assert await asyncio.to_thread(at_work.wait, 60)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert store.pipeline.glance([("kv/trivia", "sum")])  # a row from before is kept
        goes_on.set()
    async with asyncio.timeout(30):
        assert (await kv.incr("sum")).value == 3
        assert [change.version for change in (await kv.changes(0)).changes] == [1, 2, 3]
    assert shard._halted is None


async def test_a_look_that_a_load_has_begun_behind_is_not_shown(nodes: Nodes) -> None:
    """Nobody is shown a part of a load, also a reader who came before it was under way."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])

    async def look() -> int:
        await engine_of(one).close_to_writes(f"{UNFINISHED}: run it again", instead_of=None)
        await at_one_place([one, other])
        shard_of(other).lease._keep_off = 0.0  # as after a message that grants no lease
        return 1

    with pytest.raises(Unavailable, match="can't be used yet"):
        await shard_of(other).reads.fresh(look)


async def test_a_node_takes_no_lease_on_a_store_that_is_being_loaded(nodes: Nodes) -> None:
    """With a lease it would answer from its file at once. An operator may have it write meanwhile."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    await engine_of(store).close_to_writes(f"{UNFINISHED}: run it again", instead_of=None)
    shard.lease.give_up()  # as the message of a node that loads does
    await shard.put(check="nobody")
    with pytest.raises(Unavailable, match="can't be used yet"):
        await value_of(store, "key")


@pytest.mark.parametrize("milliseconds", [0, 60_000])
async def test_a_message_that_is_saved_late_does_not_end_the_lease_of_the_next_one(
    nodes: Nodes, milliseconds: int
) -> None:
    """A node may receive the next message before its own is saved. It holds no lease then, and keeps off."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard = shard_of(store)
    place = shard.replica.at

    async def save() -> None:
        shard.lease.see(place.seq + 1, 50_000, wrote=True)
        shard._handover.wanted = True

    await shard._saved(place, save, seams.ticks(), milliseconds)
    assert not shard.lease.held()
    assert shard.lease.wait > 40
    shard.lease._keep_off = 0.0  # so that the store closes


async def test_a_writer_that_has_waited_looks_again_whether_its_node_follows(nodes: Nodes) -> None:
    """A node whose replica is replaced meanwhile does not know yet who holds the lease."""
    shard = shard_of(await nodes.open(1))
    shard.lease._keep_off = seams.ticks() + 60
    turn = asyncio.create_task(shard._turn())
    await asyncio.sleep(0.01)
    shard._halted = Unavailable("this node is fetching a snapshot")
    shard.lease._keep_off = 0.0
    shard.replica.moved.set()
    with pytest.raises(Unavailable, match="fetching a snapshot"):
        await turn


async def test_a_log_that_was_short_twice_halts_no_node(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that have just started may not know all of the log. It was there in between."""
    monkeypatch.setattr(log, "LACKING_SECONDS", 0.3)
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    shard, jetstream = shard_of(store), engine_of(store)._jetstream
    consume, short = jetstream.consume, [0]

    async def consumed(*given: Any, **more: Any) -> int:
        if short[0]:
            short[0] -= 1
            return 0
        return await consume(*given, **more)

    monkeypatch.setattr(jetstream, "consume", consumed)
    for _ in range(2):
        short[0] = 1
        shard.follower.restart()
        async with asyncio.timeout(30):
            while short[0]:  # noqa: ASYNC110 - the follower tells no one
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.6)
    assert shard._halted is None
    assert (await store.kv("trivia").set("key", 2)).value == 2


async def test_a_message_in_doubt_that_comes_with_a_snapshot_is_not_decided_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node can't know whether what the snapshot has is its own write, so the outcome is unknown."""
    one, other = await nodes.open(1, timeout=60), await nodes.open(2)
    await one.kv("trivia").set("key", "x")
    await at_one_place([one, other])
    monkeypatch.setattr(snapshots, "FAR", 0)
    shard, jetstream = shard_of(one), engine_of(one)._jetstream
    publish, attempts = jetstream.publish, []

    async def without_an_answer(subject: str, parts: Any, *, seconds: float) -> Any:
        if not subject.endswith("log.0"):
            return await publish(subject, parts, seconds=seconds)
        attempts.append(subject)
        if len(attempts) > 1:
            return await publish(subject, parts, seconds=seconds)
        await stop_following(shard)
        ack = await publish(subject, parts, seconds=seconds)  # it is stored, and the answer is lost
        await shard_of(other).replica.reach(ack.seq)
        await engine_of(other).answers._maker.make([shard_of(other)])
        assert await shard._renewed(LogGap("the log was trimmed"))
        shard._following = asyncio.create_task(shard._follow())
        raise TimeoutError

    monkeypatch.setattr(jetstream, "publish", without_an_answer)
    with pytest.raises(OutcomeUnknown, match="snapshot"):
        await one.kv("trivia").set("key", "y", expected_version=1)
    assert await value_of(one, "key") == "y"
